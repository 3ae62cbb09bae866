//! A body of the Responses API as a [`Conversation`].
//!
//! Lenient like [`super::openai`]: item ids, types of messages and nulls may be missing. Left out with a line in the log
//! are items and tools that only the hosted service can use.

mod items;
mod tools;

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::conversation::{AnswerFormat, Conversation, Message, ToolChoice};
use super::read::{self, BadRequest, Defaults};
use super::{parts, thinking};

/// What a body says.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The conversation.
    pub conversation: Conversation,
    /// Where tools come from whose name in the prompt is not all that a client needs to know them by.
    pub origins: HashMap<String, Origin>,
}

/// A tool as the client knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Its name there.
    pub name: String,
    /// The namespace that it stands in.
    pub namespace: Option<String>,
    /// It takes a text, in the prompt as the parameter `input`, and not an object.
    pub custom: bool,
}

/// Reads `instructions` and `input`, the tools and their choice, the effort, and the answer's format.
///
/// # Errors
/// [`BadRequest`] that names the field.
pub fn request(body: &Map<String, Value>, defaults: Defaults) -> Result<Request, BadRequest> {
    let input = items::input(body)?;
    let mut tools = tools::Tools::new(defaults.family);
    tools.add(read::array(body, "", "tools")?, "tools", false)?;
    let mut messages = Vec::new();
    let instructions = read::string(body, "", "instructions")?.map(str::to_owned);
    // A list of items is what a stored prompt would have there.
    let text = parts::system(instructions.into_iter().map(super::Part::Text).collect());
    if !text.is_empty() {
        messages.push(Message::System(text));
    }
    items::messages(&input, &mut tools, &mut messages)?;
    let choice = tools.choose(body)?;
    let (tools, origins) = tools.finish()?;
    let choice = if tools.is_empty() { ToolChoice::Auto } else { choice };
    let conversation =
        Conversation { messages, tools, choice, thinking: thinking::thinking(body, defaults)?, format: format(body)? };
    Ok(Request { conversation, origins })
}

/// `text.format`.
fn format(body: &Map<String, Value>) -> Result<AnswerFormat, BadRequest> {
    const AT: &str = "text.format";
    let text = read::object(body, "", "text")?;
    let Some(format) = text.map(|text| read::object(text, "text", "format")).transpose()?.flatten() else {
        return Ok(AnswerFormat::Text);
    };
    match read::string(format, AT, "type")? {
        Some("text") => Ok(AnswerFormat::Text),
        Some("json_object") => Ok(AnswerFormat::JsonObject),
        Some("json_schema") => match read::object(format, AT, "schema")? {
            Some(schema) => Ok(AnswerFormat::JsonSchema(Value::Object(schema.clone()))),
            None => Err(BadRequest::missing(read::place(AT, "schema"))),
        },
        other => {
            let place = read::place(AT, "type");
            let text =
                format!("`{place}` is {}; it must be text, json_object or json_schema", other.unwrap_or("missing"));
            Err(BadRequest::new(place, "invalid_value", text))
        }
    }
}
