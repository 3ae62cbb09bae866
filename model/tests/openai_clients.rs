//! Requests of real clients to OpenAI's endpoints: nothing of them is lost, and a conversation's next prompt begins with
//! the one before.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use luce_model::Family;
use luce_model::chat::{ChatFormat, Conversation, Defaults, EffortProfile, Message, openai, responses};
use serde_json::{Map, Value};

/// The steps of each conversation. Left out is what follows a compaction: there the history is another.
const CONVERSATIONS: [&[&str]; 9] = [
    &["codex.tools-1", "codex.tools-2", "codex.tools-3", "codex.tools-4"],
    &["codex.patch-1", "codex.patch-2"],
    &["opencode.chat-tools-1", "opencode.chat-tools-2", "opencode.chat-tools-3", "opencode.chat-tools-4"],
    &["opencode.responses-tools-1", "opencode.responses-tools-2", "opencode.responses-tools-4"],
    &["pi.chat-tools-1", "pi.chat-tools-2", "pi.chat-tools-3", "pi.chat-tools-4"],
    &["pi.responses-tools-1", "pi.responses-tools-2", "pi.responses-tools-4"],
    &["mini-swe-agent.chat-1", "mini-swe-agent.chat-2", "mini-swe-agent.chat-3"],
    &["mini-swe-agent.responses-1", "mini-swe-agent.responses-3"],
    &["llm.tools-1", "llm.tools-2"],
];

struct Captured {
    name: String,
    responses: bool,
    body: Map<String, Value>,
}

impl Captured {
    fn read(path: &Path) -> Option<Captured> {
        let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let responses = match file["path"].as_str().unwrap() {
            "/v1/chat/completions" => false,
            "/v1/responses" | "/v1/responses/input_tokens" => true,
            _ => return None,
        };
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        Some(Captured { name, responses, body: file["body"].as_object().unwrap().clone() })
    }

    fn conversation(&self, family: Family) -> Conversation {
        let defaults = Defaults { family, thinking: true };
        let converted = if self.responses {
            responses::request(&self.body, defaults).map(|request| request.conversation)
        } else {
            openai::conversation(&self.body, defaults)
        };
        converted.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn prompt(&self, family: Family) -> String {
        ChatFormat::new(family, EffortProfile::Official).encode(&self.conversation(family)).text()
    }

    /// Items or messages of these types or roles.
    fn count(&self, kinds: &[&str]) -> usize {
        let (list, key) = if self.responses { ("input", "type") } else { ("messages", "role") };
        let items = self.body[list].as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().filter(|item| item[key].as_str().is_some_and(|kind| kinds.contains(&kind))).count()
    }
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/clients"))
}

#[test]
fn a_clients_next_prompt_begins_with_the_one_before() {
    for files in CONVERSATIONS {
        for family in [Family::V4, Family::V41] {
            let prompts: Vec<String> = files
                .iter()
                .map(|file| Captured::read(&folder().join(format!("{file}.json"))).unwrap().prompt(family))
                .collect();
            for (pair, names) in prompts.windows(2).zip(files.windows(2)) {
                let same = pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
                let differs = String::from_utf8_lossy(&pair[0].as_bytes()[same..]);
                assert_eq!(same, pair[0].len(), "{names:?}: {family:?} differs at {differs:?}");
            }
        }
    }
}

/// Every text of the history that the model has to read.
fn texts<'v>(value: &'v Value, reasoning: bool, out: &mut Vec<&'v str>) {
    match value {
        Value::Array(list) => list.iter().for_each(|item| texts(item, reasoning, out)),
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("reasoning_content", _) if !reasoning => {}
                    ("text" | "content" | "reasoning_content" | "output" | "input", Value::String(text)) => {
                        out.push(text);
                    }
                    ("encrypted_content" | "id" | "call_id" | "arguments", _) => {}
                    (_, nested) => texts(nested, reasoning, out),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn no_text_tool_call_or_result_of_a_real_request_is_lost() {
    let mut files: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut seen = 0;
    for captured in files.iter().filter_map(|path| Captured::read(path)) {
        seen += 1;
        let name = &captured.name;
        for family in [Family::V4, Family::V41] {
            let conversation = captured.conversation(family);
            let mut calls = Vec::new();
            let mut results = 0;
            for message in &conversation.messages {
                match message {
                    Message::Assistant(turn) => calls.extend(&turn.calls),
                    Message::ToolResult { call, .. } => {
                        assert!(call.is_some(), "{name}");
                        results += 1;
                    }
                    _ => {}
                }
            }
            let sent = if captured.responses {
                captured.count(&["function_call", "custom_tool_call"])
            } else {
                let messages = captured.body["messages"].as_array().unwrap();
                messages.iter().map(|m| m["tool_calls"].as_array().map_or(0, Vec::len)).sum()
            };
            assert_eq!(calls.len(), sent, "{name}");
            let outputs = ["tool", "function_call_output", "custom_tool_call_output"];
            assert_eq!(results, captured.count(&outputs), "{name}");
            let prompt = captured.prompt(family);
            for call in calls {
                assert!(prompt.contains(&format!("invoke name=\"{}\"", call.name)), "{name}");
            }
            let mut wanted = Vec::new();
            let list = if captured.responses { "input" } else { "messages" };
            // Without tools earlier reasoning is not rendered.
            texts(&captured.body[list], conversation.has_tools(), &mut wanted);
            for text in wanted {
                assert!(prompt.contains(text), "{name}: {text:?} is not in the prompt");
            }
            for tool in &conversation.tools {
                assert!(prompt.contains(&format!("{{\"name\": \"{}\"", tool.name)), "{name}: {}", tool.name);
            }
        }
    }
    assert_eq!(seen, 51, "the fixture is complete");
}
