//! Finding spellings of added tokens in text: at each position the longest one wins, and matches do not overlap.

use std::collections::{BTreeSet, HashMap};

use luce_core::TokenId;

/// The added vocabulary by spelling.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    ids: HashMap<String, TokenId>,
    /// First characters of spellings; most positions of a text are dismissed by them.
    first: BTreeSet<char>,
    /// Lengths of spellings in bytes, each once.
    lengths: BTreeSet<usize>,
}

impl AddedTokens {
    /// Adds a spelling; the first id of a spelling stays.
    pub(super) fn insert(&mut self, spelling: &str, id: TokenId) {
        let Some(first) = spelling.chars().next() else { return };
        self.first.insert(first);
        self.lengths.insert(spelling.len());
        self.ids.entry(spelling.to_owned()).or_insert(id);
    }

    /// The id of the token spelled `spelling`.
    pub(super) fn get(&self, spelling: &str) -> Option<TokenId> {
        self.ids.get(spelling).copied()
    }

    /// Cuts `text` at added tokens: `plain` gets what lies between them, `added` the tokens, in order.
    pub(super) fn split<'t, S>(
        &self,
        text: &'t str,
        sink: &mut S,
        plain: impl Fn(&mut S, &'t str),
        added: impl Fn(&mut S, TokenId),
    ) {
        let mut done = 0;
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            match self.longest_at(text, at, c) {
                Some((id, length)) => {
                    if done < at {
                        plain(sink, &text[done..at]);
                    }
                    added(sink, id);
                    at += length;
                    done = at;
                }
                None => at += c.len_utf8(),
            }
        }
        if done < text.len() {
            plain(sink, &text[done..]);
        }
    }

    fn longest_at(&self, text: &str, at: usize, first: char) -> Option<(TokenId, usize)> {
        if !self.first.contains(&first) {
            return None;
        }
        self.lengths
            .iter()
            .rev()
            .find_map(|&length| text.get(at..at + length).and_then(|s| self.get(s)).map(|id| (id, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_spelling_wins_and_text_between_is_whole() {
        let mut added = AddedTokens::default();
        for (i, s) in ["<a>", "<a>b", "｜x"].iter().enumerate() {
            added.insert(s, TokenId(i as u32));
        }
        let mut seen = Vec::new();
        added.split(
            "é<a>bc｜｜x<a",
            &mut seen,
            |out, text| out.push(text.to_owned()),
            |out, id| out.push(format!("#{id}")),
        );
        assert_eq!(seen, ["é", "#1", "c｜", "#2", "<a"]);
    }
}
