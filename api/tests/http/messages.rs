//! Anthropic's Messages: bodies, streams, counts, errors.

use luce_core::{Event, Finish, Lifecycle, Refusal};
use luce_model::chat::carried;
use serde_json::{Value, json};

use crate::support::{Response, Rig, Taken, ask, fixture, post};

/// A request that the engine answers with `text`.
fn answered(rig: &Rig, body: &Value, text: &str) -> Response {
    let mut connection = post(rig, "/v1/messages", body);
    rig.take().answer(text);
    connection.response()
}

/// Type and message of an error in Anthropic's form.
fn error(response: &Response, status: u16) -> (String, String) {
    assert_eq!(response.status, status, "{}", response.body);
    let body = response.json();
    assert_eq!(body["type"], "error");
    assert_eq!(body["request_id"], response.header("request-id").unwrap());
    let text = |key: &str| body["error"][key].as_str().unwrap().to_owned();
    (text("type"), text("message"))
}

/// The events of a stream; each has its own type as its name.
fn events(response: &Response) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.body);
    let event = |text: &str| {
        let (name, data) = text.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
        data
    };
    response.body.split("\n\n").filter(|text| !text.is_empty()).map(event).collect()
}

/// What does not depend on the engine's counts, ids and the cutting of texts.
fn normal(events: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for mut event in events {
        for key in ["usage", "timings"] {
            event.as_object_mut().unwrap().remove(key);
        }
        event["message"] = Value::Null;
        if event["content_block"]["id"].is_string() {
            event["content_block"]["id"] = "ID".into();
        }
        if event["delta"]["signature"].is_string() {
            event["delta"]["signature"] = "ID".into();
        }
        for key in ["thinking", "text", "partial_json"] {
            let Some(more) = event["delta"][key].as_str() else { continue };
            let same = |last: &&mut Value| last["index"] == event["index"] && last["delta"][key].is_string();
            if let Some(last) = out.last_mut().filter(same) {
                last["delta"][key] = (last["delta"][key].as_str().unwrap().to_owned() + more).into();
                event = Value::Null;
                break;
            }
        }
        if !event.is_null() {
            out.push(event);
        }
    }
    out
}

#[test]
fn golden_streams_and_bodies_are_reproduced_event_by_event() {
    let cases = fixture("chat/messages/streams.json")["cases"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 11, "the fixture is complete");
    let rig = Rig::new();
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let thinking = if case["thinking"] == true { "enabled" } else { "disabled" };
        let more = json!({"tools": [{"name": "ping", "input_schema": {"type": "object"}}], "model": "MODEL",
            "thinking": {"type": thinking}, "stop_sequences": case["stop"], "max_tokens": 1000});
        let say = |taken: &mut Taken| {
            taken.say(case["output"].as_str().unwrap());
            let finish = if case["backend_finish"] == "length" { Finish::Length } else { Finish::Stop };
            taken.finish(finish);
        };

        let mut streamed = ask("x", more.clone());
        streamed["stream"] = true.into();
        let mut connection = post(&rig, "/v1/messages?beta=true", &streamed);
        say(&mut rig.take());
        let expected = case["sse"].as_array().unwrap().iter().map(|event| event["data"].clone()).collect();
        assert_eq!(normal(events(&connection.response())), normal(expected), "{name}");

        let mut connection = post(&rig, "/v1/messages", &ask("x", more));
        say(&mut rig.take());
        let mut body = connection.response().json();
        for block in body["content"].as_array_mut().unwrap() {
            if block["type"] == "thinking" {
                let carried = carried(block["signature"].as_str().unwrap());
                assert_eq!(carried.as_deref(), block["thinking"].as_str(), "{name}");
                block["signature"] = "ID".into();
            }
            if let Some(id) = block["id"].as_str() {
                block["id"] = format!("{}RANDOM", &id[..8]).into();
            }
        }
        for key in ["type", "role", "model", "content", "stop_reason", "stop_sequence"] {
            assert_eq!(body[key], case["response"][key], "{name}: {key}");
        }
        assert!(body["id"].as_str().unwrap().starts_with("msg_") && body["timings"].is_object());
    }
}

#[test]
fn usage_splits_the_prompt_into_cached_and_not() {
    let rig = Rig::new();
    let expected = json!({"input_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2,
        "output_tokens": 2, "service_tier": "standard"});
    let body = answered(&rig, &ask("hello", json!({})), "ok").json();
    assert_eq!(body["usage"], expected);
    let events = events(&answered(&rig, &ask("hello", json!({"stream": true})), "ok"));
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 5);
    assert_eq!(events[0]["message"]["usage"]["output_tokens"], 0);
    let last = &events[events.len() - 2];
    assert_eq!((&last["type"], &last["usage"]), (&json!("message_delta"), &expected));
}

