//! `[api]`, whose keys belong to another crate: this one knows no more than that they are the fields of a type.

use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::{Serialize, forward_to_deserialize_any};

use super::error::{ConfigError, Origin, plain};
use super::load::Setting;
use super::section::{Section, unknown_key};
use super::tree::{Entry, Node, Value};

/// Reads `[api]` as an `A`, key by key so that a mistake has a place; what is not set is as in `A::default()`. Types
/// without fields of their own, such as [`toml::Table`], take any key.
pub(super) fn read<A>(file: &Section<'_>, log: &mut Vec<Setting>) -> Result<A, ConfigError>
where
    A: DeserializeOwned + Serialize + Default,
{
    let entries = match file.node("api") {
        None => &[][..],
        Some(Node { value: Value::Table(entries), .. }) => entries,
        Some(node) => return Err(file.wrong_type("api", node, "a table")),
    };
    let fields = fields::<A>();
    let defaults =
        toml::Table::try_from(A::default()).expect("defaults are integers, strings, flags and lists of them");
    let mut table = toml::Table::new();
    for entry in entries {
        if !fields.is_empty() && !fields.contains(&entry.key.as_str()) {
            return Err(unknown_key("api", entry, fields));
        }
        table.insert(entry.key.clone(), value::<A>(entry)?);
    }
    let set = |name: &str| entries.iter().find(|e| e.key == name);
    let others = entries.iter().map(|e| e.key.as_str()).filter(|key| !fields.contains(key));
    log.extend(fields.iter().copied().chain(others).map(|name| Setting {
        key: format!("api.{name}"),
        value: table.get(name).or_else(|| defaults.get(name)).cloned(),
        default: defaults.get(name).cloned(),
        origin: set(name).map_or(Origin::Default, |entry| entry.node.origin.clone()),
    }));
    let at = file.node("api").map_or(&file.at, |node| &node.origin).clone();
    table.try_into().map_err(|e: toml::de::Error| refused("api", at, &e))
}

/// The value of one key, if an `A` takes it. An override that is not taken as TOML is taken letter by letter.
fn value<A: DeserializeOwned>(entry: &Entry) -> Result<toml::Value, ConfigError> {
    let takes = |value: &toml::Value| A::deserialize(toml::Table::from_iter([(entry.key.clone(), value.clone())]));
    let value = entry.node.to_toml();
    let text = entry.node.text.as_ref().map(|text| toml::Value::String(text.clone()));
    match (takes(&value), text) {
        (Ok(_), _) => Ok(value),
        (Err(_), Some(text)) if takes(&text).is_ok() => Ok(text),
        (Err(e), _) => Err(refused(&format!("api.{}", plain(&entry.key)), entry.node.origin.clone(), &e)),
    }
}

fn refused(key: &str, at: Origin, why: &toml::de::Error) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), at, message: format!("cannot be used: {}", plain(why.message())) }
}

/// The names of a struct's fields, as its `Deserialize` asks for them; none for other types.
fn fields<A: DeserializeOwned>() -> &'static [&'static str] {
    struct Listen<'n>(&'n mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Listen<'_> {
        type Error = NoValue;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
            Err(NoValue::custom("only the names of fields are asked for"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, NoValue> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut names: &[&str] = &[];
    // Always an error: there is no value.
    let _ = A::deserialize(Listen(&mut names));
    names
}
