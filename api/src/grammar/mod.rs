//! Answers that must have a form: JSON of a schema, a regular expression, one of several texts, a Lark grammar, a tool
//! call.
//!
//! The crate `llguidance` says which tokens a grammar allows next. [`Grammars`] holds what it needs to know of the
//! vocabulary, made once; [`Guide`] follows one answer: free while the model thinks, bound by the grammar after that.

mod calls;
mod form;
mod guide;

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use luce_core::TokenId;
use luce_model::chat::{Conversation, Opening, Tool, ToolChoice};

pub(crate) use form::{Form, Wanted};
pub(crate) use guide::Guide;

use crate::codec::{ChatCodec, Piece};
use crate::error::ApiError;
use calls::Block;

/// Grammars over one vocabulary.
pub(crate) struct Grammars {
    factory: ParserFactory,
    end_think: Option<TokenId>,
    dsml: Option<TokenId>,
    /// Tokens that end a turn; the first is what a complete answer ends with.
    stops: Vec<TokenId>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").field("end_think", &self.end_think).field("dsml", &self.dsml).finish()
    }
}

impl Grammars {
    /// Reads the whole vocabulary; a large one takes some tenths of a second.
    ///
    /// # Errors
    /// When no token ends a turn.
    pub(crate) fn new(codec: &dyn ChatCodec, vocabulary: u32) -> Result<Grammars, ApiError> {
        let stops = codec.stop_tokens().to_vec();
        let eos = stops.first().ok_or_else(|| ApiError::internal("no token of the vocabulary ends an answer"))?;
        let (mut end_think, mut dsml) = (None, None);
        let words: Vec<Vec<u8>> = (0..vocabulary)
            .map(|id| {
                let token = TokenId(id);
                match codec.piece(token) {
                    Piece::Text(bytes) => return bytes.into_owned(),
                    Piece::ThinkClose => end_think = Some(token),
                    Piece::Dsml => dsml = Some(token),
                    Piece::ThinkOpen | Piece::Hidden => {}
                }
                // A byte that no text has, so no rule but the token's own number allows it.
                let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
                word.extend_from_slice(format!("[{id}]").as_bytes());
                word
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(vocabulary, eos.0), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let broken = |error| ApiError::internal(format!("the vocabulary cannot be used for grammars: {error}"));
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(broken)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Grammars { factory, end_think, dsml, stops })
    }

    /// What guides the answer to a conversation; `None` when nothing limits it. `budget`: tokens of thinking after which
    /// it is ended.
    ///
    /// # Errors
    /// 400 that names the field whose grammar cannot be used.
    pub(crate) fn guide(
        self: &Arc<Self>,
        conversation: &Conversation,
        family: luce_model::Family,
        opening: Opening,
        wanted: Option<&Wanted>,
        parallel: bool,
        budget: Option<u32>,
    ) -> Result<Option<Guide>, ApiError> {
        let block = Block { family, dsml: self.dsml.unwrap_or_default(), parallel };
        let must_call = conversation.must_call();
        let strict = conversation.has_tools() && conversation.tools.iter().any(|tool| tool.strict);
        let calls = (strict || must_call) && self.dsml.is_some();
        let tools: Vec<_> = match &conversation.choice {
            ToolChoice::Named(name) => conversation.tools.iter().filter(|tool| tool.name == *name).collect(),
            _ => conversation.tools.iter().collect(),
        };
        // A call may also come instead of the answer, unless it is the answer.
        let both = conversation.has_tools() && wanted.is_some() && self.dsml.is_some();
        let inside = if calls || both { Some(block.rules(&tools)?) } else { None };
        let after_marker = match &inside {
            Some(rules) => Some(self.matcher(vec![block.after_marker(rules)], "tools").map_err(|error| {
                // By itself a schema says better what is wrong with it.
                let alone = tools.iter().filter(|tool| tool.strict).find_map(|tool| self.schema_fault(tool));
                alone.unwrap_or(error)
            })?),
            None => None,
        };
        let answer = match (&inside, wanted) {
            (Some(rules), _) if opening == Opening::ToolCalls => {
                Some(self.matcher(vec![block.inside(rules)], "tools")?)
            }
            (Some(rules), _) if must_call => Some(self.matcher(vec![block.whole(rules)], "tools")?),
            (Some(rules), Some(wanted)) => {
                let answer =
                    GrammarWithLexer { name: Some("answer".to_owned()), ..wanted.form.grammar(&wanted.place)? };
                Some(self.matcher(vec![block.or_answer(rules), answer], &wanted.place)?)
            }
            (None, Some(wanted)) => Some(self.matcher(vec![wanted.form.grammar(&wanted.place)?], &wanted.place)?),
            (_, None) => None,
        };
        let thinks = opening == Opening::Reasoning;
        if answer.is_none() && after_marker.is_none() && !(thinks && budget.is_some()) {
            return Ok(None);
        }
        Ok(Some(Guide::new(Arc::clone(self), thinks.then_some(budget), answer, after_marker)))
    }

    /// What keeps a tool's schema from being enforced.
    fn schema_fault(&self, tool: &Tool) -> Option<ApiError> {
        let grammar = GrammarWithLexer::from_json_schema(tool.parameters.clone());
        self.matcher(vec![grammar], &format!("tools: parameters of {}", tool.name)).err()
    }

    fn matcher(&self, grammars: Vec<GrammarWithLexer>, place: &str) -> Result<Matcher, ApiError> {
        let grammar = TopLevelGrammar { grammars, max_tokens: None };
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        if let Some(why) = matcher.get_error() {
            return Err(refused(place, &why));
        }
        // What a warning says is not checked, an answer could break.
        match matcher.grammar_warnings().first() {
            Some(why) => Err(refused(place, why)),
            None => Ok(matcher),
        }
    }
}

/// Most characters of a grammar's fault that a client is told.
const WHY_MAX: usize = 300;

/// 400: the grammar at `place` cannot be used.
fn refused(place: &str, why: &str) -> ApiError {
    let why = why.split("<backtrace>").next().unwrap_or_default().trim();
    // A grammar is quoted where it fails, which may be a long line.
    let mut short: String = why.chars().take(WHY_MAX).collect();
    if short.len() < why.len() {
        short.push_str(" ...");
    }
    ApiError::field(place, format!("`{place}` cannot be enforced: {short}")).with_code("invalid_grammar")
}
