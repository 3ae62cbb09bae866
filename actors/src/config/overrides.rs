//! Overrides: `LUCE__SCHEDULE__MAX_QUEUE=8` in the environment, then `--set schedule.max_queue=8`; the later wins.

use std::ffi::OsString;

use super::error::{ConfigError, Origin, plain};
use super::tree::{Entry, Node, Value};

/// What a variable has to begin with to be an override. Single underscores are part of keys.
const PREFIX: &str = "LUCE__";

/// Most parts of a key. The longest that has a meaning, `box.NAME.actor.NAME.KEY`, has five.
const MOST_PARTS: usize = 16;

/// Lays the environment's overrides and then `sets` over the file's tree.
pub(super) fn apply(
    root: &mut Node,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    sets: &[String],
) -> Result<(), ConfigError> {
    let mut variables: Vec<_> =
        environment.into_iter().filter(|(name, _)| name.as_encoded_bytes().starts_with(PREFIX.as_bytes())).collect();
    variables.sort();
    for (name, value) in variables {
        let origin = Origin::Env(name.to_string_lossy().into_owned());
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            return Err(ConfigError::Override { at: origin, message: "name or value is not UTF-8".to_owned() });
        };
        let path = name[PREFIX.len()..].split("__").map(str::to_ascii_lowercase).collect();
        put(root, path, Node::parse_override(&origin, value)?)?;
    }
    for argument in sets {
        let origin = Origin::Set(argument.clone());
        let Some((key, value)) = argument.split_once('=') else {
            let message = "write it as key=value, for example --set schedule.max_queue=8".to_owned();
            return Err(ConfigError::Override { at: origin, message });
        };
        let path = key.split('.').map(|part| part.trim().to_owned()).collect();
        put(root, path, Node::parse_override(&origin, value.trim())?)?;
    }
    Ok(())
}

/// [`set`] for a key of no absurd length: the tree's depth is the stack's.
fn put(root: &mut Node, path: Vec<String>, value: Node) -> Result<(), ConfigError> {
    if path.len() > MOST_PARTS {
        let message = format!("the key has {} parts; no key has more than {MOST_PARTS}", path.len());
        return Err(ConfigError::Override { at: value.origin, message });
    }
    set(root, &path, value)
}

/// Puts `value` at `path`, making tables on the way. Elements of arrays go by their `name` or their number from 0.
fn set(node: &mut Node, path: &[String], value: Node) -> Result<(), ConfigError> {
    let Some((first, rest)) = path.split_first() else {
        merge(node, value);
        return Ok(());
    };
    let wrong = |message: String| Err(ConfigError::Override { at: value.origin.clone(), message: plain(&message) });
    if first.is_empty() {
        return wrong("a part of the key is empty".to_owned());
    }
    match &mut node.value {
        Value::Table(entries) => {
            if let Some(entry) = entries.iter_mut().find(|e| e.key == *first) {
                return set(&mut entry.node, rest, value);
            }
            let mut entry =
                Entry { key: first.clone(), at: value.origin.clone(), node: Node::empty(value.origin.clone()) };
            set(&mut entry.node, rest, value)?;
            entries.push(entry);
            Ok(())
        }
        Value::Array(items) => {
            let names: Vec<&str> = items.iter().map(|item| name_of(item).unwrap_or("?")).collect();
            let by_name = names.iter().position(|name| name.eq_ignore_ascii_case(first));
            match by_name.or_else(|| first.parse().ok()).filter(|i| *i < names.len()) {
                Some(i) => set(&mut items[i], rest, value),
                None => wrong(format!("no element `{first}`; there are: {}", names.join(", "))),
            }
        }
        Value::Scalar(_) => {
            let message = format!("`{first}` cannot be set inside {} ({})", node.type_name(), node.origin);
            wrong(message)
        }
    }
}

/// Tables are laid over tables key by key; anything else replaces.
fn merge(node: &mut Node, value: Node) {
    match (&mut node.value, value) {
        (Value::Table(old), Node { value: Value::Table(new), .. }) if !old.is_empty() => {
            for entry in new {
                match old.iter_mut().find(|e| e.key == entry.key) {
                    Some(place) => merge(&mut place.node, entry.node),
                    None => old.push(entry),
                }
            }
        }
        (_, value) => *node = value,
    }
}

fn name_of(node: &Node) -> Option<&str> {
    let Value::Table(entries) = &node.value else { return None };
    match &entries.iter().find(|e| e.key == "name")?.node.value {
        Value::Scalar(toml::Value::String(name)) => Some(name),
        _ => None,
    }
}
