//! Configuration: one TOML file for the whole cluster, with overrides from the environment and the command line.
//!
//! [`load`] reads the file, lays `LUCE__A__B=..` and then `--set a.b=..` over it, checks every key, type and range, and
//! checks that the actors of each box can serve the model together. [`Loaded::print`] says where each value came from.
//! `docs/configuration.md` describes the keys for users.

mod bytes;
mod check;
mod error;
mod load;
mod overrides;
mod read;
mod section;
#[cfg(test)]
mod tests;
mod tree;

use std::path::PathBuf;

pub use error::{ConfigError, Origin};
pub use load::{Loaded, Setting, load};

/// The checked configuration of all boxes.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// `[model]`.
    pub model: ModelSection,
    /// `[[box]]`, in the order of the file; at least one, names differ.
    pub boxes: Vec<BoxSection>,
    /// `[schedule]`.
    pub schedule: Schedule,
    /// `[numerics]`.
    pub numerics: Numerics,
    /// `[api]`, with overrides laid over it. Its keys are the API crate's to check.
    pub api: toml::Table,
}

/// `[model]`: what is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelSection {
    /// The GGUF file; a relative path starts at the current directory.
    pub path: PathBuf,
    /// The name clients see; `None`: the name in the file.
    pub name: Option<String>,
    /// Most tokens of one sequence, prompt and answer together. Default 4096.
    pub context: u32,
}

/// `[[box]]`: one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoxSection {
    /// Letters, digits, `-` and `_`; `--box` or the host name picks it.
    pub name: String,
    /// `[[box.actor]]`, in the order of the file; between them they hold every role (see [`Role`]).
    pub actors: Vec<ActorSection>,
}

/// `[[box.actor]]`: one device and what it does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActorSection {
    /// Letters, digits, `-` and `_`; differs from the other actors' of the box.
    pub name: String,
    /// What the actor runs on.
    pub kind: Kind,
    /// What it does; at least one, none twice.
    pub roles: Vec<Role>,
    /// Threads that compute; 0 (the default): the cores are shared out between the actors.
    pub threads: usize,
    /// Binds each thread to a core. Default false.
    pub pin: bool,
    /// Bytes its buffers may take together; `None`: the device's own limit.
    pub memory: Option<u64>,
}

/// What an actor runs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Threads of this machine's CPU.
    Cpu,
}

/// What an actor does. Each box has exactly one dense actor, which is its logits and reduce actor too in this build, and at
/// least one experts actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Embedding, attention, hyper-connections, shared expert and router.
    Dense,
    /// Routed experts.
    Experts,
    /// Final norm and output head.
    Logits,
    /// Adds the partial sums of the experts actors.
    Reduce,
}

/// `[schedule]`: how work is cut and ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// `[schedule.prefill]`.
    pub prefill: Prefill,
    /// `[schedule.decode]`.
    pub decode: Decode,
    /// Requests that may wait for their turn; one more is refused. Default 32.
    pub max_queue: u32,
    /// `[schedule.wait]`.
    pub wait: WaitPolicy,
}

/// `[schedule.prefill]`: prompts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefill {
    /// Prompt tokens that one pass takes. Default 512.
    pub chunk: u32,
    /// Bands of a chunk that are on their way through the actors at a time. Default 2.
    pub bands_in_flight: u32,
}

/// `[schedule.decode]`: answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decode {
    /// Sequences that are decoded together. Default 4.
    pub max_sequences: u32,
}

/// `[schedule.wait]`: how an actor waits for its next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPolicy {
    /// Microseconds an actor spins before it parks; 0: it parks at once. Default 50.
    pub spin_us: u32,
}

/// `[numerics]`: what is computed, bit for bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numerics {
    /// Default [`Activations::Int8`].
    pub activations: Activations,
    /// Default [`ReduceMode::Exact`].
    pub reduce: ReduceMode,
    /// Default [`Qat::Off`].
    pub qat: Qat,
}

/// What a quantised weight's product takes as its other side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Activations {
    /// Activations rounded to 8 bits by block: the fast form.
    Int8,
    /// Activations as they are.
    F32,
}

/// How the experts' partial sums are added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceMode {
    /// The sum does not depend on how experts are spread over actors.
    Exact,
    /// Plain `f32` additions in the actors' order.
    F32,
}

/// Whether the fake quantisation of training is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Qat {
    /// Not repeated.
    Off,
    /// On what goes into the key-value cache.
    Kv,
}
