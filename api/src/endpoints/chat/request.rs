//! What a chat-completions body asks for.

use luce_model::Family;
use luce_model::chat::openai::{self, BadRequest, Defaults};
use serde_json::{Map, Value};

use crate::ask::{self, Ask};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::grammar::Wanted;
use crate::options::{self, Options};

/// Checks a body.
///
/// # Errors
/// 400 that names the field.
pub(super) fn read(body: &Map<String, Value>, family: Family) -> Result<Ask, ApiError> {
    let fields = Fields::new(body);
    refuse_sound(fields)?;
    // The hosted service thinks unless it is told not to.
    let conversation = openai::conversation(body, Defaults { family, thinking: true })?;
    Ok(Ask {
        options: Options::new(fields, logprobs(fields)?)?,
        parallel: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
        form: Wanted::read(fields)?,
        budget: ask::budget(body)?,
        conversation,
    })
}

fn logprobs(fields: Fields<'_, '_>) -> Result<Option<u32>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    match options::top_logprobs(fields, "top_logprobs")? {
        Some(_) if !wanted => Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs: true`")),
        top => Ok(wanted.then_some(top.unwrap_or(0))),
    }
}

fn refuse_sound(fields: Fields<'_, '_>) -> Result<(), ApiError> {
    if fields.array("modalities")?.is_some_and(|kinds| kinds.iter().any(|kind| kind != "text")) {
        return Err(ApiError::field("modalities", "`modalities` may only name \"text\""));
    }
    if fields.get("audio").is_some() {
        return Err(ApiError::field("audio", "audio output is not supported"));
    }
    Ok(())
}

impl From<BadRequest> for ApiError {
    fn from(bad: BadRequest) -> ApiError {
        match bad.param {
            Some(param) => ApiError::field(param, bad.message),
            None => ApiError::invalid(bad.message),
        }
        .with_code(bad.code)
    }
}
