//! The Responses API: objects, event sequences, custom tools, errors.

use luce_core::{Event, Finish, Refusal};
use luce_model::chat::carried;
use serde_json::{Value, json};

use crate::support::{Connection, Response, Rig, Taken, fixture, post};

/// A body with thinking off, and more fields.
fn ask(more: Value) -> Value {
    let mut body = json!({"input": "hello", "reasoning": {"effort": "none"}});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn start(rig: &Rig, more: Value) -> (Connection, Taken) {
    let connection = post(rig, "/v1/responses", &ask(more));
    (connection, rig.take())
}

/// A request that the engine answers with `text`.
fn answered(rig: &Rig, more: Value, text: &str) -> Response {
    let (mut connection, mut taken) = start(rig, more);
    taken.answer(text);
    connection.response()
}

/// The events of a stream: each has its own type as its name, and they are counted without gaps.
fn events(response: &Response) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.body);
    let mut out = Vec::new();
    for text in response.body.split("\n\n").filter(|text| !text.is_empty() && !text.starts_with(':')) {
        let (name, data) = text.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
        assert_eq!(data["sequence_number"], out.len(), "{data}");
        out.push(data);
    }
    out
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().strip_prefix("response.").unwrap()).collect()
}

/// An item without what differs from answer to answer.
fn plain_item(item: &Value) -> Value {
    let mut item = item.clone();
    let map = item.as_object_mut().unwrap();
    map.remove("encrypted_content");
    map.insert("id".to_owned(), "ID".into());
    if map.contains_key("call_id") {
        map.insert("call_id".to_owned(), "CALL".into());
    }
    item
}

/// Events without ids, counts and the cutting of texts.
fn normal(events: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for event in events {
        let mut event = event.clone();
        let map = event.as_object_mut().unwrap();
        map.remove("sequence_number");
        if map.contains_key("item_id") {
            map.insert("item_id".to_owned(), "ID".into());
        }
        if let Some(item) = map.get_mut("item") {
            *item = plain_item(item);
        }
        if map["type"] == "response.function_call_arguments.done" {
            map.remove("name");
        }
        if let Some(response) = map.get_mut("response") {
            let output: Vec<Value> = response["output"].as_array().unwrap().iter().map(plain_item).collect();
            let usage = &response["usage"];
            *response = json!({"status": response["status"], "output": output, "error": response["error"],
                "incomplete_details": response["incomplete_details"], "usage": usage.is_object()});
        }
        if let Some(last) = out.last_mut()
            && last["type"] == event["type"]
            && last["delta"].is_string()
        {
            last["delta"] = (last["delta"].as_str().unwrap().to_owned() + event["delta"].as_str().unwrap()).into();
            continue;
        }
        out.push(event);
    }
    out
}

#[test]
fn golden_streams_and_bodies_are_reproduced_up_to_ids_counts_and_cutting() {
    let rig = Rig::new();
    let file = fixture("chat/responses/streams.json");
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 10, "the fixture is complete");
    let tools = json!([
        {"type": "function", "name": "ping", "parameters": {"type": "object"}},
        {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}}}},
    ]);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let effort = if case["thinking"] == true { "high" } else { "none" };
        let finish = if case["backend_finish"] == "length" { Finish::Length } else { Finish::Stop };
        let run = |stream: bool| {
            let more = json!({"tools": tools, "reasoning": {"effort": effort}, "stream": stream});
            let (mut connection, mut taken) = start(&rig, more);
            taken.say(case["output"].as_str().unwrap());
            taken.finish(finish);
            connection.response()
        };
        let golden: Vec<Value> = case["sse"].as_array().unwrap().iter().map(|event| event["data"].clone()).collect();
        assert_eq!(normal(&events(&run(true))), normal(&golden), "{name}");
        let body = run(false).json();
        let wrap = |response: &Value| normal(&[json!({"type": "whole", "response": response})]);
        assert_eq!(wrap(&body), wrap(&case["response"]), "{name}");
        for key in case["response"].as_object().unwrap().keys() {
            let hosted_only = ["content_filters", "moderation"].contains(&key.as_str());
            assert!(hosted_only || body.get(key).is_some(), "{name}: {key} is missing");
        }
    }
}

