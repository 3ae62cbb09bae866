//! Shapes of values that are one of a few words, several of them, or tables.

use super::define::{Key, Settings, Word};
use super::error::ConfigError;
use super::load::Setting;
use super::read;
use super::section::Section;
use super::shape::{Describe, Description, REQUIRED, Shape};
use super::tree::{Node, Value};

/// One of a few words; the first is the default.
pub(super) struct OneOf<T: 'static> {
    pub(super) words: &'static [Word<T>],
    /// Words of the format that later builds will take.
    pub(super) later: &'static [&'static str],
}

impl<T: Sync> Describe for OneOf<T> {
    fn describe(&self) -> Description {
        let default = format!("`\"{}\"`", self.words[0].0);
        describe_words(self.words, self.later, Description::new("string", quoted(self.words), default))
    }
}

impl<T: Copy + Sync> Shape<T> for OneOf<T> {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<T, ConfigError> {
        let (word, value) = match section.node(name) {
            None => (self.words[0].0, self.words[0].1),
            Some(node) => look_up(section, name, node, self.words, self.later)?,
        };
        section.note(log, name, Some(word.into()), Some(self.words[0].0.into()));
        Ok(value)
    }
}

/// Several of a few words, at least one, none twice.
pub(super) struct SeveralOf<T: 'static> {
    pub(super) words: &'static [Word<T>],
    /// Words of the format that later builds will take.
    pub(super) later: &'static [&'static str],
    /// A line to add where it is missing.
    pub(super) example: &'static str,
}

impl<T: Sync> Describe for SeveralOf<T> {
    fn describe(&self) -> Description {
        describe_words(self.words, self.later, Description::new("array of strings", quoted(self.words), REQUIRED))
    }
}

impl<T: Copy + PartialEq + Sync> Shape<Vec<T>> for SeveralOf<T> {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<Vec<T>, ConfigError> {
        let node = section.node(name).ok_or_else(|| section.missing(name, self.example))?;
        let Value::Array(items) = &node.value else {
            return Err(section.wrong_type(name, node, "an array of strings"));
        };
        let mut values = Vec::new();
        for item in items {
            let (word, value) = look_up(section, name, item, self.words, self.later)?;
            if values.contains(&value) {
                return Err(section.wrong(name, item, format!("names \"{word}\" twice")));
            }
            values.push(value);
        }
        if values.is_empty() {
            return Err(section.wrong(name, node, format!("is empty: it takes one or more of {}", list(self.words))));
        }
        section.note(log, name, Some(node.to_toml()), None);
        Ok(values)
    }
}

/// A table inside a table.
pub(super) struct Table {
    pub(super) keys: &'static [Key],
}

impl Describe for Table {
    fn describe(&self) -> Description {
        Description { keys: self.keys, ..Description::new("table", "", "") }
    }
}

impl<T: Settings> Shape<T> for Table {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<T, ConfigError> {
        read::table(section, name, log)
    }
}

/// An array of tables, each with a `name` of its own.
pub(super) struct Elements<T> {
    pub(super) about: &'static str,
    pub(super) keys: &'static [Key],
    /// What to add where there is none; `None`: there may be none.
    pub(super) example: Option<&'static str>,
    /// What an element has to hold beyond its keys; the error is a sentence.
    pub(super) check: fn(&T) -> Result<(), String>,
}

impl<T> Describe for Elements<T> {
    fn describe(&self) -> Description {
        let base = Description::new("array of tables", "see below", REQUIRED);
        Description { keys: self.keys, about: Some(self.about), ..base }
    }
}

impl<T: Settings> Shape<Vec<T>> for Elements<T> {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<Vec<T>, ConfigError> {
        let nodes = match section.node(name) {
            None => &[][..],
            Some(Node { value: Value::Array(items), .. }) => items,
            Some(node) => return Err(section.wrong_type(name, node, "an array of tables")),
        };
        let array = section.full(name);
        let (mut names, mut elements): (Vec<String>, _) = (Vec::new(), Vec::new());
        for (i, node) in nodes.iter().enumerate() {
            let element = Section::open(format!("{array}.{i}"), node, &node.origin, T::KEYS)?;
            let own = element.name()?;
            if names.iter().any(|other| other.eq_ignore_ascii_case(&own)) {
                let message = format!("= \"{own}\" is taken: each needs its own (capitals aside)");
                return Err(element.out_of_range("name", message));
            }
            let element = element.named(format!("{array}.{own}"));
            let value = T::read(&element, log)?;
            (self.check)(&value).map_err(|message| ConfigError::Roles {
                name: own.clone(),
                at: element.at.clone(),
                message,
            })?;
            names.push(own);
            elements.push(value);
        }
        match self.example {
            Some(example) if elements.is_empty() => Err(section.missing(name, example)),
            _ => Ok(elements),
        }
    }
}

/// The `name` of an element.
pub(super) struct Name;

impl Describe for Name {
    fn describe(&self) -> Description {
        Description::new("string", "letters, digits, `-` and `_`, not digits alone", REQUIRED)
    }
}

impl Shape<String> for Name {
    fn read(&self, section: &Section<'_>, name: &'static str, log: &mut Vec<Setting>) -> Result<String, ConfigError> {
        let text = section.name()?;
        section.note(log, name, Some(text.clone().into()), None);
        Ok(text)
    }
}

/// `node` as one of `words`.
fn look_up<T: Copy>(
    section: &Section<'_>,
    name: &'static str,
    node: &Node,
    words: &'static [Word<T>],
    later: &[&str],
) -> Result<(&'static str, T), ConfigError> {
    let word = section.string(name, node)?;
    if let Some((known, value, _)) = words.iter().find(|(known, ..)| *known == word) {
        return Ok((known, *value));
    }
    if later.contains(&word.as_str()) {
        return Err(ConfigError::NotInBuild {
            key: section.full(name),
            at: node.origin.clone(),
            value: word,
            instead: list(words),
        });
    }
    Err(section.wrong(name, node, format!("= \"{word}\" is unknown: it takes {}", list(words))))
}

/// The words as an error message lists them.
fn list<T>(words: &[Word<T>]) -> String {
    words.iter().map(|(word, ..)| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// The words in Markdown.
fn quoted<T>(words: &[Word<T>]) -> String {
    words.iter().map(|(word, ..)| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

fn describe_words<T>(words: &'static [Word<T>], later: &'static [&'static str], base: Description) -> Description {
    let now = words.iter().map(|(word, _, meaning)| (*word, *meaning));
    Description { words: now.chain(later.iter().map(|word| (*word, "Not in this build yet."))).collect(), ..base }
}
