//! Log-probabilities, and what of the options reaches the engine.

use luce_core::{Finish, TokenId};
use serde_json::{Value, json};

use crate::support::{EOS, Rig, Taken, ask};

/// The entry of a token said by `say_scored`.
fn scored(token: &str, top: u32) -> Value {
    let others: Vec<Value> = (0..top as u8)
        .map(
            |i| json!({"token": char::from(b'a' + i).to_string(), "logprob": -1.0 - f64::from(i), "bytes": [b'a' + i]}),
        )
        .collect();
    json!({"token": token, "logprob": -0.25, "bytes": token.as_bytes(), "top_logprobs": others})
}

fn scored_text(text: &str, top: u32) -> Value {
    text.chars().map(|c| scored(&c.to_string(), top)).collect()
}

fn end(taken: &mut Taken) {
    taken.send_tokens(&[EOS]);
    taken.finish(Finish::Stop);
}

#[test]
fn every_token_shown_has_its_log_probability_in_the_list_of_its_section() {
    let rig = Rig::new();
    let more = json!({"thinking": {"type": "enabled"}, "logprobs": true, "top_logprobs": 2});
    let mut connection = rig.chat(&ask("x", more));
    let mut taken = rig.take();
    assert_eq!(taken.request.logprobs, Some(2));
    taken.say_scored("why</think>so");
    end(&mut taken);
    let logprobs = connection.response().json()["choices"][0]["logprobs"].clone();
    assert_eq!(logprobs, json!({"reasoning_content": scored_text("why", 2), "content": scored_text("so", 2)}));
}

#[test]
fn bytes_of_unfinished_characters_are_exact_and_their_text_is_lossy() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"logprobs": true})));
    let mut taken = rig.take();
    taken.say_scored("é");
    end(&mut taken);
    let content = connection.response().json()["choices"][0]["logprobs"]["content"].clone();
    assert_eq!((&content[0]["bytes"], &content[1]["bytes"]), (&json!([0xc3]), &json!([0xa9])));
    assert_eq!((&content[0]["token"], &content[0]["top_logprobs"]), (&json!("\u{fffd}"), &json!([])));
}

#[test]
fn streamed_log_probabilities_come_with_their_text_and_none_for_what_is_not_shown() {
    let rig = Rig::new();
    let tools = [json!({"type": "function", "function": {"name": "f"}})];
    let more = json!({"stream": true, "logprobs": true, "stop": "END", "tools": tools});
    let sections = |text: &str, more: &Value| {
        let mut connection = rig.chat(&ask("x", more.clone()));
        let mut taken = rig.take();
        taken.say_scored(text);
        end(&mut taken);
        let (events, _) = connection.response().events();
        let mut list = Vec::new();
        for event in events {
            let choice = &event["choices"][0];
            if let Some(entries) = choice["logprobs"]["content"].as_array() {
                assert!(choice["delta"]["content"].is_string(), "{event}");
                list.extend(entries.clone());
            }
        }
        Value::from(list)
    };
    assert_eq!(sections("one END two", &more), scored_text("one ", 0));
    assert_eq!(sections("one\n\n<｜DSML｜invoke name=\"f\">", &more), scored_text("one", 0));
    assert_eq!(sections("one EN", &more), scored_text("one EN", 0));
}

#[test]
fn log_probabilities_are_null_unless_asked_for() {
    let rig = Rig::new();
    let body = rig.chat_answered(&ask("x", json!({"logprobs": false})), "a").json();
    assert_eq!(body["choices"][0]["logprobs"], Value::Null);
}

#[test]
fn bias_and_the_least_length_reach_the_engine() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"logit_bias": {"5": -100, "7": 2.5, "9": null}, "min_tokens": 3})));
    let mut taken = rig.take();
    taken.answer("ok");
    connection.response();
    assert_eq!(taken.request.sampling.logit_bias, [(TokenId(5), -100.0), (TokenId(7), 2.5)]);
    assert_eq!(taken.request.sampling.min_tokens, 3);
    assert!(taken.request.constraint.is_none());
}
