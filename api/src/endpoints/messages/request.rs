//! What a Messages body asks for.

use luce_model::Family;
use luce_model::chat::{AnswerFormat, Defaults, anthropic};
use serde_json::{Map, Value, json};

use crate::ask::{self, Ask};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::grammar::{Form, Wanted};
use crate::options::Options;

/// Checks a body. `thinking`: whether the model thinks when the body does not say.
///
/// # Errors
/// 400 that names the field.
pub(super) fn read(body: &Map<String, Value>, family: Family, thinking: bool) -> Result<Ask, ApiError> {
    let fields = Fields::new(body);
    refuse_thread(fields)?;
    let conversation = anthropic::conversation(body, Defaults { family, thinking })?;
    let choice = fields.object("tool_choice")?.map(|map| Fields::at(map, "tool_choice"));
    let first_only = choice.map_or(Ok(None), |choice| choice.boolean("disable_parallel_tool_use"))?;
    let form = match &conversation.format {
        AnswerFormat::JsonSchema(schema) => Some(Form::Json(schema.clone())),
        AnswerFormat::Text | AnswerFormat::JsonObject => None,
    };
    Ok(Ask {
        options: Options::new(fields, None)?,
        parallel: !first_only.unwrap_or(false),
        form: form.map(|form| Wanted { form, place: "output_config.format.schema".to_owned() }),
        budget: ask::budget(body)?,
        conversation,
    })
}

/// `thread` stands for a history that the client does not send. Ignoring it would answer without that history, and
/// nothing would show it.
fn refuse_thread(fields: Fields<'_, '_>) -> Result<(), ApiError> {
    let Some(thread) = fields.object("thread")? else { return Ok(()) };
    Err(ApiError::thread(match Fields::at(thread, "thread").string("type")? {
        Some("continue") => json!({"error_code": "thread_not_found"}),
        _ => json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]}),
    }))
}

/// Whether the client wants to see the reasoning.
pub(super) fn show_thinking(body: &Map<String, Value>) -> Result<bool, ApiError> {
    let Some(thinking) = Fields::new(body).object("thinking")? else { return Ok(true) };
    Ok(Fields::at(thinking, "thinking").string("display")? != Some("omitted"))
}
