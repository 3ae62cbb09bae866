//! Tool markup: descriptions of tools, calls in the history, the opening of a forced call. V4 and V4.1 differ in the
//! names of the tags and in calls without arguments.

use super::conversation::{Arguments, Tool, ToolCall};
use super::json::{write_json, write_string};
use super::prompt::Builder;
use super::texts;
use crate::Family;
use crate::tokenizer::Spelling;

/// Structural tokens that fixed texts contain.
const FIXED: [Spelling; 3] = [Spelling::Dsml, Spelling::Think, Spelling::EndThink];

/// Names of the tags, after the marker. V4.1's leading blanks make each a single token.
struct Tags {
    calls: &'static str,
    invoke: &'static str,
    parameter: &'static str,
}

fn tags(family: Family) -> Tags {
    match family {
        Family::V4 => Tags { calls: "tool_calls", invoke: "invoke", parameter: "parameter" },
        Family::V41 => Tags { calls: " calls", invoke: " invoke", parameter: " parameter" },
    }
}

fn open(out: &mut Builder, tag: &str) {
    out.plain("<");
    out.special(Spelling::Dsml);
    out.plain(tag);
}

fn close(out: &mut Builder, tag: &str) {
    out.plain("</");
    out.special(Spelling::Dsml);
    out.plain(tag);
    out.plain(">");
}

/// The list of tools, after the system text.
pub(super) fn describe<'t>(out: &mut Builder, family: Family, tools: impl Iterator<Item = &'t Tool>) {
    out.plain("\n\n");
    out.marked(texts::tools_head(family), &FIXED);
    out.plain(&schemas(family, tools));
    out.marked(texts::TOOLS_TAIL, &FIXED);
}

/// Tools that the history brings in, as the text of a system turn.
pub(super) fn updated<'t>(family: Family, tools: impl Iterator<Item = &'t Tool>) -> String {
    format!("\n\n### Updated Tool Schemas\n\n{}", schemas(family, tools))
}

/// One object a line.
fn schemas<'t>(family: Family, tools: impl Iterator<Item = &'t Tool>) -> String {
    let mut lines = String::new();
    for (i, tool) in tools.enumerate() {
        if i > 0 {
            lines.push('\n');
        }
        lines.push_str("{\"name\": ");
        write_string(&tool.name, &mut lines);
        lines.push_str(", \"description\": ");
        write_string(&tool.description, &mut lines);
        lines.push_str(", \"parameters\": ");
        write_json(&tool.parameters, family, &mut lines);
        lines.push('}');
    }
    lines
}

/// What begins a block of calls.
pub(super) fn open_calls(out: &mut Builder, family: Family) {
    out.plain("\n\n");
    open(out, tags(family).calls);
    out.plain(">\n");
}

/// A whole block of calls.
pub(super) fn calls(out: &mut Builder, family: Family, calls: &[ToolCall]) {
    let tags = tags(family);
    open_calls(out, family);
    for call in calls {
        open(out, tags.invoke);
        out.plain(" name=\"");
        out.plain(&call.name);
        out.plain("\">\n");
        match &call.arguments {
            Arguments::Object(map) if map.is_empty() => {
                if family == Family::V41 {
                    out.plain("\n");
                }
            }
            Arguments::Object(map) => {
                for (name, value) in map {
                    match value.as_str() {
                        Some(text) => parameter(out, tags.parameter, name, true, text),
                        None => {
                            let mut json = String::new();
                            write_json(value, family, &mut json);
                            parameter(out, tags.parameter, name, false, &json);
                        }
                    }
                }
            }
            Arguments::Text(text) => parameter(out, tags.parameter, "arguments", true, text),
        }
        close(out, tags.invoke);
        out.plain("\n");
    }
    close(out, tags.calls);
}

fn parameter(out: &mut Builder, tag: &str, name: &str, string: bool, value: &str) {
    open(out, tag);
    out.plain(" name=\"");
    out.plain(name);
    out.plain("\" string=\"");
    out.plain(if string { "true" } else { "false" });
    out.plain("\">");
    out.plain(value);
    close(out, tag);
    out.plain("\n");
}
