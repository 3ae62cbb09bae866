//! `system` and `messages` of a Messages body.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::blocks::{self, Block};
use crate::Family;
use crate::chat::parts::{joined, system};
use crate::chat::read::{self, BadRequest};
use crate::chat::{Assistant, Message, Part, Tool, carried, markup, texts};

/// What the messages say.
pub(super) struct Read<'b> {
    pub(super) messages: Vec<Message>,
    /// The last `output_config` that a system message carried.
    pub(super) output_config: Option<&'b Map<String, Value>>,
}

pub(super) fn messages<'b>(
    body: &'b Map<String, Value>,
    tools: &[Tool],
    family: Family,
) -> Result<Read<'b>, BadRequest> {
    let list = read::array(body, "", "messages")?;
    if list.is_empty() {
        return Err(BadRequest::new("messages", "empty_messages", "`messages` must have at least one message"));
    }
    let mut out = Reader { family, tools, brought_in: HashSet::new(), messages: Vec::new() };
    let text = system(texts_only(blocks::content(body, "", "system")?));
    if !text.is_empty() {
        out.messages.push(Message::System(text));
    }
    let mut output_config = None;
    for (i, item) in list.iter().enumerate() {
        let at = format!("messages[{i}]");
        let map = item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?;
        let content = blocks::content(map, &at, "content")?;
        match read::string(map, &at, "role")? {
            Some("user") => out.user(content),
            Some("assistant") => out.assistant(content, i + 1 == list.len()),
            Some("system") => {
                output_config = read::object(map, &at, "output_config")?.or(output_config);
                out.system(content);
            }
            other => {
                let place = read::place(&at, "role");
                let text = format!("`{place}` is {}; roles are user, assistant and system", other.unwrap_or("missing"));
                return Err(BadRequest::new(place, "unknown_role", text));
            }
        }
    }
    Ok(Read { messages: out.messages, output_config })
}

struct Reader<'t> {
    family: Family,
    tools: &'t [Tool],
    /// Deferred tools that the history has shown already.
    brought_in: HashSet<&'t str>,
    messages: Vec<Message>,
}

impl<'t> Reader<'t> {
    /// A message of the user: texts and pictures, and results of tools. Neighbours of one kind stay together.
    fn user(&mut self, content: Vec<Block>) {
        let mut found = Vec::new();
        let mut own = Vec::new();
        for block in content {
            match block {
                Block::Part(part) => own.push(part),
                Block::Result { call, parts, references } => {
                    if !own.is_empty() {
                        self.messages.push(Message::User(std::mem::take(&mut own)));
                    }
                    self.messages.push(Message::ToolResult { call, parts });
                    found.extend(references);
                }
                Block::Thinking { .. } | Block::Call(_) | Block::Addition(_) => left_out("user"),
            }
        }
        if !own.is_empty() {
            self.messages.push(Message::User(own));
        }
        self.bring_in(found, String::new());
    }

    /// A turn of the model. The last one is not finished: the model goes on with it.
    fn assistant(&mut self, content: Vec<Block>, last: bool) {
        let (mut thoughts, mut parts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for block in content {
            match block {
                Block::Part(part) => parts.push(part),
                Block::Call(call) => calls.push(call),
                Block::Thinking { text, signature } => {
                    // Whoever asked not to see the text sends back the signature, which holds it.
                    let hidden = if text.is_empty() { signature.as_deref().and_then(carried) } else { None };
                    thoughts.push(hidden.unwrap_or(text));
                }
                Block::Result { .. } | Block::Addition(_) => left_out("assistant"),
            }
        }
        let reasoning = (!thoughts.is_empty()).then(|| thoughts.join("\n\n"));
        let content = joined(parts);
        let prefix = last && calls.is_empty() && !(content.is_empty() && reasoning.is_none());
        self.messages.push(Message::Assistant(Assistant { reasoning, content, calls, prefix, written: None }));
    }

    /// A system message inside the conversation. It may be empty, to carry an effort or tools.
    fn system(&mut self, content: Vec<Block>) {
        let added = content.iter().filter_map(|block| match block {
            Block::Addition(name) => Some(name.clone()),
            _ => None,
        });
        let added = added.collect();
        self.bring_in(added, system(texts_only(content)));
    }

    /// Adds a system text with the schemas of tools that were not listed, so that the head of the prompt, and with it
    /// the cached state, stays as it was. V4 knows system turns at the head only, so there the user says it.
    fn bring_in(&mut self, names: Vec<String>, mut text: String) {
        let mut new = Vec::new();
        for name in names {
            if let Some(tool) = self.tools.iter().find(|tool| tool.deferred && tool.name == name)
                && self.brought_in.insert(&tool.name)
            {
                new.push(tool);
            }
        }
        if !new.is_empty() {
            text.push_str(&markup::updated(self.family, new.into_iter()));
        }
        if !text.is_empty() {
            self.messages.push(match self.family {
                Family::V41 => Message::System(text),
                Family::V4 => Message::User(vec![Part::Text(texts::reminder(text.trim_start_matches('\n')))]),
            });
        }
    }
}

fn texts_only(content: Vec<Block>) -> Vec<Part> {
    content
        .into_iter()
        .filter_map(|block| match block {
            Block::Part(part) => Some(part),
            _ => None,
        })
        .collect()
}

fn left_out(role: &str) {
    tracing::warn!(role, "a content block that this role cannot have is left out");
}
