//! A conversation to answer, from whichever protocol it came, made ready for the engine.

use std::sync::Arc;

use luce_core::{Constraint, GenerateRequest, Sampling};
use luce_model::Family;
use luce_model::chat::{Conversation, Effort, ToolChoice};
use serde_json::{Map, Value};

use crate::codec::{ChatCodec, Encoded};
use crate::config::SamplingRule;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::grammar::Wanted;
use crate::memory::Note;
use crate::options::{Heeded, Options};
use crate::parser::{OutputParser, ToolMode, ToolSchema, ToolSchemas};
use crate::state::{Backend, Shared};

/// A request that passed every check that needs no tokenizer.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) conversation: Conversation,
    pub(crate) options: Options,
    /// Several calls may come in one answer.
    pub(crate) parallel: bool,
    /// The form of the answer.
    pub(crate) form: Option<Wanted>,
    /// Tokens of thinking that the client allows.
    pub(crate) budget: Option<u32>,
}

/// What the engine and the reader of its output need.
pub(crate) struct Ready {
    pub(crate) request: GenerateRequest,
    pub(crate) parser: OutputParser,
    /// For an answer that is worth remembering.
    pub(crate) note: Option<Note>,
}

impl Ask {
    /// Encodes the conversation and builds the constraint. Takes many milliseconds for a long conversation: not for a
    /// thread that serves connections.
    ///
    /// # Errors
    /// 400 for a prompt that does not fit, a token outside the vocabulary, or a form that cannot be enforced.
    pub(crate) fn prepare(&self, shared: &Shared, backend: &Backend) -> Result<Ready, ApiError> {
        let (codec, served) = (&*backend.codec, backend.generate.served());
        let sampling = self.sampling(shared, backend)?;
        let encoded = self.encode(shared, codec);
        let max_tokens = self.options.limit(encoded.prompt.len(), self.default_limit(), served.context)?;
        let guided = self.form.is_some()
            || self.conversation.must_call()
            || self.conversation.has_tools() && self.conversation.tools.iter().any(|tool| tool.strict);
        let budget = self.budget.filter(|&tokens| shared.config.honour_budget && tokens > 0);
        let guide = if guided || budget.is_some() {
            let grammars = shared.grammars(backend)?;
            let form = self.form.as_ref();
            grammars.guide(&self.conversation, codec.family(), encoded.opening, form, self.parallel, budget)?
        } else {
            None
        };
        if guided {
            self.options.refuse_min_tokens()?;
        }
        let parser =
            OutputParser::new(encoded.opening, self.tool_mode(), Arc::new(self.schemas()), self.options.stops.clone());
        let request = GenerateRequest {
            prompt: encoded.prompt,
            max_tokens,
            stop_tokens: self.options.all_stop_tokens(codec.stop_tokens()),
            sampling,
            logprobs: self.options.logprobs,
            constraint: guide.map(|guide| Box::new(guide) as Box<dyn Constraint>),
        };
        let note = Note::new(&shared.memory, &self.conversation, encoded.opening, &request.prompt, codec);
        Ok(Ready { request, parser, note })
    }

    /// The prompt, in which answers that are remembered stand as they were written.
    pub(crate) fn encode(&self, shared: &Shared, codec: &dyn ChatCodec) -> Encoded {
        let mut conversation = self.conversation.clone();
        shared.memory.recall(&mut conversation);
        codec.encode(&conversation)
    }

    /// How tokens are chosen.
    ///
    /// # Errors
    /// 400 for a token outside the vocabulary.
    pub(crate) fn sampling(&self, shared: &Shared, backend: &Backend) -> Result<Sampling, ApiError> {
        let codec = &*backend.codec;
        let defaults = codec.sampling_defaults(&self.conversation);
        let vocabulary = backend.generate.served().vocabulary;
        self.options.sampling(defaults, self.heeded(shared, codec.family()), vocabulary)
    }

    fn heeded(&self, shared: &Shared, family: Family) -> Heeded {
        let model_rules = shared.config.sampling == SamplingRule::Model;
        let thinking = self.conversation.thinking.is_some();
        // V4.1 picks top_p by itself without thinking too.
        Heeded { temperature: !(model_rules && thinking), top_p: !(model_rules && (thinking || family == Family::V41)) }
    }

    /// The most tokens to generate where the client does not say.
    fn default_limit(&self) -> u32 {
        match self.conversation.thinking {
            None => 8_192,
            Some(effort) if effort.level() == Effort::Max.level() => 131_072,
            Some(_) => 65_536,
        }
    }

    fn tool_mode(&self) -> ToolMode {
        match self.conversation.choice {
            _ if self.conversation.tools.is_empty() => ToolMode::Verbatim,
            ToolChoice::None => ToolMode::Remove,
            ToolChoice::Auto | ToolChoice::Required | ToolChoice::Named(_) => {
                ToolMode::Parse { first_only: !self.parallel }
            }
        }
    }

    fn schemas(&self) -> ToolSchemas {
        self.conversation.tools.iter().map(|tool| (tool.name.clone(), ToolSchema::new(&tool.parameters))).collect()
    }
}

/// `thinking.budget_tokens`, which chat completions and Messages share.
///
/// # Errors
/// 400 for a wrong type or a negative number.
pub(crate) fn budget(body: &Map<String, Value>) -> Result<Option<u32>, ApiError> {
    let Some(thinking) = Fields::new(body).object("thinking")? else { return Ok(None) };
    let thinking = Fields::at(thinking, "thinking");
    let Some(tokens) = thinking.integer("budget_tokens")? else { return Ok(None) };
    let place = thinking.place("budget_tokens");
    match u32::try_from(tokens) {
        Ok(tokens) => Ok(Some(tokens)),
        Err(_) => Err(ApiError::field(place.clone(), format!("`{place}` is {tokens}; it must be at least 0"))),
    }
}
