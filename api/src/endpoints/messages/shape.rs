//! The JSON of Messages: bodies and the events of a stream.

use luce_model::chat::carry;
use serde_json::{Map, Value, json};

use crate::endpoints::chat::timings;
use crate::parser::{Delta, Deltas, Reason};
use crate::run::Outcome;
use crate::sse;
use crate::whole::Whole;

/// What is known of an answer before it comes.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    /// As the client named it.
    pub(crate) model: String,
    /// The client wants to see the reasoning; else it gets the signature only.
    pub(crate) show_thinking: bool,
    /// The limit is the end of the context and not the client's wish.
    pub(crate) fills_context: bool,
}

impl Head {
    fn message(&self, content: Value, stop: Stop, usage: Value) -> Map<String, Value> {
        let Value::Object(mut map) =
            json!({"id": self.id, "type": "message", "role": "assistant", "model": self.model})
        else {
            unreachable!("it is written as an object")
        };
        map.insert("content".to_owned(), content);
        map.insert("stop_reason".to_owned(), stop.reason.into());
        map.insert("stop_sequence".to_owned(), stop.sequence.into());
        map.insert("usage".to_owned(), usage);
        map
    }

    fn stop(&self, outcome: &Outcome) -> Stop {
        let reason = match (outcome.reason, &outcome.stop_string) {
            (Reason::ToolCalls, _) => "tool_use",
            (Reason::Length, _) if self.fills_context => "model_context_window_exceeded",
            (Reason::Length, _) => "max_tokens",
            (Reason::Stop, Some(_)) => "stop_sequence",
            (Reason::Stop, None) => "end_turn",
        };
        Stop { reason: Some(reason), sequence: outcome.stop_string.clone() }
    }
}

/// Why an answer ended; nothing while it goes on.
#[derive(Default)]
struct Stop {
    reason: Option<&'static str>,
    sequence: Option<String>,
}

/// Clients add the three kinds of input up to get the length of the context.
fn usage(prompt: u32, cached: u32, output: u32) -> Value {
    json!({
        "input_tokens": prompt.saturating_sub(cached), "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached, "output_tokens": output, "service_tier": "standard",
    })
}

fn final_usage(outcome: &Outcome) -> Value {
    usage(outcome.counts.prompt, outcome.counts.cached, outcome.counts.completion)
}

/// The block that is open in a stream.
enum Open {
    Nothing,
    /// With its text so far, which the signature repeats.
    Thinking(String),
    Text,
    Call,
}

/// Writes the events of one stream. At most one block is open at a time, and none is empty but for reasoning that the
/// client does not want to see.
pub(crate) struct Events {
    head: Head,
    open: Open,
    /// Of the open block, or of the next.
    index: u32,
    pinged: bool,
}

impl Events {
    pub(crate) fn new(head: Head) -> Events {
        Events { head, open: Open::Nothing, index: 0, pinged: false }
    }

    /// The first event. How much of the prompt was cached is not known yet; the last usage says it.
    pub(crate) fn start(&self, prompt: u32, out: &mut String) {
        let message = self.head.message(json!([]), Stop::default(), usage(prompt, 0, 0));
        sse::named(&json!({"type": "message_start", "message": message}), out);
    }

    /// What fills silence.
    pub(crate) fn ping(out: &mut String) {
        sse::named(&json!({"type": "ping"}), out);
    }

    /// The events of what came.
    pub(crate) fn deltas(&mut self, deltas: Deltas, out: &mut String) {
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => {
                    if !matches!(self.open, Open::Thinking(_)) {
                        let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                        self.begin(Open::Thinking(String::new()), &block, out);
                    }
                    if self.head.show_thinking {
                        self.delta(&json!({"type": "thinking_delta", "thinking": text}), out);
                    }
                    if let Open::Thinking(whole) = &mut self.open {
                        whole.push_str(&text);
                    }
                }
                Delta::Content(text) => {
                    if !matches!(self.open, Open::Text) {
                        self.begin(Open::Text, &json!({"type": "text", "text": ""}), out);
                    }
                    self.delta(&json!({"type": "text_delta", "text": text}), out);
                }
                Delta::Call { id, name, .. } => {
                    let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                    self.begin(Open::Call, &block, out);
                }
                Delta::Arguments { json: part, .. } => {
                    self.delta(&json!({"type": "input_json_delta", "partial_json": part}), out);
                }
            }
        }
    }

    /// The events that end the stream.
    pub(crate) fn end(&mut self, outcome: &Outcome, out: &mut String) {
        self.close(out);
        let Stop { reason, sequence } = self.head.stop(outcome);
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
        sse::named(&json!({"type": "message_delta", "delta": delta, "usage": final_usage(outcome)}), out);
        sse::named(&json!({"type": "message_stop", "timings": timings(outcome)}), out);
    }

    fn begin(&mut self, open: Open, block: &Value, out: &mut String) {
        self.close(out);
        self.open = open;
        sse::named(&json!({"type": "content_block_start", "index": self.index, "content_block": block}), out);
        if !std::mem::replace(&mut self.pinged, true) {
            Events::ping(out);
        }
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        sse::named(&json!({"type": "content_block_delta", "index": self.index, "delta": delta}), out);
    }

    fn close(&mut self, out: &mut String) {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => return,
            Open::Thinking(text) => self.delta(&json!({"type": "signature_delta", "signature": carry(&text)}), out),
            Open::Text | Open::Call => {}
        }
        sse::named(&json!({"type": "content_block_stop", "index": self.index}), out);
        self.index += 1;
    }
}

/// An answer that is not streamed. A call that was cut off has no arguments that a client could use, so it is not in it.
pub(crate) fn whole(parts: Whole, head: &Head, outcome: &Outcome) -> Value {
    let mut blocks = Vec::new();
    if !parts.reasoning.is_empty() {
        let signature = carry(&parts.reasoning);
        let text = if head.show_thinking { parts.reasoning } else { String::new() };
        blocks.push(json!({"type": "thinking", "thinking": text, "signature": signature}));
    }
    if !parts.content.is_empty() {
        blocks.push(json!({"type": "text", "text": parts.content}));
    }
    for call in parts.calls {
        if let Ok(Value::Object(input)) = serde_json::from_str(&call.arguments) {
            blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
        }
    }
    let mut body = head.message(blocks.into(), head.stop(outcome), final_usage(outcome));
    body.insert("timings".to_owned(), timings(outcome));
    body.into()
}
