//! Content of Anthropic's messages: a text, or a list of blocks.

use serde_json::{Map, Value};

use crate::chat::read::{self, BadRequest};
use crate::chat::{Arguments, Part, ToolCall};

/// A block of content that means something here.
pub(super) enum Block {
    /// Text, a picture, or the words that stand for a document.
    Part(Part),
    /// What the model thought. The text is empty when the client did not want to see it.
    Thinking { text: String, signature: Option<String> },
    /// A call that the model made.
    Call(ToolCall),
    /// What a call gave. `references` are names of tools that it found.
    Result { call: Option<String>, parts: Vec<Part>, references: Vec<String> },
    /// A tool that a system message brings in, by name.
    Addition(String),
}

/// The field `key` of `map`: absent, a text, or a list of blocks.
pub(super) fn content(map: &Map<String, Value>, at: &str, key: &str) -> Result<Vec<Block>, BadRequest> {
    let place = read::place(at, key);
    let list = match read::get(map, key) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![text_part(text)]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(read::wrong(&place, "a string or an array of blocks", other)),
    };
    let mut blocks = Vec::with_capacity(list.len());
    for (i, item) in list.iter().enumerate() {
        let at = format!("{place}[{i}]");
        match item {
            Value::String(text) => blocks.push(text_part(text)),
            Value::Object(map) => blocks.extend(block(map, &at)?),
            other => return Err(read::wrong(&at, "an object", other)),
        }
    }
    Ok(blocks)
}

fn block(map: &Map<String, Value>, at: &str) -> Result<Option<Block>, BadRequest> {
    let Some(kind) = read::string(map, at, "type")? else { return Err(BadRequest::missing(read::place(at, "type"))) };
    Ok(Some(match kind {
        "text" => text_part(required(map, at, "text")?),
        "image" => Block::Part(Part::Image),
        "document" => document(map, at)?,
        "thinking" => Block::Thinking {
            text: read::string(map, at, "thinking")?.unwrap_or_default().to_owned(),
            signature: read::string(map, at, "signature")?.map(str::to_owned),
        },
        "tool_use" => Block::Call(ToolCall {
            id: read::string(map, at, "id")?.map(str::to_owned),
            name: required(map, at, "name")?.to_owned(),
            arguments: match read::get(map, "input") {
                None => Arguments::Object(Map::new()),
                Some(Value::Object(input)) => Arguments::Object(input.clone()),
                Some(Value::String(text)) => Arguments::from_text(text),
                Some(other) => Arguments::Text(other.to_string()),
            },
        }),
        "tool_result" => result(map, at)?,
        // As a part of a result it is the name, for the model to read; `result` takes note of the rest.
        "tool_reference" => text_part(required(map, at, "tool_name")?),
        "tool_addition" => {
            let tool = read::object(map, at, "tool")?.ok_or_else(|| BadRequest::missing(read::place(at, "tool")))?;
            Block::Addition(required(tool, &read::place(at, "tool"), "name")?.to_owned())
        }
        kind => {
            tracing::warn!(kind, at, "a content block that only the hosted service can use is left out");
            return Ok(None);
        }
    }))
}

fn result(map: &Map<String, Value>, at: &str) -> Result<Block, BadRequest> {
    let parts = content(map, at, "content")?
        .into_iter()
        .filter_map(|block| match block {
            Block::Part(part) => Some(part),
            _ => None,
        })
        .collect();
    let inner = map.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let references = inner.iter().filter(|block| block["type"] == "tool_reference");
    Ok(Block::Result {
        call: read::string(map, at, "tool_use_id")?.map(str::to_owned),
        parts,
        references: references.filter_map(|block| block["tool_name"].as_str().map(str::to_owned)).collect(),
    })
}

/// A document of plain text is its text; others say what they are.
fn document(map: &Map<String, Value>, at: &str) -> Result<Block, BadRequest> {
    let source = read::object(map, at, "source")?.ok_or_else(|| BadRequest::missing(read::place(at, "source")))?;
    let at = read::place(at, "source");
    if read::string(source, &at, "type")? == Some("text") {
        return Ok(text_part(required(source, &at, "data")?));
    }
    let kind = read::string(source, &at, "media_type")?.unwrap_or("unknown");
    Ok(text_part(&format!("[Unsupported document type: {kind}]")))
}

fn text_part(text: &str) -> Block {
    Block::Part(Part::Text(text.to_owned()))
}

fn required<'v>(map: &'v Map<String, Value>, at: &str, key: &str) -> Result<&'v str, BadRequest> {
    read::string(map, at, key)?.ok_or_else(|| BadRequest::missing(read::place(at, key)))
}
