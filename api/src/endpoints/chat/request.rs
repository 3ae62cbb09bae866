//! What a chat-completions body asks for: the conversation, read by `luce-model`, and around it sampling, limits, stop
//! strings and what may be said of tools.

use std::sync::Arc;

use luce_core::{Sampling, TokenId};
use luce_model::Family;
use luce_model::chat::openai::{self, BadRequest, Defaults};
use luce_model::chat::{Conversation, Effort, ToolChoice};
use serde_json::{Map, Value};

use crate::codec::{ChatCodec, Encoded};
use crate::config::SamplingRule;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::parser::{ToolMode, ToolSchema, ToolSchemas};

/// Most stop strings in a request.
const STOPS_MAX: usize = 16;
/// Below this many tokens of room a longer answer is not cut down to fit: the client should shorten the prompt instead.
const ROOM_MIN: u32 = 1024;

/// A request that passed every check that needs no tokenizer.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    /// The model's name as the client wrote it.
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// Tokens to generate at most, if the client said so.
    pub(crate) max_tokens: Option<u32>,
    pub(crate) stops: Vec<String>,
    /// Further tokens that end the answer.
    pub(crate) stop_tokens: Vec<TokenId>,
    /// Do not stop at the end of the turn.
    pub(crate) ignore_eos: bool,
    pub(crate) tools: ToolMode,
    pub(crate) schemas: Arc<ToolSchemas>,
    pub(crate) conversation: Conversation,
    asked: Asked,
}

/// Sampling values that the client sent.
#[derive(Debug, Default)]
struct Asked {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: u32,
    min_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    seed: Option<u64>,
}

impl ChatRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field; also for fields that this build cannot honour yet.
    pub(crate) fn new(body: &Map<String, Value>, family: Family) -> Result<ChatRequest, ApiError> {
        let fields = Fields::new(body);
        refuse_unsupported(fields)?;
        // The hosted service thinks unless it is told not to.
        let mut conversation = openai::conversation(body, Defaults { family, thinking: true })?;
        if conversation.must_call() {
            // No engine can force the opening of a call where reasoning ends yet, so the prompt opens it at once.
            conversation.thinking = None;
        }
        let stream_options = fields.object("stream_options")?.map(|map| Fields::at(map, "stream_options"));
        let include_usage = stream_options.map_or(Ok(None), |options| options.boolean("include_usage"))?;
        Ok(ChatRequest {
            model: fields.string("model")?.map(|name| name.strip_suffix("[1m]").unwrap_or(name).to_owned()),
            stream: fields.boolean("stream")?.unwrap_or(false),
            include_usage: include_usage.unwrap_or(false),
            max_tokens: max_tokens(fields)?,
            stops: stops(fields)?,
            stop_tokens: stop_tokens(fields)?,
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            tools: tool_mode(fields, &conversation)?,
            schemas: Arc::new(schemas(&conversation)),
            conversation,
            asked: Asked::new(fields)?,
        })
    }

    /// The sampling that is used: what the client left out takes the model's value.
    pub(crate) fn sampling(&self, rule: SamplingRule, codec: &dyn ChatCodec) -> Sampling {
        let asked = &self.asked;
        let defaults = codec.sampling_defaults(&self.conversation);
        let thinking = self.conversation.thinking.is_some();
        let model_rules = rule == SamplingRule::Model;
        let own = |value: Option<f32>| if thinking && model_rules { None } else { value };
        // V4.1 picks top_p by itself without thinking too.
        let forced_top_p = model_rules && codec.family() == Family::V41;
        Sampling {
            temperature: own(asked.temperature).unwrap_or(defaults.temperature),
            top_p: own(asked.top_p).filter(|_| !forced_top_p).unwrap_or(defaults.top_p),
            top_k: asked.top_k,
            min_p: asked.min_p,
            repetition_penalty: asked.repetition_penalty,
            presence_penalty: asked.presence_penalty,
            frequency_penalty: asked.frequency_penalty,
            seed: asked.seed,
            ..Sampling::default()
        }
    }

    /// The most tokens to generate after this prompt: what was asked for, or the default of the mode, cut to the room
    /// left in the context.
    ///
    /// # Errors
    /// 400 when less room is left than the smaller of what was asked for and 1024 tokens.
    pub(crate) fn limit(&self, encoded: &Encoded, context: u32) -> Result<u32, ApiError> {
        let default = match self.conversation.thinking {
            None => 8_192,
            Some(effort) if effort.level() == Effort::Max.level() => 131_072,
            Some(_) => 65_536,
        };
        let wanted = self.max_tokens.unwrap_or(default);
        let prompt = u32::try_from(encoded.prompt.len()).unwrap_or(u32::MAX);
        let room = context.saturating_sub(prompt);
        // A client without a wish takes whatever is left.
        let least = if self.max_tokens.is_some() { wanted.min(ROOM_MIN) } else { 1 };
        if room < least { Err(ApiError::overflow(prompt, wanted, context)) } else { Ok(wanted.min(room)) }
    }
}

