//! What a body of the Responses API asks for.

use std::collections::HashMap;

use luce_model::Family;
use luce_model::chat::responses::{self, Origin};
use luce_model::chat::{AnswerFormat, Defaults};
use serde_json::{Map, Value, json};

use crate::ask::Ask;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::grammar::{Form, Wanted};
use crate::options::{self, Options};

/// How the client wants its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// Tools that it knows by more than their name in the prompt.
    pub(super) origins: HashMap<String, Origin>,
    /// It keeps reasoning for us without reading it.
    pub(super) encrypted: bool,
    /// It shows summaries of reasoning.
    pub(super) summary: bool,
    /// It wants log-probabilities.
    pub(super) logprobs: bool,
}

/// Checks a body.
///
/// # Errors
/// 400 that names the field; also for fields that need a store of earlier answers.
pub(super) fn read(body: &Map<String, Value>, family: Family) -> Result<(Ask, Wishes), ApiError> {
    let fields = Fields::new(body);
    refuse_stored(fields)?;
    let responses::Request { conversation, origins } = responses::request(body, Defaults { family, thinking: true })?;
    let form = match &conversation.format {
        AnswerFormat::JsonSchema(schema) => Some((Form::Json(schema.clone()), "text.format.schema")),
        AnswerFormat::JsonObject => Some((Form::Json(json!({"type": "object"})), "text.format")),
        AnswerFormat::Text => None,
    };
    let include = fields.array("include")?.unwrap_or_default();
    let logprobs = match options::top_logprobs(fields, "top_logprobs")? {
        Some(top) if top > 0 => Some(top),
        _ => include.iter().any(|what| what == "message.output_text.logprobs").then_some(0),
    };
    let reasoning = fields.object("reasoning")?.map(|map| Fields::at(map, "reasoning"));
    let summary = match reasoning {
        None => None,
        Some(reasoning) => reasoning.string("summary")?.or(reasoning.string("generate_summary")?),
    };
    let wishes = Wishes {
        origins,
        encrypted: include.iter().any(|what| what == "reasoning.encrypted_content"),
        summary: summary.is_some_and(|kind| kind != "none"),
        logprobs: logprobs.is_some(),
    };
    let ask = Ask {
        options: Options::new(fields, logprobs)?,
        parallel: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
        form: form.map(|(form, place)| Wanted { form, place: place.to_owned() }),
        budget: None,
        conversation,
    };
    Ok((ask, wishes))
}

/// What stands for a history, a prompt or an answer kept by the server. Ignoring it would answer something else.
fn refuse_stored(fields: Fields<'_, '_>) -> Result<(), ApiError> {
    for key in ["previous_response_id", "conversation", "prompt"] {
        if fields.get(key).is_some() {
            let message = format!("`{key}` is not supported: this server stores nothing; send all items as `input`");
            return Err(ApiError::field(key, message).with_code("unsupported_parameter"));
        }
    }
    if fields.boolean("background")? == Some(true) {
        let message = "`background` is not supported: answers are not stored; stream the response instead";
        return Err(ApiError::field("background", message).with_code("unsupported_parameter"));
    }
    Ok(())
}
