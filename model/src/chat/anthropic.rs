//! A Messages body as a [`Conversation`].
//!
//! Lenient like [`super::openai`]: refused is what has no meaning. Left out with a line in the log are blocks and tools
//! that only the hosted service can use; nothing else of the history is lost.

mod blocks;
mod messages;

use serde_json::{Map, Value};

use super::conversation::{AnswerFormat, Conversation, ToolChoice};
use super::read::{self, BadRequest, Defaults};
use super::{thinking, tools};

/// Reads `system`, `messages`, the tools and their choice, thinking and effort, and the answer's format.
///
/// # Errors
/// [`BadRequest`] that names the field.
pub fn conversation(body: &Map<String, Value>, defaults: Defaults) -> Result<Conversation, BadRequest> {
    let (tools, left_out) = tools::client_tools(body)?;
    let named = body.get("tool_choice").and_then(|choice| choice.get("name")).and_then(Value::as_str);
    let choice = match named {
        Some(name) if left_out.contains(&name) => ToolChoice::Auto,
        _ => tools::choice(body, &tools)?,
    };
    let read = messages::messages(body, &tools, defaults.family)?;
    let thinking = match read.output_config {
        // A later wish counts more than the body's.
        Some(config) => {
            let mut body = body.clone();
            body.insert("output_config".to_owned(), Value::Object(config.clone()));
            thinking::thinking(&body, defaults)?
        }
        None => thinking::thinking(body, defaults)?,
    };
    Ok(Conversation { messages: read.messages, tools, choice, thinking, format: answer_format(body)? })
}

/// `output_config.format`, or `output_format` as it was called before.
fn answer_format(body: &Map<String, Value>) -> Result<AnswerFormat, BadRequest> {
    let config = read::object(body, "", "output_config")?;
    let nested = config.map(|config| read::object(config, "output_config", "format")).transpose()?.flatten();
    let (at, format) = match nested {
        Some(format) => ("output_config.format", format),
        None => match read::object(body, "", "output_format")? {
            Some(format) => ("output_format", format),
            None => return Ok(AnswerFormat::Text),
        },
    };
    match read::string(format, at, "type")? {
        Some("json_schema") => match read::object(format, at, "schema")? {
            Some(schema) => Ok(AnswerFormat::JsonSchema(Value::Object(schema.clone()))),
            None => Err(BadRequest::missing(read::place(at, "schema"))),
        },
        Some("text") => Ok(AnswerFormat::Text),
        other => {
            let place = read::place(at, "type");
            let text = format!("`{place}` is {}; it must be json_schema", other.unwrap_or("missing"));
            Err(BadRequest::new(place, "invalid_value", text))
        }
    }
}
