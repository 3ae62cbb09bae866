//! What can be wrong with a model file as a model (its bytes as a container are the storage crate's business).

/// Why a file is not a model that the engine runs, and the way out.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ModelError {
    /// `general.architecture` is missing or no text.
    #[error("metadata has no text under general.architecture, so the kind of model is unknown; expected {SUPPORTED}")]
    NoArchitecture,
    /// An architecture that the engine does not run.
    #[error("architecture {found:?} is not supported; supported: {SUPPORTED}")]
    UnknownArchitecture {
        /// Text of `general.architecture`.
        found: String,
    },
    /// A file that belongs to a model, but is not one.
    #[error("architecture {found:?}: this file is {what}")]
    NotAModel {
        /// Text of `general.architecture`.
        found: String,
        /// What it is and where it belongs.
        what: &'static str,
    },
    /// A required value is missing under every spelling.
    #[error("{arch}: {what} is missing; looked for {}{hint}", tried.join(", "))]
    MissingKey {
        /// Architecture of the file.
        arch: String,
        /// Meaning of the value.
        what: &'static str,
        /// Every key that was tried.
        tried: Vec<String>,
        /// Why no value can be assumed, or empty.
        hint: String,
    },
    /// A value is there but cannot be right.
    #[error("metadata key {key}: {problem}")]
    BadKey {
        /// The key, with its architecture prefix.
        key: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// Two spellings of one value disagree.
    #[error("metadata keys {first} and {second} both give the {what} but disagree; the file must say it once")]
    Conflict {
        /// Meaning of the value.
        what: &'static str,
        /// Key found first.
        first: String,
        /// Key that disagrees with it.
        second: String,
    },
    /// Tensors are missing or have the wrong shape or type.
    #[error("{count} tensors are missing or unusable:\n  {}", listed.join("\n  "))]
    Tensors {
        /// How many.
        count: usize,
        /// The first of them, one sentence each, and a last line that counts the rest.
        listed: Vec<String>,
    },
    /// A token id beyond the vocabulary.
    #[error("token id {token} is not in the vocabulary of {vocab} entries")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// The model's widths do not suit the reference's fake quantisation.
    #[error("numerics.qat cannot be used with this model: {problem}")]
    NoFakeQuantisation {
        /// Which width and what it must be.
        problem: String,
    },
}

/// The architectures that the engine runs.
const SUPPORTED: &str = "deepseek4 (DeepSeek V4 Flash) and deepseek41 (DeepSeek V4.1 Flash)";
