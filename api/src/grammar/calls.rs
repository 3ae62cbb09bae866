//! Blocks of tool calls as a Lark grammar.
//!
//! The marker `｜DSML｜` is one token, written by its number. A tool that is strict takes its parameters in the order of
//! its schema, those that are not required may be left out: a string as it is, one of several strings as alternatives,
//! everything else as JSON of its schema. Other tools take any parameters.

use std::fmt::Write;

use llguidance::api::GrammarWithLexer;
use luce_core::TokenId;
use luce_model::Family;
use luce_model::chat::Tool;
use serde_json::{Map, Value};

use super::form::enforceable;
use super::refused;
use crate::error::ApiError;

/// How blocks of one family are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) family: Family,
    /// The marker.
    pub(super) dsml: TokenId,
    /// Several calls may stand in one block.
    pub(super) parallel: bool,
}

/// `text` as a literal of Lark.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\0'..='\x1f' | '\x7f' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Block {
    /// The rules for `calls`: what stands between the opening of a block and its end, and the end.
    ///
    /// # Errors
    /// 400 for a strict tool whose schema cannot be enforced.
    pub(super) fn rules(&self, tools: &[&Tool]) -> Result<String, ApiError> {
        let (mark, [block, invoke, _]) = (self.mark(), self.tags());
        let mut rules = format!(
            "calls: invoke{} \"</\" {mark} {}\n",
            if self.parallel { "+" } else { "" },
            quoted(&format!("{block}>")),
        );
        let names: Vec<_> = (0..tools.len()).map(|i| format!("invoke_{i}")).collect();
        let _ = writeln!(rules, "invoke: {}", names.join(" | "));
        for (i, tool) in tools.iter().enumerate() {
            let body = if tool.strict { self.strict_body(tool)? } else { "free*".to_owned() };
            let open = quoted(&format!("{invoke} name=\"{}\">\n", tool.name));
            let close = quoted(&format!("{invoke}>\n"));
            let _ = writeln!(rules, "invoke_{i}: \"<\" {mark} {open} {body} \"</\" {mark} {close}");
        }
        let [_, _, parameter] = self.tags();
        let open = quoted(&format!("{parameter} name=\""));
        let close = quoted(&format!("{parameter}>\n"));
        let _ = writeln!(rules, "free: \"<\" {mark} {open} NAME (\"true\" | \"false\") \"\\\">\" RAW {mark} {close}");
        rules.push_str("NAME: /[^\"\\n]+\" string=\"/\n");
        // Up to the marker of the closing tag, whose `</` it takes along.
        rules.push_str("RAW: /(?s:.*)<\\//\n");
        Ok(rules)
    }

    /// A grammar for what follows the opening of a block.
    pub(super) fn inside(&self, rules: &str) -> GrammarWithLexer {
        GrammarWithLexer::from_lark(format!("start: calls\n{rules}"))
    }

    /// A grammar for what follows the first marker of a block.
    pub(super) fn after_marker(&self, rules: &str) -> GrammarWithLexer {
        let open = quoted(&format!("{}>\n", self.tags()[0]));
        GrammarWithLexer::from_lark(format!("start: {open} calls\n{rules}"))
    }

    /// A grammar for a whole block.
    pub(super) fn whole(&self, rules: &str) -> GrammarWithLexer {
        GrammarWithLexer::from_lark(format!("start: block\n{}{rules}", self.block_rule()))
    }

    /// A grammar for a whole block or what the grammar `answer` says.
    pub(super) fn or_answer(&self, rules: &str) -> GrammarWithLexer {
        GrammarWithLexer::from_lark(format!("start: block | @answer\n{}{rules}", self.block_rule()))
    }

    fn block_rule(&self) -> String {
        let open = quoted(&format!("{}>\n", self.tags()[0]));
        format!("block: \"\\n\\n<\" {} {open} calls\n", self.mark())
    }

    fn mark(&self) -> String {
        format!("<[{}]>", self.dsml.0)
    }

    /// Names of block, call and parameter.
    fn tags(&self) -> [&'static str; 3] {
        match self.family {
            Family::V4 => ["tool_calls", "invoke", "parameter"],
            Family::V41 => [" calls", " invoke", " parameter"],
        }
    }

    /// The parameters of a strict tool.
    fn strict_body(&self, tool: &Tool) -> Result<String, ApiError> {
        let place = format!("tools: parameters of {}", tool.name);
        let empty = Map::new();
        let root = tool.parameters.as_object().unwrap_or(&empty);
        let simple = root.keys().all(|key| {
            let known = ["type", "properties", "required", "additionalProperties", "$defs", "definitions"];
            let words = ["title", "description", "$schema", "$id", "$comment", "examples"];
            known.contains(&key.as_str()) || words.contains(&key.as_str())
        });
        if !simple {
            // The whole as one JSON object, which counts as arguments, too.
            return Ok(format!("%json {}", enforceable(&tool.parameters, &place)?));
        }
        let properties = root.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = root.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut parts = Vec::new();
        for (name, schema) in properties {
            if name.contains(['"', '\n']) {
                return Err(refused(&place, &format!("the name {name:?} cannot be written in a call")));
            }
            let optional = !required.iter().any(|r| r == name);
            parts.push(format!("{}{}", self.parameter(name, schema, root, &place)?, if optional { "?" } else { "" }));
        }
        let all_optional = parts.iter().all(|part| part.ends_with('?'));
        let body = parts.join(" ");
        Ok(match (self.family, all_optional) {
            (Family::V41, true) if body.is_empty() => "\"\\n\"".to_owned(),
            (Family::V41, true) => format!("({body} | \"\\n\")"),
            _ => body,
        })
    }

    /// One parameter in parentheses.
    fn parameter(
        &self,
        name: &str,
        schema: &Value,
        root: &Map<String, Value>,
        place: &str,
    ) -> Result<String, ApiError> {
        let mark = self.mark();
        let [_, _, parameter] = self.tags();
        let open = |string: bool| quoted(&format!("{parameter} name=\"{name}\" string=\"{string}\">"));
        let mut forms = Vec::new();
        match strings(schema) {
            Strings::Any => forms.push(format!("{} RAW", open(true))),
            Strings::Some(texts) => {
                let texts: Vec<_> = texts.iter().map(|text| quoted(&format!("{text}</"))).collect();
                forms.push(format!("{} ({})", open(true), texts.join(" | ")));
            }
            Strings::Other => {}
        }
        if !only_strings(schema) {
            let mut schema = schema.as_object().cloned().unwrap_or_default();
            for key in ["$defs", "definitions"] {
                if let Some(definitions) = root.get(key) {
                    schema.entry(key).or_insert_with(|| definitions.clone());
                }
            }
            let json = enforceable(&schema.into(), place)?;
            forms.push(format!("{} %json {json} \"</\"", open(false)));
        }
        let close = quoted(&format!("{parameter}>\n"));
        Ok(format!("(\"<\" {mark} ({}) {mark} {close})", forms.join(" | ")))
    }
}

