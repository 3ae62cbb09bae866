//! Why a vocabulary cannot be used.

/// A vocabulary that this project cannot serve, or metadata that does not describe one.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A metadata key is absent.
    #[error("the model file has no `{key}`; convert it again with a converter that writes the tokenizer")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A metadata value has the wrong type.
    #[error("`{key}` in the model file is not {expected}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The kind of tokenizer, or its way of splitting text, is another one.
    #[error("`{key}` is `{found}`; this build knows {known}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// What the file says.
        found: String,
        /// What would be understood.
        known: &'static str,
    },
    /// Two arrays that describe the same tokens differ in length.
    #[error("the vocabulary has {tokens} tokens but {kinds} token types")]
    Lengths {
        /// Entries of `tokenizer.ggml.tokens`.
        tokens: usize,
        /// Entries of `tokenizer.ggml.token_type`.
        kinds: usize,
    },
    /// A merge rule is not two parts separated by a space.
    #[error("merge rule {index} is `{text}`, not two parts separated by one space")]
    Merge {
        /// Position in `tokenizer.ggml.merges`.
        index: usize,
        /// The rule.
        text: String,
    },
    /// The merge rules do not fit the tokens.
    #[error("the merge rules do not fit the vocabulary: {0}")]
    Model(String),
    /// A byte has no token, so some texts could not be encoded.
    #[error("the vocabulary has no token for byte 0x{byte:02x}; text that contains it could not be encoded")]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// A token that prompts need is absent.
    #[error("the vocabulary has no token `{spelling}`, which every prompt of this model family needs")]
    MissingSpecial {
        /// Its spelling.
        spelling: &'static str,
    },
    /// A token id lies outside the vocabulary.
    #[error("`{key}` is {id}, outside the vocabulary of {tokens} tokens")]
    IdOutside {
        /// The key.
        key: &'static str,
        /// The id.
        id: u64,
        /// Entries of the vocabulary.
        tokens: usize,
    },
}
