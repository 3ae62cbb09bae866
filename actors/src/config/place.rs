//! Places in the configuration file, and how they are shown.

use std::ops::Range;
use std::sync::Arc;

/// Most characters of a line that an excerpt shows: what fits a terminal beside the line's number.
const MOST_SHOWN: usize = 100;

/// A file's name and text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Text(Arc<(String, String)>);

impl Text {
    pub(super) fn new(file: &str, text: &str) -> Text {
        Text(Arc::new((file.to_owned(), text.to_owned())))
    }

    /// The place of these bytes of the text.
    pub(super) fn place(&self, bytes: Range<usize>) -> Place {
        Place { text: self.clone(), bytes }
    }
}

/// A place in the configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    text: Text,
    bytes: Range<usize>,
}

impl Place {
    /// The path of the file as it was given.
    pub fn file(&self) -> &str {
        &self.text.0.0
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        1 + self.halves().0.matches('\n').count()
    }

    /// The first byte.
    pub(super) fn start(&self) -> usize {
        self.bytes.start
    }

    /// The text before and from the place on.
    fn halves(&self) -> (&str, &str) {
        let text = &self.text.0.1;
        text.split_at(text.floor_char_boundary(self.bytes.start))
    }

    /// The line with carets below the place, three lines without a line break at the end:
    ///
    /// ```text
    ///    |
    /// 27 | max_qeue = 3
    ///    | ^^^^^^^^
    /// ```
    pub fn excerpt(&self) -> String {
        let (before, from) = self.halves();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = from.lines().next().unwrap_or("");
        let marked = rest.floor_char_boundary(self.bytes.len().min(rest.len()));
        // Control characters could move the cursor; a tab has no fixed width.
        let shown = |part: &str| part.replace(char::is_control, " ");
        let column = before[start..].chars().count();
        let cut = column.saturating_sub(MOST_SHOWN / 2);
        let line: String = shown(&before[start..]).chars().chain(shown(rest).chars()).skip(cut).collect();
        let line: String = line.chars().take(MOST_SHOWN).collect();
        let carets = rest[..marked].chars().count().clamp(1, MOST_SHOWN - (column - cut));
        let number = self.line().to_string();
        let gap = " ".repeat(number.len());
        let blank = " ".repeat(column - cut);
        format!("{gap} |\n{number} | {}\n{gap} | {blank}{}", line.trim_end(), "^".repeat(carets))
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn the_marked_bytes_stand_under_their_line() {
        let text = Text::new("a.toml", "[model]\nn\u{e4}me = \"\u{1f600}\" # smile\n");
        let place = text.place(16..22);
        assert_eq!((place.file(), place.line()), ("a.toml", 2));
        assert_eq!(place.excerpt(), "  |\n2 | n\u{e4}me = \"\u{1f600}\" # smile\n  |        ^^^");
    }

    #[test]
    fn places_at_the_end_and_over_several_lines_keep_to_one_line() {
        let text = Text::new("a.toml", "x = [\n1,\n]\n");
        assert_eq!(text.place(4..10).excerpt(), "  |\n1 | x = [\n  |     ^");
        assert_eq!(text.place(11..11).excerpt(), "  |\n4 | \n  | ^");
        assert_eq!(text.place(900..901).line(), 4);
    }

    #[test]
    fn long_lines_and_control_characters_do_not_spoil_a_terminal() {
        let text = Text::new("a.toml", &format!("a = \"\t\u{1b}[2J{}\" b", "x".repeat(5000)));
        let last = text.place(5012..5013).excerpt();
        assert!(last.lines().all(|line| line.chars().count() < 120), "{last}");
        assert!(!text.place(0..5000).excerpt().contains(['\t', '\u{1b}']));
        assert_eq!(last.lines().nth(1).and_then(|line| line.chars().nth(last.lines().nth(2)?.find('^')?)), Some('b'));
    }
}
