//! What requests say about generating apart from the conversation: sampling, limits, stops, log-probabilities.

use luce_core::{Sampling, TokenId};
use luce_model::chat::SamplingDefaults;
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;

/// Most stop strings in a request.
const STOPS_MAX: usize = 16;
/// Below this many tokens of room a longer answer is not cut down to fit: the client should shorten the prompt instead.
const ROOM_MIN: u32 = 1024;
/// Most alternatives whose log-probabilities are told.
const TOP_MAX: i64 = 20;

/// Everything but the conversation.
#[derive(Debug)]
pub(crate) struct Options {
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
    /// Do not stop before this many tokens.
    pub(crate) min_tokens: u32,
    /// Tell log-probabilities, and those of this many alternatives.
    pub(crate) logprobs: Option<u32>,
    logit_bias: Vec<(TokenId, f32)>,
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

/// Which of the client's values count; the model's count elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heeded {
    pub(crate) temperature: bool,
    pub(crate) top_p: bool,
}

impl Options {
    /// Reads all but `logprobs`, in which the dialects differ.
    ///
    /// # Errors
    /// 400 that names the field.
    pub(crate) fn new(fields: Fields<'_, '_>, logprobs: Option<u32>) -> Result<Options, ApiError> {
        for key in ["n", "best_of"] {
            if let Some(number) = fields.integer(key)?
                && number != 1
            {
                return Err(ApiError::field(key, format!("`{key}` is {number}; only 1 is supported")));
            }
        }
        let stream_options = fields.object("stream_options")?.map(|map| Fields::at(map, "stream_options"));
        let include_usage = stream_options.map_or(Ok(None), |options| options.boolean("include_usage"))?;
        let min_tokens = fields.integer("min_tokens")?.unwrap_or(0);
        Ok(Options {
            model: fields.string("model")?.map(|name| name.strip_suffix("[1m]").unwrap_or(name).to_owned()),
            stream: fields.boolean("stream")?.unwrap_or(false),
            include_usage: include_usage.unwrap_or(false),
            max_tokens: max_tokens(fields)?,
            stops: stops(fields)?,
            stop_tokens: stop_tokens(fields)?,
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            min_tokens: u32::try_from(min_tokens).map_err(|_| {
                ApiError::field("min_tokens", format!("`min_tokens` is {min_tokens}; it must be at least 0"))
            })?,
            logprobs,
            logit_bias: logit_bias(fields)?,
            asked: Asked::new(fields)?,
        })
    }

    /// The sampling that is used: what the client left out, or what does not count, takes the model's value.
    ///
    /// # Errors
    /// 400 for a token that the vocabulary does not have.
    pub(crate) fn sampling(
        &self,
        defaults: SamplingDefaults,
        heeded: Heeded,
        vocabulary: u32,
    ) -> Result<Sampling, ApiError> {
        let asked = &self.asked;
        let stops = self.stop_tokens.iter().map(|token| ("stop_token_ids", token));
        let mut named = stops.chain(self.logit_bias.iter().map(|(token, _)| ("logit_bias", token)));
        if let Some((field, token)) = named.find(|(_, token)| token.0 >= vocabulary) {
            let message = format!("`{field}` has {token}, but the vocabulary ends at {vocabulary}");
            return Err(ApiError::field(field, message));
        }
        Ok(Sampling {
            temperature: asked.temperature.filter(|_| heeded.temperature).unwrap_or(defaults.temperature),
            top_p: asked.top_p.filter(|_| heeded.top_p).unwrap_or(defaults.top_p),
            top_k: asked.top_k,
            min_p: asked.min_p,
            repetition_penalty: asked.repetition_penalty,
            presence_penalty: asked.presence_penalty,
            frequency_penalty: asked.frequency_penalty,
            seed: asked.seed,
            logit_bias: self.logit_bias.clone(),
            min_tokens: self.min_tokens,
        })
    }

    /// The most tokens to generate after a prompt of this length: what was asked for, or `default`, cut to the room left
    /// in the context.
    ///
    /// # Errors
    /// 400 when less room is left than the smaller of what was asked for and 1024 tokens.
    pub(crate) fn limit(&self, prompt: usize, default: u32, context: u32) -> Result<u32, ApiError> {
        let wanted = self.max_tokens.unwrap_or(default);
        let prompt = u32::try_from(prompt).unwrap_or(u32::MAX);
        let room = context.saturating_sub(prompt);
        // A client without a wish takes whatever is left.
        let least = if self.max_tokens.is_some() { wanted.min(ROOM_MIN) } else { 1 };
        if room < least { Err(ApiError::overflow(prompt, wanted, context)) } else { Ok(wanted.min(room)) }
    }

    /// For answers of a given form.
    ///
    /// # Errors
    /// 400 when the client wants a least length, too.
    pub(crate) fn refuse_min_tokens(&self) -> Result<(), ApiError> {
        if self.min_tokens == 0 {
            return Ok(());
        }
        let message = "`min_tokens` cannot go with an answer of a given form, which ends where the form does";
        Err(ApiError::field("min_tokens", message))
    }

    /// The tokens that end the answer.
    pub(crate) fn all_stop_tokens(&self, turn_ends: &[TokenId]) -> Vec<TokenId> {
        let turn_ends = if self.ignore_eos { &[] } else { turn_ends };
        turn_ends.iter().chain(&self.stop_tokens).copied().collect()
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

/// A number of alternatives.
///
/// # Errors
/// 400 when it is not 0 to 20.
pub(crate) fn top_logprobs(fields: Fields<'_, '_>, key: &str) -> Result<Option<u32>, ApiError> {
    let Some(top) = fields.integer(key)? else { return Ok(None) };
    if !(0..=TOP_MAX).contains(&top) {
        return Err(ApiError::field(key, format!("`{key}` is {top}; it must be 0 to {TOP_MAX}")));
    }
    Ok(u32::try_from(top).ok())
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

/// `stop`, or `stop_sequences` as Anthropic calls it.
fn stops(fields: Fields<'_, '_>) -> Result<Vec<String>, ApiError> {
    let key = if fields.get("stop").is_some() { "stop" } else { "stop_sequences" };
    let list = match fields.get(key) {
        None => return Ok(Vec::new()),
        Some(one @ Value::String(_)) => std::slice::from_ref(one),
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => return Err(ApiError::field(key, format!("`{key}` must be a string or an array of strings"))),
    };
    if list.len() > STOPS_MAX {
        let message = format!("`{key}` has {} strings; at most {STOPS_MAX} are allowed", list.len());
        return Err(ApiError::field(key, message));
    }
    list.iter()
        .enumerate()
        .map(|(i, stop)| match stop.as_str() {
            Some(stop) if !stop.is_empty() => Ok(stop.to_owned()),
            Some(_) => Err(ApiError::field(format!("{key}[{i}]"), format!("`{key}[{i}]` is an empty string"))),
            None => Err(ApiError::field(format!("{key}[{i}]"), format!("`{key}[{i}]` must be a string"))),
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

fn logit_bias(fields: Fields<'_, '_>) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let inner = Fields::at(map, "logit_bias");
    map.keys()
        .filter(|key| inner.get(key).is_some())
        .map(|key| {
            let token = key.parse().map(TokenId).map_err(|_| {
                ApiError::field("logit_bias", format!("`logit_bias` has the key {key:?}, which is no token id"))
            })?;
            let bias = inner.number(key, "between -100 and 100", |x| (-100.0..=100.0).contains(&x))?;
            Ok((token, bias.unwrap_or(0.0)))
        })
        .collect()
}
