//! DeepSeek V4 and V4.1 as data: configuration, tensor roles, layer program, tokenizer, chat encoding.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod engram;
mod error;
mod program;
#[cfg(test)]
mod testing;
mod weights;

pub use config::{
    CandidateConfig, EngramConfig, Family, IndexConfig, LayerState, MAX_NGRAM, ModelConfig, RopeConfig, StateShape,
    StateSize,
};
pub use engram::{EngramHasher, EngramHistory};
pub use error::ModelError;
pub use program::{Program, ProgramOptions, Stage, StageKind, Value, ValueId, ValueKind};
pub use weights::{Ignored, Role, Storage, WeightClass, WeightMap};

pub mod chat;
pub mod tokenizer;
