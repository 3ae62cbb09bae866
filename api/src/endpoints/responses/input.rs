//! The text that a custom tool takes. In the prompt it is the parameter `input`, so it comes as JSON, in pieces.

/// What arguments begin with that hold nothing but the text.
const OPENING: &str = "{\"input\": \"";

/// Arguments as they come, and how much of their text was told.
#[derive(Debug, Default)]
pub(super) struct InputText {
    json: String,
    /// Bytes of `json` that were read.
    read: usize,
    /// The text that was told.
    told: String,
    /// The string has ended.
    closed: bool,
}

impl InputText {
    /// Takes more of the arguments; returns the text that it completes.
    pub(super) fn push(&mut self, json: &str) -> String {
        self.json.push_str(json);
        if self.read == 0 {
            if !self.json.starts_with(OPENING) {
                return String::new();
            }
            self.read = OPENING.len();
        }
        let mut text = String::new();
        while let Some(c) = self.next() {
            text.push(c);
        }
        self.told.push_str(&text);
        text
    }

    /// The next character of the string, once it is complete.
    fn next(&mut self) -> Option<char> {
        if self.closed {
            return None;
        }
        let rest = &self.json[self.read..];
        let c = rest.chars().next()?;
        let length = match c {
            '"' => {
                self.closed = true;
                return None;
            }
            '\\' if rest[1..].starts_with('u') => 6,
            '\\' => 2,
            c => c.len_utf8(),
        };
        let escape = rest.get(..length)?;
        self.read += length;
        if c != '\\' {
            return Some(c);
        }
        // Characters outside the basic plane are never escaped here, so one escape is one character.
        Some(serde_json::from_str::<char>(&format!("\"{escape}\"")).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The whole text, and what of it was not told yet. Arguments of another form are the text themselves.
    pub(super) fn finish(&self) -> (String, String) {
        if self.read > 0 {
            return (self.told.clone(), String::new());
        }
        let value: Option<serde_json::Value> = serde_json::from_str(&self.json).ok();
        let input = value.as_ref().and_then(|value| value.get("input"));
        let text = match input {
            Some(serde_json::Value::String(text)) => text.clone(),
            _ if self.json == "{}" => String::new(),
            _ => self.json.clone(),
        };
        (text.clone(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pieces: &[&str]) -> (String, String) {
        let mut input = InputText::default();
        let mut told: String = pieces.iter().map(|piece| input.push(piece)).collect();
        let (all, rest) = input.finish();
        told.push_str(&rest);
        (all, told)
    }

    #[test]
    fn the_text_is_the_same_however_the_arguments_are_cut() {
        let text = "a \"b\"\n\\ é 🦀 \u{1} }";
        let json = format!("{{\"input\": {}}}", serde_json::Value::from(text));
        for cut in (0..=json.len()).filter(|&cut| json.is_char_boundary(cut)) {
            let (one, two) = json.split_at(cut);
            assert_eq!(run(&[one, two]), (text.to_owned(), text.to_owned()), "{one} | {two}");
        }
        let pieces: Vec<String> = json.chars().map(String::from).collect();
        assert_eq!(run(&pieces.iter().map(String::as_str).collect::<Vec<_>>()).1, text);
    }

    #[test]
    fn other_arguments_and_cut_ones_are_not_lost() {
        for (pieces, wanted) in [
            (&["{\"input\": \"ab", "c\\"][..], "abc"),
            (&["{\"input\": 7}"], "{\"input\": 7}"),
            (&["{\"other\": 1, \"input\": \"x\"}"], "x"),
            (&["{}"], ""),
            (&["{\"patch\": \"x\"}"], "{\"patch\": \"x\"}"),
        ] {
            assert_eq!(run(pieces), (wanted.to_owned(), wanted.to_owned()));
        }
    }
}
