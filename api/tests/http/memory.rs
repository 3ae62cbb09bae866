//! Turns that come back are given to the model as it wrote them.

use luce_core::{Finish, TokenId};
use serde_json::{Value, json};

use crate::support::{Rig, ask, post, tokens};

const TEXT: &str = "Why.\n</think>So.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\
                    <｜DSML｜parameter name=\"b\" string=\"false\">[1,  2.0]</｜DSML｜parameter>\n\
                    <｜DSML｜parameter name=\"a\" string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";

fn thinking(messages: &Value) -> Value {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    ask("", json!({"messages": messages, "thinking": {"type": "enabled"}, "tools": tools}))
}

/// The message of an answer that is `text`.
fn answer(rig: &Rig, body: &Value, text: &str) -> Value {
    let mut connection = rig.chat(body);
    let mut taken = rig.take();
    taken.say(text);
    taken.finish(Finish::Stop);
    connection.response().json()["choices"][0]["message"].clone()
}

/// The prompt that a body becomes.
fn prompt(rig: &Rig, body: &Value) -> Vec<TokenId> {
    let mut connection = rig.chat(body);
    let mut taken = rig.take();
    taken.answer("");
    connection.response();
    taken.request.prompt
}

fn ids(text: &str) -> Vec<TokenId> {
    tokens(text).into_iter().map(TokenId).collect()
}

#[test]
fn a_turn_with_calls_comes_back_with_its_tokens_whatever_the_client_did_to_reasoning_and_spacing() {
    let rig = Rig::new();
    let user = json!({"role": "user", "content": "q"});
    let sent = answer(&rig, &thinking(&json!([user])), TEXT);
    let result = json!({"role": "tool", "tool_call_id": sent["tool_calls"][0]["id"], "content": "r"});
    let with = |change: &dyn Fn(&mut Value)| {
        let mut turn = sent.clone();
        change(&mut turn);
        prompt(&rig, &thinking(&json!([user, turn, result])))
    };
    let exact = ids(&format!("q{TEXT}"));
    assert_eq!(with(&|_| ()), exact);
    let respaced = |turn: &mut Value| {
        turn["tool_calls"][0]["function"]["arguments"] = "{\"a\":\"x\",\"b\":[1.0,2]}".into();
        turn.as_object_mut().unwrap().remove("reasoning_content");
    };
    assert_eq!(with(&respaced), exact);
    // What the client changed counts.
    let own = ids("qSo.");
    for change in [
        (&|turn: &mut Value| turn["reasoning_content"] = "Other.".into()) as &dyn Fn(&mut Value),
        &|turn: &mut Value| turn["tool_calls"][0]["function"]["arguments"] = "{\"a\":\"y\",\"b\":[1,2]}".into(),
        &|turn: &mut Value| turn["tool_calls"][0]["function"]["name"] = "g".into(),
        &|turn: &mut Value| turn["tool_calls"][0]["id"] = "call_00_unknown".into(),
    ] {
        assert_eq!(with(change), own);
    }
    assert_eq!(with(&|turn: &mut Value| turn["content"] = "Edited.".into()), ids("qEdited."));
}

#[test]
fn a_turn_without_calls_is_known_by_its_text_and_what_came_before() {
    let rig = Rig::new();
    let user = |text: &str| json!({"role": "user", "content": text});
    let sent = answer(&rig, &thinking(&json!([user("q")])), "Why.</think>So.");
    let turn = json!({"role": "assistant", "content": sent["content"]});
    assert_eq!(prompt(&rig, &thinking(&json!([user("q"), turn, user("p")]))), ids("qWhy.</think>So.p"));
    let elsewhere = prompt(&rig, &thinking(&json!([user("z"), turn, user("p")])));
    assert_eq!(elsewhere, ids("zSo.p"), "the same words in another conversation");
}

#[test]
fn a_demanded_call_comes_back_with_the_opening_that_the_prompt_wrote_for_it() {
    let rig = Rig::new();
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let user = json!({"role": "user", "content": "q"});
    let call = "<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    let sent = answer(&rig, &ask("", json!({"messages": [user], "tools": tools, "tool_choice": "required"})), call);
    let body = ask("", json!({"messages": [user, sent, {"role": "tool", "content": "r"}], "tools": tools}));
    assert_eq!(prompt(&rig, &body), ids(&format!("q\n\n<｜DSML｜tool_calls>\n{call}")));
}

#[test]
fn what_was_cut_or_stopped_is_not_remembered() {
    let rig = Rig::new();
    let user = json!({"role": "user", "content": "q"});
    let again = |content: &Value| {
        let body = ask("", json!({"messages": [user, {"role": "assistant", "content": content}, user]}));
        prompt(&rig, &body)
    };
    let mut connection = rig.chat(&ask("q", json!({"stop": ["END"]})));
    let mut taken = rig.take();
    taken.say("one END");
    taken.wait_cancelled();
    taken.finish(Finish::Cancelled);
    let content = connection.response().json()["choices"][0]["message"]["content"].clone();
    assert_eq!(again(&content), ids("qone q"));
}

#[test]
fn the_responses_api_finds_its_turns_and_counts_their_tokens() {
    let rig = Rig::new();
    let tools = json!([{"type": "function", "name": "f"}]);
    let body = |input: Value| json!({"input": input, "tools": tools});
    let user = json!({"role": "user", "content": "q"});
    let mut connection = post(&rig, "/v1/responses", &body(json!([user])));
    let mut taken = rig.take();
    taken.say(TEXT);
    taken.finish(Finish::Stop);
    let output = connection.response().json()["output"].clone();
    // The client keeps the message and the call, and not the reasoning.
    let call = &output[2];
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "r"});
    let next = body(json!([user, output[1], call, result]));
    let mut connection = post(&rig, "/v1/responses", &next);
    let mut taken = rig.take();
    taken.answer("");
    connection.response();
    let exact = ids(&format!("q{TEXT}"));
    assert_eq!(taken.request.prompt, exact);
    let counted = post(&rig, "/v1/responses/input_tokens", &next).response().json();
    assert_eq!(counted["input_tokens"], exact.len());
}
