//! Shapes of values: how each is written in TOML, checked, and described to users. Here those of one string, number or
//! truth value; `compound` has the others.

use std::path::PathBuf;

use super::bytes;
use super::define::Key;
use super::error::ConfigError;
use super::load::Setting;
use super::section::Section;
use super::tree::{Node, Value};

/// What users are told about a key's values, in Markdown.
pub(super) struct Description {
    /// The TOML type.
    pub(super) kind: &'static str,
    pub(super) allowed: String,
    pub(super) default: String,
    /// The words it takes and their meaning.
    pub(super) words: Vec<(&'static str, &'static str)>,
    /// The keys of a table.
    pub(super) keys: &'static [Key],
    /// For an array of tables: what one of them is.
    pub(super) about: Option<&'static str>,
}

impl Description {
    pub(super) fn new(kind: &'static str, allowed: impl Into<String>, default: impl Into<String>) -> Description {
        let (allowed, default) = (allowed.into(), default.into());
        Description { kind, allowed, default, words: Vec::new(), keys: &[], about: None }
    }
}

/// A shape, described.
pub(super) trait Describe: Sync {
    fn describe(&self) -> Description;
}

/// A shape whose values become `T`.
pub(super) trait Shape<T>: Describe {
    /// Reads the key `name` of `section`, there or not, and notes its value in `log`.
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<T, ConfigError>;
}

/// What stands in place of a default where there is none.
pub(super) const REQUIRED: &str = "required";

/// A string that has to be there.
pub(super) struct Text {
    /// A line to add where it is missing.
    pub(super) example: &'static str,
}

impl Describe for Text {
    fn describe(&self) -> Description {
        Description::new("string", "not empty", REQUIRED)
    }
}

impl Shape<PathBuf> for Text {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<PathBuf, ConfigError> {
        let node = section.node(name).ok_or_else(|| section.missing(name, self.example))?;
        let text = section.string(name, node)?;
        section.note(log, name, Some(text.clone().into()), None);
        Ok(text.into())
    }
}

/// A string that may be missing, but not empty.
pub(super) struct OptionalText {
    /// What counts without it.
    pub(super) unset: &'static str,
}

impl Describe for OptionalText {
    fn describe(&self) -> Description {
        Description::new("string", "not empty", self.unset)
    }
}

impl Shape<Option<String>> for OptionalText {
    fn read(
        &self,
        section: &Section<'_>,
        name: &'static str,
        log: &mut Vec<Setting>,
    ) -> Result<Option<String>, ConfigError> {
        let text = section.node(name).map(|node| section.string(name, node)).transpose()?;
        section.note(log, name, text.clone().map(Into::into), None);
        Ok(text)
    }
}

/// A number of bytes, written with its unit.
pub(super) struct Size {
    /// What counts without it.
    pub(super) unset: &'static str,
}

impl Describe for Size {
    fn describe(&self) -> Description {
        let allowed = "a number and B, KiB, MiB, GiB or TiB: `\"512MiB\"`, `\"1.5GiB\"`";
        Description::new("string", allowed, self.unset)
    }
}

impl Shape<Option<u64>> for Size {
    fn read(
        &self,
        section: &Section<'_>,
        name: &'static str,
        log: &mut Vec<Setting>,
    ) -> Result<Option<u64>, ConfigError> {
        let text = OptionalText { unset: self.unset }.read(section, name, log)?;
        match (section.node(name), text) {
            (Some(node), Some(text)) => {
                bytes::parse(&text).map(Some).map_err(|message| section.wrong(name, node, message))
            }
            _ => Ok(None),
        }
    }
}

/// A number from `least` to `most`.
pub(super) struct Number {
    pub(super) default: u32,
    pub(super) least: u32,
    pub(super) most: u32,
}

impl Describe for Number {
    fn describe(&self) -> Description {
        let allowed = match self.most {
            u32::MAX => format!("at least {}", self.least),
            most => format!("{} to {most}", self.least),
        };
        Description::new("integer", allowed, format!("`{}`", self.default))
    }
}

impl<T: TryFrom<u32>> Shape<T> for Number {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<T, ConfigError> {
        let (value, number) = match section.node(name) {
            None => (T::try_from(self.default).ok(), i64::from(self.default)),
            Some(Node { value: Value::Scalar(toml::Value::Integer(number)), .. }) => {
                let in_range = u32::try_from(*number).ok().filter(|n| (self.least..=self.most).contains(n));
                (in_range.and_then(|n| T::try_from(n).ok()), *number)
            }
            Some(node) => return Err(section.wrong_type(name, node, "an integer")),
        };
        section.note(log, name, Some(number.into()), Some(i64::from(self.default).into()));
        value.ok_or_else(|| {
            let message = format!("= {number} is out of range: it takes {} to {}", self.least, self.most);
            section.out_of_range(name, message)
        })
    }
}

/// True or false.
pub(super) struct Flag {
    pub(super) default: bool,
}

impl Describe for Flag {
    fn describe(&self) -> Description {
        Description::new("boolean", "`true`, `false`", format!("`{}`", self.default))
    }
}

impl Shape<bool> for Flag {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<bool, ConfigError> {
        let value = match section.node(name) {
            None => self.default,
            Some(Node { value: Value::Scalar(toml::Value::Boolean(flag)), .. }) => *flag,
            Some(node) => return Err(section.wrong_type(name, node, "true or false")),
        };
        section.note(log, name, Some(value.into()), Some(self.default.into()));
        Ok(value)
    }
}