#[test]
fn reasoning_that_the_client_does_not_want_to_see_is_only_in_the_signature() {
    let rig = Rig::new();
    let hidden = json!({"type": "adaptive", "display": "omitted"});
    let body = answered(&rig, &ask("x", json!({"thinking": hidden})), "why</think>so").json();
    assert_eq!(body["content"][0]["thinking"], "");
    assert_eq!(carried(body["content"][0]["signature"].as_str().unwrap()).unwrap(), "why");
    let response = answered(&rig, &ask("x", json!({"thinking": hidden, "stream": true})), "why</think>so");
    let events = events(&response);
    assert!(!response.body.contains("thinking_delta"));
    let signature = events.iter().find_map(|event| event["delta"]["signature"].as_str()).unwrap();
    assert_eq!(carried(signature).unwrap(), "why");
}

#[test]
fn the_first_event_comes_before_the_engine_says_anything_and_silence_is_filled_with_pings() {
    let rig = Rig::with(|config| config.keep_alive = 1);
    let mut connection = post(&rig, "/v1/messages", &ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    assert_eq!(connection.head().status, 200);
    assert!(connection.chunk().unwrap().starts_with("event: message_start\n"));
    assert_eq!(connection.chunk().unwrap(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    taken.say("a");
    assert!(connection.chunk().unwrap().starts_with("event: content_block_start\n"));
    taken.finish(Finish::Stop);
    assert!(connection.chunk().unwrap().contains("event: message_stop\n"));
    assert_eq!(connection.chunk(), None);
}

#[test]
fn a_failure_after_the_first_byte_is_an_error_event() {
    let rig = Rig::new();
    let mut connection = post(&rig, "/v1/messages", &ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    taken.say("par");
    taken.sink.send(Event::Failed("the drive of tier 2 is gone".to_owned())).unwrap();
    let response = connection.response();
    let events = events(&response);
    let last = events.last().unwrap();
    assert_eq!(last["error"], json!({"type": "api_error", "message": "the drive of tier 2 is gone"}));
    assert_eq!(last["request_id"], response.header("request-id").unwrap());
    assert!(!events.iter().any(|event| event["type"] == "message_stop"));
}

#[test]
fn a_call_that_was_cut_off_is_left_out_of_a_body_and_keeps_its_reason() {
    let rig = Rig::new();
    let tools = json!({"tools": [{"name": "f", "input_schema": {}}], "max_tokens": 1000});
    let text = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">b";
    let mut connection = post(&rig, "/v1/messages", &ask("x", tools));
    let mut taken = rig.take();
    taken.say(text);
    taken.finish(Finish::Length);
    let body = connection.response().json();
    assert_eq!((&body["content"], &body["stop_reason"]), (&json!([]), &json!("max_tokens")));
}

#[test]
fn the_end_of_the_context_is_told_from_the_end_of_the_limit() {
    let rig = Rig::new();
    for (max_tokens, given, reason) in
        [(json!(50), 50, "max_tokens"), (json!(100_000), 4095, "model_context_window_exceeded")]
    {
        let mut connection = post(&rig, "/v1/messages", &ask("x", json!({"max_tokens": max_tokens})));
        let mut taken = rig.take();
        assert_eq!(taken.request.max_tokens, given);
        taken.finish(Finish::Length);
        assert_eq!(connection.response().json()["stop_reason"], reason);
    }
}

#[test]
fn sampling_and_stops_reach_the_engine() {
    let rig = Rig::new();
    let more = json!({"temperature": 0.5, "top_p": 0.25, "top_k": 7, "metadata": {"user_id": "u"}, "service_tier": "auto",
        "context_management": {"edits": []}, "container": null, "mcp_servers": [], "speed": "fast"});
    let mut connection = post(&rig, "/anthropic/v1/messages", &ask("x", more));
    let mut taken = rig.take();
    let sampling = &taken.request.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (0.5, 0.25, 7));
    taken.answer("ok");
    assert_eq!(connection.response().status, 200);
}

#[test]
fn thinking_follows_the_servers_default_where_a_request_is_silent() {
    use luce_api::Switch;
    for (default, first) in [(Switch::On, "thinking"), (Switch::Off, "text")] {
        let rig = Rig::with(|config| config.anthropic_thinking_default = default);
        let body = answered(&rig, &ask("x", json!({"thinking": null})), "a</think>b").json();
        assert_eq!(body["content"][0]["type"], first);
    }
}

#[test]
fn a_count_is_the_prompts_length_and_does_not_wait_for_the_engine() {
    let rig = Rig::new();
    *rig.engine.refusal.lock().unwrap() = Some(Refusal::Busy { queued: 32 });
    for path in ["/v1/messages/count_tokens?beta=true", "/messages/count_tokens/"] {
        let response = post(&rig, path, &ask("hello", json!({}))).response();
        assert_eq!((response.status, response.json()), (200, json!({"input_tokens": 5})), "{path}");
    }
    let response = post(&rig, "/v1/messages/count_tokens", &json!({"messages": []})).response();
    assert_eq!(error(&response, 400).0, "invalid_request_error");
    assert!(rig.nothing_was_taken());
}

#[test]
fn pictures_are_answered_with_a_warning() {
    let rig = Rig::new();
    let picture = json!([{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}]);
    let response = answered(&rig, &ask("", json!({"messages": picture})), "ok");
    assert!(response.header("warning").unwrap().contains("images"));
    assert_eq!(answered(&rig, &ask("x", json!({})), "ok").header("warning"), None);
}

#[test]
fn errors_have_anthropics_form_status_and_words() {
    let rig = Rig::new();
    let refused = |body: &Value| post(&rig, "/v1/messages", body).response();
    let (class, message) = error(&refused(&ask("x", json!({"max_tokens": 0}))), 400);
    assert!(class == "invalid_request_error" && message.contains("max_tokens"));
    for (more, field) in [
        (json!({"stop_sequences": ["a", ""]}), "stop_sequences[1]"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}), "disable_parallel_tool_use"),
        (json!({"thinking": {"display": 7}}), "thinking.display"),
        (json!({"messages": [{"role": "wizard", "content": "x"}]}), "messages[0].role"),
    ] {
        assert!(error(&refused(&ask("x", more.clone())), 400).1.contains(field), "{more}");
    }

    let response = refused(&ask(&"x".repeat(5000), json!({"max_tokens": 10})));
    assert_eq!(
        error(&response, 400),
        ("invalid_request_error".to_owned(), "prompt is too long: 5000 tokens > 4096 maximum".to_owned())
    );
    let body = response.json();
    assert_eq!((&body["error"]["n_prompt_tokens"], &body["error"]["n_ctx"]), (&json!(5000), &json!(4096)));

    *rig.engine.refusal.lock().unwrap() = Some(Refusal::Busy { queued: 3 });
    let response = refused(&ask("x", json!({})));
    assert_eq!(error(&response, 429).0, "rate_limit_error");
    assert_eq!(response.header("retry-after"), Some("6"));
    *rig.engine.lifecycle.lock().unwrap() = Lifecycle::Loading(0.5);
    let response = refused(&ask("x", json!({})));
    let (class, message) = error(&response, 529);
    assert!(class == "overloaded_error" && message.starts_with("Overloaded"));
    assert_eq!(response.header("retry-after"), Some("5"));
    *rig.engine.lifecycle.lock().unwrap() = Lifecycle::Broken("gpu0 fell off the bus".to_owned());
    let response = refused(&ask("x", json!({})));
    assert!(error(&response, 529).1.contains("gpu0"));
    assert_eq!(response.header("x-should-retry"), Some("false"));

    assert_eq!(error(&rig.get("/v1/messages/batches"), 404).0, "not_found_error");
    assert_eq!(error(&rig.get("/v1/messages"), 405).0, "invalid_request_error");
}

#[test]
fn a_thread_that_the_server_does_not_keep_is_refused_so_that_the_sdk_sends_the_history() {
    let rig = Rig::new();
    for (file, details) in [
        ("tool-runner-1", json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]})),
        ("tool-runner-continue", json!({"error_code": "thread_not_found"})),
    ] {
        let body = &fixture(&format!("clients/anthropic-python.{file}.json"))["body"];
        let response = post(&rig, "/v1/messages", body).response();
        assert_eq!(error(&response, 400).0, "invalid_request_error");
        assert_eq!(response.json()["error"]["details"], details);
    }
    assert!(rig.nothing_was_taken());
}

