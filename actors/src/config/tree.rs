//! TOML as a tree in which every value knows where it came from.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};
use super::place::Text;

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
    /// The text of an override, for keys that take strings: `--set model.name=4` names the model "4".
    pub(super) text: Option<String>,
}

/// A key of a table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: Origin,
    pub(super) node: Node,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// String, integer, float, boolean or date.
    Scalar(toml::Value),
    Array(Vec<Node>),
    /// In the order of the lines.
    Table(Vec<Entry>),
}

impl Node {
    /// Parses a whole file.
    pub(super) fn parse_file(file: &str, text: &str) -> Result<Node, ConfigError> {
        let source = Text::new(file, text);
        let at = |span: Range<usize>| Origin::File(source.place(span));
        let table = DeTable::parse(text)
            .map_err(|e| ConfigError::Syntax { at: at(e.span().unwrap_or(0..0)), message: e.message().to_owned() })?;
        let mut root = Node { value: convert_table(table.get_ref(), &at)?, origin: at(0..0), text: None };
        root.sort();
        Ok(root)
    }

    /// Parses the value of an override; what is not a TOML value is a string.
    pub(super) fn parse_override(origin: &Origin, text: &str) -> Result<Node, ConfigError> {
        let document = format!("value = {text}");
        let mut node = match DeTable::parse(&document) {
            Ok(table) if table.get_ref().len() == 1 => {
                let (_, value) = table.get_ref().iter().next().expect("the table has one entry");
                convert(value, &|_| origin.clone())?
            }
            _ => {
                Node { value: Value::Scalar(toml::Value::String(text.to_owned())), origin: origin.clone(), text: None }
            }
        };
        node.text = Some(text.to_owned());
        Ok(node)
    }

    /// An empty table.
    pub(super) fn empty(origin: Origin) -> Node {
        Node { value: Value::Table(Vec::new()), origin, text: None }
    }

    /// The value's type, in words.
    pub(super) fn type_name(&self) -> &'static str {
        match &self.value {
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
            Value::Scalar(toml::Value::String(_)) => "a string",
            Value::Scalar(toml::Value::Integer(_)) => "an integer",
            Value::Scalar(toml::Value::Float(_)) => "a float",
            Value::Scalar(toml::Value::Boolean(_)) => "a boolean",
            Value::Scalar(_) => "a date",
        }
    }

    /// The value without places.
    pub(super) fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::Scalar(value) => value.clone(),
            Value::Array(items) => toml::Value::Array(items.iter().map(Node::to_toml).collect()),
            Value::Table(entries) => {
                toml::Value::Table(entries.iter().map(|e| (e.key.clone(), e.node.to_toml())).collect())
            }
        }
    }

    /// Tables in the order of their lines; the parser gives them by name.
    fn sort(&mut self) {
        match &mut self.value {
            Value::Scalar(_) => {}
            Value::Array(items) => items.iter_mut().for_each(Node::sort),
            Value::Table(entries) => {
                entries.sort_by_key(|e| if let Origin::File(place) = &e.at { place.start() } else { 0 });
                entries.iter_mut().for_each(|e| e.node.sort());
            }
        }
    }
}

fn convert_table(table: &DeTable<'_>, at: &dyn Fn(Range<usize>) -> Origin) -> Result<Value, ConfigError> {
    let mut entries = Vec::new();
    for (key, value) in table {
        entries.push(Entry { key: key.get_ref().to_string(), at: at(key.span()), node: convert(value, at)? });
    }
    Ok(Value::Table(entries))
}

fn convert(value: &Spanned<DeValue<'_>>, at: &dyn Fn(Range<usize>) -> Origin) -> Result<Node, ConfigError> {
    let origin = at(value.span());
    let too_large = |what: &str| ConfigError::Syntax { at: origin.clone(), message: format!("{what} out of range") };
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Scalar(toml::Value::String(text.to_string())),
        DeValue::Integer(digits) => Value::Scalar(toml::Value::Integer(
            i64::from_str_radix(digits.as_str(), digits.radix()).map_err(|_| too_large("integer"))?,
        )),
        DeValue::Float(digits) => {
            Value::Scalar(toml::Value::Float(digits.as_str().parse().map_err(|_| too_large("float"))?))
        }
        DeValue::Boolean(flag) => Value::Scalar(toml::Value::Boolean(*flag)),
        DeValue::Datetime(date) => Value::Scalar(toml::Value::Datetime(*date)),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| convert(item, at)).collect::<Result<Vec<_>, _>>()?)
        }
        DeValue::Table(table) => convert_table(table, at)?,
    };
    Ok(Node { value, origin, text: None })
}
