//! Typed access to fields; `null` equals absent.

use serde_json::{Map, Value};

use super::BadRequest;

/// Where `key` is, for messages to the client.
pub(super) fn place(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

/// The field, unless it is absent or null.
pub(super) fn get<'v>(map: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    map.get(key).filter(|v| !v.is_null())
}

pub(super) fn wrong(place: &str, expected: &str, found: &Value) -> BadRequest {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    BadRequest::new(place, "invalid_type", format!("`{place}` must be {expected}, but is {kind}"))
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
