//! Answers that are not streamed, and what of a request reaches the engine.

use luce_core::{Finish, Sampling, TokenId};
use serde_json::json;

use crate::support::{EOS, Rig, ask};

#[test]
fn a_whole_answer_has_reasoning_content_usage_and_timings() {
    let rig = Rig::new();
    let response = rig.chat_answered(
        &ask("hello", json!({"model": "any", "thinking": {"type": "enabled"}})),
        "why\n</think>\nbecause",
    );
    assert_eq!(response.status, 200);
    assert!(response.header("x-request-id").unwrap().starts_with("req_"));
    let body = response.json();
    assert!(body["id"].as_str().unwrap().strip_prefix("chatcmpl-").unwrap().len() >= 24);
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "any");
    assert!(body["created"].as_u64().unwrap() > 1_700_000_000);
    assert!(body["system_fingerprint"].as_str().unwrap().starts_with("fp_"));
    assert_eq!(
        body["choices"],
        json!([{"index": 0, "message": {"role": "assistant", "content": "because", "reasoning_content": "why"},
            "logprobs": null, "finish_reason": "stop"}])
    );
    // "why\n" is reasoning; its end, "\nbecause" and not the end of the turn count beside it.
    assert_eq!(
        body["usage"],
        json!({"prompt_tokens": 5, "completion_tokens": 13, "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 4},
            "prompt_cache_hit_tokens": 2, "prompt_cache_miss_tokens": 3})
    );
    let timings = &body["timings"];
    assert_eq!(
        (&timings["queue_ms"], &timings["prefill_ms"], &timings["decode_ms"]),
        (&json!(1.5), &json!(20.0), &json!(100.0))
    );
    assert_eq!(
        (&timings["prefill_tokens_per_second"], &timings["decode_tokens_per_second"]),
        (&json!(150.0), &json!(120.0))
    );
}

#[test]
fn without_thinking_there_is_no_reasoning_field_and_empty_text_is_a_string() {
    let rig = Rig::new();
    let body = rig.chat_answered(&ask("x", json!({})), "").json();
    assert_eq!(body["choices"][0]["message"], json!({"role": "assistant", "content": ""}));
    assert_eq!(body["model"], "tiny");
}

#[test]
fn a_tool_call_is_json_with_null_content_and_a_sortable_id() {
    let rig = Rig::new();
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer"}}}}}]});
    let text = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"n\" string=\"true\">7\
                </｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    let mut connection = rig.chat(&ask("x", tools));
    let mut taken = rig.take();
    taken.say(text);
    // The block is complete, so the engine is stopped rather than left to ramble.
    taken.wait_cancelled();
    taken.say("rambling");
    taken.finish(Finish::Cancelled);
    let choice = connection.response().json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], json!(null));
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        (&call["type"], &call["function"]),
        (&json!("function"), &json!({"name": "f", "arguments": "{\"n\": 7}"}))
    );
    assert!(call["id"].as_str().unwrap().strip_prefix("call_00_").unwrap().len() == 24);
}

#[test]
fn a_stop_string_ends_the_request_and_counts_what_was_sampled_up_to_it() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"stop": ["END", "zzz"]})));
    let mut taken = rig.take();
    taken.say("one END two");
    taken.wait_cancelled();
    taken.finish(Finish::Cancelled);
    let body = connection.response().json();
    assert_eq!(body["choices"][0]["message"]["content"], "one ");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["usage"]["completion_tokens"], 7);
}

#[test]
fn bytes_that_are_no_text_become_replacement_characters_and_an_unfinished_tail_is_dropped() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({})));
    let mut taken = rig.take();
    taken.send_tokens(&[0x61, 0xff, 0x62, 0xe2, 0x82]);
    taken.send_tokens(&[EOS]);
    taken.finish(Finish::Stop);
    assert_eq!(connection.response().json()["choices"][0]["message"]["content"], "a\u{fffd}b");
}

#[test]
fn an_answer_that_was_cut_says_length() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"max_tokens": 3})));
    let mut taken = rig.take();
    taken.say("abc");
    taken.finish(Finish::Length);
    let body = connection.response().json();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["completion_tokens"], 3);
}

fn sampling(rig: &Rig, more: serde_json::Value) -> Sampling {
    let mut connection = rig.chat(&ask("x", more));
    let mut taken = rig.take();
    taken.answer("ok");
    assert_eq!(connection.response().status, 200);
    taken.request.sampling
}

