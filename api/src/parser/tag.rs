//! The text of one DSML tag: what stands between the marker token and `>`.

/// A tag as it is being read.
#[derive(Debug, Default)]
pub(crate) struct Tag {
    /// `</` stood before the marker.
    pub(crate) closing: bool,
    text: String,
    in_quotes: bool,
}

impl Tag {
    /// A tag whose marker was just seen.
    pub(crate) fn new(closing: bool) -> Tag {
        Tag { closing, text: String::new(), in_quotes: false }
    }

    /// Takes characters of `text` up to the end of the tag. Returns what follows the `>`, or `None` when the tag goes
    /// on. A `>` between quotation marks belongs to a name.
    pub(crate) fn read<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        for (at, c) in text.char_indices() {
            match c {
                '>' if !self.in_quotes => return Some(&text[at + 1..]),
                '"' => self.in_quotes = !self.in_quotes,
                _ => {}
            }
            self.text.push(c);
        }
        None
    }

    /// `invoke`, `parameter`, `tool_calls`, ...: the first word. The dialect of V4.1 has a space before it.
    pub(crate) fn name(&self) -> &str {
        let text = self.text.trim_start();
        &text[..text.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(text.len())]
    }

    /// It ends with `/`: there is nothing inside.
    pub(crate) fn self_closing(&self) -> bool {
        !self.in_quotes && self.text.trim_end().ends_with('/')
    }

    /// Whether the text ends with what opens a closing tag: a `</` was swallowed because the `>` is missing.
    pub(crate) fn runs_into_closing(&self) -> bool {
        self.text.ends_with("</")
    }

    /// The value of an attribute, if it is complete. It runs to the next quotation mark; there is no escape.
    pub(crate) fn attribute(&self, key: &str) -> Option<&str> {
        let mut rest = &self.text.trim_start()[self.name().len()..];
        loop {
            let (name, after) = rest.split_once("=\"")?;
            let (value, tail) = after.split_once('"')?;
            if name.trim() == key {
                return Some(value);
            }
            rest = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Tag {
        let mut tag = Tag::new(false);
        assert_eq!(tag.read(text), None);
        tag
    }

    #[test]
    fn names_may_hold_spaces_and_angle_brackets() {
        let tag = tag(r#" parameter name="shipping > address" string="false""#);
        assert_eq!(tag.name(), "parameter");
        assert_eq!(tag.attribute("name"), Some("shipping > address"));
        assert_eq!(tag.attribute("string"), Some("false"));
        assert_eq!(tag.attribute("missing"), None);
    }

    #[test]
    fn an_unfinished_value_is_not_a_value() {
        assert_eq!(tag(r#"invoke name="get_w"#).attribute("name"), None);
        assert_eq!(tag(r#"parameter name="text" stri"#).attribute("name"), Some("text"));
    }

    #[test]
    fn the_short_form_is_recognised() {
        let mut ping = Tag::new(false);
        assert_eq!(ping.read("invoke name=\"ping\"/>\nrest"), Some("\nrest"));
        assert!(ping.self_closing());
        assert_eq!(ping.attribute("name"), Some("ping"));
    }
}
