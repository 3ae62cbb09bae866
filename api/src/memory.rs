//! How turns of the model were written, so that a conversation that goes on begins with exactly the tokens that the model
//! saw: what clients send back is text, and encoding it again may cut it into other tokens, or lack the reasoning.
//!
//! A turn with tool calls is found by the id of its first call, another by the messages before it and its text. It is used
//! only if what the client sends back says the same: text, calls and arguments as JSON values, and the reasoning unless it
//! is missing.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use luce_core::TokenId;
use luce_model::chat::{Arguments, Assistant, Conversation, Message, Opening, Written};
use serde_json::Value;

use crate::codec::{ChatCodec, Piece};
use crate::whole::Whole;

/// Tokens of all remembered turns together; with their texts they take about ten bytes each.
const TOKENS_MAX: usize = 1 << 20;

/// Turns that were written lately.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    turns: HashMap<Key, Turn>,
    /// Keys by when they were last used.
    order: BTreeMap<u64, Key>,
    clock: u64,
    tokens: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    /// Id of the first call.
    Call(String),
    /// Hash of the messages before it and of its text.
    Text(u64),
}

#[derive(Debug)]
struct Turn {
    used: u64,
    written: Arc<Written>,
    reasoning: String,
    content: String,
    /// Name and arguments.
    calls: Vec<(String, Value)>,
}

/// What has to be known of a request to remember its answer.
#[derive(Debug)]
pub(crate) struct Note {
    memory: Arc<Memory>,
    /// Of the messages.
    hash: u64,
    opening: Opening,
    /// What the prompt wrote of the turn's own tokens.
    begun: Vec<TokenId>,
}

