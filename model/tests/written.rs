//! Turns as the model wrote them, in prompts.

#![allow(clippy::unwrap_used)]

mod vocabulary;

use luce_core::TokenId;
use luce_model::Family;
use luce_model::chat::openai::{Defaults, conversation};
use luce_model::chat::{ChatFormat, EffortProfile, Message, Written};
use serde_json::{Value, json};
use vocabulary::V4;

/// The tokens of a conversation whose turn of the model was written as `written`.
fn tokens(thinking: &str, tools: bool, written: Option<Written>) -> Vec<TokenId> {
    let mut body = json!({"thinking": {"type": thinking}, "messages": [{"role": "user", "content": "q"},
        {"role": "assistant", "reasoning_content": "R", "content": "C"}, {"role": "user", "content": "p"}]});
    if tools {
        body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    }
    let Value::Object(body) = body else { unreachable!() };
    let mut conversation = conversation(&body, Defaults { family: Family::V4, thinking: true }).unwrap();
    let Message::Assistant(turn) = &mut conversation.messages[1] else { panic!() };
    turn.written = written.map(Into::into);
    ChatFormat::new(Family::V4, EffortProfile::Preview).render(&V4, &conversation).tokens
}

/// What stands between the first header of the model and the end of its turn.
fn turn(tokens: &[TokenId]) -> &[TokenId] {
    let ids = V4.specials();
    let begin = tokens.iter().position(|&t| t == ids.assistant).unwrap() + 1;
    let end = begin + tokens[begin..].iter().position(|&t| t == ids.eos).unwrap();
    &tokens[begin..end]
}

/// Ids that no encoding of a text would give in this order.
fn odd(from: u32) -> Vec<TokenId> {
    (from..from + 3).map(TokenId).collect()
}

#[test]
fn tokens_stand_where_the_texts_would_and_nothing_else_changes() {
    let ids = V4.specials();
    let thoughts = [odd(500), vec![ids.end_think]].concat();
    let written = Written { thoughts: Some(thoughts.clone()), rest: Some(odd(600)) };
    let whole = [vec![ids.think], thoughts, odd(600)].concat();
    let with = tokens("enabled", true, Some(written.clone()));
    assert_eq!(turn(&with), whole);
    let without = tokens("enabled", true, None);
    let (a, b) = (turn(&with), turn(&without));
    let around = |all: &[TokenId], turn: &[TokenId]| {
        let at = all.windows(turn.len()).position(|w| w == turn).unwrap();
        (all[..at].to_vec(), all[at + turn.len()..].to_vec())
    };
    assert_eq!(around(&with, a), around(&without, b));
    // Where earlier reasoning is not part of the prompt, only the rest is.
    assert_eq!(turn(&tokens("enabled", false, Some(written.clone()))), [vec![ids.end_think], odd(600)].concat());
    assert_eq!(turn(&tokens("disabled", true, Some(written))), [vec![ids.end_think], odd(600)].concat());
}

#[test]
fn a_turn_without_thoughts_gets_an_empty_block_and_one_that_never_ended_them_is_kept_or_written_anew() {
    let ids = V4.specials();
    let plain = Written { thoughts: None, rest: Some(odd(600)) };
    assert_eq!(
        turn(&tokens("enabled", true, Some(plain.clone()))),
        [vec![ids.think, ids.end_think], odd(600)].concat()
    );
    assert_eq!(turn(&tokens("disabled", true, Some(plain))), [vec![ids.end_think], odd(600)].concat());
    let open = Written { thoughts: Some(odd(500)), rest: None };
    assert_eq!(turn(&tokens("enabled", true, Some(open.clone()))), [vec![ids.think], odd(500)].concat());
    let own = tokens("disabled", true, None);
    assert_eq!(turn(&tokens("disabled", true, Some(open))), turn(&own));
}
