//! Chat encoding: a [`Conversation`] becomes the prompt that DeepSeek V4 and V4.1 were trained on.
//!
//! ```text
//! request JSON --openai::conversation--> Conversation --ChatFormat::encode--> Prompt --Prompt::tokens--> token ids
//!            or anthropic::conversation, responses::request
//! ```
//!
//! A [`Prompt`] is a list of structural tokens and plain texts, not one string: whoever writes `<｜User｜>` into a message
//! gets the characters, not the token. Each text between two structural tokens is cut and encoded as a whole.
//!
//! Why this is written here and not taken from a library: `docs/decisions/001-chat-encoding.md`.

pub mod anthropic;
mod carry;
mod conversation;
mod encode;
mod format;
mod json;
mod markup;
pub mod openai;
mod parts;
mod prompt;
mod read;
pub mod responses;
mod texts;
mod thinking;
mod tools;

pub use carry::{carried, carry};
pub use conversation::{
    AnswerFormat, Arguments, Assistant, Conversation, Effort, Message, Part, Tool, ToolCall, ToolChoice, Written,
};
pub use format::{ChatFormat, EffortProfile, Rendered, SamplingDefaults};
pub use json::write_json;
pub use prompt::{Opening, Prompt, Segment};
pub use read::{BadRequest, Defaults, json_kind};
