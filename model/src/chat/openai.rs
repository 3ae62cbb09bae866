//! A chat-completions body as a [`Conversation`].
//!
//! Lenient: what clients commonly get wrong and still has one meaning is taken (`content: null`, arguments as an object,
//! a result without its call, legacy `functions`). Refused is what has none. Unknown fields are not looked at; sampling,
//! limits and constrained answers are the API's business.

mod messages;

pub(super) use messages::content;

use serde_json::{Map, Value};

use super::conversation::{AnswerFormat, Conversation};
pub use super::read::{BadRequest, Defaults};
use super::{read, thinking, tools};

/// Reads `messages`, the tools and their choice, thinking and effort, and the answer's format.
///
/// # Errors
/// [`BadRequest`] that names the field.
pub fn conversation(body: &Map<String, Value>, defaults: Defaults) -> Result<Conversation, BadRequest> {
    let tools = tools::functions(body)?;
    let choice = tools::choice(body, &tools)?;
    Ok(Conversation {
        messages: messages::messages(body)?,
        tools,
        choice,
        thinking: thinking::thinking(body, defaults)?,
        format: answer_format(body)?,
    })
}

/// `response_format`. A regular expression has no words in the prompt.
fn answer_format(body: &Map<String, Value>) -> Result<AnswerFormat, BadRequest> {
    let Some(format) = read::object(body, "", "response_format")? else { return Ok(AnswerFormat::Text) };
    let schema = || {
        let outer = read::object(format, "response_format", "json_schema")?;
        let found = outer.map(|o| read::object(o, "response_format.json_schema", "schema")).transpose()?.flatten();
        found.map(|map| AnswerFormat::JsonSchema(Value::Object(map.clone()))).ok_or_else(|| {
            let place = "response_format.json_schema.schema";
            BadRequest::new(place, "missing_field", format!("`{place}` is missing; it must be a JSON schema"))
        })
    };
    match read::string(format, "response_format", "type")? {
        Some("text" | "regex") => Ok(AnswerFormat::Text),
        Some("json_object") => Ok(AnswerFormat::JsonObject),
        Some("json_schema") => schema(),
        other => Err(BadRequest::new(
            "response_format.type",
            "invalid_value",
            format!(
                "`response_format.type` is {}; it must be text, json_object, json_schema or regex",
                other.unwrap_or("missing")
            ),
        )),
    }
}
