//! A table of the configuration while it is read: refuses unknown keys, checks types, and notes each value, its default
//! and its origin.

use super::error::{ConfigError, Origin};
use super::load::Setting;
use super::tree::{Node, Value};

/// A table, there or not.
pub(super) struct Section<'a> {
    /// Its whole key, with dots; empty for the file itself.
    key: String,
    /// Where it begins; the parent's place when it is not there.
    pub(super) at: Origin,
    node: Option<&'a Node>,
    known: &'static [&'static str],
}

impl<'a> Section<'a> {
    /// Opens a table whose keys are `known`.
    pub(super) fn open(
        key: String,
        node: &'a Node,
        at: &Origin,
        known: &'static [&'static str],
    ) -> Result<Self, ConfigError> {
        let section = Section { key, at: at.clone(), node: Some(node), known };
        let Value::Table(entries) = &node.value else {
            return Err(ConfigError::WrongType {
                key: section.key,
                at: node.origin.clone(),
                expected: "a table",
                found: node.type_name(),
            });
        };
        match entries.iter().find(|e| !known.contains(&e.key.as_str())) {
            None => Ok(section),
            Some(entry) => Err(ConfigError::UnknownKey {
                key: section.full(&entry.key),
                at: entry.at.clone(),
                nearest: section.full(nearest(&entry.key, known)),
                known: known.join(", "),
            }),
        }
    }

    /// The same table under its final name: elements of arrays are named once their `name` is read.
    pub(super) fn named(self, key: String) -> Self {
        Section { key, ..self }
    }

    /// Opens the table `name` inside this one.
    pub(super) fn child(&self, name: &str, known: &'static [&'static str]) -> Result<Section<'a>, ConfigError> {
        match self.node(name) {
            Some(node) => Section::open(self.full(name), node, &node.origin, known),
            None => Ok(Section { key: self.full(name), at: self.at.clone(), node: None, known }),
        }
    }

    /// The whole key of `name`.
    pub(super) fn full(&self, name: &str) -> String {
        if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) }
    }

    /// The value of `name`, if it is there.
    pub(super) fn node(&self, name: &str) -> Option<&'a Node> {
        assert!(self.known.contains(&name), "`{name}` is read but not among the known keys of `{}`", self.key);
        match &self.node?.value {
            Value::Table(entries) => entries.iter().find(|e| e.key == name).map(|e| &e.node),
            _ => None,
        }
    }

    /// An array of tables; empty if it is not there.
    pub(super) fn elements(&self, name: &str) -> Result<&'a [Node], ConfigError> {
        match self.node(name) {
            None => Ok(&[]),
            Some(Node { value: Value::Array(items), .. }) => Ok(items),
            Some(node) => Err(self.wrong_type(name, node, "an array of tables")),
        }
    }

    /// A number from `least` to `most`.
    pub(super) fn number(
        &self,
        log: &mut Vec<Setting>,
        name: &str,
        default: u32,
        least: u32,
        most: u32,
    ) -> Result<u32, ConfigError> {
        let value = match self.node(name) {
            None => default,
            Some(node) => match node.value {
                Value::Scalar(toml::Value::Integer(number)) => {
                    u32::try_from(number).ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| {
                        self.wrong(name, node, format!("= {number} is out of range: it takes {least} to {most}"))
                    })?
                }
                _ => return Err(self.wrong_type(name, node, "an integer")),
            },
        };
        self.note(log, name, Some(i64::from(value).into()), Some(i64::from(default).into()));
        Ok(value)
    }

    /// True or false.
    pub(super) fn flag(&self, log: &mut Vec<Setting>, name: &str, default: bool) -> Result<bool, ConfigError> {
        let value = match self.node(name) {
            None => default,
            Some(Node { value: Value::Scalar(toml::Value::Boolean(flag)), .. }) => *flag,
            Some(node) => return Err(self.wrong_type(name, node, "true or false")),
        };
        self.note(log, name, Some(value.into()), Some(default.into()));
        Ok(value)
    }

    /// A string that may be missing, but not empty.
    pub(super) fn text(&self, log: &mut Vec<Setting>, name: &str) -> Result<Option<String>, ConfigError> {
        let value = match self.node(name) {
            None => None,
            Some(node) => Some(self.string(name, node)?),
        };
        self.note(log, name, value.clone().map(Into::into), None);
        Ok(value)
    }

    /// A string that has to be there.
    pub(super) fn required(
        &self,
        log: &mut Vec<Setting>,
        name: &str,
        example: &'static str,
    ) -> Result<String, ConfigError> {
        match self.node(name) {
            None => Err(self.missing(name, example)),
            Some(node) => {
                let value = self.string(name, node)?;
                self.note(log, name, Some(value.clone().into()), None);
                Ok(value)
            }
        }
    }

    /// One of a few words; the first is the default.
    pub(super) fn choice<T: Copy>(
        &self,
        log: &mut Vec<Setting>,
        name: &str,
        choices: &[(&'static str, T)],
    ) -> Result<T, ConfigError> {
        let (word, value) = match self.node(name) {
            None => choices[0],
            Some(node) => {
                let word = self.string(name, node)?;
                self.word(name, node, &word, choices)?
            }
        };
        self.note(log, name, Some(word.into()), Some(choices[0].0.into()));
        Ok(value)
    }

    /// Looks `word` up among `choices`.
    pub(super) fn word<T: Copy>(
        &self,
        name: &str,
        node: &Node,
        word: &str,
        choices: &[(&'static str, T)],
    ) -> Result<(&'static str, T), ConfigError> {
        choices.iter().find(|(known, _)| *known == word).copied().ok_or_else(|| {
            let known: Vec<String> = choices.iter().map(|(known, _)| format!("\"{known}\"")).collect();
            self.wrong(name, node, format!("= \"{word}\" is unknown: it takes {}", known.join(", ")))
        })
    }

    /// `node` as a string that is not empty; an override is taken letter by letter unless it is a TOML string.
    pub(super) fn string(&self, name: &str, node: &Node) -> Result<String, ConfigError> {
        let text = match (&node.value, &node.text) {
            (Value::Scalar(toml::Value::String(text)), _) | (Value::Scalar(_), Some(text)) => text.clone(),
            _ => return Err(self.wrong_type(name, node, "a string")),
        };
        if text.trim().is_empty() {
            return Err(self.wrong(name, node, "is empty".to_owned()));
        }
        Ok(text)
    }

    /// Notes a value for [`super::Loaded::print`].
    pub(super) fn note(
        &self,
        log: &mut Vec<Setting>,
        name: &str,
        value: Option<toml::Value>,
        default: Option<toml::Value>,
    ) {
        let origin = self.node(name).map_or(Origin::Default, |node| node.origin.clone());
        log.push(Setting { key: self.full(name), value, default, origin });
    }

    /// The error for a value that `name` cannot take.
    pub(super) fn wrong(&self, name: &str, node: &Node, message: String) -> ConfigError {
        ConfigError::Value { key: self.full(name), at: node.origin.clone(), message }
    }

    /// The error for a value of another type.
    pub(super) fn wrong_type(&self, name: &str, node: &Node, expected: &'static str) -> ConfigError {
        ConfigError::WrongType { key: self.full(name), at: node.origin.clone(), expected, found: node.type_name() }
    }

    /// The error for a key that has to be there.
    pub(super) fn missing(&self, name: &str, example: &'static str) -> ConfigError {
        ConfigError::Missing { key: self.full(name), at: self.at.clone(), example }
    }
}

/// The known key with the fewest insertions, deletions and changes from `key`.
fn nearest(key: &str, known: &'static [&'static str]) -> &'static str {
    known.iter().copied().min_by_key(|candidate| distance(key, candidate)).unwrap_or("")
}

/// Levenshtein distance, by rows of the table of prefixes.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
