//! Checks of the conversation in a chat-completions body: what has no meaning is refused before anything is encoded.
//!
//! Rejected is only what cannot be given a meaning. A tool result without its call, a call without its result or an
//! assistant message without content are fine.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::request::schemas;
use crate::body::kind;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::parser::ToolSchemas;

const ROLES: [&str; 7] = ["system", "developer", "user", "assistant", "tool", "function", "latest_reminder"];
const EFFORTS: [&str; 8] = ["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"];
/// Longest tool name.
const NAME_MAX: usize = 128;

/// Checks `messages` and the fields about thinking.
pub(super) fn check(fields: Fields<'_, '_>) -> Result<(), ApiError> {
    let messages = fields.array("messages")?.unwrap_or_default();
    if messages.is_empty() {
        return Err(ApiError::field("messages", "`messages` must be an array with at least one message"));
    }
    for (i, message) in messages.iter().enumerate() {
        let path = format!("messages[{i}]");
        let Some(map) = message.as_object() else {
            let text = format!("`{path}` must be an object, but is {}", kind(message));
            return Err(ApiError::field(path, text));
        };
        check_message(Fields::at(map, &path), i + 1 == messages.len())?;
    }
    fields.boolean("continue_final_message")?;
    check_thinking(fields)
}

fn check_message(message: Fields<'_, '_>, last: bool) -> Result<(), ApiError> {
    let wrong = |key: &str, text: String| Err(ApiError::field(message.place(key), text));
    let role = match message.string("role")? {
        Some(role) if ROLES.contains(&role) => role,
        Some(role) => return wrong("role", format!("the role {role:?} is unknown; roles are {}", ROLES.join(", "))),
        None => return wrong("role", format!("`{}` is missing", message.place("role"))),
    };
    check_content(message)?;
    for key in ["reasoning_content", "name", "tool_call_id"] {
        message.string(key)?;
    }
    if message.boolean("prefix")? == Some(true) && !(last && role == "assistant") {
        return wrong("prefix", "`prefix: true` is only for the last message, and only for an assistant's".to_owned());
    }
    let calls = message.array("tool_calls")?.unwrap_or_default();
    for (i, call) in calls.iter().enumerate() {
        let path = format!("{}[{i}]", message.place("tool_calls"));
        let name = call.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
        if name.is_none_or(str::is_empty) {
            let text = format!("`{path}.function.name` must be a string");
            return Err(ApiError::field(format!("{path}.function.name"), text));
        }
    }
    Ok(())
}

fn check_content(message: Fields<'_, '_>) -> Result<(), ApiError> {
    let place = message.place("content");
    let parts = match message.get("content") {
        None | Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            let text = format!("`{place}` must be a string, null or an array of parts, but is {}", kind(other));
            return Err(ApiError::field(place, text));
        }
    };
    for (i, part) in parts.iter().enumerate() {
        let path = format!("{place}[{i}]");
        let Some(map) = part.as_object() else {
            if part.is_string() {
                continue;
            }
            return Err(ApiError::field(path.clone(), format!("`{path}` must be an object, but is {}", kind(part))));
        };
        let part = Fields::at(map, &path);
        match part.string("type")? {
            Some("text" | "input_text" | "output_text") if part.string("text")?.is_none() => {
                return Err(ApiError::field(part.place("text"), format!("`{}` is missing", part.place("text"))));
            }
            Some(kind @ ("input_audio" | "audio" | "file")) => {
                let text = format!("`{path}` is of type {kind:?}, which is not supported");
                return Err(ApiError::field(path, text));
            }
            Some(_) => {}
            None => return Err(ApiError::field(part.place("type"), format!("`{}` is missing", part.place("type")))),
        }
    }
    Ok(())
}

