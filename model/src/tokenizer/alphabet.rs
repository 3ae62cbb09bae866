//! GPT-2's byte alphabet: each of the 256 bytes is spelled by one printable character, so that tokens made of arbitrary
//! bytes can be stored as text. Printable Latin-1 bytes stand for themselves, the others for U+0100 and following.

/// The character that spells `byte`.
pub(super) fn spell(byte: u8) -> char {
    ALPHABET[usize::from(byte)]
}

/// The byte that `c` spells; `None` if it spells none.
pub(super) fn byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    let index = usize::try_from(code).ok()?;
    *BYTES.get(index)?
}

/// Appends the spelling of `text` to `out`.
pub(super) fn spell_into(text: &str, out: &mut String) {
    out.extend(text.bytes().map(spell));
}

/// The bytes that `spelling` stands for; `None` if a character of it spells none.
pub(super) fn bytes(spelling: &str) -> Option<Vec<u8>> {
    spelling.chars().map(byte).collect()
}

const fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

static ALPHABET: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut next = 0x100u32;
    let mut b = 0usize;
    while b < 256 {
        let code = if is_itself(b as u8) {
            b as u32
        } else {
            next += 1;
            next - 1
        };
        table[b] = match char::from_u32(code) {
            Some(c) => c,
            None => panic!("codes below U+0144 are characters"),
        };
        b += 1;
    }
    table
};

/// The inverse of [`ALPHABET`]; 68 bytes are spelled beyond U+00FF.
static BYTES: [Option<u8>; 0x144] = {
    let mut table = [None; 0x144];
    let mut b = 0usize;
    while b < 256 {
        table[ALPHABET[b] as usize] = Some(b as u8);
        b += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_alphabet() {
        for b in 0..=255 {
            assert_eq!(byte(spell(b)), Some(b));
        }
    }

    #[test]
    fn known_spellings_are_those_of_gpt2() {
        assert_eq!((spell(b' '), spell(b'\n'), spell(b'\r'), spell(0), spell(0xAD)), ('Ġ', 'Ċ', 'č', 'Ā', 'Ń'));
        assert_eq!(byte(' '), None, "a space is never spelled as itself");
        assert_eq!(byte('中'), None);
    }
}
