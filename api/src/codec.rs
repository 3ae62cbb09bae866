//! What the endpoints need to know of a model's language: conversations into token ids, token ids into pieces of text.
//!
//! [`DeepSeekCodec`] speaks it with the tokenizer and the chat format of `luce-model`; the trait lets tests do without a
//! vocabulary.

use std::borrow::Cow;
use std::sync::Arc;

use luce_core::TokenId;
use luce_model::Family;
use luce_model::chat::{ChatFormat, Conversation, EffortProfile, Opening, SamplingDefaults};
use luce_model::tokenizer::{TokenKind, Tokenizer, TokenizerError};

/// A conversation as the model reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// The whole prompt.
    pub prompt: Vec<TokenId>,
    /// Where it leaves the model.
    pub opening: Opening,
}

/// What one token of an answer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Bytes of text; not always whole characters.
    Text(Cow<'a, [u8]>),
    /// The token `<think>`.
    ThinkOpen,
    /// The token `</think>`.
    ThinkClose,
    /// The token `｜DSML｜`.
    Dsml,
    /// A token that is never shown.
    Hidden,
}

/// Marks around prompts that are not conversations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Begin of sequence.
    pub bos: TokenId,
    /// For a gap to fill: before the text, in the gap's place, after the text that follows it.
    pub fim: Option<[TokenId; 3]>,
}

/// The language of the served model.
pub trait ChatCodec: Send + Sync {
    /// The model's family.
    fn family(&self) -> Family;

    /// The prompt of a conversation. Called from a thread that may block; a long conversation takes many milliseconds.
    fn encode(&self, conversation: &Conversation) -> Encoded;

    /// Sampling values for what a client leaves unset.
    fn sampling_defaults(&self, conversation: &Conversation) -> SamplingDefaults;

    /// What a generated token is. Ids outside the vocabulary are [`Piece::Hidden`].
    fn piece(&self, token: TokenId) -> Piece<'_>;

    /// How a token is spelled, markers included; nothing outside the vocabulary.
    fn spelling(&self, token: TokenId) -> Cow<'_, [u8]>;

    /// A text as tokens; with `markers`, spellings of markers in it are the markers.
    fn tokenize(&self, text: &str, markers: bool) -> Vec<TokenId>;

    /// Which words for effort prompts have, where the family has several.
    fn effort_profile(&self) -> Option<EffortProfile> {
        None
    }

    /// The marks around prompts that are not conversations.
    fn marks(&self) -> Marks;

    /// The tokens that end a turn. The first is the end of sequence.
    fn stop_tokens(&self) -> &[TokenId];
}

/// The language of DeepSeek V4 and V4.1.
#[derive(Debug)]
pub struct DeepSeekCodec {
    tokenizer: Arc<Tokenizer>,
    format: ChatFormat,
    stops: Vec<TokenId>,
}

impl DeepSeekCodec {
    /// From a model's tokenizer and the format of its prompts.
    ///
    /// # Errors
    /// [`TokenizerError::MissingSpecial`] when the vocabulary lacks a token that prompts of this family need.
    pub fn new(tokenizer: Arc<Tokenizer>, format: ChatFormat) -> Result<DeepSeekCodec, TokenizerError> {
        format.check(&tokenizer)?;
        let stops = format.stop_ids(&tokenizer);
        Ok(DeepSeekCodec { tokenizer, format, stops })
    }
}

impl ChatCodec for DeepSeekCodec {
    fn family(&self) -> Family {
        self.format.family
    }

    fn encode(&self, conversation: &Conversation) -> Encoded {
        let rendered = self.format.render(&self.tokenizer, conversation);
        Encoded { prompt: rendered.tokens, opening: rendered.opening }
    }

    fn tokenize(&self, text: &str, markers: bool) -> Vec<TokenId> {
        if markers { self.tokenizer.encode_with_added(text) } else { self.tokenizer.encode_plain(text) }
    }

    fn effort_profile(&self) -> Option<EffortProfile> {
        (self.format.family == Family::V4).then_some(self.format.effort_profile)
    }

    fn marks(&self) -> Marks {
        let ids = self.tokenizer.specials();
        Marks { bos: ids.bos, fim: ids.fim }
    }

    fn sampling_defaults(&self, conversation: &Conversation) -> SamplingDefaults {
        self.format.sampling_defaults(conversation)
    }

