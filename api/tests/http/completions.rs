//! Completions: raw prompts, raw answers.

use luce_core::{Event, Finish, TokenId};
use serde_json::{Value, json};

use crate::support::{BOS, DSML, EOS, Response, Rig, Taken, post};

fn body(more: &Value) -> Value {
    let mut body = json!({"prompt": "ab"});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// What the engine got, and the answer to it.
fn run(rig: &Rig, more: &Value, act: impl FnOnce(&mut Taken)) -> (Taken, Response) {
    let mut connection = post(rig, "/v1/completions", &body(more));
    let mut taken = rig.take();
    act(&mut taken);
    let response = connection.response();
    (taken, response)
}

fn ids(list: &[u32]) -> Vec<TokenId> {
    list.iter().copied().map(TokenId).collect()
}

#[test]
fn the_answer_is_the_text_as_it_comes_markers_and_newlines_included() {
    let rig = Rig::new();
    let (taken, response) = run(&rig, &json!({"model": "m"}), |taken| taken.answer("\n\nx </think>y<｜DSML｜z\n"));
    assert_eq!(taken.request.prompt, ids(&[BOS, 97, 98]));
    assert_eq!(taken.request.stop_tokens, ids(&[EOS]));
    let answer = response.json();
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("m")));
    assert_eq!(
        answer["choices"],
        json!([{"text": "\n\nx </think>y<｜DSML｜z\n", "index": 0, "logprobs": null, "finish_reason": "stop"}])
    );
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(3), &json!(10)));
    assert!(answer["timings"].is_object());
}

#[test]
fn prompts_come_as_text_list_or_tokens_and_only_one_at_a_time() {
    let rig = Rig::new();
    let prompt = |prompt: Value| run(&rig, &json!({"prompt": prompt}), |taken| taken.answer("")).0.request.prompt;
    assert_eq!(prompt(json!(["ab"])), ids(&[BOS, 97, 98]));
    assert_eq!(prompt(json!([97, 98])), ids(&[BOS, 97, 98]));
    assert_eq!(prompt(json!([[97]])), ids(&[BOS, 97]));
    assert_eq!(prompt(json!("")), ids(&[BOS]));
    assert_eq!(
        prompt(json!("<bos>a｜DSML｜")),
        ids(&[BOS, 97, DSML]),
        "markers are markers here, and there is one begin"
    );
    for (wrong, word) in [
        (json!(["a", "b"]), "2 prompts"),
        (json!([[1], [2]]), "2 prompts"),
        (json!([300]), "vocabulary"),
        (json!([1, -1]), "token ids"),
        (json!(7), "string"),
        (Value::Null, "missing"),
    ] {
        let response = post(&rig, "/v1/completions", &body(&json!({"prompt": wrong}))).response();
        assert!(response.error(400).contains(word), "{}", response.body);
        assert_eq!(response.json()["error"]["param"], "prompt");
    }
    assert!(rig.nothing_was_taken());
}

#[test]
fn a_suffix_makes_a_gap_to_fill() {
    let rig = Rig::new();
    let prompt = |more: Value| run(&rig, &more, |taken| taken.answer("")).0.request.prompt;
    assert_eq!(prompt(json!({"suffix": "c"})), ids(&[BOS, 260, 97, 98, 261, 99, 262]));
    assert_eq!(prompt(json!({"prompt": "<bos>a", "suffix": "c"})), ids(&[BOS, 260, 97, 261, 99, 262]));
    assert_eq!(prompt(json!({"suffix": ""})), ids(&[BOS, 97, 98]));
}

#[test]
fn echo_puts_the_prompt_in_front() {
    let rig = Rig::new();
    let (_, response) = run(&rig, &json!({"echo": true}), |taken| taken.answer("c"));
    assert_eq!(response.json()["choices"][0]["text"], "abc");
    let (_, response) = run(&rig, &json!({"echo": true, "stream": true}), |taken| taken.answer("c"));
    let texts: String =
        response.events().0.iter().map(|event| event["choices"][0]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, "abc");
    let refused = post(&rig, "/v1/completions", &body(&json!({"echo": true, "logprobs": 1}))).response();
    assert!(refused.error(400).contains("echo"));
}

