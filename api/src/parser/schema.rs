//! What the parser needs from the tools of a request: the declared type of each parameter.

use std::collections::HashMap;

use serde_json::Value;

/// A JSON type other than string that a schema names exactly (not one of several).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExactType {
    Boolean,
    Integer,
    Number,
    Array,
    Object,
}

impl ExactType {
    fn of(schema: &Value) -> Option<ExactType> {
        match schema.get("type")?.as_str()? {
            "boolean" => Some(ExactType::Boolean),
            "integer" => Some(ExactType::Integer),
            "number" => Some(ExactType::Number),
            "array" => Some(ExactType::Array),
            "object" => Some(ExactType::Object),
            _ => None,
        }
    }

    /// Whether `text` is JSON of this type.
    pub(crate) fn accepts(self, text: &str) -> bool {
        serde_json::from_str::<Value>(text).is_ok_and(|value| match self {
            ExactType::Boolean => value.is_boolean(),
            ExactType::Integer => value.is_i64() || value.is_u64(),
            ExactType::Number => value.is_number(),
            ExactType::Array => value.is_array(),
            ExactType::Object => value.is_object(),
        })
    }
}

/// The parameters of one tool.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ToolSchema {
    properties: HashMap<String, Option<ExactType>>,
}

impl ToolSchema {
    /// Reads `properties` of a JSON schema; anything else in it does not matter here.
    pub(crate) fn new(parameters: &Value) -> ToolSchema {
        let properties = parameters.get("properties").and_then(Value::as_object);
        ToolSchema {
            properties: properties
                .map(|map| map.iter().map(|(name, schema)| (name.clone(), ExactType::of(schema))).collect())
                .unwrap_or_default(),
        }
    }

    /// The exact type of a parameter.
    pub(crate) fn exact_type(&self, parameter: &str) -> Option<ExactType> {
        self.properties.get(parameter).copied().flatten()
    }

    /// Whether a value for this parameter may be a wrapper around all arguments: the tool has parameters, but not
    /// this one.
    pub(crate) fn may_wrap(&self, parameter: &str) -> bool {
        matches!(parameter, "arguments" | "input")
            && !self.properties.is_empty()
            && !self.properties.contains_key(parameter)
    }

    /// Whether `json` is an object whose keys are all parameters of the tool.
    pub(crate) fn covers(&self, json: &str) -> bool {
        serde_json::from_str::<serde_json::Map<String, Value>>(json)
            .is_ok_and(|map| map.keys().all(|key| self.properties.contains_key(key)))
    }
}

/// The tools of a request by name.
pub(crate) type ToolSchemas = HashMap<String, ToolSchema>;