#[test]
fn sampling_takes_the_clients_values_and_the_models_where_there_are_none() {
    let rig = Rig::new();
    assert_eq!(sampling(&rig, json!({})), Sampling { temperature: 1.0, ..Sampling::default() });
    let given = json!({"temperature": 0, "top_p": 0.5, "top_k": 7, "min_p": 0.25, "seed": -1, "presence_penalty": 1,
        "frequency_penalty": -0.5, "repetition_penalty": 1.5, "thinking": {"type": "enabled"}});
    let wanted = Sampling {
        temperature: 0.0,
        top_k: 7,
        top_p: 0.5,
        min_p: 0.25,
        repetition_penalty: 1.5,
        presence_penalty: 1.0,
        frequency_penalty: -0.5,
        seed: Some(u64::MAX),
        ..Sampling::default()
    };
    assert_eq!(sampling(&rig, given), wanted);
    let tools = json!({"thinking": {"type": "enabled"}, "tools": [{"type": "function", "function": {"name": "f"}}]});
    assert_eq!(sampling(&rig, tools).top_p, 0.95);
    let forced = Rig::with(|config| config.sampling = luce_api::SamplingRule::Model);
    let given = json!({"temperature": 0, "thinking": {"type": "enabled"}});
    assert_eq!(sampling(&forced, given).temperature, 1.0);
    assert_eq!(sampling(&forced, json!({"temperature": 0})).temperature, 0.0);
}

#[test]
fn the_end_of_the_turn_stops_and_clients_may_add_or_ignore_it() {
    let rig = Rig::new();
    let stops = |more| {
        let mut connection = rig.chat(&ask("x", more));
        let mut taken = rig.take();
        taken.answer("ok");
        connection.response();
        taken.request.stop_tokens
    };
    assert_eq!(stops(json!({})), [TokenId(EOS)]);
    assert_eq!(stops(json!({"stop_token_ids": [5]})), [TokenId(EOS), TokenId(5)]);
    assert_eq!(stops(json!({"ignore_eos": true})), []);
}

#[test]
fn the_limit_is_what_was_asked_or_the_default_cut_to_the_room_left() {
    // The context of the rig is 4096.
    let rig = Rig::new();
    let limit = |text: &str, more| {
        let mut connection = rig.chat(&ask(text, more));
        let mut taken = rig.take();
        taken.answer("");
        assert_eq!(connection.response().status, 200);
        taken.request.max_tokens
    };
    assert_eq!(limit("x", json!({})), 4095);
    assert_eq!(limit("x", json!({"max_tokens": 7})), 7);
    assert_eq!(limit("x", json!({"max_tokens": -1})), 4095);
    assert_eq!(limit("x", json!({"max_tokens": null, "max_output_tokens": 9})), 9);
    assert_eq!(limit("x", json!({"max_completion_tokens": 5, "max_tokens": 7})), 5);
    assert_eq!(limit("x", json!({"max_tokens": 9_000_000_000_i64})), 4095);
    assert_eq!(limit(&"x".repeat(3000), json!({"max_tokens": 32000})), 1096);
    assert_eq!(limit(&"x".repeat(4095), json!({})), 1);
}

#[test]
fn a_prompt_without_room_gets_the_wording_that_agents_look_for() {
    let rig = Rig::new();
    let response = rig.chat(&ask(&"x".repeat(3100), json!({"max_tokens": 32000, "stream": true}))).response();
    let message = response.error(400);
    assert_eq!(
        message,
        "This model's maximum context length is 4096 tokens. However, you requested 35100 tokens (3100 in the messages, \
         32000 in the completion). Please reduce the length of the messages or completion."
    );
    let error = &response.json()["error"];
    assert_eq!(
        (&error["code"], &error["n_prompt_tokens"], &error["n_ctx"]),
        (&json!("context_length_exceeded"), &json!(3100), &json!(4096))
    );
    rig.chat(&ask(&"x".repeat(4096), json!({}))).response().error(400);
    assert!(rig.nothing_was_taken());
}

#[test]
fn one_connection_serves_several_requests() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    rig.take().answer("one");
    assert!(connection.response().events().1);
    connection.post("/chat//completions/?beta=true", &ask("x", json!({})).to_string());
    rig.take().answer("two");
    assert_eq!(connection.response().json()["choices"][0]["message"]["content"], "two");
}

#[test]
fn thinking_is_on_unless_a_client_says_otherwise() {
    let rig = Rig::new();
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    let message = rig.chat_answered(&body, "why</think>so").json()["choices"][0]["message"].clone();
    assert_eq!(message, json!({"role": "assistant", "content": "so", "reasoning_content": "why"}));
}
