//! A prompt: structural tokens and plain texts in turn.

use std::borrow::Cow;

use luce_core::TokenId;

use crate::tokenizer::{Spelling, Tokenizer};

/// A piece of a prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// A structural token.
    Special(Spelling),
    /// Text between two of them; never empty, never next to another text.
    Plain(String),
    /// Tokens that the model wrote.
    Written(Vec<TokenId>),
}

/// Where a prompt leaves the model, so where its answer begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Inside a reasoning block.
    Reasoning,
    /// In the answer's text.
    Content,
    /// Inside a block of tool calls that the prompt opened.
    ToolCalls,
}

/// A whole prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prompt {
    /// Its pieces.
    pub segments: Vec<Segment>,
    /// Where it leaves the model.
    pub opening: Opening,
    /// A tool call was demanded. If the prompt does not open the block ([`Opening::ToolCalls`]), whoever samples must
    /// force its opening when the reasoning ends.
    pub must_call: bool,
}

impl Prompt {
    /// The prompt as one text, for reading; encoding it again need not give the same tokens. Of tokens that the model wrote
    /// it has the number only.
    pub fn text(&self) -> String {
        self.segments
            .iter()
            .map(|segment| match segment {
                Segment::Special(spelling) => Cow::Borrowed(spelling.text()),
                Segment::Plain(text) => Cow::Borrowed(text.as_str()),
                Segment::Written(tokens) => Cow::Owned(format!("[{} tokens]", tokens.len())),
            })
            .collect()
    }

    /// The prompt as token ids. A structural token that the vocabulary lacks is text, joined with the text around it.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        tokens(&self.segments, tokenizer)
    }
}

/// Token ids of `segments`.
pub(super) fn tokens(segments: &[Segment], tokenizer: &Tokenizer) -> Vec<TokenId> {
    let mut ids = Vec::new();
    let mut text = String::new();
    for segment in segments {
        match segment {
            Segment::Plain(plain) => text.push_str(plain),
            Segment::Written(tokens) => {
                tokenizer.encode_plain_into(&text, &mut ids);
                text.clear();
                ids.extend_from_slice(tokens);
            }
            Segment::Special(spelling) => match tokenizer.specials().get(*spelling) {
                Some(id) => {
                    tokenizer.encode_plain_into(&text, &mut ids);
                    text.clear();
                    ids.push(id);
                }
                None => text.push_str(spelling.text()),
            },
        }
    }
    tokenizer.encode_plain_into(&text, &mut ids);
    ids
}

/// Puts segments together.
#[derive(Debug, Default)]
pub(super) struct Builder {
    segments: Vec<Segment>,
}

impl Builder {
    /// Appends a structural token.
    pub(super) fn special(&mut self, spelling: Spelling) {
        self.segments.push(Segment::Special(spelling));
    }

    /// Appends tokens as they are.
    pub(super) fn written(&mut self, tokens: &[TokenId]) {
        if !tokens.is_empty() {
            self.segments.push(Segment::Written(tokens.to_vec()));
        }
    }

    /// Appends text as it is.
    pub(super) fn plain(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.segments.last_mut() {
            Some(Segment::Plain(last)) => last.push_str(text),
            _ => self.segments.push(Segment::Plain(text.to_owned())),
        }
    }

    /// Appends text in which the given spellings are the tokens.
    pub(super) fn marked(&mut self, text: &str, markers: &[Spelling]) {
        let mut rest = text;
        while let Some((at, marker)) =
            markers.iter().filter_map(|m| Some((rest.find(m.text())?, *m))).min_by_key(|(at, _)| *at)
        {
            self.plain(&rest[..at]);
            self.special(marker);
            rest = &rest[at + marker.text().len()..];
        }
        self.plain(rest);
    }

    /// What was put together.
    pub(super) fn finish(self) -> Vec<Segment> {
        self.segments
    }
}
