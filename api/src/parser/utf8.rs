//! Bytes of tokens into text that never ends inside a character.

/// Keeps the bytes of an unfinished character until the rest arrives.
#[derive(Debug, Default)]
pub(crate) struct Utf8Joiner {
    pending: Vec<u8>,
}

impl Utf8Joiner {
    /// Appends to `out` every character that is complete now. Bytes that cannot begin or go on a character become
    /// U+FFFD.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(valid).expect("valid_up_to ends a valid run"));
                    rest = after;
                    match error.error_len() {
                        Some(invalid) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            rest = &rest[invalid..];
                        }
                        None => break,
                    }
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
    }

    /// Something that is not text follows: an unfinished character can no longer become whole.
    pub(crate) fn interrupt(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_cut_over_tokens_comes_out_whole() {
        let mut joiner = Utf8Joiner::default();
        let mut out = String::new();
        for byte in "né 👩‍👧 ４".bytes() {
            joiner.push(&[byte], &mut out);
            assert!(!out.contains(char::REPLACEMENT_CHARACTER));
        }
        assert_eq!(out, "né 👩‍👧 ４");
    }

    #[test]
    fn impossible_bytes_become_replacement_characters_and_text_goes_on() {
        let mut joiner = Utf8Joiner::default();
        let mut out = String::new();
        joiner.push(b"a\xff\xf0\x9f", &mut out);
        assert_eq!(out, "a\u{fffd}");
        joiner.push(b"b", &mut out);
        assert_eq!(out, "a\u{fffd}\u{fffd}b");
        joiner.push(b"\xe2\x82", &mut out);
        joiner.interrupt(&mut out);
        assert_eq!(out, "a\u{fffd}\u{fffd}b\u{fffd}");
    }
}
