//! A conversation as the encoder takes it, whichever protocol it came by.

use std::sync::Arc;

use luce_core::TokenId;
use serde_json::{Map, Value};

/// A request's conversation and what bears on its prompt.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conversation {
    /// The turns, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<Tool>,
    /// Whether it may, must or must not.
    pub choice: ToolChoice,
    /// `None`: the model answers at once; else how hard it thinks first.
    pub thinking: Option<Effort>,
    /// What the answer must look like.
    pub format: AnswerFormat,
}

impl Conversation {
    /// Whether tools are in play: some were given and calling is not forbidden.
    pub fn has_tools(&self) -> bool {
        !self.tools.is_empty() && self.choice != ToolChoice::None
    }

    /// Whether the answer must be a tool call.
    pub fn must_call(&self) -> bool {
        self.has_tools() && matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    /// Whether a turn shows a picture.
    pub fn has_images(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::User(parts) | Message::ToolResult { parts, .. } => parts.contains(&Part::Image),
            _ => false,
        })
    }
}

/// One turn, or a part of one: neighbours of the same side share a turn where the format says so.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// From whoever runs the system. Empty ones vanish (V4) or leave an empty turn (V4.1); converters drop them.
    System(String),
    /// From the user.
    User(Vec<Part>),
    /// From the model.
    Assistant(Assistant),
    /// What a tool call gave.
    ToolResult {
        /// The call's id; results are put in the order of the calls. `None` keeps its place after those that match.
        call: Option<String>,
        /// The result.
        parts: Vec<Part>,
    },
    /// The newest state of things, such as the date.
    LatestReminder(String),
}

/// A turn of the model.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Assistant {
    /// What it thought; rendered only where the format keeps earlier reasoning, and as an empty block when absent.
    pub reasoning: Option<String>,
    /// What it said.
    pub content: String,
    /// What it called after that.
    pub calls: Vec<ToolCall>,
    /// The turn is unfinished and the model goes on with it. Only for the last message, without calls; elsewhere it has no
    /// effect.
    pub prefix: bool,
    /// How the model wrote it, where that is known. Used in place of the texts.
    pub written: Option<Arc<Written>>,
}

/// The tokens of a turn as the model wrote them. Its text, encoded again, may be cut into other tokens, and then no state
/// that was computed for what follows could be used again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// What it thought, up to and with the end of it; `None` when it did not think.
    pub thoughts: Option<Vec<TokenId>>,
    /// What came after that, without the end of the turn; `None` when the thinking was never ended, and all is in it.
    pub rest: Option<Vec<TokenId>>,
}

impl Written {
    /// Number of tokens.
    pub fn length(&self) -> usize {
        [&self.thoughts, &self.rest].into_iter().flatten().map(Vec::len).sum()
    }
}

/// A piece of a message. Pieces are joined with an empty line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture.
    Image,
}

/// A tool as the prompt describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Tool {
    /// Name.
    pub name: String,
    /// What it does; may be empty.
    pub description: String,
    /// JSON schema of its arguments, in the client's key order.
    pub parameters: Value,
    /// Left out of the prompt's list until the history brings it in.
    pub deferred: bool,
    /// Its arguments must keep to the schema exactly; the prompt does not show it.
    pub strict: bool,
}

/// A call that the model made.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolCall {
    /// Its id, if the client keeps one.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// With what.
    pub arguments: Arguments,
}

/// Arguments of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Arguments {
    /// By name, in the client's order.
    Object(Map<String, Value>),
    /// Not a JSON object; rendered as one string parameter called `arguments`.
    Text(String),
}

impl Arguments {
    /// From the text that protocols carry.
    pub fn from_text(text: &str) -> Arguments {
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Arguments::Object(map),
            _ => Arguments::Text(text.to_owned()),
        }
    }
}

/// Whether the model may call tools.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ToolChoice {
    /// It decides.
    #[default]
    Auto,
    /// It may not, and is not told of any.
    None,
    /// It must call one.
    Required,
    /// It must call this one, and is told of no other.
    Named(String),
}

/// How hard the model thinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Little.
    Low,
    /// As usual.
    High,
    /// As hard as it can.
    Max,
    /// V4.1's own scale from 1 to 100, on which low, high and max are 50, 75 and 100.
    Level(u8),
}

impl Effort {
    /// The place on V4.1's scale.
    pub fn level(self) -> u8 {
        match self {
            Effort::Low => 50,
            Effort::High => 75,
            Effort::Max => 100,
            Effort::Level(level) => level,
        }
    }
}

/// What the prompt says about the answer's form.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum AnswerFormat {
    /// Nothing.
    #[default]
    Text,
    /// Some JSON object.
    JsonObject,
    /// JSON that a schema accepts.
    JsonSchema(Value),
}