fn check_thinking(fields: Fields<'_, '_>) -> Result<(), ApiError> {
    check_effort(fields, "reasoning_effort")?;
    fields.boolean("enable_thinking")?;
    if let Some(thinking) = fields.object("thinking")? {
        Fields::at(thinking, "thinking").string("type")?;
    }
    if let Some(reasoning) = fields.object("reasoning")? {
        let reasoning = Fields::at(reasoning, "reasoning");
        check_effort(reasoning, "effort")?;
        reasoning.boolean("enabled")?;
    }
    if let Some(kwargs) = fields.object("chat_template_kwargs")? {
        let kwargs = Fields::at(kwargs, "chat_template_kwargs");
        kwargs.boolean("thinking")?;
        kwargs.boolean("enable_thinking")?;
        check_effort(kwargs, "reasoning_effort")?;
    }
    Ok(())
}

fn check_effort(fields: Fields<'_, '_>, key: &str) -> Result<(), ApiError> {
    let fits = match fields.get(key) {
        None => true,
        Some(Value::String(effort)) => EFFORTS.contains(&effort.as_str()),
        // A number is for V4.1; the model's own encoder checks it.
        Some(value) => value.is_number(),
    };
    if fits {
        return Ok(());
    }
    let place = fields.place(key);
    let text = format!("`{place}` must be one of {}", EFFORTS.join(", "));
    Err(ApiError::field(place, text))
}

/// The tools of the request. Checks their names and the tool choice.
pub(super) fn tools(fields: Fields<'_, '_>) -> Result<ToolSchemas, ApiError> {
    let mut found: Vec<(&str, Option<&Value>)> = Vec::new();
    for (i, tool) in fields.array("tools")?.unwrap_or_default().iter().enumerate() {
        let path = format!("tools[{i}]");
        let function = tool.as_object().map(|map| Fields::at(map, &path).object("function")).transpose()?.flatten();
        let Some(function) = function else {
            let text = format!("`{path}.function` must be an object; tools of other kinds are not supported");
            return Err(ApiError::field(format!("{path}.function"), text));
        };
        found.push(tool_of(function, &format!("{path}.function"))?);
    }
    if found.is_empty() {
        for (i, function) in fields.array("functions")?.unwrap_or_default().iter().enumerate() {
            let path = format!("functions[{i}]");
            let Some(function) = function.as_object() else {
                return Err(ApiError::field(path.clone(), format!("`{path}` must be an object")));
            };
            found.push(tool_of(function, &path)?);
        }
    }
    let mut names = HashSet::new();
    if let Some((name, _)) = found.iter().find(|(name, _)| !names.insert(*name)) {
        return Err(ApiError::field("tools", format!("there are two tools named {name:?}; names must differ")));
    }
    if !found.is_empty() {
        check_choice(fields, &names)?;
    }
    Ok(schemas(found))
}

fn tool_of<'a>(function: &'a Map<String, Value>, path: &str) -> Result<(&'a str, Option<&'a Value>), ApiError> {
    let function = Fields::at(function, path);
    let name = function.string("name")?.unwrap_or_default();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(allowed) {
        let place = format!("{path}.name");
        let text = format!("`{place}` must be 1 to {NAME_MAX} letters, digits and _ . : -");
        return Err(ApiError::field(place, text));
    }
    function.string("description")?;
    let parameters = function.get("parameters");
    function.object("parameters")?;
    Ok((name, parameters))
}

fn check_choice(fields: Fields<'_, '_>, names: &HashSet<&str>) -> Result<(), ApiError> {
    for key in ["tool_choice", "function_call"] {
        let unknown = |text: String| Err(ApiError::field(key, text));
        match fields.get(key) {
            None => {}
            Some(Value::String(choice)) if matches!(choice.as_str(), "auto" | "none" | "required" | "any") => {}
            Some(Value::Object(choice)) => {
                let name = choice.get("function").and_then(|f| f.get("name")).or_else(|| choice.get("name"));
                match (name.and_then(Value::as_str), choice.get("type").and_then(Value::as_str)) {
                    (Some(name), _) if names.contains(name) => {}
                    (Some(name), _) => return unknown(format!("`{key}` names {name:?}, which is not in `tools`")),
                    (None, Some("auto" | "none" | "required" | "any")) => {}
                    (None, _) => return unknown(format!("`{key}` names no function")),
                }
            }
            Some(_) => return unknown(format!("`{key}` must be auto, none, required or a function of `tools`")),
        }
    }
    Ok(())
}
