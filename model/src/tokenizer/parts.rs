//! The parts of a tokenizer, apart from where they come from: GGUF metadata here, other files in tests.

use luce_core::{Catalog, MetaArray, MetaValue, TokenId};

use super::TokenizerError;

/// What a vocabulary entry is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// A piece of text, spelled in the byte alphabet.
    Normal,
    /// A marker that is never text, spelled as itself.
    Control,
    /// An added token that may stand in text, spelled as itself (`<think>`, `｜DSML｜`).
    Added,
    /// A place in the embedding table without meaning.
    Unused,
}

impl TokenKind {
    /// From GGUF's `token_type`: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    fn from_ggml(code: u64) -> Option<TokenKind> {
        Some(match code {
            1 | 6 => TokenKind::Normal,
            3 => TokenKind::Control,
            4 => TokenKind::Added,
            2 | 5 => TokenKind::Unused,
            _ => return None,
        })
    }
}

/// Everything that a [`super::Tokenizer`] is built from.
#[derive(Clone, Debug, Default)]
pub struct TokenizerParts {
    /// Spelling of each token, by id.
    pub tokens: Vec<String>,
    /// What each token is for; as long as `tokens`.
    pub kinds: Vec<TokenKind>,
    /// Merge rules, most important first, both sides in the byte alphabet.
    pub merges: Vec<(String, String)>,
    /// The end-of-sequence id that the file states; it stops generation beside the token spelled as such.
    pub eos: Option<TokenId>,
}

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const EOS: &str = "tokenizer.ggml.eos_token_id";

impl TokenizerParts {
    /// Reads the `tokenizer.ggml.*` metadata.
    ///
    /// # Errors
    /// [`TokenizerError`] when a key is absent or of another type, or names another kind of tokenizer.
    pub fn from_catalog(catalog: &Catalog) -> Result<TokenizerParts, TokenizerError> {
        expect_one_of(catalog, MODEL, &["gpt2"], "`gpt2`")?;
        expect_one_of(
            catalog,
            PRE,
            &["joyai-llm", "deepseek-v3", "hunyuan-dense"],
            "`joyai-llm`, `deepseek-v3` and `hunyuan-dense`",
        )?;
        let tokens = strings(catalog, TOKENS)?.to_vec();
        let kinds = match array(catalog, TYPES)?.to_u64s() {
            Some(codes) => codes.into_iter().map(TokenKind::from_ggml).collect::<Option<Vec<_>>>(),
            None => None,
        }
        .ok_or(TokenizerError::WrongType { key: TYPES, expected: "an array of token types 1 to 6" })?;
        let merges = strings(catalog, MERGES)?
            .iter()
            .enumerate()
            .map(|(index, text)| {
                text.split_once(' ')
                    .filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(' '))
                    .map(|(a, b)| (a.to_owned(), b.to_owned()))
                    .ok_or_else(|| TokenizerError::Merge { index, text: text.clone() })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let eos = match catalog.get(EOS) {
            None => None,
            Some(value) => {
                let id =
                    value.as_u64().ok_or(TokenizerError::WrongType { key: EOS, expected: "a non-negative integer" })?;
                let inside = u32::try_from(id).ok().filter(|&i| (i as usize) < tokens.len());
                Some(TokenId(inside.ok_or(TokenizerError::IdOutside { key: EOS, id, tokens: tokens.len() })?))
            }
        };
        Ok(TokenizerParts { tokens, kinds, merges, eos })
    }
}

fn value<'c>(catalog: &'c Catalog, key: &'static str) -> Result<&'c MetaValue, TokenizerError> {
    catalog.get(key).ok_or(TokenizerError::MissingKey { key })
}

fn array<'c>(catalog: &'c Catalog, key: &'static str) -> Result<&'c MetaArray, TokenizerError> {
    value(catalog, key)?.as_array().ok_or(TokenizerError::WrongType { key, expected: "an array" })
}

fn strings<'c>(catalog: &'c Catalog, key: &'static str) -> Result<&'c [String], TokenizerError> {
    match array(catalog, key)? {
        MetaArray::String(v) => Ok(v),
        _ => Err(TokenizerError::WrongType { key, expected: "an array of strings" }),
    }
}

fn expect_one_of(
    catalog: &Catalog,
    key: &'static str,
    names: &[&str],
    known: &'static str,
) -> Result<(), TokenizerError> {
    let found = value(catalog, key)?.as_str().ok_or(TokenizerError::WrongType { key, expected: "a string" })?;
    if names.contains(&found) {
        return Ok(());
    }
    Err(TokenizerError::Unsupported { key, found: found.to_owned(), known })
}
