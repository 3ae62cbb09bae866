//! Parts of a message as one text, and what system texts must not carry into a prompt.

use super::conversation::Part;

/// How Claude Code's line of attribution begins. It differs with each request, so with it no prompt would share its
/// beginning with the one before.
const ATTRIBUTION: &str = "x-anthropic-billing-header";

/// The text of a system message without the line of attribution: a first part that begins with it goes, of a single
/// text what comes before the first newline or `You are`.
pub(super) fn system(mut parts: Vec<Part>) -> String {
    if let Some(Part::Text(first)) = parts.first()
        && first.get(..ATTRIBUTION.len()).is_some_and(|s| s.eq_ignore_ascii_case(ATTRIBUTION))
    {
        let rest = if parts.len() > 1 { "" } else { without_attribution(first) };
        let rest = rest.to_owned();
        parts.remove(0);
        if !rest.is_empty() {
            parts.insert(0, Part::Text(rest));
        }
    }
    joined(parts)
}

fn without_attribution(text: &str) -> &str {
    let line = text.find('\n').map(|i| i + 1);
    let end = [line, text.find("You are")].into_iter().flatten().min();
    end.map_or("", |i| &text[i..])
}

/// Parts as one text; pictures have none in the turns that use this.
pub(super) fn joined(parts: Vec<Part>) -> String {
    let texts: Vec<_> = parts
        .into_iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text),
            Part::Image => None,
        })
        .collect();
    texts.join("\n\n")
}
