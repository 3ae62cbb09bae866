//! The tables of `docs/configuration.md` are what the reader takes: they are written by
//! `LUCE_WRITE_DOCS=1 cargo test --release --test configuration_docs`, and this test fails while they are stale.
//!
//! Those of `[api]` come from `ApiConfig`: names, defaults and types from the value itself, meanings from the fields' doc
//! comments, ranges and words from what it refuses. A new field with a doc comment needs nothing here.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use luce_api::ApiConfig;
use luce_runtime::config::{self, Row};
use serde_json::{Map, Value, json};

const BEGIN: &str = "<!-- generated: LUCE_WRITE_DOCS=1 cargo test --release --test configuration_docs -->\n";
const END: &str = "<!-- end of the generated part -->\n";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn the_documented_keys_are_those_that_the_reader_takes() {
    let file = "docs/configuration.md";
    let text = read(file);
    let (before, rest) = text.split_once(BEGIN).expect("the line that begins the generated part");
    let (_, after) = rest.split_once(END).expect("the line that ends the generated part");
    let api = format!("## `[api]`\n\nThe HTTP API.\n\n{}", config::table(&api_rows()));
    let wanted = format!("{before}{BEGIN}\n{}{api}\n{END}{after}", config::reference());
    if text != wanted {
        assert!(
            std::env::var_os("LUCE_WRITE_DOCS").is_some(),
            "{file} is stale; rewrite it with: LUCE_WRITE_DOCS=1 cargo test --release --test configuration_docs"
        );
        std::fs::write(path(file), wanted).unwrap();
    }
}

#[test]
fn the_commented_example_names_every_key() {
    let (text, documented) = (read("configs/cpu.toml"), config::reference());
    let keys = documented.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    for key in keys.map(|key| key.rsplit('.').next().unwrap()).filter(|key| *key != "actor") {
        let named = |line: &str| line.trim_start_matches("# ").split(' ').next() == Some(key);
        assert!(text.lines().any(named), "configs/cpu.toml says nothing about `{key}`");
    }
}

/// A field of a struct in Rust source: name, type, doc comment.
struct Field {
    name: String,
    kind: String,
    meaning: String,
}

/// The public fields of `struct name` in `source`.
fn fields(source: &str, name: &str) -> Vec<Field> {
    let (_, body) = source.split_once(&format!("pub struct {name} {{\n")).expect("the struct");
    let (mut fields, mut meaning) = (Vec::new(), String::new());
    for line in body.lines().take_while(|line| *line != "}").map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            meaning.push_str(text);
        } else if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) {
            let (name, kind) = (name.to_owned(), kind.trim_end_matches(',').to_owned());
            fields.push(Field { name, kind, meaning: std::mem::take(&mut meaning) });
        }
    }
    fields
}

fn api_rows() -> Vec<Row> {
    let Value::Object(defaults) = serde_json::to_value(ApiConfig::default()).unwrap() else { panic!("a struct") };
    let fields = fields(&read("api/src/config.rs"), "ApiConfig");
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, defaults.keys().collect::<Vec<_>>(), "the fields of ApiConfig and those that it is written with");
    fields.iter().map(|field| api_row(field, &defaults)).collect()
}

fn api_row(field: &Field, defaults: &Map<String, Value>) -> Row {
    let default = &defaults[&field.name];
    // What the type refuses says what it takes.
    let with = |value: Value| serde_json::from_value::<ApiConfig>(json!({ field.name.as_str(): value }));
    let kind = field.kind.strip_prefix("Option<").map_or(field.kind.as_str(), |kind| kind.trim_end_matches('>'));
    let (kind, allowed) = match kind {
        "bool" => ("boolean", "`true`, `false`".to_owned()),
        "usize" | "u64" | "u32" | "u16" => {
            let zero = with(json!(0)).is_ok_and(|config| config.check().is_ok());
            ("integer", format!("at least {}", u8::from(!zero)))
        }
        "String" | "PathBuf" => ("string", String::new()),
        "SocketAddr" => ("string", "address and port".to_owned()),
        "Vec<String>" => ("array of strings", String::new()),
        _ => {
            let message = with(json!("\u{0}")).unwrap_err().to_string();
            let words: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            assert!(!words.is_empty(), "teach this test the type of `{}`, {kind}: {message}", field.name);
            ("string", words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", "))
        }
    };
    Row {
        key: field.name.clone(),
        kind: kind.to_owned(),
        allowed,
        default: if default.is_null() { "not set".to_owned() } else { format!("`{default}`") },
        meaning: field.meaning.clone(),
    }
}
