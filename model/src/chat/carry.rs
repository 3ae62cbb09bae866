//! Reasoning that a client keeps without reading it: in the signature of a thinking block, or as encrypted content. It is
//! not secret; the client may have been asked not to show it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Says whose text it is and in which form.
const PREFIX: &str = "luce1.";

/// A text in a form that survives every client: the prefix `luce1.` and base64.
pub fn carry(text: &str) -> String {
    let mut out = PREFIX.to_owned();
    STANDARD_NO_PAD.encode_string(text, &mut out);
    out
}

/// The text that [`carry`] packed; `None` for anything else.
pub fn carried(packed: &str) -> Option<String> {
    let bytes = STANDARD_NO_PAD.decode(packed.strip_prefix(PREFIX)?).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_foreign_signatures_are_none() {
        for text in ["", "a", "Überlegung\n\"quoted\" 🦀"] {
            assert_eq!(carried(&carry(text)).as_deref(), Some(text));
        }
        for foreign in ["", "EqQBCgIYAhIM", "luce1.%%%", "luce1./w", "luce2.YQ"] {
            assert_eq!(carried(foreign), None, "{foreign}");
        }
    }
}
