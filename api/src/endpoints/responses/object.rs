//! The response object: what the request said, and what came of it.

use luce_core::Sampling;
use luce_model::chat::{Conversation, Effort};
use serde_json::{Map, Value, json};

use crate::endpoints::chat::timings;
use crate::error::ApiError;
use crate::parser::Reason;
use crate::run::{Counts, Outcome};

/// A response before its answer: the fields that do not change.
#[derive(Clone, Debug)]
pub(super) struct Object(Map<String, Value>);

/// What is told back as it was asked for, or null.
const ECHOED: [&str; 9] = [
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
    "frequency_penalty",
    "presence_penalty",
];

impl Object {
    /// From the request's body and what was made of it. `created` in seconds of Unix time.
    pub(super) fn new(
        body: &Map<String, Value>,
        conversation: &Conversation,
        sampling: &Sampling,
        model: &str,
        id: &str,
        created: u64,
    ) -> Object {
        let get = |key: &str| body.get(key).cloned().unwrap_or_default();
        let or = |value: Value, other: Value| if value.is_null() { other } else { value };
        let inside = |outer: &str, key: &str| body.get(outer).and_then(|map| map.get(key)).cloned().unwrap_or_default();
        let effort = conversation.thinking.map_or("none", effort_name);
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        put("id", id.into());
        put("object", "response".into());
        put("created_at", created.into());
        put("status", "in_progress".into());
        put("background", false.into());
        put("completed_at", Value::Null);
        put("error", Value::Null);
        put("incomplete_details", Value::Null);
        put("model", model.into());
        put("output", json!([]));
        put("parallel_tool_calls", or(get("parallel_tool_calls"), true.into()));
        put("previous_response_id", Value::Null);
        let effort = or(inside("reasoning", "effort"), effort.into());
        put("reasoning", json!({"effort": effort, "summary": inside("reasoning", "summary")}));
        put("service_tier", "default".into());
        put("store", false.into());
        put("temperature", decimal(sampling.temperature));
        put("top_p", decimal(sampling.top_p));
        let format = or(inside("text", "format"), json!({"type": "text"}));
        put("text", json!({"format": format, "verbosity": inside("text", "verbosity")}));
        put("tool_choice", or(get("tool_choice"), "auto".into()));
        put("tools", tools(&get("tools")));
        put("top_logprobs", or(get("top_logprobs"), 0.into()));
        put("truncation", or(get("truncation"), "disabled".into()));
        put("usage", Value::Null);
        put("metadata", or(get("metadata"), json!({})));
        for key in ECHOED {
            let none = if key.ends_with("_penalty") { 0.0.into() } else { Value::Null };
            put(key, or(get(key), none));
        }
        Object(map)
    }

    /// While it goes on.
    pub(super) fn begun(&self) -> Value {
        self.0.clone().into()
    }

    /// At its end; `completed` in seconds of Unix time.
    pub(super) fn ended(&self, output: Vec<Value>, outcome: &Outcome, completed: u64) -> Value {
        let mut map = self.0.clone();
        map.insert("output".to_owned(), output.into());
        map.insert("usage".to_owned(), usage(outcome.counts));
        map.insert("timings".to_owned(), timings(outcome));
        if outcome.reason == Reason::Length {
            map.insert("status".to_owned(), "incomplete".into());
            map.insert("incomplete_details".to_owned(), json!({"reason": "max_output_tokens"}));
        } else {
            map.insert("status".to_owned(), "completed".into());
            map.insert("completed_at".to_owned(), completed.into());
        }
        map.into()
    }

    /// When it failed, with what there was until then.
    pub(super) fn failed(&self, output: Vec<Value>, error: &ApiError) -> Value {
        let body = error.body();
        // For Codex this code is final wherever it stands in a stream; the request may well be repeated.
        let code = match body["error"]["code"].as_str() {
            None | Some("server_is_overloaded") => "internal_error",
            Some(code) => code,
        };
        let mut map = self.0.clone();
        map.insert("status".to_owned(), "failed".into());
        map.insert("output".to_owned(), output.into());
        let mut told = json!({"code": code, "message": body["error"]["message"]});
        for key in ["n_prompt_tokens", "n_ctx"] {
            if let Some(number) = body["error"].get(key) {
                told[key] = number.clone();
            }
        }
        map.insert("error".to_owned(), told);
        map.into()
    }
}

fn effort_name(effort: Effort) -> &'static str {
    match effort.level() {
        0..=62 => "low",
        63..=87 => "high",
        _ => "max",
    }
}

/// The shortest decimals that mean this number.
fn decimal(number: f32) -> Value {
    number.to_string().parse::<f64>().unwrap_or_else(|_| number.into()).into()
}

/// The client's tools; of a function clients expect all fields.
fn tools(sent: &Value) -> Value {
    let full = |tool: &Value| {
        let mut tool = tool.clone();
        if tool["type"] == "function"
            && let Some(map) = tool.as_object_mut()
        {
            for key in ["description", "parameters", "strict"] {
                map.entry(key).or_insert(Value::Null);
            }
        }
        tool
    };
    sent.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(full).collect()
}

fn usage(counts: Counts) -> Value {
    json!({
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.completion,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.completion,
    })
}