#[test]
fn a_stream_begins_at_once_and_ends_with_finish_usage_and_done() {
    let rig = Rig::new();
    let more = json!({"stream": true, "stream_options": {"include_usage": true}, "stop": "END"});
    let mut connection = post(&rig, "/v1/completions", &body(&more));
    let mut taken = rig.take();
    connection.head();
    assert!(connection.chunk().unwrap().contains("\"text\":\"\""));
    taken.say("one END");
    assert!(connection.chunk().unwrap().contains("\"text\":\"one \""));
    taken.wait_cancelled();
    taken.finish(Finish::Cancelled);
    let last = connection.chunk().unwrap();
    assert!(last.contains("\"finish_reason\":\"stop\"") && last.contains("\"choices\":[]"), "{last}");
    assert!(last.ends_with("data: [DONE]\n\n"));
}

#[test]
fn log_probabilities_have_the_legacy_form_and_offsets_go_on() {
    let rig = Rig::new();
    let act = |taken: &mut Taken| {
        taken.say_scored("xé");
        taken.send_tokens(&[EOS]);
        taken.finish(Finish::Stop);
    };
    let (taken, response) = run(&rig, &json!({"logprobs": 2}), act);
    assert_eq!(taken.request.logprobs, Some(2));
    let logprobs = response.json()["choices"][0]["logprobs"].clone();
    assert_eq!(logprobs["tokens"], json!(["x", "\u{fffd}", "\u{fffd}"]));
    assert_eq!(logprobs["token_logprobs"], json!([-0.25, -0.25, -0.25]));
    assert_eq!(logprobs["top_logprobs"][0], json!({"a": -1.0, "b": -2.0}));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    let (_, response) = run(&rig, &json!({"logprobs": 0, "stream": true}), act);
    let (events, _) = response.events();
    let offsets: Vec<Value> = events
        .iter()
        .flat_map(|event| event["choices"][0]["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default())
        .collect();
    assert_eq!(offsets, [json!(0), json!(1), json!(2)]);
}

#[test]
fn options_reach_the_engine_and_forms_bind() {
    let rig = Rig::new();
    let more = json!({"max_tokens": 9, "temperature": 0, "stop_token_ids": [5], "ignore_eos": true, "min_tokens": 2});
    let (taken, _) = run(&rig, &more, |taken| taken.answer("x"));
    assert_eq!((taken.request.max_tokens, taken.request.sampling.temperature), (9, 0.0));
    assert_eq!((taken.request.stop_tokens, taken.request.sampling.min_tokens), (ids(&[5]), 2));
    let (mut taken, _) = run(&rig, &json!({"guided_choice": ["yes", "no"]}), |taken| {
        taken.obey("no").unwrap();
        taken.finish(Finish::Stop);
    });
    assert!(taken.obey("x").is_err());
    for more in [json!({"n": 2}), json!({"best_of": 3}), json!({"logprobs": 21}), json!({"max_tokens": 0})] {
        post(&rig, "/v1/completions", &body(&more)).response().error(400);
    }
}

#[test]
fn a_failure_is_an_event_and_a_prompt_without_room_an_error() {
    let rig = Rig::new();
    let (_, response) = run(&rig, &json!({"stream": true}), |taken| {
        taken.sink.send(Event::Failed("gone".to_owned())).unwrap();
    });
    let (events, done) = response.events();
    assert!(done && events.last().unwrap()["error"]["message"] == "gone");
    let long = post(&rig, "/v1/completions", &body(&json!({"prompt": "x".repeat(5000)}))).response();
    assert!(long.error(400).starts_with("This model's maximum context length is 4096 tokens."));
}
