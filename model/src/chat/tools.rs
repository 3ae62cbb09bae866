//! Tools and the choice among them, in the forms of OpenAI (`functions` and `function_call` of old included) and of
//! Anthropic.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::conversation::{Tool, ToolChoice};
use super::read::{self, BadRequest};

/// Longest tool name, in bytes.
const NAME_MAX: usize = 128;

/// OpenAI's tools.
pub(super) fn functions(body: &Map<String, Value>) -> Result<Vec<Tool>, BadRequest> {
    const SCHEMA: &str = "parameters";
    let mut tools = Vec::new();
    for (i, item) in read::array(body, "", "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let map = item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?;
        let kind = read::string(map, &at, "type")?.unwrap_or("function");
        if kind != "function" {
            tracing::warn!(kind, "a tool that only the hosted service has is left out");
            continue;
        }
        // Some clients send the shape of the Responses API, without the inner object.
        let tool = match read::object(map, &at, "function")? {
            Some(function) => tool(function, &format!("{at}.function"), SCHEMA)?,
            None => tool(map, &at, SCHEMA)?,
        };
        tools.push(Tool { deferred: read::boolean(map, &at, "defer_loading")?.unwrap_or(false), ..tool });
    }
    if tools.is_empty() {
        for (i, item) in read::array(body, "", "functions")?.iter().enumerate() {
            let at = format!("functions[{i}]");
            tools.push(tool(item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?, &at, SCHEMA)?);
        }
    }
    distinct(tools)
}

/// Anthropic's tools, and the names of those that only the hosted service has and that are left out.
pub(super) fn client_tools(body: &Map<String, Value>) -> Result<(Vec<Tool>, Vec<&str>), BadRequest> {
    let (mut tools, mut left_out) = (Vec::new(), Vec::new());
    for (i, item) in read::array(body, "", "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let map = item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?;
        let kind = read::string(map, &at, "type")?.unwrap_or("custom");
        if kind != "custom" {
            tracing::warn!(kind, "a tool that only the hosted service has is left out");
            left_out.extend(read::string(map, &at, "name")?);
            continue;
        }
        let deferred = read::boolean(map, &at, "defer_loading")?.unwrap_or(false);
        tools.push(Tool { deferred, ..tool(map, &at, "input_schema")? });
    }
    Ok((distinct(tools)?, left_out))
}

pub(super) fn distinct(tools: Vec<Tool>) -> Result<Vec<Tool>, BadRequest> {
    let mut names = HashSet::new();
    match tools.iter().find(|t| !names.insert(&t.name)) {
        Some(twice) => {
            let text = format!("there are two tools named `{}`; names must differ", twice.name);
            Err(BadRequest::new("tools", "duplicate_tool", text))
        }
        None => Ok(tools),
    }
}

/// A tool whose arguments are described at the key `schema`.
pub(super) fn tool(function: &Map<String, Value>, at: &str, schema: &str) -> Result<Tool, BadRequest> {
    let name = read::string(function, at, "name")?.unwrap_or_default();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(allowed) {
        let place = read::place(at, "name");
        let text = format!("`{place}` must be 1 to {NAME_MAX} letters, digits, and characters of `_.:-`");
        return Err(BadRequest::new(place, "invalid_tool_name", text));
    }
    Ok(Tool {
        name: name.to_owned(),
        description: read::string(function, at, "description")?.unwrap_or_default().to_owned(),
        parameters: Value::Object(read::object(function, at, schema)?.cloned().unwrap_or_default()),
        deferred: false,
        strict: read::boolean(function, at, "strict")?.unwrap_or(false),
    })
}

/// The choice; without tools there is nothing to choose.
pub(super) fn choice(body: &Map<String, Value>, tools: &[Tool]) -> Result<ToolChoice, BadRequest> {
    if tools.is_empty() {
        return Ok(ToolChoice::Auto);
    }
    let Some((key, value)) = ["tool_choice", "function_call"].into_iter().find_map(|k| Some((k, read::get(body, k)?)))
    else {
        return Ok(ToolChoice::Auto);
    };
    let word = |word: &str| match word {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" | "any" => Some(ToolChoice::Required),
        _ => None,
    };
    let unknown = || {
        let text = format!("`{key}` must be auto, none, required, or an object that names a function of `tools`");
        BadRequest::new(key, "invalid_tool_choice", text)
    };
    match value {
        Value::String(text) => word(text).ok_or_else(unknown),
        Value::Object(map) => {
            let name =
                map.get("function").and_then(|f| f.get("name")).or_else(|| map.get("name")).and_then(Value::as_str);
            match name {
                Some(name) if tools.iter().any(|t| t.name == name) => Ok(ToolChoice::Named(name.to_owned())),
                Some(name) => {
                    let text = format!("`{key}` names `{name}`, which is not in `tools`");
                    Err(BadRequest::new(key, "unknown_tool", text))
                }
                None => map.get("type").and_then(Value::as_str).and_then(word).ok_or_else(unknown),
            }
        }
        _ => Err(unknown()),
    }
}
