//! Reading request bodies: typed access to fields (`null` equals absent), and why a body makes no conversation.

use serde_json::{Map, Value};

use crate::Family;

/// Why a body makes no conversation. The client gets a 400.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct BadRequest {
    /// What is wrong, for the client.
    pub message: String,
    /// The field, such as `messages[1].role`.
    pub param: Option<String>,
    /// A short name of the kind of fault.
    pub code: &'static str,
}

impl BadRequest {
    pub(super) fn new(param: impl Into<String>, code: &'static str, message: impl Into<String>) -> BadRequest {
        BadRequest { message: message.into(), param: Some(param.into()), code }
    }

    /// A field that must be there and is not.
    pub(super) fn missing(place: String) -> BadRequest {
        let message = format!("`{place}` is missing");
        BadRequest::new(place, "missing_field", message)
    }
}

/// What the server decides where a body is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// The model's family; numbers as effort are V4.1's.
    pub family: Family,
    /// Whether the model thinks when nobody says.
    pub thinking: bool,
}

/// The kind of a JSON value, for messages to a client.
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Where `key` is, for messages to the client.
pub(super) fn place(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

/// The field, unless it is absent or null.
pub(super) fn get<'v>(map: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    map.get(key).filter(|v| !v.is_null())
}

pub(super) fn wrong(place: &str, expected: &str, found: &Value) -> BadRequest {
    BadRequest::new(place, "invalid_type", format!("`{place}` must be {expected}, but is {}", json_kind(found)))
}

fn typed<'v, T>(
    map: &'v Map<String, Value>,
    at: &str,
    key: &str,
    expected: &str,
    cast: impl Fn(&'v Value) -> Option<T>,
) -> Result<Option<T>, BadRequest> {
    get(map, key).map(|v| cast(v).ok_or_else(|| wrong(&place(at, key), expected, v))).transpose()
}

pub(super) fn string<'v>(map: &'v Map<String, Value>, at: &str, key: &str) -> Result<Option<&'v str>, BadRequest> {
    typed(map, at, key, "a string", Value::as_str)
}

pub(super) fn boolean(map: &Map<String, Value>, at: &str, key: &str) -> Result<Option<bool>, BadRequest> {
    typed(map, at, key, "true or false", Value::as_bool)
}

pub(super) fn object<'v>(
    map: &'v Map<String, Value>,
    at: &str,
    key: &str,
) -> Result<Option<&'v Map<String, Value>>, BadRequest> {
    typed(map, at, key, "an object", Value::as_object)
}

/// The elements; none when the field is absent.
pub(super) fn array<'v>(map: &'v Map<String, Value>, at: &str, key: &str) -> Result<&'v [Value], BadRequest> {
    typed(map, at, key, "an array", Value::as_array).map(|found| found.map_or(&[][..], Vec::as_slice))
}
