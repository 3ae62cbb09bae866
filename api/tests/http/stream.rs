//! Streams: their order, their first event, silence, failures.

use luce_core::{Event, Finish};
use serde_json::{Value, json};

use crate::support::{Rig, ask};

/// The deltas of chunks that have a choice, and the finish reasons.
fn deltas(events: &[Value]) -> Vec<(Value, Value)> {
    let choices = events.iter().filter(|event| event["choices"].as_array().is_some_and(|c| !c.is_empty()));
    choices.map(|event| (event["choices"][0]["delta"].clone(), event["choices"][0]["finish_reason"].clone())).collect()
}

/// Joins neighbours of one text field, since cutting depends on timing.
fn joined(deltas: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    let mut out: Vec<(Value, Value)> = Vec::new();
    for (delta, finish) in deltas {
        if let Some((last, _)) = out.last_mut()
            && last.get("role").is_none()
            && delta.get("role").is_none()
        {
            let key = ["reasoning_content", "content"]
                .into_iter()
                .find(|key| last[key].is_string() && delta[key].is_string());
            if let Some(key) = key {
                last[key] = (last[key].as_str().unwrap().to_owned() + delta[key].as_str().unwrap()).into();
                continue;
            }
        }
        out.push((delta, finish));
    }
    out
}

#[test]
fn a_stream_has_role_reasoning_content_finish_usage_and_done_in_this_order() {
    let rig = Rig::new();
    let more = json!({"stream": true, "stream_options": {"include_usage": true}, "thinking": {"type": "enabled"}});
    let response = rig.chat_answered(&ask("hello", more), "why</think>because é");
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    assert_eq!(response.header("x-accel-buffering"), Some("no"));
    let (events, done) = response.events();
    assert!(done);
    let wanted = [
        (json!({"role": "assistant", "content": ""}), json!(null)),
        (json!({"reasoning_content": "why"}), json!(null)),
        (json!({"content": "because é"}), json!(null)),
        (json!({}), json!("stop")),
    ];
    assert_eq!(joined(deltas(&events)), wanted);
    let last = events.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!((&last["usage"]["prompt_tokens"], &last["usage"]["completion_tokens"]), (&json!(5), &json!(14)));
    assert!(last["timings"].is_object());
    let with_usage = events.iter().filter(|event| event.get("usage").is_some()).count();
    assert_eq!(with_usage, 1, "clients add usage up");
    for event in &events {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!((&event["id"], &event["created"]), (&events[0]["id"], &events[0]["created"]));
    }
}

#[test]
fn usage_does_not_come_unasked_and_the_last_chunk_has_the_timings() {
    let rig = Rig::new();
    let (events, _) = rig.chat_answered(&ask("x", json!({"stream": true})), "a").events();
    assert!(events.iter().all(|event| event.get("usage").is_none()));
    let last = events.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert!(last["timings"].is_object());
}

#[test]
fn the_first_event_comes_before_the_engine_says_anything() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    assert_eq!(connection.head().status, 200);
    assert!(connection.chunk().unwrap().contains("\"role\":\"assistant\""));
    taken.say("a");
    assert!(connection.chunk().unwrap().contains("\"content\":\"a\""));
    // An unfinished character says nothing yet.
    taken.send_tokens(&[0xc3]);
    taken.send_tokens(&[0xa9]);
    assert!(connection.chunk().unwrap().contains("\"content\":\"é\""));
    taken.finish(Finish::Length);
    assert!(connection.chunk().unwrap().ends_with("data: [DONE]\n\n"));
    assert_eq!(connection.chunk(), None);
}

#[test]
fn silence_is_filled_with_comments_also_while_tokens_are_withheld() {
    let rig = Rig::with(|config| config.keep_alive = 1);
    let tools = json!({"stream": true, "tools": [{"type": "function", "function": {"name": "f"}}]});
    let mut connection = rig.chat(&ask("x", tools));
    let mut taken = rig.take();
    connection.head();
    connection.chunk().unwrap();
    assert_eq!(connection.chunk().unwrap(), ": keep-alive\n\n");
    taken.say("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">");
    assert!(connection.chunk().unwrap().contains("\"name\":\"f\""));
    let begun = std::time::Instant::now();
    taken.say("<｜DSML｜parameter name=\"a\" string=\"false\">[1,");
    std::thread::sleep(std::time::Duration::from_millis(600));
    // Withheld until its end: this is no news for the client.
    taken.say("2,");
    assert_eq!(connection.chunk().unwrap(), ": keep-alive\n\n");
    assert!(begun.elapsed() < std::time::Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn a_call_streams_its_name_once_and_then_its_arguments() {
    let rig = Rig::new();
    let tools = json!({"stream": true, "tools": [{"type": "function", "function": {"name": "f"}}]});
    let text = "Sure.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"q\" string=\"true\">é \"1\"\
                </｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n";
    let (events, done) = rig.chat_answered(&ask("x", tools), text).events();
    assert!(done);
    let mut heads = Vec::new();
    let mut arguments = [String::new(), String::new()];
    for (delta, _) in deltas(&events) {
        let Some(call) = delta.get("tool_calls").map(|calls| calls[0].clone()) else { continue };
        let index = call["index"].as_u64().unwrap() as usize;
        if call.get("id").is_some() {
            assert_eq!(
                (&call["type"], &call["function"]),
                (&json!("function"), &json!({"name": "f", "arguments": ""}))
            );
            heads.push(call["id"].as_str().unwrap()[..8].to_owned());
        } else {
            assert_eq!(call["function"].as_object().unwrap().len(), 1);
            arguments[index].push_str(call["function"]["arguments"].as_str().unwrap());
        }
    }
    assert_eq!(heads, ["call_00_", "call_01_"]);
    assert_eq!(arguments, [r#"{"q": "é \"1\""}"#, "{}"]);
    assert_eq!(deltas(&events).last().unwrap().1, "tool_calls");
    assert!(!events.iter().any(|event| event.to_string().contains("DSML")));
}

#[test]
fn a_failure_after_the_first_byte_is_an_event_and_the_stream_still_ends_properly() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    taken.say("par");
    taken.sink.send(Event::Failed("the drive of tier 2 is gone".to_owned())).unwrap();
    let (events, done) = connection.response().events();
    assert!(done);
    let error = &events.last().unwrap()["error"];
    assert_eq!((&error["message"], &error["type"]), (&json!("the drive of tier 2 is gone"), &json!("server_error")));
    assert!(!events.iter().any(|event| event["choices"][0]["finish_reason"].is_string()));
}

#[test]
fn an_engine_that_vanishes_is_a_failure_and_not_a_short_answer() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    taken.say("par");
    drop(taken);
    let (events, done) = connection.response().events();
    assert!(done && events.last().unwrap()["error"]["code"] == "internal_error");
    let mut connection = rig.chat(&ask("x", json!({})));
    drop(rig.take());
    connection.response().error(500);
}

#[test]
fn an_engine_that_says_more_than_it_may_is_a_failure_and_not_a_hang() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"max_tokens": 2})));
    let mut taken = rig.take();
    taken.say("abcdefgh");
    taken.finish(Finish::Length);
    connection.response().error(500);
}
