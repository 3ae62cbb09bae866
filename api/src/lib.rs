//! The HTTP API: OpenAI's and Anthropic's dialects over the trait `Generate`.
//!
//! [`serve`] listens at once; [`ApiState`] takes the engine and the model's language when they are known. A request goes
//! through `routes` to its endpoint, is checked and encoded there, and becomes a `Run`: the engine's events, parsed into
//! reasoning, content and tool calls. No prompt and no answer is ever logged.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access;
mod answer;
mod ask;
mod body;
mod codec;
mod config;
mod endpoints;
mod error;
mod fields;
mod grammar;
mod ids;
mod memory;
mod metrics;
mod options;
mod parser;
mod routes;
mod run;
mod scores;
mod server;
mod sse;
mod state;
mod whole;

pub use codec::{ChatCodec, DeepSeekCodec, Encoded, Marks, Piece};
pub use config::{ApiConfig, SamplingRule, Switch};
pub use error::ServeError;
pub use server::{ServerHandle, serve};
pub use state::{ApiState, Backend};
