//! What is refused, and how it is said.

use serde_json::{Value, json};

use crate::support::{Connection, Response, Rig, ask};

/// Sends head lines and a body as they are.
fn raw(rig: &Rig, head: &str, body: &str) -> Response {
    let mut connection = Connection::open(rig.address);
    connection.send(&format!("{head}\r\n\r\n{body}"));
    connection.response()
}

fn post(rig: &Rig, headers: &str, body: &str) -> Response {
    raw(
        rig,
        &format!("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}", body.len()),
        body,
    )
}

#[test]
fn bad_requests_of_the_reference_are_refused_unless_they_have_a_meaning() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/chat/errors.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let tolerated = [
        "tool_without_call",
        "call_without_result",
        "call_id_mismatch",
        "duplicate_call_id",
        "assistant_without_content_or_calls",
        "stream_options_without_stream",
        "required_choice_while_thinking",
        "json_object_without_the_word",
    ];
    let rig = Rig::new();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 24);
    for case in cases {
        let name = case["name"].as_str().unwrap().strip_prefix("chat/").unwrap();
        let mut connection = rig.chat(&case["request"]);
        if tolerated.contains(&name) {
            rig.take().answer("ok");
            assert_eq!(connection.response().status, 200, "{name}");
        } else {
            let response = connection.response();
            response.error(400);
            assert_eq!(response.json()["error"]["type"], "invalid_request_error", "{name}");
        }
    }
}

#[test]
fn wrong_types_and_ranges_name_the_field() {
    let rig = Rig::new();
    for (more, param) in [
        (json!({"messages": "x"}), "messages"),
        (json!({"messages": [7]}), "messages[0]"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content"),
        (json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}), "messages[0].content[0].text"),
        (json!({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}), "messages[0].content[0]"),
        (json!({"model": 7}), "model"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"stream_options": {"include_usage": 1}}), "stream_options.include_usage"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"top_p": 1.1}), "top_p"),
        (json!({"min_p": 2}), "min_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"top_k": 1.5}), "top_k"),
        (json!({"presence_penalty": 2.5}), "presence_penalty"),
        (json!({"frequency_penalty": -3}), "frequency_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"seed": "x"}), "seed"),
        (json!({"max_tokens": -2}), "max_tokens"),
        (json!({"max_tokens": 1, "max_completion_tokens": 0}), "max_completion_tokens"),
        (json!({"stop": 7}), "stop"),
        (json!({"stop": ["a", 7]}), "stop[1]"),
        (json!({"stop_token_ids": [300]}), "stop_token_ids"),
        (json!({"n": 0}), "n"),
        (json!({"best_of": 2}), "best_of"),
        (json!({"reasoning_effort": true}), "reasoning_effort"),
        (json!({"chat_template_kwargs": {"thinking": "on"}}), "chat_template_kwargs.thinking"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": 7}), "tool_choice"),
        (json!({"modalities": ["audio"]}), "modalities"),
        (json!({"logprobs": 1}), "logprobs"),
        (json!({"top_logprobs": 3}), "top_logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias"),
        (json!({"logit_bias": {"300": 1}}), "logit_bias"),
        (json!({"logit_bias": {"5": 101}}), "logit_bias.5"),
        (json!({"min_tokens": -1}), "min_tokens"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": -1}}), "thinking.budget_tokens"),
    ] {
        let response = rig.chat(&ask("x", more.clone())).response();
        response.error(400);
        assert_eq!(response.json()["error"]["param"], param, "{more}");
    }
    assert!(rig.nothing_was_taken());
}

#[test]
fn what_clients_send_without_need_is_ignored() {
    let rig = Rig::new();
    let more = json!({"logprobs": false, "response_format": {"type": "text"}, "logit_bias": {}, "n": 1, "stop": null,
        "tools": [], "tool_choice": "auto", "user": "u", "metadata": {"a": 1}, "store": true, "modalities": ["text"],
        "unknown": [1], "prediction": null, "max_tokens": null, "parallel_tool_calls": true, "temperature": null});
    assert_eq!(rig.chat_answered(&ask("x", more), "ok").status, 200);
}

#[test]
fn broken_bodies_are_told_what_is_wrong_with_them() {
    let rig = Rig::new();
    assert!(post(&rig, "", "{\"messages\": [}").error(400).contains("line 1 column 15"));
    assert!(post(&rig, "", "").error(400).contains("empty"));
    assert!(post(&rig, "", "[1]").error(400).contains("an array"));
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(200), "]".repeat(200));
    assert!(post(&rig, "", &deep).error(400).contains("recursion limit"));
}

#[test]
fn content_types_of_sloppy_clients_are_read_and_others_are_not() {
    let rig = Rig::new();
    let body = ask("x", json!({})).to_string();
    for kind in
        ["application/json; charset=utf-8", "application/x-www-form-urlencoded", "text/plain", "application/vnd.x+json"]
    {
        let mut connection = Connection::open(rig.address);
        connection.send(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        rig.take().answer("ok");
        assert_eq!(connection.response().status, 200, "{kind}");
    }
    post(&rig, "Content-Type: multipart/form-data\r\n", &body).error(415);
    post(&rig, "Content-Encoding: gzip\r\n", &body).error(415);
}

#[test]
fn large_bodies_are_refused_by_their_announced_and_by_their_real_size() {
    let rig = Rig::with(|config| config.max_body = 1000);
    let large = ask(&"x".repeat(1000), json!({})).to_string();
    let response = post(&rig, "", &large);
    response.error(413);
    assert_eq!(response.json()["error"]["code"], "request_too_large");
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked";
    let chunked = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    raw(&rig, head, &chunked).error(413);
    // Nothing is sent before the answer comes, as with a client that expects to be asked for the body.
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000000\r\nExpect: 100-continue";
    raw(&rig, head, "").error(413);
}

#[test]
fn chunked_bodies_and_expect_continue_work() {
    let rig = Rig::new();
    let body = ask("x", json!({})).to_string();
    let (one, two) = body.split_at(10);
    let mut connection = Connection::open(rig.address);
    connection.send(&format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
        one.len(),
        two.len()
    ));
    rig.take().answer("ok");
    assert_eq!(connection.response().status, 200);
}

#[test]
fn a_body_that_does_not_arrive_is_not_waited_for_forever() {
    let rig = Rig::with(|config| config.body_timeout = 1);
    raw(&rig, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100", "{").error(408);
}

#[test]
fn unknown_paths_and_methods_get_json() {
    let rig = Rig::new();
    for path in ["/v1/embeddings", "/api/tags", "/v1", "/v1/chat/completions/x"] {
        let response = rig.get(path);
        assert!(response.error(404).contains("/v1/chat/completions"), "{path}");
        assert!(response.header("x-request-id").is_some());
    }
    let response = rig.get("/v1/chat/completions");
    response.error(405);
    assert_eq!(response.header("allow"), Some("POST"));
    raw(&rig, "DELETE /v1/models HTTP/1.1\r\nHost: localhost", "").error(405);
    raw(&rig, "BREW /health HTTP/1.1\r\nHost: localhost", "").error(405);
}

#[test]
fn a_foreign_host_name_is_refused_on_loopback() {
    let rig = Rig::with(|config| config.allowed_hosts = vec!["box.lan".to_owned()]);
    let get = |host: &str| raw(&rig, &format!("GET /health HTTP/1.1\r\nHost: {host}"), "");
    for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "box.lan", "Box.Lan:80"] {
        assert_eq!(get(host).status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:80", "10.0.0.1"] {
        get(host).error(403);
    }
}
