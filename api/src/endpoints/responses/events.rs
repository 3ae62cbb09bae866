//! The events of a response, and the items that they build.
//!
//! ```text
//! created, in_progress, then for each item: output_item.added, its parts and deltas, output_item.done; at last completed,
//! incomplete or failed
//! ```
//!
//! One item is open at a time. Without a stream the same events are made, and only the last one is used.

use luce_model::chat::carry;
use serde_json::{Value, json};

use super::input::InputText;
use super::object::Object;
use super::request::Wishes;
use crate::error::ApiError;
use crate::ids;
use crate::parser::{Delta, Deltas, Reason};
use crate::run::Outcome;
use crate::scores::{self, Score, Scores};

/// Makes the events of one response.
#[derive(Debug)]
pub(super) struct Events {
    object: Object,
    wishes: Wishes,
    /// Number of the next event.
    sequence: u64,
    /// Items that are complete.
    output: Vec<Value>,
    open: Option<Open>,
    /// Log-probabilities that no text has taken yet.
    scores: Scores,
    made: Vec<Value>,
}

/// The item that is being written.
#[derive(Debug)]
struct Open {
    id: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Reasoning { text: String },
    Message { text: String, scores: Vec<Score> },
    Call { call: Head, arguments: String },
    Custom { call: Head, input: InputText },
}

/// What is known of a call from its beginning.
#[derive(Debug)]
struct Head {
    call_id: String,
    name: String,
    namespace: Option<String>,
}

impl Head {
    fn item(&self, id: &str, kind: &str, status: &str, key: &str, value: &str) -> Value {
        let mut item =
            json!({"id": id, "type": kind, "status": status, "call_id": self.call_id, "name": self.name, key: value});
        if let Some(namespace) = &self.namespace {
            item["namespace"] = namespace.as_str().into();
        }
        item
    }
}

impl Events {
    pub(super) fn new(object: Object, wishes: Wishes) -> Events {
        let (output, made) = (Vec::new(), Vec::new());
        Events { object, wishes, sequence: 0, output, open: None, scores: Scores::default(), made }
    }

