//! The tokenizer itself: encode, decode, and what each id is.

use luce_core::{Catalog, MetaValue, TokenId};
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab};

use super::added::AddedTokens;
use super::pretokenize::PreTokenizer;
use super::{Markers, SpecialIds, Spelling, StreamDecoder, TokenKind, TokenizerError, TokenizerParts, alphabet};
use crate::Family;

/// Byte-level BPE over one vocabulary. Cheap to share by reference; all methods take `&self`.
pub struct Tokenizer {
    bpe: BPE,
    pieces: PreTokenizer,
    added: AddedTokens,
    specials: SpecialIds,
    eos: Option<TokenId>,
    kinds: Vec<TokenKind>,
    /// What all tokens decode to, one after the other.
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocabulary", &self.kinds.len()).field("specials", &self.specials).finish()
    }
}

impl Tokenizer {
    /// From the metadata of a GGUF file. A file of the V4.1 architecture must have the system token too.
    ///
    /// # Errors
    /// [`TokenizerError`] when the metadata is incomplete, describes another kind of tokenizer, or lacks a token that
    /// prompts need.
    pub fn from_catalog(catalog: &Catalog) -> Result<Tokenizer, TokenizerError> {
        let tokenizer = Tokenizer::from_parts(TokenizerParts::from_catalog(catalog)?)?;
        let v41 = catalog.get("general.architecture").and_then(MetaValue::as_str) == Some(Family::V41.architecture());
        if v41 && tokenizer.specials.system.is_none() {
            return Err(TokenizerError::MissingSpecial { spelling: Spelling::System.text() });
        }
        Ok(tokenizer)
    }

    /// From parts.
    ///
    /// # Errors
    /// [`TokenizerError`] when the parts do not fit each other, or lack a byte or a token that prompts need.
    pub fn from_parts(parts: TokenizerParts) -> Result<Tokenizer, TokenizerError> {
        let TokenizerParts { tokens, kinds, merges, eos } = parts;
        if tokens.len() != kinds.len() {
            return Err(TokenizerError::Lengths { tokens: tokens.len(), kinds: kinds.len() });
        }
        let mut added = AddedTokens::default();
        let mut vocab = Vocab::default();
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(tokens.len());
        for ((spelling, kind), id) in tokens.into_iter().zip(&kinds).zip(0u32..) {
            match kind {
                TokenKind::Control | TokenKind::Added => {
                    added.insert(&spelling, TokenId(id));
                    bytes.extend_from_slice(spelling.as_bytes());
                }
                TokenKind::Normal => {
                    match alphabet::bytes(&spelling) {
                        Some(b) => bytes.extend(b),
                        None => bytes.extend_from_slice(spelling.as_bytes()),
                    }
                    vocab.entry(spelling).or_insert(id);
                }
                TokenKind::Unused => {}
            }
            ends.push(u32::try_from(bytes.len()).expect("a vocabulary takes far less than 4 GiB"));
        }
        if let Some(byte) = (0..=255).find(|&b| !vocab.contains_key(alphabet::spell(b).encode_utf8(&mut [0; 4]))) {
            return Err(TokenizerError::MissingByte { byte });
        }
        let specials = SpecialIds::find(&added)?;
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .build()
            .map_err(|cause| TokenizerError::Model(cause.to_string()))?;
        Ok(Tokenizer { bpe, pieces: PreTokenizer::new(), added, specials, eos, kinds, bytes, ends })
    }

    /// Number of entries; ids are below it.
    pub fn vocabulary(&self) -> usize {
        self.kinds.len()
    }

    /// Ids of the structural tokens.
    pub fn specials(&self) -> &SpecialIds {
        &self.specials
    }

    /// The end-of-sequence id that the file states, which may differ from the token spelled as such.
    pub fn stated_eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// What `id` is for; `None` outside the vocabulary.
    pub fn kind(&self, id: TokenId) -> Option<TokenKind> {
        self.kinds.get(id.index()).copied()
    }

    /// The id of the added or control token spelled `spelling`.
    pub fn added_id(&self, spelling: &str) -> Option<TokenId> {
        self.added.get(spelling)
    }

    /// Ids of `text` taken as text: spellings of added tokens are characters like any other. Nothing is put before or
    /// after.
    pub fn encode_plain(&self, text: &str) -> Vec<TokenId> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        self.encode_plain_into(text, &mut ids);
        ids
    }

    /// As [`Self::encode_plain`], appending to `ids`.
    pub fn encode_plain_into(&self, text: &str, ids: &mut Vec<TokenId>) {
        let mut spelled = String::new();
        self.pieces.each(text, &mut |piece| {
            spelled.clear();
            alphabet::spell_into(piece, &mut spelled);
            let tokens = self.bpe.tokenize(&spelled).expect("without dropout and unknown token BPE cannot fail");
            ids.extend(tokens.iter().map(|t| TokenId(t.id)));
        });
    }

    /// Ids of `text` in which spellings of added and control tokens are those tokens. For raw completions only: in a
    /// chat, text of clients must never become a marker.
    pub fn encode_with_added(&self, text: &str) -> Vec<TokenId> {
        let mut ids = Vec::new();
        self.added.split(text, &mut ids, |ids, plain| self.encode_plain_into(plain, ids), Vec::push);
        ids
    }

    /// The bytes that `id` stands for, which need not be whole characters. Markers decode to their spelling; unused
    /// entries and ids outside the vocabulary to nothing.
    pub fn decode_bytes(&self, id: TokenId) -> &[u8] {
        let i = id.index();
        let Some(&end) = self.ends.get(i) else { return &[] };
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// The text of `ids` at once. Invalid bytes become U+FFFD; bytes of an unfinished character at the end are dropped.
    pub fn decode(&self, ids: &[TokenId], markers: Markers) -> String {
        let mut out = String::new();
        let mut stream = StreamDecoder::new(markers);
        for &id in ids {
            stream.push(self, id, &mut out);
        }
        out
    }
}
