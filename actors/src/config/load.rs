//! Loading a file, and printing what came out of it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{ConfigError, Origin, plain};
use super::keys::Config;
use super::tree::Node;
use super::{overrides, read};

/// A configuration and where its values came from. `A` is what `[api]` becomes.
#[derive(Clone, PartialEq, Debug)]
pub struct Loaded<A = toml::Table> {
    /// The checked values.
    pub config: Config<A>,
    /// Every value in the order of the sections; those of `[api]` as far as they are set, where `A` has no fields.
    pub origins: Vec<Setting>,
}

/// One value, for printing.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// The whole key, with dots; boxes and actors go by name: `box.main.actor.cpu.threads`.
    pub key: String,
    /// The value in force; `None`: not set.
    pub value: Option<toml::Value>,
    /// What it would be if nobody set it; `None`: it has no default.
    pub default: Option<toml::Value>,
    /// Who set it.
    pub origin: Origin,
}

/// Reads `path`, then the environment (`LUCE__A__B=value`), then `sets` (`a.b=value`); the later wins. `[api]` becomes an
/// `A`: its fields are the keys, `A::default()` has the defaults, and [`toml::Table`] takes any key.
///
/// # Errors
///
/// [`ConfigError`]: the first mistake found, with its place.
pub fn load<A>(path: &Path, sets: &[String]) -> Result<Loaded<A>, ConfigError>
where
    A: DeserializeOwned + Serialize + Default,
{
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { file: file.clone(), source })?;
    parse(&file, &text, std::env::vars_os(), sets)
}

/// [`load`] with the file's text and the environment given. `file` is the name that errors call it by.
///
/// # Errors
///
/// As [`load`].
pub fn parse<A>(
    file: &str,
    text: &str,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    sets: &[String],
) -> Result<Loaded<A>, ConfigError>
where
    A: DeserializeOwned + Serialize + Default,
{
    let mut root = Node::parse_file(file, text)?;
    overrides::apply(&mut root, environment, sets)?;
    let mut origins = Vec::new();
    let config = read::config(&root, &mut origins)?;
    Ok(Loaded { config, origins })
}

impl<A> Loaded<A> {
    /// One line for each value: `key = value  # origin; default`.
    pub fn print(&self) -> String {
        let lines: Vec<(String, String)> = self.origins.iter().map(Setting::line).collect();
        let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
        lines.iter().fold(String::new(), |mut out, (left, right)| {
            writeln!(out, "{left:width$}  # {right}").expect("writing to a string cannot fail");
            out
        })
    }
}

impl Setting {
    fn line(&self) -> (String, String) {
        let left = match &self.value {
            Some(value) => format!("{} = {value}", self.key),
            None => format!("{} is not set", self.key),
        };
        let right = match (&self.origin, &self.default) {
            (Origin::Default, _) => "default".to_owned(),
            (origin, Some(default)) => format!("{origin}; default {default}"),
            (origin, None) => format!("{origin}; no default"),
        };
        (plain(&left), plain(&right))
    }
}