    /// The events made since the last call.
    pub(super) fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.made)
    }

    /// The first two events.
    pub(super) fn start(&mut self) {
        let response = self.object.begun();
        self.event("response.created", json!({"response": response}));
        self.in_progress();
    }

    /// The event that says that the response goes on; clients' idle timers count events.
    pub(super) fn in_progress(&mut self) {
        let response = self.object.begun();
        self.event("response.in_progress", json!({"response": response}));
    }

    /// More of the answer.
    pub(super) fn deltas(&mut self, deltas: Deltas, scores: Scores) {
        self.scores.append(scores);
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => self.reasoning(&text),
                Delta::Content(text) => self.content(&text),
                Delta::Call { id, name, .. } => self.call(id, name),
                Delta::Arguments { json, .. } => self.arguments(&json),
            }
        }
    }

    /// The last event; returns the whole response.
    pub(super) fn end(&mut self, outcome: &Outcome, completed: u64) -> Value {
        let cut = outcome.reason == Reason::Length;
        self.close(if cut { "incomplete" } else { "completed" }, false);
        let response = self.object.ended(std::mem::take(&mut self.output), outcome, completed);
        let name = if cut { "response.incomplete" } else { "response.completed" };
        self.event(name, json!({"response": response}));
        response
    }

    /// The last event of a response that cannot be completed.
    pub(super) fn fail(&mut self, error: &ApiError) {
        self.close("incomplete", false);
        let response = self.object.failed(std::mem::take(&mut self.output), error);
        self.event("response.failed", json!({"response": response}));
    }

    fn event(&mut self, kind: &str, body: Value) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Value::Object(event), Value::Object(body)) = (&mut event, body) {
            event.extend(body);
        }
        self.made.push(event);
    }

    /// An event of the open item.
    fn item_event(&mut self, kind: &str, id: &str, mut body: Value) {
        body["item_id"] = id.into();
        body["output_index"] = self.output.len().into();
        self.event(kind, body);
    }

    fn open(&mut self, kind: Kind) {
        let prefix = match kind {
            Kind::Reasoning { .. } => "rs",
            Kind::Message { .. } => "msg",
            Kind::Call { .. } => "fc",
            Kind::Custom { .. } => "ctc",
        };
        let id = format!("{prefix}_{}", ids::unique());
        let item = kind.item(&id, "in_progress", &self.wishes, false);
        let index = self.output.len();
        self.event("response.output_item.added", json!({"output_index": index, "item": item}));
        if let Some(part) = kind.part() {
            self.item_event("response.content_part.added", &id, json!({"content_index": 0, "part": part}));
        }
        if matches!(kind, Kind::Reasoning { .. }) && self.wishes.summary {
            let part = json!({"summary_index": 0, "part": summary("")});
            self.item_event("response.reasoning_summary_part.added", &id, part);
        }
        self.open = Some(Open { id, kind });
    }

    /// Ends the open item, if any. `calls_follow`: the text was said before tool calls.
    fn close(&mut self, status: &str, calls_follow: bool) {
        let Some(Open { id, kind }) = self.open.take() else { return };
        match &kind {
            Kind::Reasoning { text } => {
                self.item_event("response.reasoning_text.done", &id, json!({"content_index": 0, "text": text}));
                if self.wishes.summary {
                    let done = json!({"summary_index": 0, "text": text});
                    self.item_event("response.reasoning_summary_text.done", &id, done);
                    let done = json!({"summary_index": 0, "part": summary(text)});
                    self.item_event("response.reasoning_summary_part.done", &id, done);
                }
            }
            Kind::Message { text, scores } => {
                let done = json!({"content_index": 0, "text": text, "logprobs": scores::list(scores)});
                self.item_event("response.output_text.done", &id, done);
            }
            Kind::Call { call, arguments } => {
                let done = json!({"name": call.name, "arguments": arguments});
                self.item_event("response.function_call_arguments.done", &id, done);
            }
            Kind::Custom { input, .. } => {
                let (all, rest) = input.finish();
                if !rest.is_empty() {
                    self.item_event("response.custom_tool_call_input.delta", &id, json!({"delta": rest}));
                }
                self.item_event("response.custom_tool_call_input.done", &id, json!({"input": all}));
            }
        }
        if let Some(part) = kind.part() {
            self.item_event("response.content_part.done", &id, json!({"content_index": 0, "part": part}));
        }
        let item = kind.item(&id, status, &self.wishes, calls_follow);
        let index = self.output.len();
        self.event("response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn reasoning(&mut self, more: &str) {
        if !matches!(&self.open, Some(Open { kind: Kind::Reasoning { .. }, .. })) {
            self.close("completed", false);
            self.open(Kind::Reasoning { text: String::new() });
        }
        let Some(Open { id, kind: Kind::Reasoning { text } }) = &mut self.open else { return };
        text.push_str(more);
        let id = id.clone();
        self.item_event("response.reasoning_text.delta", &id, json!({"content_index": 0, "delta": more}));
        if self.wishes.summary {
            let delta = json!({"summary_index": 0, "delta": more});
            self.item_event("response.reasoning_summary_text.delta", &id, delta);
        }
    }

    fn content(&mut self, more: &str) {
        if !matches!(&self.open, Some(Open { kind: Kind::Message { .. }, .. })) {
            self.close("completed", false);
            self.open(Kind::Message { text: String::new(), scores: Vec::new() });
        }
        let Some(Open { id, kind: Kind::Message { text, scores } }) = &mut self.open else { return };
        text.push_str(more);
        let mut own = if self.wishes.logprobs { std::mem::take(&mut self.scores.content) } else { Vec::new() };
        let logprobs = scores::list(&own);
        scores.append(&mut own);
        let id = id.clone();
        let delta = json!({"content_index": 0, "delta": more, "logprobs": logprobs});
        self.item_event("response.output_text.delta", &id, delta);
    }

    fn call(&mut self, call_id: String, name: String) {
        self.close("completed", true);
        let kind = match self.wishes.origins.get(&name).cloned() {
            Some(origin) => {
                let call = Head { call_id, name: origin.name, namespace: origin.namespace };
                if origin.custom {
                    Kind::Custom { call, input: InputText::default() }
                } else {
                    Kind::Call { call, arguments: String::new() }
                }
            }
            None => Kind::Call { call: Head { call_id, name, namespace: None }, arguments: String::new() },
        };
        self.open(kind);
    }

    fn arguments(&mut self, json: &str) {
        let Some(Open { id, kind }) = &mut self.open else { return };
        let id = id.clone();
        match kind {
            Kind::Call { arguments, .. } => {
                arguments.push_str(json);
                self.item_event("response.function_call_arguments.delta", &id, json!({"delta": json}));
            }
            Kind::Custom { input, .. } => {
                let delta = input.push(json);
                if !delta.is_empty() {
                    self.item_event("response.custom_tool_call_input.delta", &id, json!({"delta": delta}));
                }
            }
            Kind::Reasoning { .. } | Kind::Message { .. } => {}
        }
    }
}

impl Kind {
    /// The part that the item's text is in.
    fn part(&self) -> Option<Value> {
        match self {
            Kind::Reasoning { text } => Some(json!({"type": "reasoning_text", "text": text})),
            Kind::Message { text, scores } => {
                Some(json!({"type": "output_text", "text": text, "annotations": [], "logprobs": scores::list(scores)}))
            }
            Kind::Call { .. } | Kind::Custom { .. } => None,
        }
    }

    fn item(&self, id: &str, status: &str, wishes: &Wishes, calls_follow: bool) -> Value {
        let begun = status != "in_progress";
        let content: Vec<Value> = self.part().filter(|_| begun).into_iter().collect();
        match self {
            Kind::Reasoning { text } => {
                let shown = begun && wishes.summary;
                let summary: Vec<Value> = shown.then(|| summary(text)).into_iter().collect();
                let mut item =
                    json!({"id": id, "type": "reasoning", "status": status, "summary": summary, "content": content});
                if wishes.encrypted {
                    item["encrypted_content"] = if begun { carry(text).into() } else { Value::Null };
                }
                item
            }
            Kind::Message { .. } => json!({
                "id": id, "type": "message", "status": status, "role": "assistant",
                "phase": if calls_follow { "commentary" } else { "final_answer" }, "content": content,
            }),
            Kind::Call { call, arguments } => call.item(id, "function_call", status, "arguments", arguments),
            Kind::Custom { call, input } => call.item(id, "custom_tool_call", status, "input", &input.finish().0),
        }
    }
}

fn summary(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}