#[test]
fn requests_of_real_clients_are_taken_and_answered_in_the_form_they_ask_for() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/clients"));
    // The context of the scripted engine is small, and here a byte is a token.
    let rig = Rig::new();
    let (mut asked, mut counted, mut fetched) = (0, 0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let file = fixture(&format!("clients/{name}"));
        let (path, body) = (file["path"].as_str().unwrap(), &file["body"]);
        let anthropic = file["headers"].as_object().unwrap().contains_key("anthropic-version");
        if path.contains("count_tokens") {
            counted += 1;
            assert!(post(&rig, path, body).response().json()["input_tokens"].is_u64(), "{name}");
        } else if path.contains("/messages") && body.is_object() {
            if body.get("thread").is_some() {
                continue;
            }
            asked += 1;
            let response = answered(&rig, body, "Reason.</think>Text.");
            assert_eq!(response.status, 200, "{name}: {}", response.body);
            if body["stream"] == true {
                assert_eq!(events(&response).last().unwrap()["type"], "message_stop", "{name}");
            } else {
                assert_eq!(response.json()["stop_reason"], "end_turn", "{name}");
            }
        } else if anthropic && file["method"] == "GET" {
            fetched += 1;
            let response = rig.get(path);
            let known = !path.contains("batches") && !path.contains("stub-model");
            assert_eq!(response.status, if known { 200 } else { 404 }, "{name}: {}", response.body);
        }
    }
    assert_eq!((asked, counted, fetched), (30, 3, 4), "the fixture is complete");
}
