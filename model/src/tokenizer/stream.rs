//! Decoding while tokens arrive: only whole characters come out, however the bytes are cut.

use luce_core::TokenId;

use super::{TokenKind, Tokenizer};

/// Turns chunks of bytes into text. Bytes of an unfinished character wait for the rest; bytes that cannot be part of
/// any become U+FFFD, one for each longest prefix of a character that broke off (as the Unicode standard advises).
/// The text does not depend on how the bytes are cut into chunks.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    waiting: Vec<u8>,
}

impl Utf8Stream {
    /// Nothing waiting.
    pub fn new() -> Utf8Stream {
        Utf8Stream::default()
    }

    /// Appends to `out` the text that is complete with `bytes`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.waiting.is_empty() {
            let tail = complete(bytes, out);
            self.waiting.extend_from_slice(tail);
        } else {
            let mut joined = std::mem::take(&mut self.waiting);
            joined.extend_from_slice(bytes);
            let tail = complete(&joined, out).len();
            joined.drain(..joined.len() - tail);
            self.waiting = joined;
        }
    }

    /// Says that what waits will never be completed although more follows: it becomes one U+FFFD.
    pub fn break_off(&mut self, out: &mut String) {
        if !self.waiting.is_empty() {
            self.waiting.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Bytes of the unfinished character, at most three. At the end of an answer they are dropped.
    pub fn waiting(&self) -> &[u8] {
        &self.waiting
    }
}

/// Appends the complete text of `bytes` to `out`; returns the unfinished character at the end.
fn complete<'b>(mut bytes: &'b [u8], out: &mut String) -> &'b [u8] {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.push_str(text);
                return &[];
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        out.push_str(std::str::from_utf8(valid).expect("valid_up_to ends the valid part"));
        match error.error_len() {
            None => return rest,
            Some(invalid) => {
                out.push(char::REPLACEMENT_CHARACTER);
                bytes = &rest[invalid..];
            }
        }
    }
}

/// Whether control tokens show in decoded text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Markers {
    /// Control tokens give no text.
    Hide,
    /// Control tokens give their spelling.
    Show,
}

/// Turns token ids into text as they come. Added tokens that may stand in text (`<think>`, `｜DSML｜`) always show;
/// whoever parses answers knows them by id and does not push them here.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    utf8: Utf8Stream,
    markers: Markers,
}

impl StreamDecoder {
    /// Nothing waiting.
    pub fn new(markers: Markers) -> StreamDecoder {
        StreamDecoder { utf8: Utf8Stream::new(), markers }
    }

    /// Appends to `out` the text that is complete with `id`. A control token ends an unfinished character, which is
    /// then invalid.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: TokenId, out: &mut String) {
        if tokenizer.kind(id) == Some(TokenKind::Control) {
            self.utf8.break_off(out);
            if self.markers == Markers::Hide {
                return;
            }
        }
        self.utf8.push(tokenizer.decode_bytes(id), out);
    }

    /// Bytes of the unfinished character, at most three. At the end of an answer they are dropped.
    pub fn waiting(&self) -> &[u8] {
        self.utf8.waiting()
    }
}
