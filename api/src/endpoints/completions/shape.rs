//! The JSON of completions: bodies and chunks, which have the same form.

use serde_json::{Value, json};

use crate::endpoints::chat::{timings, usage};
use crate::parser::{Delta, Deltas, Reason};
use crate::run::Outcome;
use crate::scores::{self, Scores};

/// What is the same in every chunk of an answer.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) id: String,
    /// Seconds of Unix time.
    pub(super) created: u64,
    /// As the client named it.
    pub(super) model: String,
    pub(super) fingerprint: String,
    pub(super) logprobs: bool,
    /// Characters told so far, where `text_offset` goes on.
    pub(super) offset: usize,
}

impl Head {
    fn object(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "system_fingerprint": self.fingerprint, "choices": choices,
        })
    }

    /// A piece of the answer, or all of it.
    pub(super) fn piece(&mut self, text: &str, scores: &Scores, finish: Option<Reason>) -> Value {
        let logprobs = (self.logprobs && !(text.is_empty() && scores.is_empty()))
            .then(|| scores::legacy(&scores.content, &mut self.offset));
        self.object(json!([{
            "text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish.map(Reason::name),
        }]))
    }

    /// The whole answer.
    pub(super) fn whole(&mut self, text: &str, scores: &Scores, outcome: &Outcome) -> Value {
        let mut body = self.piece(text, scores, Some(outcome.reason));
        body["usage"] = usage(outcome.counts);
        body["timings"] = timings(outcome);
        body
    }

    /// The chunks that end a stream. The last one has the timings.
    pub(super) fn end(&mut self, outcome: &Outcome, include_usage: bool) -> Vec<Value> {
        let mut chunks = vec![self.piece("", &Scores::default(), Some(outcome.reason))];
        if include_usage {
            let mut last = self.object(json!([]));
            last["usage"] = usage(outcome.counts);
            chunks.push(last);
        }
        if let Some(last) = chunks.last_mut() {
            last["timings"] = timings(outcome);
        }
        chunks
    }
}

/// The text of deltas; there are no other kinds of them here.
pub(super) fn text(deltas: Deltas) -> String {
    deltas
        .into_iter()
        .filter_map(|delta| match delta {
            Delta::Content(text) => Some(text),
            Delta::Reasoning(_) | Delta::Call { .. } | Delta::Arguments { .. } => None,
        })
        .collect()
}
