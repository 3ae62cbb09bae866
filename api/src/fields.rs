//! Typed access to the fields of a JSON object. `null` equals absent; a wrong type or range is an error that names the
//! field.

use luce_model::chat::json_kind;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The fields of one object, and where it stands in the request.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a, 'p> {
    map: &'a Map<String, Value>,
    path: &'p str,
}

impl<'a, 'p> Fields<'a, 'p> {
    /// The request itself.
    pub(crate) fn new(map: &'a Map<String, Value>) -> Fields<'a, 'p> {
        Fields { map, path: "" }
    }

    /// An object inside the request; `path` is its place, such as `messages[0]`.
    pub(crate) fn at(map: &'a Map<String, Value>, path: &'p str) -> Fields<'a, 'p> {
        Fields { map, path }
    }

    /// The field, if it is there and not null.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The place of a field in the request.
    pub(crate) fn place(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn wrong(&self, key: &str, wanted: &str, value: &Value) -> ApiError {
        let place = self.place(key);
        let message = format!("`{place}` must be {wanted}, but is {}", json_kind(value));
        ApiError::field(place, message)
    }

    /// A field of one type.
    fn typed<T>(&self, key: &str, wanted: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, ApiError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(key, wanted, value)),
        }
    }

    /// A boolean.
    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, ApiError> {
        self.typed(key, "a boolean", Value::as_bool)
    }

    /// A string.
    pub(crate) fn string(&self, key: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// An array.
    pub(crate) fn array(&self, key: &str) -> Result<Option<&'a [Value]>, ApiError> {
        self.typed(key, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        self.typed(key, "an object", Value::as_object)
    }

    /// An integer; `3.0` counts as one.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, ApiError> {
        self.typed(key, "an integer", |value| {
            let whole = |number: &f64| number.fract() == 0.0 && number.abs() < 9.0e15;
            value.as_i64().or_else(|| value.as_f64().filter(whole).map(|number| number as i64))
        })
    }

    /// A number for which `fits` holds; `range` says which those are.
    pub(crate) fn number(&self, key: &str, range: &str, fits: impl Fn(f64) -> bool) -> Result<Option<f32>, ApiError> {
        match self.typed(key, "a number", Value::as_f64)? {
            Some(number) if !fits(number) => {
                let place = self.place(key);
                let message = format!("`{place}` is {number}; it must be {range}");
                Err(ApiError::field(place, message))
            }
            number => Ok(number.map(|number| number as f32)),
        }
    }
}
