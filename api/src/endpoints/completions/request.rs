//! What a completions body asks for: a prompt that is not a conversation.

use luce_core::TokenId;
use luce_model::chat::{Conversation, Opening, SamplingDefaults};
use luce_model::tokenizer::Utf8Stream;
use serde_json::{Map, Value};

use crate::ask::Ready;
use crate::codec::ChatCodec;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::grammar::Wanted;
use crate::options::{self, Heeded, Options};
use crate::parser::{OutputParser, ToolMode};
use crate::state::{Backend, Shared};

/// The most tokens to generate where the client does not say.
const DEFAULT_LIMIT: u32 = 8_192;

/// A request, ready for the engine.
pub(super) struct Completion {
    pub(super) options: Options,
    /// What the answer begins with: the prompt, where the client wants to see it again.
    pub(super) echo: String,
    pub(super) ready: Ready,
}

/// Checks a body and encodes its prompt.
///
/// # Errors
/// 400 that names the field.
pub(super) fn read(body: &Map<String, Value>, shared: &Shared, backend: &Backend) -> Result<Completion, ApiError> {
    let fields = Fields::new(body);
    let (codec, served) = (&*backend.codec, backend.generate.served());
    let options = Options::new(fields, options::top_logprobs(fields, "logprobs")?)?;
    let written = prompt(fields, codec, served.vocabulary)?;
    let echo = fields.boolean("echo")?.unwrap_or(false);
    if echo && options.logprobs.is_some() {
        let message = "`echo` cannot go with `logprobs`: there are no log-probabilities of the prompt";
        return Err(ApiError::field("echo", message));
    }
    let echo = if echo { text(codec, &written) } else { String::new() };
    let prompt = whole_prompt(fields, codec, written)?;
    let max_tokens = options.limit(prompt.len(), DEFAULT_LIMIT, served.context)?;
    let heeded = Heeded { temperature: true, top_p: true };
    let sampling = options.sampling(SamplingDefaults { temperature: 1.0, top_p: 1.0 }, heeded, served.vocabulary)?;
    let constraint = match Wanted::read(fields)? {
        Some(wanted) => {
            options.refuse_min_tokens()?;
            let grammars = shared.grammars(backend)?;
            let conversation = Conversation::default();
            grammars.guide(&conversation, codec.family(), Opening::Content, Some(&wanted), true, None)?
        }
        None => None,
    };
    let stops = options.stops.clone();
    let parser = OutputParser::new(Opening::Content, ToolMode::Raw, std::sync::Arc::default(), stops);
    let request = luce_core::GenerateRequest {
        prompt,
        max_tokens,
        stop_tokens: options.all_stop_tokens(codec.stop_tokens()),
        sampling,
        logprobs: options.logprobs,
        constraint: constraint.map(|guide| Box::new(guide) as Box<dyn luce_core::Constraint>),
    };
    Ok(Completion { options, echo, ready: Ready { request, parser, note: None } })
}

/// The prompt as the client wrote it: a text in which spellings of markers are the markers, or token ids.
fn prompt(fields: Fields<'_, '_>, codec: &dyn ChatCodec, vocabulary: u32) -> Result<Vec<TokenId>, ApiError> {
    let wrong = || ApiError::field("prompt", "`prompt` must be a string or an array of token ids");
    let mut prompt = fields.get("prompt").ok_or_else(|| ApiError::field("prompt", "`prompt` is missing"))?;
    if let Value::Array(list) = prompt
        && list.iter().any(|item| item.is_string() || item.is_array())
    {
        match list.as_slice() {
            [one] => prompt = one,
            _ => {
                let message = format!("`prompt` has {} prompts; send one prompt with each request", list.len());
                return Err(ApiError::field("prompt", message));
            }
        }
    }
    match prompt {
        Value::String(text) => Ok(codec.tokenize(text, true)),
        Value::Array(list) => list
            .iter()
            .map(|id| match id.as_u64() {
                Some(id) if id < u64::from(vocabulary) => Ok(TokenId(id as u32)),
                Some(id) => {
                    let message = format!("`prompt` has token {id}, but the vocabulary ends at {vocabulary}");
                    Err(ApiError::field("prompt", message))
                }
                None => Err(wrong()),
            })
            .collect(),
        _ => Err(wrong()),
    }
}

/// The prompt with what stands around it: the begin of sequence, unless it is there, and with a suffix the markers of a gap
/// to fill.
fn whole_prompt(
    fields: Fields<'_, '_>,
    codec: &dyn ChatCodec,
    mut prompt: Vec<TokenId>,
) -> Result<Vec<TokenId>, ApiError> {
    let marks = codec.marks();
    if let Some(suffix) = fields.string("suffix")?.filter(|suffix| !suffix.is_empty()) {
        let [begin, hole, end] = marks.fim.ok_or_else(|| {
            ApiError::field(
                "suffix",
                "`suffix` is not supported: the model's vocabulary has no marks for a gap to fill",
            )
        })?;
        prompt.insert(usize::from(prompt.first() == Some(&marks.bos)), begin);
        prompt.push(hole);
        prompt.extend(codec.tokenize(suffix, true));
        prompt.push(end);
    }
    if prompt.first() != Some(&marks.bos) {
        prompt.insert(0, marks.bos);
    }
    Ok(prompt)
}

fn text(codec: &dyn ChatCodec, tokens: &[TokenId]) -> String {
    let (mut stream, mut text) = (Utf8Stream::new(), String::new());
    tokens.iter().for_each(|&token| stream.push(&codec.spelling(token), &mut text));
    text
}
