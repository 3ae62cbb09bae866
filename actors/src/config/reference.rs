//! The reference of all keys for users, in Markdown, from the same definitions that the reader uses.

use std::fmt::Write as _;

use super::define::Key;
use super::keys::FILE;

/// A line of a table of keys; the cells are Markdown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The key inside its table, without backticks.
    pub key: String,
    /// The TOML type.
    pub kind: String,
    /// Which values it takes.
    pub allowed: String,
    /// The default, or what counts without the key.
    pub default: String,
    /// What it means.
    pub meaning: String,
}

/// A table of keys.
pub fn table(rows: &[Row]) -> String {
    let mut out = "| key | type | allowed | default | meaning |\n|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let cells = [&format!("`{}`", row.key), &row.kind, &row.allowed, &row.default, &sentence(&row.meaning)];
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        line(&mut out, &format!("| {} |", cells.join(" | ")));
    }
    out
}

/// Headings, tables and words of every section but `[api]`.
pub fn reference() -> String {
    let mut out = String::new();
    for key in FILE.iter().filter(|key| key.name != "api") {
        section(&mut out, key.name, key);
    }
    out
}

/// A section with its heading, and behind it those of the arrays of tables inside it.
fn section(out: &mut String, path: &str, key: &Key) {
    let described = key.shape.describe();
    let (open, close) = if described.about.is_some() { ("[[", "]]") } else { ("[", "]") };
    line(out, &format!("## `{open}{path}{close}`\n"));
    line(out, &format!("{}\n", sentence(described.about.unwrap_or(key.meaning))));
    let (mut rows, mut words, mut arrays) = (Vec::new(), String::new(), Vec::new());
    walk("", described.keys, &mut |name, key| {
        let inner = key.shape.describe();
        if !inner.words.is_empty() {
            line(&mut words, &format!("\n`{name}`:\n"));
            inner.words.iter().for_each(|(word, meaning)| line(&mut words, &format!("- `{word}`: {}", lower(meaning))));
        }
        if inner.about.is_some() {
            arrays.push((format!("{path}.{name}"), key));
        }
        rows.push(Row {
            key: name,
            kind: inner.kind.to_owned(),
            allowed: inner.allowed,
            default: inner.default,
            meaning: key.meaning.to_owned(),
        });
    });
    line(out, &format!("{}{words}", table(&rows)));
    arrays.into_iter().for_each(|(path, key)| section(out, &path, key));
}

/// Calls `each` with every key, tables inside tables flattened to keys with dots.
fn walk(prefix: &str, keys: &'static [Key], each: &mut impl FnMut(String, &'static Key)) {
    for key in keys {
        let described = key.shape.describe();
        let name = format!("{prefix}{}", key.name);
        if described.about.is_none() && !described.keys.is_empty() {
            walk(&format!("{name}."), described.keys, each);
        } else {
            each(name, key);
        }
    }
}

/// A doc comment as one line.
fn sentence(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A doc comment as the end of a line that has begun.
fn lower(doc: &str) -> String {
    let text = sentence(doc);
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}