impl Asked {
    fn new(fields: Fields<'_, '_>) -> Result<Asked, ApiError> {
        let penalty = |key| fields.number(key, "between -2 and 2", |x| (-2.0..=2.0).contains(&x));
        let top_k = fields.integer("top_k")?.unwrap_or(0);
        if top_k < -1 {
            return Err(ApiError::field("top_k", format!("`top_k` is {top_k}; it must be at least 0, or -1 for all")));
        }
        Ok(Asked {
            temperature: fields.number("temperature", "between 0 and 2", |x| (0.0..=2.0).contains(&x))?,
            top_p: fields.number("top_p", "above 0 and at most 1", |x| x > 0.0 && x <= 1.0)?,
            top_k: u32::try_from(top_k.max(0)).unwrap_or(u32::MAX),
            min_p: fields.number("min_p", "between 0 and 1", |x| (0.0..=1.0).contains(&x))?.unwrap_or(0.0),
            repetition_penalty: fields
                .number("repetition_penalty", "above 0 and at most 2", |x| x > 0.0 && x <= 2.0)?
                .unwrap_or(1.0),
            presence_penalty: penalty("presence_penalty")?.unwrap_or(0.0),
            frequency_penalty: penalty("frequency_penalty")?.unwrap_or(0.0),
            seed: fields.integer("seed")?.map(i64::cast_unsigned),
        })
    }
}

/// Fields whose function is not built yet. Ignoring them would answer another question than was asked.
fn refuse_unsupported(fields: Fields<'_, '_>) -> Result<(), ApiError> {
    for key in ["n", "best_of"] {
        if let Some(number) = fields.integer(key)?
            && number != 1
        {
            return Err(ApiError::field(key, format!("`{key}` is {number}; only 1 is supported")));
        }
    }
    let logprobs = fields.boolean("logprobs")?.unwrap_or(false);
    if let Some(top) = fields.integer("top_logprobs")? {
        if !(0..=20).contains(&top) {
            return Err(ApiError::field("top_logprobs", format!("`top_logprobs` is {top}; it must be 0 to 20")));
        }
        if !logprobs {
            return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs: true`"));
        }
    }
    if logprobs {
        return Err(ApiError::unsupported("logprobs"));
    }
    if let Some(format) = fields.object("response_format")? {
        match Fields::at(format, "response_format").string("type")? {
            Some("text") => {}
            Some("json_object" | "json_schema" | "regex") => return Err(ApiError::unsupported("response_format")),
            other => {
                let message =
                    format!("`response_format.type` is {}; only \"text\" is known", other.unwrap_or("missing"));
                return Err(ApiError::field("response_format.type", message));
            }
        }
    }
    if fields.object("logit_bias")?.is_some_and(|bias| !bias.is_empty()) {
        return Err(ApiError::unsupported("logit_bias"));
    }
    if fields.integer("min_tokens")?.unwrap_or(0) != 0 {
        return Err(ApiError::unsupported("min_tokens"));
    }
    let grammars = [
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "json_schema",
        "grammar",
    ];
    if let Some(key) = grammars.into_iter().find(|key| fields.get(key).is_some()) {
        return Err(ApiError::unsupported(key));
    }
    if fields.array("modalities")?.is_some_and(|kinds| kinds.iter().any(|kind| kind != "text")) {
        return Err(ApiError::field("modalities", "`modalities` may only name \"text\""));
    }
    if fields.get("audio").is_some() {
        return Err(ApiError::field("audio", "audio output is not supported"));
    }
    Ok(())
}

fn max_tokens(fields: Fields<'_, '_>) -> Result<Option<u32>, ApiError> {
    // Every one of them is checked; the first that is there counts.
    let mut first = None;
    for key in ["max_completion_tokens", "max_tokens", "max_output_tokens"] {
        let Some(number) = fields.integer(key)? else { continue };
        if number == 0 || number < -1 {
            return Err(ApiError::field(
                key,
                format!("`{key}` is {number}; it must be at least 1, or -1 for no limit"),
            ));
        }
        first = first.or(Some(number));
    }
    Ok(first.and_then(|number| u32::try_from(number).ok().or((number > 0).then_some(u32::MAX))))
}

fn stops(fields: Fields<'_, '_>) -> Result<Vec<String>, ApiError> {
    let list = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(one @ Value::String(_)) => std::slice::from_ref(one),
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => return Err(ApiError::field("stop", "`stop` must be a string or an array of strings")),
    };
    if list.len() > STOPS_MAX {
        let message = format!("`stop` has {} strings; at most {STOPS_MAX} are allowed", list.len());
        return Err(ApiError::field("stop", message));
    }
    list.iter()
        .enumerate()
        .map(|(i, stop)| match stop.as_str() {
            Some(stop) if !stop.is_empty() => Ok(stop.to_owned()),
            Some(_) => Err(ApiError::field(format!("stop[{i}]"), format!("`stop[{i}]` is an empty string"))),
            None => Err(ApiError::field(format!("stop[{i}]"), format!("`stop[{i}]` must be a string"))),
        })
        .collect()
}

fn stop_tokens(fields: Fields<'_, '_>) -> Result<Vec<TokenId>, ApiError> {
    let list = fields.array("stop_token_ids")?.unwrap_or_default();
    list.iter()
        .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()).map(TokenId))
        .collect::<Option<_>>()
        .ok_or_else(|| ApiError::field("stop_token_ids", "`stop_token_ids` must be an array of token ids"))
}

fn tool_mode(fields: Fields<'_, '_>, conversation: &Conversation) -> Result<ToolMode, ApiError> {
    let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
    Ok(match conversation.choice {
        _ if conversation.tools.is_empty() => ToolMode::Verbatim,
        ToolChoice::None => ToolMode::Remove,
        ToolChoice::Auto | ToolChoice::Required | ToolChoice::Named(_) => ToolMode::Parse { first_only: !parallel },
    })
}

fn schemas(conversation: &Conversation) -> ToolSchemas {
    conversation.tools.iter().map(|tool| (tool.name.clone(), ToolSchema::new(&tool.parameters))).collect()
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