impl Memory {
    /// Puts the tokens of remembered turns, and reasoning that was not sent back, into a conversation.
    pub(crate) fn recall(&self, conversation: &mut Conversation) {
        let mut inner = self.lock();
        let mut hash = Chain::default();
        for message in &mut conversation.messages {
            if let Message::Assistant(turn) = message
                && !turn.prefix
                && let Some(key) = key(turn, &hash)
                && let Some(known) = inner.find(&key, turn)
            {
                turn.written = Some(Arc::clone(&known.written));
                if turn.reasoning.as_deref().unwrap_or_default().is_empty() && !known.reasoning.is_empty() {
                    turn.reasoning = Some(known.reasoning.clone());
                }
            }
            hash.add(message);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whatever panicked: the worst that a half-made entry does is not to be found.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Note {
    /// For a conversation whose answer may come back with its exact tokens. `None` where that would not help: without tools
    /// the reasoning of earlier turns is not part of a prompt, and a continued turn has no beginning here.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        conversation: &Conversation,
        opening: Opening,
        prompt: &[TokenId],
        codec: &dyn ChatCodec,
    ) -> Option<Note> {
        let continued = matches!(conversation.messages.last(), Some(Message::Assistant(turn)) if turn.prefix);
        if continued || conversation.thinking.is_some() && !conversation.has_tools() {
            return None;
        }
        let header = prompt.iter().rposition(|&token| codec.piece(token) == Piece::ThinkClose);
        let begun = match (opening, header) {
            (Opening::ToolCalls, Some(at)) => prompt[at + 1..].to_vec(),
            _ => Vec::new(),
        };
        let mut hash = Chain::default();
        conversation.messages.iter().for_each(|message| hash.add(message));
        Some(Note { memory: Arc::clone(memory), hash: hash.finish(), opening, begun })
    }

    /// Remembers a complete answer: its tokens, without the one that ended the turn, and what was told of it.
    pub(crate) fn keep(self, tokens: Vec<TokenId>, told: Whole, codec: &dyn ChatCodec) {
        let mut calls = Vec::with_capacity(told.calls.len());
        for call in &told.calls {
            // Arguments that are no JSON come back as something else.
            let Ok(arguments) = serde_json::from_str(&call.arguments) else { return };
            calls.push((call.name.clone(), arguments));
        }
        let key = match told.calls.first() {
            Some(call) => Key::Call(call.id.clone()),
            None => Key::Text(text_key(self.hash, &told.content)),
        };
        let written = match self.opening {
            Opening::Reasoning => match tokens.iter().position(|&token| codec.piece(token) == Piece::ThinkClose) {
                Some(at) => Written { thoughts: Some(tokens[..=at].to_vec()), rest: Some(tokens[at + 1..].to_vec()) },
                None => Written { thoughts: Some(tokens), rest: None },
            },
            Opening::Content | Opening::ToolCalls => {
                Written { thoughts: None, rest: Some([self.begun, tokens].concat()) }
            }
        };
        let turn = Turn { used: 0, written: written.into(), reasoning: told.reasoning, content: told.content, calls };
        self.memory.lock().insert(key, turn);
    }
}

impl Inner {
    fn insert(&mut self, key: Key, mut turn: Turn) {
        self.remove(&key);
        self.clock += 1;
        turn.used = self.clock;
        self.tokens += turn.written.length();
        self.order.insert(self.clock, key.clone());
        self.turns.insert(key, turn);
        while self.tokens > TOKENS_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(turn) = self.turns.remove(key) {
            self.tokens -= turn.written.length();
            self.order.remove(&turn.used);
        }
    }

    /// The remembered turn, if the one sent back says the same.
    fn find(&mut self, key: &Key, sent: &Assistant) -> Option<&Turn> {
        let known = self.turns.get_mut(key).filter(|known| known.says_the_same(sent))?;
        self.clock += 1;
        let place = self.order.remove(&known.used)?;
        known.used = self.clock;
        self.order.insert(self.clock, place);
        Some(known)
    }
}

impl Turn {
    fn says_the_same(&self, sent: &Assistant) -> bool {
        let reasoning = sent.reasoning.as_deref().unwrap_or_default();
        let arguments = |sent: &Arguments, known: &Value| match sent {
            Arguments::Object(map) => known.as_object().is_some_and(|k| {
                k.len() == map.len() && map.iter().all(|(key, v)| k.get(key).is_some_and(|k| same(v, k)))
            }),
            Arguments::Text(_) => false,
        };
        (reasoning.is_empty() || reasoning == self.reasoning)
            && sent.content == self.content
            && sent.calls.len() == self.calls.len()
            && sent
                .calls
                .iter()
                .zip(&self.calls)
                .all(|(sent, (name, known))| sent.name == *name && arguments(&sent.arguments, known))
    }
}

/// Whether two values are the same JSON: the order of keys does not count, nor how a number is written.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// A hash over messages, one after the other, of what clients send back unchanged: not the reasoning, nor how arguments
/// are written.
#[derive(Default)]
struct Chain(DefaultHasher);

impl Chain {
    fn add(&mut self, message: &Message) {
        match message {
            Message::Assistant(turn) => {
                ("assistant", &turn.content, turn.calls.len()).hash(&mut self.0);
                turn.calls.iter().for_each(|call| (&call.id, &call.name).hash(&mut self.0));
            }
            other => format!("{other:?}").hash(&mut self.0),
        }
    }

    fn finish(&self) -> u64 {
        self.0.clone().finish()
    }
}

fn key(turn: &Assistant, before: &Chain) -> Option<Key> {
    match turn.calls.first() {
        Some(call) => call.id.clone().map(Key::Call),
        None => Some(Key::Text(text_key(before.finish(), &turn.content))),
    }
}

fn text_key(before: u64, content: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, content).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(tokens: usize) -> Turn {
        let written = Written { thoughts: None, rest: Some(vec![TokenId(1); tokens]) };
        Turn { used: 0, written: written.into(), reasoning: String::new(), content: "x".to_owned(), calls: Vec::new() }
    }

    #[test]
    fn what_was_not_used_longest_goes_first_and_the_count_stays_right() {
        let mut inner = Inner::default();
        let sent = Assistant { content: "x".to_owned(), ..Assistant::default() };
        for key in 0..3 {
            inner.insert(Key::Text(key), turn(TOKENS_MAX / 3));
        }
        assert!(inner.find(&Key::Text(0), &sent).is_some());
        inner.insert(Key::Text(3), turn(100));
        assert!(inner.find(&Key::Text(1), &sent).is_none(), "it was the oldest");
        assert!(inner.find(&Key::Text(0), &sent).is_some() && inner.find(&Key::Text(3), &sent).is_some());
        inner.insert(Key::Text(3), turn(50));
        assert_eq!(inner.tokens, inner.turns.values().map(|turn| turn.written.length()).sum::<usize>());
        inner.insert(Key::Text(9), turn(TOKENS_MAX + 1));
        assert!(inner.turns.is_empty() && inner.order.is_empty() && inner.tokens == 0);
    }

    #[test]
    fn numbers_and_orders_do_not_count_and_everything_else_does() {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert!(same(&value(r#"{"a": 1.0, "b": [2]}"#), &value(r#"{"b":[2.0],"a":1}"#)));
        for (a, b) in [("1", "2"), ("1", "\"1\""), ("[1]", "[1, 1]"), (r#"{"a":1}"#, r#"{"a":1,"b":1}"#), ("null", "0")]
        {
            assert!(!same(&value(a), &value(b)), "{a} {b}");
        }
    }
}