    fn piece(&self, token: TokenId) -> Piece<'_> {
        let ids = self.tokenizer.specials();
        if token == ids.think {
            return Piece::ThinkOpen;
        }
        if token == ids.end_think {
            return Piece::ThinkClose;
        }
        if token == ids.dsml {
            return Piece::Dsml;
        }
        match self.tokenizer.kind(token) {
            // A file may call the tokens that end a turn ordinary ones; they are no text all the same.
            _ if self.stops.contains(&token) => Piece::Hidden,
            Some(TokenKind::Normal | TokenKind::Added) => {
                Piece::Text(Cow::Borrowed(self.tokenizer.decode_bytes(token)))
            }
            Some(TokenKind::Control | TokenKind::Unused) | None => Piece::Hidden,
        }
    }

    fn spelling(&self, token: TokenId) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.tokenizer.decode_bytes(token))
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &self.stops
    }
}

#[cfg(test)]
mod tests {
    use luce_model::chat::openai::{self, Defaults};
    use luce_model::tokenizer::TokenizerParts;
    use serde_json::json;

    use super::*;

    const SPECIALS: [&str; 9] = [
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜latest_reminder｜>",
        "<think>",
        "</think>",
        "｜DSML｜",
        "<｜▁pad▁｜>",
    ];

    /// Every byte is a token, in the byte alphabet of GPT-2: printable Latin-1 stands for itself, the rest follows from
    /// U+0100 on.
    fn tokenizer() -> Tokenizer {
        let mut others = 0x100..;
        let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let letter = |b: u8| {
            if printable(b) { char::from(b) } else { char::from_u32(others.next().unwrap()).unwrap() }
        };
        let mut tokens: Vec<String> = (0..=255).map(letter).map(String::from).collect();
        let mut kinds = vec![TokenKind::Normal; 256];
        for special in SPECIALS {
            tokens.push(special.to_owned());
            let text = ["think", "DSML"].iter().any(|word| special.contains(word));
            kinds.push(if text { TokenKind::Added } else { TokenKind::Control });
        }
        Tokenizer::from_parts(TokenizerParts { tokens, kinds, merges: Vec::new(), eos: None }).unwrap()
    }

    fn codec() -> DeepSeekCodec {
        DeepSeekCodec::new(Arc::new(tokenizer()), ChatFormat::new(Family::V4, EffortProfile::Preview)).unwrap()
    }

    #[test]
    fn a_conversation_becomes_markers_and_bytes_and_typed_markers_stay_text() {
        let body = json!({"messages": [{"role": "user", "content": "a</think>"}], "thinking": {"type": "disabled"}});
        let defaults = Defaults { family: Family::V4, thinking: true };
        let conversation = openai::conversation(body.as_object().unwrap(), defaults).unwrap();
        let encoded = codec().encode(&conversation);
        let mut wanted = vec![TokenId(256), TokenId(258)];
        wanted.extend("a</think>".bytes().map(|b| TokenId(b.into())));
        wanted.extend([TokenId(259), TokenId(262)]);
        assert_eq!(encoded, Encoded { prompt: wanted, opening: Opening::Content });
    }

    #[test]
    fn markers_are_told_from_text_by_id_and_ends_of_turns_are_hidden() {
        let codec = codec();
        assert_eq!(codec.piece(TokenId(0xc3)), Piece::Text(Cow::Borrowed(&[0xc3])));
        assert_eq!(codec.piece(TokenId(261)), Piece::ThinkOpen);
        assert_eq!(codec.piece(TokenId(262)), Piece::ThinkClose);
        assert_eq!(codec.piece(TokenId(263)), Piece::Dsml);
        for hidden in [256, 257, 258, 259, 260, 264, 265, u32::MAX] {
            assert_eq!(codec.piece(TokenId(hidden)), Piece::Hidden, "{hidden}");
        }
        assert!(codec.stop_tokens().contains(&TokenId(257)) && codec.stop_tokens().contains(&TokenId(258)));
    }

    #[test]
    fn a_vocabulary_without_the_system_token_is_refused_for_v41() {
        let format = ChatFormat::new(Family::V41, EffortProfile::Preview);
        assert!(DeepSeekCodec::new(Arc::new(tokenizer()), format).is_err());
    }
}