#[test]
fn the_object_tells_back_what_was_asked_and_counts_tokens() {
    let rig = Rig::new();
    let body = answered(
        &rig,
        json!({"model": "any", "instructions": "Be brief.", "temperature": 0.7, "max_output_tokens": 50, "user": "u",
            "metadata": {"a": "b"}, "text": {"verbosity": "low"}, "tools": [{"type": "function", "name": "f"}]}),
        "Hi.",
    )
    .json();
    assert!(body["id"].as_str().unwrap().strip_prefix("resp_").unwrap().len() >= 24);
    for (key, wanted) in [
        ("object", json!("response")),
        ("model", json!("any")),
        ("status", json!("completed")),
        ("instructions", json!("Be brief.")),
        ("temperature", json!(0.7)),
        ("top_p", json!(1.0)),
        ("max_output_tokens", json!(50)),
        ("user", json!("u")),
        ("metadata", json!({"a": "b"})),
        ("text", json!({"format": {"type": "text"}, "verbosity": "low"})),
        ("tool_choice", json!("auto")),
        ("reasoning", json!({"effort": "none", "summary": null})),
        ("store", json!(false)),
        ("error", json!(null)),
    ] {
        assert_eq!(body[key], wanted, "{key}");
    }
    assert_eq!(body["tools"][0]["strict"], Value::Null);
    assert!(body["created_at"].as_u64().unwrap() <= body["completed_at"].as_u64().unwrap());
    assert_eq!(
        body["usage"],
        json!({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 8})
    );
    assert!(body["timings"].is_object());
}

#[test]
fn one_id_goes_through_all_events_and_every_item_has_its_own() {
    let rig = Rig::new();
    let list = events(&answered(&rig, json!({"stream": true, "reasoning": {"effort": "high"}}), "R</think>C"));
    let ids: std::collections::HashSet<_> =
        list.iter().filter_map(|event| event["response"]["id"].as_str()).map(str::to_owned).collect();
    assert_eq!(ids.len(), 1);
    let items: Vec<_> = list.iter().filter(|event| event["type"] == "response.output_item.done").collect();
    assert!(items[0]["item"]["id"].as_str().unwrap().starts_with("rs_"));
    assert!(items[1]["item"]["id"].as_str().unwrap().starts_with("msg_"));
    for event in list.iter().filter(|event| event.get("item_id").is_some()) {
        let index = event["output_index"].as_u64().unwrap() as usize;
        assert_eq!(event["item_id"], items[index]["item"]["id"]);
    }
    assert_eq!(list.last().unwrap()["response"]["output"][1], items[1]["item"]);
}

#[test]
fn custom_tools_stream_their_raw_text_and_namespaces_come_back() {
    let rig = Rig::new();
    let tools = json!([
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close"}]},
    ]);
    let text = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"patch\">\n<｜DSML｜parameter name=\"input\" string=\"true\">\
                *** \"é\"\n\\x</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"agents__close\">\n</｜DSML｜invoke>\n\
                </｜DSML｜tool_calls>";
    let (mut connection, mut taken) = start(&rig, json!({"stream": true, "tools": tools}));
    taken.say(text);
    taken.finish(Finish::Stop);
    let list = events(&connection.response());
    let wanted = "*** \"é\"\n\\x";
    let delta = |event: &&Value| event["type"] == "response.custom_tool_call_input.delta";
    let deltas: String = list.iter().filter(delta).map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(deltas, wanted);
    let done = list.iter().find(|event| event["type"] == "response.custom_tool_call_input.done").unwrap();
    assert_eq!(done["input"], wanted);
    let output = list.last().unwrap()["response"]["output"].clone();
    assert!(output[0]["id"].as_str().unwrap().starts_with("ctc_"));
    assert_eq!(
        plain_item(&output[0]),
        json!({"id": "ID", "type": "custom_tool_call", "status": "completed", "call_id": "CALL", "name": "patch",
            "input": wanted})
    );
    assert_eq!(
        plain_item(&output[1]),
        json!({"id": "ID", "type": "function_call", "status": "completed", "call_id": "CALL", "name": "close",
            "namespace": "agents", "arguments": "{}"})
    );
    assert!(output[1]["call_id"].as_str().unwrap().starts_with("call_01_"));
}

