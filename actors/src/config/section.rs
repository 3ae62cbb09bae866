//! A table of the configuration while it is read: refuses unknown keys, hands out values, and notes each one, its default
//! and its origin.

use super::define::Key;
use super::error::{ConfigError, Origin, plain};
use super::load::Setting;
use super::tree::{Entry, Node, Value};

/// A table, there or not.
pub(super) struct Section<'a> {
    /// Its whole key, with dots; empty for the file itself.
    key: String,
    /// Where it begins; the parent's place when it is not there.
    pub(super) at: Origin,
    node: Option<&'a Node>,
    keys: &'static [Key],
}

impl<'a> Section<'a> {
    /// Opens a table that may have these keys.
    pub(super) fn open(key: String, node: &'a Node, at: &Origin, keys: &'static [Key]) -> Result<Self, ConfigError> {
        let section = Section { key, at: at.clone(), node: Some(node), keys };
        let Value::Table(entries) = &node.value else {
            return Err(ConfigError::WrongType {
                key: section.key,
                at: node.origin.clone(),
                expected: "a table",
                found: node.type_name(),
            });
        };
        let known: Vec<&str> = keys.iter().map(|key| key.name).collect();
        match entries.iter().find(|e| !known.contains(&e.key.as_str())) {
            None => Ok(section),
            Some(entry) => Err(unknown_key(&section.key, entry, &known)),
        }
    }

    /// The same table under its final name: elements of arrays are named once their `name` is read.
    pub(super) fn named(self, key: String) -> Self {
        Section { key, ..self }
    }

    /// Opens the table `name` inside this one.
    pub(super) fn child(&self, name: &str, keys: &'static [Key]) -> Result<Section<'a>, ConfigError> {
        match self.node(name) {
            Some(node) => Section::open(self.full(name), node, &node.origin, keys),
            None => Ok(Section { key: self.full(name), at: self.at.clone(), node: None, keys }),
        }
    }

    /// The whole key of `name`.
    pub(super) fn full(&self, name: &str) -> String {
        full(&self.key, name)
    }

    /// The value of `name`, if it is there.
    pub(super) fn node(&self, name: &str) -> Option<&'a Node> {
        assert!(self.keys.iter().any(|key| key.name == name), "`{name}` is read but is no key of `{}`", self.key);
        match &self.node?.value {
            Value::Table(entries) => entries.iter().find(|e| e.key == name).map(|e| &e.node),
            _ => None,
        }
    }

    /// The `name` of an element: a word that overrides can use.
    pub(super) fn name(&self) -> Result<String, ConfigError> {
        let node = self.node("name").ok_or_else(|| self.missing("name", "name = \"...\""))?;
        let name = self.string("name", node)?;
        let word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if !word || name.bytes().all(|b| b.is_ascii_digit()) {
            let message = format!("= \"{name}\" cannot be used: letters, digits, `-` and `_`, not digits alone");
            return Err(self.wrong("name", node, message));
        }
        Ok(name)
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
        ConfigError::Value { key: self.full(name), at: node.origin.clone(), message: plain(&message) }
    }

    /// [`Section::wrong`] for the value that `name` has.
    pub(super) fn out_of_range(&self, name: &str, message: String) -> ConfigError {
        let at = self.node(name).map_or(&self.at, |node| &node.origin);
        ConfigError::Value { key: self.full(name), at: at.clone(), message }
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

/// The whole key of `name` in the table `table`.
pub(super) fn full(table: &str, name: &str) -> String {
    if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") }
}

/// The error for a key that `table` does not have.
pub(super) fn unknown_key(table: &str, entry: &Entry, known: &[&str]) -> ConfigError {
    let nearest = known.iter().copied().min_by_key(|candidate| distance(&entry.key, candidate)).unwrap_or("");
    ConfigError::UnknownKey {
        key: full(table, &plain(&entry.key)),
        at: entry.at.clone(),
        nearest: full(table, nearest),
        known: known.join(", "),
    }
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
