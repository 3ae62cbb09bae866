//! Text to token ids and back: the byte-level BPE of the DeepSeek vocabularies, read from GGUF metadata.
//!
//! Text is encoded in two ways. [`Tokenizer::encode_plain`] knows no added tokens: whoever types `</think>` gets the
//! characters. [`Tokenizer::encode_with_added`] turns spellings of added tokens into their ids. Prompts are built from
//! specials and plain texts (see [`crate::chat`]) and never use the second form.

mod added;
mod alphabet;
mod error;
mod parts;
mod pretokenize;
mod specials;
mod stream;
mod vocabulary;

pub use error::TokenizerError;
pub use parts::{TokenKind, TokenizerParts};
pub use specials::{Grounding, SpecialIds, Spelling};
pub use stream::{Markers, StreamDecoder, Utf8Stream};
pub use vocabulary::Tokenizer;