#[test]
fn reasoning_is_packed_for_clients_that_keep_it_and_summed_up_where_that_is_switched_on() {
    let more = json!({"include": ["reasoning.encrypted_content"], "stream": true,
        "reasoning": {"effort": "high", "summary": "auto"}});
    let rig = Rig::new();
    let list = events(&answered(&rig, more.clone(), "Why.</think>So."));
    let item = &list.last().unwrap()["response"]["output"][0];
    assert_eq!(carried(item["encrypted_content"].as_str().unwrap()).as_deref(), Some("Why."));
    assert_eq!(item["summary"], json!([]));
    let rig = Rig::with(|config| config.reasoning_summaries = true);
    let list = events(&answered(&rig, more, "Why.</think>So."));
    let summaries: Vec<_> = types(&list).into_iter().filter(|kind| kind.contains("summary")).collect();
    assert_eq!(summaries.first(), Some(&"reasoning_summary_part.added"));
    assert_eq!(summaries[summaries.len() - 2..], ["reasoning_summary_text.done", "reasoning_summary_part.done"]);
    let item = &list.last().unwrap()["response"]["output"][0];
    assert_eq!(item["summary"], json!([{"type": "summary_text", "text": "Why."}]));
    let plain = answered(&rig, json!({"reasoning": {"effort": "high"}}), "Why.</think>So.").json();
    assert!(plain["output"][0].get("encrypted_content").is_none());
    assert_eq!(plain["output"][0]["summary"], json!([]));
}

#[test]
fn a_cut_call_is_incomplete_and_says_what_came() {
    let rig = Rig::new();
    let tools = json!([{"type": "function", "name": "f"}]);
    let (mut connection, mut taken) = start(&rig, json!({"stream": true, "tools": tools}));
    taken.say("<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">hal");
    taken.finish(Finish::Length);
    let list = events(&connection.response());
    let last = list.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
    let item = &last["response"]["output"][0];
    assert_eq!((&item["status"], &item["arguments"]), (&json!("incomplete"), &json!("{\"a\": \"hal")));
}

#[test]
fn log_probabilities_come_with_their_text() {
    let rig = Rig::new();
    for (more, top) in [(json!({"top_logprobs": 2}), 2), (json!({"include": ["message.output_text.logprobs"]}), 0)] {
        let mut more = more;
        more["stream"] = true.into();
        let (mut connection, mut taken) = start(&rig, more);
        taken.say_scored("ab");
        taken.finish(Finish::Stop);
        let list = events(&connection.response());
        let delta = |event: &&Value| event["type"] == "response.output_text.delta";
        let told: Vec<Value> =
            list.iter().filter(delta).flat_map(|event| event["logprobs"].as_array().unwrap().clone()).collect();
        assert_eq!(told.len(), 2);
        assert_eq!((&told[0]["token"], told[0]["top_logprobs"].as_array().unwrap().len()), (&json!("a"), top));
        let part = &list.last().unwrap()["response"]["output"][0]["content"][0];
        assert_eq!(part["logprobs"], Value::from(told));
    }
}

#[test]
fn a_text_format_binds_the_answer() {
    let rig = Rig::new();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema, "strict": true});
    let (mut connection, mut taken) = start(&rig, json!({"text": {"format": format}}));
    assert!(taken.obey("x").is_err());
    taken.obey("{\"n\": 7}").unwrap();
    taken.finish(Finish::Stop);
    assert_eq!(connection.response().json()["output"][0]["content"][0]["text"], "{\"n\": 7}");
    let bad = json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "thing"}}}});
    let response = post(&rig, "/v1/responses", &ask(bad)).response();
    response.error(400);
    assert_eq!(response.json()["error"]["param"], "text.format.schema");
}

