//! What the endpoints need to know of a model's language: conversations into token ids, token ids into pieces of text.
//!
//! `luce-model` speaks it for DeepSeek V4 and V4.1; the trait keeps the endpoints, and their tests, apart from a
//! vocabulary of 129,280 entries.

use std::borrow::Cow;

use luce_core::TokenId;
use serde_json::{Map, Value};

/// Where the prompt left the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// After `<think>`: the model reasons first.
    Reasoning,
    /// After `</think>`: the model answers.
    Content,
    /// After a forced opening of the tool-call block.
    Calls,
}

/// A conversation as the model reads it.
#[derive(Clone, PartialEq, Debug)]
pub struct Encoded {
    /// The whole prompt.
    pub prompt: Vec<TokenId>,
    /// Where it leaves the model.
    pub start: Start,
    /// Whether thinking is on for this request.
    pub thinking: bool,
    /// Whether the effort is the highest one, whose answers are longest.
    pub max_effort: bool,
}

/// A conversation that has no meaning for this model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct EncodeError {
    /// What is wrong, for the client.
    pub message: String,
    /// The field of the request, if one is to blame.
    pub param: Option<String>,
}

/// What one token of an answer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Bytes of text; not always whole characters.
    Text(Cow<'a, [u8]>),
    /// The token `<think>`.
    ThinkOpen,
    /// The token `</think>`.
    ThinkClose,
    /// The token `｜DSML｜`.
    Dsml,
    /// A token that is never shown.
    Hidden,
}

/// The version of the model family; some defaults depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// DeepSeek V4.
    V4,
    /// DeepSeek V4.1.
    V41,
}

/// The language of the served model.
pub trait ChatCodec: Send + Sync {
    /// The version that is served.
    fn family(&self) -> Family;

    /// The prompt of a chat-completions body: messages, tools, tool choice, thinking and effort are read, all else is
    /// ignored. Called from a blocking thread; may take long for a long conversation.
    ///
    /// # Errors
    /// [`EncodeError`] when the conversation has no meaning; the client gets a 400.
    fn encode(&self, body: &Map<String, Value>) -> Result<Encoded, EncodeError>;

    /// What a generated token is. Ids outside the vocabulary are [`Piece::Hidden`].
    fn piece(&self, token: TokenId) -> Piece<'_>;

    /// The tokens that end a turn.
    fn stop_tokens(&self) -> &[TokenId];
}
