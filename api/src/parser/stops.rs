//! Stop strings in a stream: finds the first one that completes, and holds back text that may still become one.

/// Watches one text for a set of strings.
#[derive(Debug, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    /// Text not released yet: a proper prefix of some stop string, or empty.
    held: String,
}

impl StopMatcher {
    /// `stops` are non-empty strings.
    pub(crate) fn new(stops: Vec<String>) -> StopMatcher {
        debug_assert!(stops.iter().all(|stop| !stop.is_empty()));
        StopMatcher { stops, held: String::new() }
    }

    /// Takes the next text and appends what is safe to show to `out`. Returns the index of the stop string that was
    /// completed, if any; neither it nor anything after it is shown. Of several that end at the same place the longest
    /// counts.
    pub(crate) fn push(&mut self, text: &str, out: &mut String) -> Option<usize> {
        if self.stops.is_empty() {
            out.push_str(text);
            return None;
        }
        for c in text.chars() {
            self.held.push(c);
            let complete = (0..self.stops.len())
                .filter(|&i| self.held.ends_with(&self.stops[i]))
                .max_by_key(|&i| self.stops[i].len());
            if let Some(i) = complete {
                out.push_str(&self.held[..self.held.len() - self.stops[i].len()]);
                self.held.clear();
                return Some(i);
            }
            let keep = self.prefix_length();
            let release = self.held.len() - keep;
            out.push_str(&self.held[..release]);
            self.held.drain(..release);
        }
        None
    }

    /// The stop string with this index.
    pub(crate) fn string(&self, index: usize) -> &str {
        &self.stops[index]
    }

    /// Releases what is held: the text ends here, or something follows that cannot be part of a stop string.
    pub(crate) fn release(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }

    /// Bytes of the longest suffix of the held text that begins a stop string.
    fn prefix_length(&self) -> usize {
        self.held
            .char_indices()
            .map(|(at, _)| &self.held[at..])
            .find(|suffix| self.stops.iter().any(|stop| stop.starts_with(suffix)))
            .map_or(0, str::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let mut matcher = StopMatcher::new(stops.iter().map(|&s| s.to_owned()).collect());
        let mut out = String::new();
        for piece in pieces {
            if let Some(i) = matcher.push(piece, &mut out) {
                return (out, Some(i));
            }
        }
        matcher.release(&mut out);
        (out, None)
    }

    #[test]
    fn a_stop_string_cut_over_pieces_is_found_and_not_shown() {
        assert_eq!(run(&["END"], &["One E", "N", "D two"]), ("One ".to_owned(), Some(0)));
    }

    #[test]
    fn a_prefix_that_turns_out_harmless_is_released() {
        assert_eq!(run(&["<|stop|>"], &["One <|sto", " two"]), ("One <|sto two".to_owned(), None));
        assert_eq!(run(&["< 3"], &["2 <"]), ("2 <".to_owned(), None));
    }

    #[test]
    fn overlapping_attempts_do_not_hide_a_match() {
        assert_eq!(run(&["aab"], &["aa", "ab", "x"]), ("a".to_owned(), Some(0)));
        assert_eq!(run(&["b", "aab"], &["aaab"]), ("a".to_owned(), Some(1)));
    }

    #[test]
    fn characters_of_several_bytes_stay_whole() {
        assert_eq!(run(&["äöü"], &["xäö", "äöü!"]), ("xäö".to_owned(), Some(0)));
    }
}