#[test]
fn what_needs_a_store_is_refused() {
    let rig = Rig::new();
    for (more, param) in [
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"background": true}), "background"),
    ] {
        let response = post(&rig, "/v1/responses", &ask(more)).response();
        response.error(400);
        let error = &response.json()["error"];
        assert_eq!((&error["param"], &error["code"]), (&json!(param), &json!("unsupported_parameter")));
    }
    for path in ["/v1/responses/resp_1", "/v1/responses/resp_1/input_items"] {
        assert!(rig.get(path).error(404).contains("stores none"), "{path}");
    }
    for path in ["/v1/responses/compact", "/v1/responses/resp_1/cancel"] {
        post(&rig, path, &json!({})).response().error(404);
    }
    assert!(rig.nothing_was_taken());
    // Null equals absent, and the rest is ignored.
    let more = json!({"previous_response_id": null, "background": false, "store": true, "include": [], "truncation": "auto",
        "client_metadata": {"a": 1}, "prompt_cache_key": "k", "max_tool_calls": 3, "context_management": []});
    assert_eq!(answered(&rig, more, "ok").status, 200);
}

#[test]
fn a_prompt_that_is_too_long_fails_the_stream_or_the_request() {
    let rig = Rig::new();
    let long = json!({"input": "x".repeat(5000), "stream": true});
    let list = events(&post(&rig, "/v1/responses", &ask(long)).response());
    assert_eq!(types(&list), ["created", "in_progress", "failed"]);
    let response = &list[2]["response"];
    assert_eq!(
        (&response["status"], &response["error"]["code"]),
        (&json!("failed"), &json!("context_length_exceeded"))
    );
    assert_eq!(response["error"]["n_ctx"], 4096);
    let response = post(&rig, "/v1/responses", &ask(json!({"input": "x".repeat(5000)}))).response();
    response.error(400);
    assert_eq!(response.json()["error"]["code"], "context_length_exceeded");
}

#[test]
fn a_failure_in_the_stream_keeps_what_there_was_and_may_be_repeated() {
    let rig = Rig::new();
    let (mut connection, mut taken) = start(&rig, json!({"stream": true}));
    taken.say("par");
    taken.sink.send(Event::Failed("the drive is gone".to_owned())).unwrap();
    let list = events(&connection.response());
    let response = &list.last().unwrap()["response"];
    assert_eq!(response["error"], json!({"code": "internal_error", "message": "the drive is gone"}));
    assert_eq!(response["output"][0]["status"], "incomplete");
    *rig.engine.refusal.lock().unwrap() = Some(Refusal::Busy { queued: 3 });
    let response = post(&rig, "/v1/responses", &ask(json!({"stream": true}))).response();
    response.error(429);
    assert!(response.header("retry-after").is_some());
}

#[test]
fn silence_is_filled_and_now_and_then_with_an_event() {
    let rig = Rig::with(|config| config.keep_alive = 1);
    let (mut connection, mut taken) = start(&rig, json!({"stream": true}));
    connection.head();
    let first = connection.chunk().unwrap();
    assert!(first.contains("event: response.created\n") && first.contains("event: response.in_progress\n"));
    assert_eq!(connection.chunk().unwrap(), ": keep-alive\n\n");
    assert_eq!(connection.chunk().unwrap(), ": keep-alive\n\n");
    let event = connection.chunk().unwrap();
    assert!(event.starts_with("event: response.in_progress\n") && event.contains("\"sequence_number\":2"), "{event}");
    taken.answer("x");
    assert!(connection.chunk().unwrap().contains("\"sequence_number\":3"));
}

#[test]
fn tokens_of_a_body_are_counted_without_the_engine() {
    let rig = Rig::new();
    let mut connection = post(&rig, "/v1/responses/input_tokens", &json!({"input": "12345"}));
    assert_eq!(connection.response().json(), json!({"object": "response.input_tokens", "input_tokens": 5}));
    assert!(rig.nothing_was_taken());
}

#[test]
fn an_empty_input_text_is_a_probe_and_an_empty_list_is_not() {
    let rig = Rig::new();
    let (mut connection, mut taken) = start(&rig, json!({"input": "", "max_output_tokens": 1}));
    taken.say("a");
    taken.finish(Finish::Length);
    assert_eq!(connection.response().json()["output"][0]["content"][0]["text"], "a");
    post(&rig, "/v1/responses", &ask(json!({"input": []}))).response().error(400);
}
