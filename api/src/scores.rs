//! Log-probabilities of an answer's tokens, and their JSON.

use luce_core::Logprobs;
use serde_json::{Map, Value, json};

/// A token of an answer and how probable it was.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Score {
    token: Entry,
    top: Vec<Entry>,
}

/// A token and its log-probability.
#[derive(Clone, PartialEq, Debug)]
struct Entry {
    bytes: Vec<u8>,
    logprob: f32,
}

/// Tokens of an answer's sections, in order. Markers and tool calls have none.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Scores {
    pub(crate) reasoning: Vec<Score>,
    pub(crate) content: Vec<Score>,
}

impl Scores {
    pub(crate) fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.content.is_empty()
    }

    pub(crate) fn append(&mut self, mut more: Scores) {
        self.reasoning.append(&mut more.reasoning);
        self.content.append(&mut more.content);
    }

    /// `logprobs` of a chat choice.
    pub(crate) fn chat(&self) -> Value {
        let mut map = Map::new();
        map.insert("content".to_owned(), list(&self.content));
        if !self.reasoning.is_empty() {
            map.insert("reasoning_content".to_owned(), list(&self.reasoning));
        }
        map.into()
    }
}

/// As chat completions and responses list tokens.
pub(crate) fn list(scores: &[Score]) -> Value {
    scores.iter().map(Score::json).collect()
}

/// As completions list tokens. `offset` counts the characters of the answer so far and is moved on.
pub(crate) fn legacy(scores: &[Score], offset: &mut usize) -> Value {
    let mut offsets = Vec::with_capacity(scores.len());
    for score in scores {
        offsets.push(*offset);
        *offset += score.token.text().chars().count();
    }
    let top =
        |score: &Score| -> Value { score.top.iter().map(|e| (e.text(), e.number())).collect::<Map<_, _>>().into() };
    json!({
        "tokens": scores.iter().map(|score| score.token.text()).collect::<Vec<_>>(),
        "token_logprobs": scores.iter().map(|score| score.token.number()).collect::<Vec<_>>(),
        "top_logprobs": scores.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

impl Score {
    /// `bytes` tells what a token stands for.
    pub(crate) fn new(bytes: Vec<u8>, logprobs: &Logprobs, of: impl Fn(luce_core::TokenId) -> Vec<u8>) -> Score {
        let top = logprobs.top.iter().map(|&(token, logprob)| Entry { bytes: of(token), logprob }).collect();
        Score { token: Entry { bytes, logprob: logprobs.chosen }, top }
    }

    fn json(&self) -> Value {
        let mut map = self.token.json();
        map.insert("top_logprobs".to_owned(), self.top.iter().map(Entry::json).collect());
        map.into()
    }
}

impl Entry {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// JSON has no infinity; OpenAI's stand-in for a token that cannot come is -9999.
    fn number(&self) -> Value {
        f64::from(self.logprob).max(-9999.0).into()
    }

    fn json(&self) -> Map<String, Value> {
        let fields =
            [("token", self.text().into()), ("logprob", self.number()), ("bytes", self.bytes.as_slice().into())];
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
