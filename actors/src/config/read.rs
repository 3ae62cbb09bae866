//! The tree, section by section, into the types.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api;
use super::define::Settings;
use super::error::ConfigError;
use super::keys::{BOXES, Config, FILE};
use super::load::Setting;
use super::section::Section;
use super::shape::Shape;
use super::tree::Node;

/// Reads the whole configuration and notes each value in `log`.
pub(super) fn config<A>(root: &Node, log: &mut Vec<Setting>) -> Result<Config<A>, ConfigError>
where
    A: DeserializeOwned + Serialize + Default,
{
    let file = Section::open(String::new(), root, &root.origin, FILE)?;
    Ok(Config {
        model: table(&file, "model", log)?,
        boxes: BOXES.read(&file, "box", log)?,
        schedule: table(&file, "schedule", log)?,
        numerics: table(&file, "numerics", log)?,
        api: api::read(&file, log)?,
    })
}

/// The table `name` of `section`, there or not.
pub(super) fn table<T: Settings>(
    section: &Section<'_>,
    name: &'static str,
    log: &mut Vec<Setting>,
) -> Result<T, ConfigError> {
    T::read(&section.child(name, T::KEYS)?, log)
}
