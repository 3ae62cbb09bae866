//! The JSON of chat completions: bodies, chunks, usage.

use luce_core::Served;
use serde_json::{Map, Value, json};

use crate::parser::{Delta, Reason};
use crate::run::{Counts, Outcome};
use crate::scores::Scores;
use crate::whole::Whole;

/// What is the same in every chunk of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    /// Seconds of Unix time.
    pub(crate) created: u64,
    /// As the client named it.
    pub(crate) model: String,
    pub(crate) fingerprint: String,
}

impl Head {
    fn object(&self, kind: &str, choices: Value) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("id".to_owned(), self.id.as_str().into());
        map.insert("object".to_owned(), kind.into());
        map.insert("created".to_owned(), self.created.into());
        map.insert("model".to_owned(), self.model.as_str().into());
        map.insert("system_fingerprint".to_owned(), self.fingerprint.as_str().into());
        map.insert("choices".to_owned(), choices);
        map
    }

    fn chunk(&self, delta: &Value, finish: Option<Reason>) -> Map<String, Value> {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish.map(Reason::name)});
        self.object("chat.completion.chunk", Value::Array(vec![choice]))
    }

    /// The first chunk.
    pub(crate) fn role(&self) -> Value {
        self.chunk(&json!({"role": "assistant", "content": ""}), None).into()
    }

    /// One delta. It takes its section's part of `scores`.
    pub(crate) fn delta(&self, delta: Delta, scores: &mut Scores) -> Value {
        let mut own = Scores::default();
        let delta = match delta {
            Delta::Reasoning(text) => {
                own.reasoning = std::mem::take(&mut scores.reasoning);
                json!({"reasoning_content": text})
            }
            Delta::Content(text) => {
                own.content = std::mem::take(&mut scores.content);
                json!({"content": text})
            }
            Delta::Call { index, id, name } => json!({"tool_calls": [{
                "index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""},
            }]}),
            Delta::Arguments { index, json: arguments } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
            }
        };
        self.scored(self.chunk(&delta, None), &own)
    }

    /// A chunk with what there is of log-probabilities.
    fn scored(&self, mut chunk: Map<String, Value>, scores: &Scores) -> Value {
        if !scores.is_empty() {
            chunk["choices"][0]["logprobs"] = scores.chat();
        }
        chunk.into()
    }

    /// The chunks that end a stream: the finish, and the usage if it was asked for. The last one has the timings.
    /// `scores`: those that no delta took.
    pub(crate) fn end(&self, outcome: &Outcome, scores: &Scores, include_usage: bool) -> Vec<Value> {
        let finish = self.scored(self.chunk(&json!({}), Some(outcome.reason)), scores);
        let mut chunks = vec![finish];
        if include_usage {
            let mut last = self.object("chat.completion.chunk", json!([]));
            last.insert("usage".to_owned(), usage(outcome.counts));
            chunks.push(last.into());
        }
        if let Some(last) = chunks.last_mut() {
            last["timings"] = timings(outcome);
        }
        chunks
    }

    /// The whole answer at once. `thinking`: whether it has reasoning, perhaps empty; `logprobs`: whether they were asked
    /// for.
    pub(crate) fn whole(&self, parts: Whole, thinking: bool, logprobs: bool, outcome: &Outcome) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let no_text = parts.content.is_empty() && !parts.calls.is_empty();
        message.insert("content".to_owned(), if no_text { Value::Null } else { parts.content.into() });
        if thinking {
            message.insert("reasoning_content".to_owned(), parts.reasoning.into());
        }
        if !parts.calls.is_empty() {
            let calls = parts.calls.into_iter().map(|call| {
                json!({
                    "id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments},
                })
            });
            message.insert("tool_calls".to_owned(), calls.collect());
        }
        let logprobs = logprobs.then(|| parts.scores.chat());
        let choice =
            json!({"index": 0, "message": message, "logprobs": logprobs, "finish_reason": outcome.reason.name()});
        let mut body = self.object("chat.completion", Value::Array(vec![choice]));
        body.insert("usage".to_owned(), usage(outcome.counts));
        body.insert("timings".to_owned(), timings(outcome));
        body.into()
    }
}

impl Reason {
    /// As OpenAI names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Stop => "stop",
            Reason::Length => "length",
            Reason::ToolCalls => "tool_calls",
        }
    }
}

/// Names the build and the model, so that a client can tell when either changed.
pub(crate) fn fingerprint(served: &Served) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), &served.name, served.context, served.vocabulary).hash(&mut hasher);
    format!("fp_{:016x}", hasher.finish())
}

/// Token counts.
pub(crate) fn usage(counts: Counts) -> Value {
    json!({
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
        "prompt_cache_hit_tokens": counts.cached,
        "prompt_cache_miss_tokens": counts.prompt.saturating_sub(counts.cached),
    })
}

/// What the engine measured.
pub(crate) fn timings(outcome: &Outcome) -> Value {
    let times = outcome.timings;
    let prefilled = outcome.counts.prompt.saturating_sub(outcome.counts.cached);
    // The first token falls into the prefill.
    let decoded = outcome.counts.completion.saturating_sub(1);
    json!({
        "queue_ms": millis(times.queue_us),
        "prefill_ms": millis(times.prefill_us),
        "decode_ms": millis(times.decode_us),
        "prompt_tokens": outcome.counts.prompt,
        "cached_tokens": outcome.counts.cached,
        "prefilled_tokens": prefilled,
        "generated_tokens": outcome.counts.completion,
        "prefill_tokens_per_second": rate(prefilled, times.prefill_us),
        "decode_tokens_per_second": rate(decoded, times.decode_us),
    })
}

fn millis(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Tokens per second to two decimals; null when nothing was measured.
fn rate(tokens: u32, us: u64) -> Value {
    if us == 0 || tokens == 0 {
        return Value::Null;
    }
    ((f64::from(tokens) * 1e8 / us as f64).round() / 100.0).into()
}
