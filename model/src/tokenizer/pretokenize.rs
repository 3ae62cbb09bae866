//! Cutting text into the pieces that BPE works on.
//!
//! Three rules run one after the other, each inside every piece that the one before it left; what a rule matches and
//! what lies between matches are both kept as pieces. A rule sees only its piece.
//!
//! The third rule's last alternatives are `\s+(?!\S)|\s+`: of blanks before a word all but the last are a piece. Looking
//! ahead takes a backtracking engine, which gives up on a million blanks in a row; so the expression ends in `\s+` alone,
//! runs in linear time, and the last blank is given back by hand.

use tokenizers::utils::SysRegex;

/// Digits in groups of up to three.
const DIGITS: &str = r"\p{N}{1,3}";
/// Runs of Han and kana.
const HAN: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
/// Words, punctuation, line ends and blanks.
const WORDS: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"| ?[\p{P}\p{S}]+[\r\n]*",
    r"|\s*[\r\n]+",
    r"|\s+",
);

/// The three rules.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    digits: SysRegex,
    han: SysRegex,
    words: SysRegex,
}

impl PreTokenizer {
    pub(super) fn new() -> PreTokenizer {
        let compile = |rule| SysRegex::new(rule).expect("the rules are constants and compile");
        PreTokenizer { digits: compile(DIGITS), han: compile(HAN), words: compile(WORDS) }
    }

    /// Calls `piece` with each piece of `text` in order; together they are `text`.
    pub(super) fn each<'t>(&self, text: &'t str, piece: &mut impl FnMut(&'t str)) {
        isolate(&self.digits, text, &mut |part| {
            isolate(&self.han, part, &mut |part| self.words(part, piece));
        });
    }

    fn words<'t>(&self, text: &'t str, piece: &mut impl FnMut(&'t str)) {
        let mut rest = text;
        'text: loop {
            let mut done = 0;
            for (start, end) in self.words.find_iter(rest) {
                if done < start {
                    piece(&rest[done..start]);
                }
                let kept = end - given_back(&rest[start..end], end == rest.len());
                piece(&rest[start..kept]);
                if kept < end {
                    // Nothing looks behind, so matching may start afresh here.
                    rest = &rest[kept..];
                    continue 'text;
                }
                done = end;
            }
            if done < rest.len() {
                piece(&rest[done..]);
            }
            return;
        }
    }
}

/// Bytes at the end of a match of [`WORDS`] that belong to what follows: the last of several blanks before a word. Of
/// the alternatives only the last ends in a blank that is no line end.
fn given_back(found: &str, at_end: bool) -> usize {
    match found.chars().next_back() {
        Some(last) if !at_end && last.is_whitespace() && !matches!(last, '\r' | '\n') => {
            let length = last.len_utf8();
            if found.len() > length { length } else { 0 }
        }
        _ => 0,
    }
}

fn isolate<'t>(rule: &SysRegex, text: &'t str, piece: &mut impl FnMut(&'t str)) {
    let mut done = 0;
    for (start, end) in rule.find_iter(text) {
        if done < start {
            piece(&text[done..start]);
        }
        piece(&text[start..end]);
        done = end;
    }
    if done < text.len() {
        piece(&text[done..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<&str> {
        let mut out = Vec::new();
        PreTokenizer::new().each(text, &mut |p| out.push(p));
        out
    }

    /// The third rule as the vocabulary's file has it, with its look ahead.
    const LOOKING_AHEAD: &str = concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    );

    proptest::proptest! {
        #[test]
        fn giving_blanks_back_equals_looking_ahead(text in "[ \t\r\n\u{a0}\u{3000}a-cé中.!<1\u{301}😀]{0,40}|\\PC{0,30}") {
            let mut expected = Vec::new();
            isolate(&SysRegex::new(LOOKING_AHEAD).unwrap(), &text, &mut |p| expected.push(p));
            let mut found = Vec::new();
            PreTokenizer::new().words(&text, &mut |p| found.push(p));
            proptest::prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn digits_are_cut_from_the_left_in_threes() {
        assert_eq!(pieces("12345a"), ["123", "45", "a"]);
        assert_eq!(pieces("１２３٤"), ["１２３", "٤"], "full-width and Arabic-Indic digits count");
    }

    #[test]
    fn blanks_before_a_word_leave_it_one_space() {
        assert_eq!(pieces("    int"), ["   ", " int"]);
        assert_eq!(pieces("a \n\n b"), ["a", " \n\n", " b"]);
        assert_eq!(pieces("a  1"), ["a", "  ", "1"], "blanks before a digit end their piece, so all are taken");
    }

    #[test]
    fn han_is_apart_from_its_neighbours() {
        assert_eq!(pieces("ab中文，de"), ["ab", "中文", "，", "de"]);
    }

    #[test]
    fn pieces_of_a_long_blank_run_still_make_up_the_text() {
        let text = format!("x{}y", " ".repeat(3_000_000));
        assert_eq!(pieces(&text).concat().len(), text.len());
        assert_eq!(pieces(&text).len(), 3, "x, all blanks but one, and the word with the last");
        let lines = format!("{}\n{}", " ".repeat(2_000_000), " ".repeat(2_000_000));
        assert_eq!(pieces(&lines).len(), 2, "up to the line end, and the rest");
    }
}
