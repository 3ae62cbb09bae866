//! The items of `input` as messages.

use serde_json::{Map, Value};

use super::tools::Tools;
use crate::Family;
use crate::chat::openai::content;
use crate::chat::parts::{joined, system};
use crate::chat::read::{self, BadRequest};
use crate::chat::{Arguments, Assistant, Message, Part, ToolCall, carried, markup, texts};

/// `input` as items; a text is a message of the user.
pub(super) fn input(body: &Map<String, Value>) -> Result<Vec<Value>, BadRequest> {
    match read::get(body, "input") {
        Some(Value::String(text)) => Ok(vec![serde_json::json!({"role": "user", "content": text})]),
        Some(Value::Array(items)) if !items.is_empty() => Ok(items.clone()),
        Some(Value::Array(_)) => Err(BadRequest::new("input", "empty_input", "`input` must have at least one item")),
        Some(other) => Err(read::wrong("input", "a string or an array of items", other)),
        None => Err(BadRequest::missing("input".to_owned())),
    }
}

/// Appends the messages that the items are. Tools that they bring along join the others.
pub(super) fn messages(input: &[Value], tools: &mut Tools, out: &mut Vec<Message>) -> Result<(), BadRequest> {
    let mut turn = Turn::default();
    for (i, item) in input.iter().enumerate() {
        let at = format!("input[{i}]");
        let map = item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?;
        let kind = match read::string(map, &at, "type")? {
            None if map.contains_key("role") => "message",
            None => return Err(BadRequest::missing(read::place(&at, "type"))),
            Some(kind) => kind,
        };
        match kind {
            "message" => message(map, &at, &mut turn, out)?,
            "reasoning" => turn.reasoning(reasoning(map, &at)?, out),
            "function_call" => {
                let arguments = match read::get(map, "arguments") {
                    None => Arguments::Object(Map::new()),
                    Some(Value::String(text)) => Arguments::from_text(text),
                    Some(Value::Object(object)) => Arguments::Object(object.clone()),
                    Some(other) => Arguments::Text(other.to_string()),
                };
                turn.call(map, &at, tools.flat_name(map), arguments)?;
            }
            "custom_tool_call" => {
                let input = read::string(map, &at, "input")?.unwrap_or_default();
                let arguments = Map::from_iter([("input".to_owned(), Value::from(input))]);
                turn.call(map, &at, tools.flat_name(map), Arguments::Object(arguments))?;
            }
            "local_shell_call" => {
                let action = read::object(map, &at, "action")?.cloned().unwrap_or_default();
                turn.call(map, &at, "local_shell".to_owned(), Arguments::Object(action))?;
            }
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                turn.end(out);
                let call = read::string(map, &at, "call_id")?.map(str::to_owned);
                out.push(Message::ToolResult { call, parts: content(map, &at, "output")? });
            }
            "additional_tools" => {
                tools.add(read::array(map, &at, "tools")?, &read::place(&at, "tools"), false)?;
            }
            "tool_search_output" => {
                let names = tools.add(read::array(map, &at, "tools")?, &read::place(&at, "tools"), true)?;
                turn.end(out);
                bring_in(&names, tools, out);
            }
            "item_reference" => {
                let text = format!("`{at}` refers to a stored item, but nothing is stored; send the item itself");
                return Err(BadRequest::new(at, "unsupported_item", text));
            }
            kind => tracing::warn!(kind, at, "an item that only the hosted service can use is left out"),
        }
    }
    turn.end(out);
    Ok(())
}

fn message(map: &Map<String, Value>, at: &str, turn: &mut Turn, out: &mut Vec<Message>) -> Result<(), BadRequest> {
    let parts = content(map, at, "content")?;
    let role = read::string(map, at, "role")?;
    if role == Some("assistant") {
        turn.content(joined(parts), out);
        return Ok(());
    }
    turn.end(out);
    match role {
        Some("user") => out.push(Message::User(parts)),
        Some("system" | "developer") => {
            let text = system(parts);
            if !text.is_empty() {
                out.push(Message::System(text));
            }
        }
        other => {
            let place = read::place(at, "role");
            let text =
                format!("`{place}` is {}; roles are user, assistant, system and developer", other.unwrap_or("missing"));
            return Err(BadRequest::new(place, "unknown_role", text));
        }
    }
    Ok(())
}

/// The text of a reasoning item: its content, else what the client keeps for us without reading it. A summary is not what
/// the model wrote.
fn reasoning(map: &Map<String, Value>, at: &str) -> Result<Option<String>, BadRequest> {
    let place = read::place(at, "content");
    let mut texts = Vec::new();
    for (i, part) in read::array(map, at, "content")?.iter().enumerate() {
        let at = format!("{place}[{i}]");
        let part = part.as_object().ok_or_else(|| read::wrong(&at, "an object", part))?;
        texts.extend(read::string(part, &at, "text")?);
    }
    if texts.is_empty() {
        return Ok(read::string(map, at, "encrypted_content")?.and_then(carried));
    }
    Ok(Some(texts.join("\n\n")))
}

/// Shows tools that a search found, at the place where it did: the head of the prompt stays as it was.
fn bring_in(names: &[String], tools: &Tools, out: &mut Vec<Message>) {
    if names.is_empty() {
        return;
    }
    let text = markup::updated(tools.family, tools.named(names));
    out.push(match tools.family {
        Family::V41 => Message::System(text),
        Family::V4 => Message::User(vec![Part::Text(texts::reminder(text.trim_start_matches('\n')))]),
    });
}

/// A turn of the model as its items are gathered: reasoning, a message and calls, in any order.
#[derive(Default)]
struct Turn {
    assistant: Assistant,
    /// Some item belongs to it.
    begun: bool,
}

impl Turn {
    /// The turn is complete.
    fn end(&mut self, out: &mut Vec<Message>) {
        if std::mem::take(&mut self.begun) {
            out.push(Message::Assistant(std::mem::take(&mut self.assistant)));
        }
    }

    /// A second one of a kind belongs to the next turn.
    fn reasoning(&mut self, text: Option<String>, out: &mut Vec<Message>) {
        if self.assistant.reasoning.is_some() {
            self.end(out);
        }
        self.assistant.reasoning = text;
        self.begun = true;
    }

    fn content(&mut self, text: String, out: &mut Vec<Message>) {
        if !self.assistant.content.is_empty() {
            self.end(out);
        }
        self.assistant.content = text;
        self.begun = true;
    }

    fn call(
        &mut self,
        map: &Map<String, Value>,
        at: &str,
        name: String,
        arguments: Arguments,
    ) -> Result<(), BadRequest> {
        let id = match read::string(map, at, "call_id")? {
            Some(id) => Some(id),
            None => read::string(map, at, "id")?,
        };
        if name.is_empty() {
            return Err(BadRequest::missing(read::place(at, "name")));
        }
        self.assistant.calls.push(ToolCall { id: id.map(str::to_owned), name, arguments });
        self.begun = true;
        Ok(())
    }
}
