//! The messages of a chat-completions body.

use serde_json::{Map, Value};

use super::{BadRequest, read};
use crate::chat::parts::{joined, system};
use crate::chat::{Arguments, Assistant, Message, Part, ToolCall};

pub(super) fn messages(body: &Map<String, Value>) -> Result<Vec<Message>, BadRequest> {
    let list = read::array(body, "", "messages")?;
    if list.is_empty() {
        return Err(BadRequest::new("messages", "empty_messages", "`messages` must have at least one message"));
    }
    let mut messages = Vec::with_capacity(list.len());
    for (i, item) in list.iter().enumerate() {
        let at = format!("messages[{i}]");
        let map = item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?;
        messages.extend(message(map, &at, i + 1 == list.len())?);
    }
    if read::boolean(body, "", "continue_final_message")? == Some(true) {
        match messages.last_mut() {
            Some(Message::Assistant(turn)) => turn.prefix = true,
            _ => {
                return Err(BadRequest::new(
                    "continue_final_message",
                    "prefix_not_last",
                    "`continue_final_message` needs an assistant message at the end of `messages`",
                ));
            }
        }
    }
    Ok(messages)
}

fn message(map: &Map<String, Value>, at: &str, last: bool) -> Result<Option<Message>, BadRequest> {
    let role = read::string(map, at, "role")?;
    if read::boolean(map, at, "prefix")? == Some(true) && !(last && role == Some("assistant")) {
        return Err(BadRequest::new(
            read::place(at, "prefix"),
            "prefix_not_last",
            "`prefix: true` is for an assistant message at the end of `messages`",
        ));
    }
    let parts = content(map, at, "content")?;
    Ok(Some(match role {
        Some("system" | "developer") => {
            let text = system(parts);
            if text.is_empty() {
                return Ok(None);
            }
            Message::System(text)
        }
        Some("user") => Message::User(parts),
        Some("assistant") => Message::Assistant(assistant(map, at, parts)?),
        Some("tool" | "function") => {
            Message::ToolResult { call: read::string(map, at, "tool_call_id")?.map(str::to_owned), parts }
        }
        Some("latest_reminder") => Message::LatestReminder(joined(parts)),
        other => {
            let place = read::place(at, "role");
            let text = format!(
                "`{place}` is {}; roles are system, developer, user, assistant, tool, function and latest_reminder",
                other.unwrap_or("missing")
            );
            return Err(BadRequest::new(place, "unknown_role", text));
        }
    }))
}

fn assistant(map: &Map<String, Value>, at: &str, parts: Vec<Part>) -> Result<Assistant, BadRequest> {
    let mut reasoning = read::string(map, at, "reasoning_content")?;
    // Other names that clients send back; some put structures there, which are not text.
    for key in ["reasoning", "thinking"] {
        reasoning = reasoning.or_else(|| read::get(map, key).and_then(Value::as_str));
    }
    let mut calls = Vec::new();
    for (i, item) in read::array(map, at, "tool_calls")?.iter().enumerate() {
        let at = format!("{at}.tool_calls[{i}]");
        let item = item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?;
        calls.push(call(item, &at)?);
    }
    if calls.is_empty()
        && let Some(function) = read::object(map, at, "function_call")?
    {
        calls.push(ToolCall { id: None, ..named_call(function, &read::place(at, "function_call"))? });
    }
    Ok(Assistant {
        reasoning: reasoning.map(str::to_owned),
        content: joined(parts),
        calls,
        prefix: read::boolean(map, at, "prefix")?.unwrap_or(false),
        written: None,
    })
}

fn call(item: &Map<String, Value>, at: &str) -> Result<ToolCall, BadRequest> {
    let id = read::string(item, at, "id")?.map(str::to_owned);
    let call = if let Some(custom) = read::object(item, at, "custom")? {
        let at = read::place(at, "custom");
        let input = read::string(custom, &at, "input")?.unwrap_or_default();
        let arguments = Map::from_iter([("input".to_owned(), Value::from(input))]);
        ToolCall { id: None, name: call_name(custom, &at)?, arguments: Arguments::Object(arguments) }
    } else {
        let function = read::object(item, at, "function")?.ok_or_else(|| {
            let place = read::place(at, "function");
            BadRequest::new(place.clone(), "missing_field", format!("`{place}` is missing"))
        })?;
        named_call(function, &read::place(at, "function"))?
    };
    Ok(ToolCall { id, ..call })
}

fn named_call(function: &Map<String, Value>, at: &str) -> Result<ToolCall, BadRequest> {
    let arguments = match read::get(function, "arguments") {
        None => Arguments::Object(Map::new()),
        Some(Value::Object(map)) => Arguments::Object(map.clone()),
        Some(Value::String(text)) => Arguments::from_text(text),
        Some(other) => Arguments::Text(other.to_string()),
    };
    Ok(ToolCall { id: None, name: call_name(function, at)?, arguments })
}

fn call_name(map: &Map<String, Value>, at: &str) -> Result<String, BadRequest> {
    match read::string(map, at, "name")? {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => {
            let place = read::place(at, "name");
            Err(BadRequest::new(place.clone(), "missing_field", format!("`{place}` must be a name")))
        }
    }
}

/// The field `key`: a text, nothing, or a list of parts.
pub(in crate::chat) fn content(map: &Map<String, Value>, at: &str, key: &str) -> Result<Vec<Part>, BadRequest> {
    let place = read::place(at, key);
    let list = match read::get(map, key) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![Part::Text(text.clone())]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(read::wrong(&place, "a string, null or an array of parts", other)),
    };
    let mut parts = Vec::with_capacity(list.len());
    for (i, item) in list.iter().enumerate() {
        parts.extend(part(item, &format!("{place}[{i}]"))?);
    }
    Ok(parts)
}

fn part(item: &Value, at: &str) -> Result<Option<Part>, BadRequest> {
    let map = match item {
        Value::String(text) => return Ok(Some(Part::Text(text.clone()))),
        Value::Object(map) => map,
        other => return Err(read::wrong(at, "an object", other)),
    };
    let text = |key: &str| {
        read::string(map, at, key)?.map(|text| Some(Part::Text(text.to_owned()))).ok_or_else(|| {
            let place = read::place(at, key);
            BadRequest::new(place.clone(), "missing_field", format!("`{place}` is missing"))
        })
    };
    match read::string(map, at, "type")? {
        Some("text" | "input_text" | "output_text") => text("text"),
        Some("refusal") => text("refusal"),
        Some("image_url" | "input_image" | "image") => Ok(Some(Part::Image)),
        Some(kind @ "document") => Ok(Some(Part::Text(format!("[Unsupported document type: {kind}]")))),
        Some(kind @ ("input_audio" | "audio" | "file" | "input_file" | "video_url")) => Err(BadRequest::new(
            at,
            "unsupported_content",
            format!("`{at}` is of type `{kind}`, which this model cannot read"),
        )),
        Some(kind) => {
            tracing::warn!(kind, at, "a content part of an unknown type is left out");
            Ok(None)
        }
        None => {
            let place = read::place(at, "type");
            Err(BadRequest::new(place.clone(), "missing_field", format!("`{place}` is missing")))
        }
    }
}
