//! Every key of the configuration but those of `[api]`, which are the API crate's. To add one, add a field here, then
//! rewrite `docs/configuration.md` (its first lines say how).

use std::path::PathBuf;

use super::check;
use super::compound::{Elements, Name, OneOf, SeveralOf, Table};
use super::define::{Key, Settings, Word, settings, words};
use super::error::ConfigError;
use super::load::Setting;
use super::section::Section;
use super::shape::{Flag, Number, OptionalText, Shape, Size, Text};

settings! {
    /// What is served.
    pub struct ModelSection {
        /// The GGUF file; a relative path starts at the current directory.
        pub path: PathBuf = Text { example: "path = \"models/luce-nano/luce-nano.gguf\" to [model]" },
        /// What clients call the model.
        pub name: Option<String> = OptionalText { unset: "the name in the file" },
        /// Most tokens of one sequence, prompt and answer together.
        pub context: u32 = Number { default: 4096, least: 1, most: u32::MAX },
    }

    /// One machine. With one box, that is this machine. With several, `--box NAME` says which, or else the host's name does
    /// (read from the Linux kernel; elsewhere `--box` is needed).
    pub struct BoxSection {
        /// The machine's name; differs from other boxes' names, capitals aside.
        pub name: String = Name,
        /// The devices of this machine; between them they have every role.
        pub actors as "actor": Vec<ActorSection> = Elements {
            about: ActorSection::ABOUT,
            keys: ActorSection::KEYS,
            example: None,
            check: |_: &ActorSection| Ok(()),
        },
    }

    /// One device and what it does.
    pub struct ActorSection {
        /// The actor's name; differs from the other actors' of its box, capitals aside.
        pub name: String = Name,
        /// What the actor runs on.
        pub kind: Kind = OneOf { words: Kind::WORDS, later: &["gpu", "ssd", "peer", "auto"] },
        /// What the actor does; at least one role, none twice.
        pub roles: Vec<Role> = SeveralOf {
            words: Role::WORDS,
            later: &["draft"],
            example: "roles = [\"dense\", \"experts\", \"logits\", \"reduce\"], or some of them",
        },
        /// Threads that compute; 0: the cores are shared out between the actors.
        pub threads: usize = Number { default: 0, least: 0, most: 1024 },
        /// Binds each thread to a core.
        pub pin: bool = Flag { default: false },
        /// Most bytes of its buffers together.
        pub memory: Option<u64> = Size { unset: "the device's limit" },
    }

    /// How work is cut and ordered.
    pub struct Schedule {
        /// Prompts.
        pub prefill: Prefill = Table { keys: Prefill::KEYS },
        /// Answers.
        pub decode: Decode = Table { keys: Decode::KEYS },
        /// Requests that may wait for their turn; one more is refused.
        pub max_queue: u32 = Number { default: 32, least: 1, most: u32::MAX },
        /// How an actor waits for its next message.
        pub wait: WaitPolicy = Table { keys: WaitPolicy::KEYS },
    }

    /// How prompts are read.
    pub struct Prefill {
        /// Prompt tokens that one pass takes.
        pub chunk: u32 = Number { default: 512, least: 1, most: u32::MAX },
        /// Bands of a chunk that are on their way through the actors at a time.
        pub bands_in_flight: u32 = Number { default: 2, least: 1, most: 1024 },
    }

    /// How answers are written.
    pub struct Decode {
        /// Sequences that are decoded together.
        pub max_sequences: u32 = Number { default: 4, least: 1, most: 65_535 },
    }

    /// How an actor waits for its next message.
    pub struct WaitPolicy {
        /// Microseconds an actor spins before it parks; 0: it parks at once.
        pub spin_us: u32 = Number { default: 50, least: 0, most: 1_000_000 },
    }

    /// What is computed, bit for bit.
    pub struct Numerics {
        /// What a quantised weight is multiplied with.
        pub activations: Activations = OneOf { words: Activations::WORDS, later: &[] },
        /// How the experts' partial sums are added.
        pub reduce: ReduceMode = OneOf { words: ReduceMode::WORDS, later: &[] },
        /// Whether the fake quantisation of training is repeated.
        pub qat: Qat = OneOf { words: Qat::WORDS, later: &[] },
    }
}

words! {
    /// What an actor runs on.
    pub enum Kind {
        /// Threads of this machine's CPU.
        Cpu = "cpu",
    }

    /// What an actor does.
    pub enum Role {
        /// Embedding, attention, hyper-connections, shared expert and router. Exactly one actor of a box.
        Dense = "dense",
        /// Routed experts. One or more actors of a box.
        Experts = "experts",
        /// Final norm and output head. One actor of a box: in this build the dense one.
        Logits = "logits",
        /// Adds the partial sums of the experts actors. One actor of a box: in this build the dense one.
        Reduce = "reduce",
    }

    /// What a quantised weight's product takes as its other side.
    pub enum Activations {
        /// Activations rounded to 8 bits by block: the fast form.
        Int8 = "int8",
        /// Activations as they are.
        F32 = "f32",
    }

    /// How the experts' partial sums are added.
    pub enum ReduceMode {
        /// The sum does not depend on how experts are spread over actors.
        Exact = "exact",
        /// Plain `f32` additions in the actors' order.
        F32 = "f32",
    }

    /// Whether the fake quantisation of training is repeated.
    pub enum Qat {
        /// Not repeated.
        Off = "off",
        /// Repeated on what goes into the key-value cache.
        Kv = "kv",
    }
}

/// The tables of a file, in the order in which they are read and printed.
pub(super) const FILE: &[Key] = &[
    Key { name: "model", meaning: ModelSection::ABOUT, shape: &Table { keys: ModelSection::KEYS } },
    Key { name: "box", meaning: BoxSection::ABOUT, shape: &BOXES },
    Key { name: "schedule", meaning: Schedule::ABOUT, shape: &Table { keys: Schedule::KEYS } },
    Key { name: "numerics", meaning: Numerics::ABOUT, shape: &Table { keys: Numerics::KEYS } },
    Key { name: "api", meaning: "The HTTP API.", shape: &Table { keys: &[] } },
];

/// The shape of `[[box]]`.
pub(super) const BOXES: Elements<BoxSection> = Elements {
    about: BoxSection::ABOUT,
    keys: BoxSection::KEYS,
    example: Some("a [[box]] with at least one [[box.actor]]"),
    check: check::roles,
};

/// The checked configuration of all boxes. `A` is what `[api]` becomes.
#[derive(Clone, PartialEq, Debug)]
pub struct Config<A = toml::Table> {
    /// `[model]`.
    pub model: ModelSection,
    /// `[[box]]`, in the order of the file; at least one, names differ.
    pub boxes: Vec<BoxSection>,
    /// `[schedule]`.
    pub schedule: Schedule,
    /// `[numerics]`.
    pub numerics: Numerics,
    /// `[api]`.
    pub api: A,
}