/// Which strings a schema takes that can be written as they are.
enum Strings {
    /// Every string.
    Any,
    /// These.
    Some(Vec<String>),
    /// None, or such that only a JSON schema can tell.
    Other,
}

fn strings(schema: &Value) -> Strings {
    let Some(map) = schema.as_object() else { return Strings::Other };
    let texts = |list: &[Value]| list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>();
    let limits = ["pattern", "format", "minLength", "maxLength", "anyOf", "oneOf", "allOf", "$ref", "not"];
    if limits.iter().any(|key| map.contains_key(*key)) {
        return Strings::Other;
    }
    let known = match (map.get("const"), map.get("enum").and_then(Value::as_array)) {
        (Some(one), None) => texts(std::slice::from_ref(one)),
        (None, Some(list)) => texts(list),
        (None, None) if names_type(map, "string") => return Strings::Any,
        _ => return Strings::Other,
    };
    if known.is_empty() { Strings::Other } else { Strings::Some(known) }
}

/// Whether everything that the schema takes is covered by [`strings`].
fn only_strings(schema: &Value) -> bool {
    match strings(schema) {
        Strings::Other => false,
        Strings::Any => schema["type"] == "string",
        Strings::Some(texts) => {
            let count = schema.get("enum").and_then(Value::as_array).map_or(1, Vec::len);
            count == texts.len()
        }
    }
}

fn names_type(map: &Map<String, Value>, name: &str) -> bool {
    match map.get("type") {
        Some(Value::String(one)) => one == name,
        Some(Value::Array(list)) => list.iter().any(|t| t == name),
        _ => false,
    }
}
