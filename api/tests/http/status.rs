//! What operators and programs ask about the server and the model's language.

use std::sync::Arc;

use luce_api::ApiState;
use luce_core::{ActorStatus, Event, Finish, Lifecycle, Refusal, RequestId, SlotStatus, Status};
use serde_json::{Value, json};

use crate::support::{Connection, Response, Rig, ask, start};

fn post(rig: &Rig, path: &str, body: &Value) -> Response {
    let mut connection = Connection::open(rig.address);
    connection.post(path, &body.to_string());
    connection.response()
}

/// The value of a line of `/metrics`.
fn metric(rig: &Rig, line: &str) -> f64 {
    let response = rig.get("/metrics");
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let value = response.body.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("no {line} in\n{}", response.body))
}

fn snapshot() -> Status {
    Status {
        queued: 3,
        slots: 2,
        live: vec![SlotStatus { slot: 1, request: RequestId(9), prompt: 40, read: 40, generated: 2 }],
        actors: vec![ActorStatus {
            name: "gpu \"0\"".to_owned(),
            kind: "cpu".to_owned(),
            roles: vec!["dense".to_owned()],
            state: "running".to_owned(),
            memory: 1024,
            budget: None,
            busy_us: 1_500_000,
            mailbox: 4,
        }],
        prompt_tokens: 1000,
        generated_tokens: 77,
    }
}

#[test]
fn metrics_count_requests_tokens_calls_and_refusals() {
    let rig = Rig::new();
    *rig.engine.status.lock().unwrap() = snapshot();
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}], "thinking": {"type": "enabled"}});
    let call = "ab</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n";
    assert_eq!(rig.chat_answered(&ask("hello", tools.clone()), call).status, 200);
    rig.chat_answered(&ask("hello", tools), "c</think>\n\n<｜DSML｜tool_calls>\n");
    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    taken.sink.send(Event::Failed("gone".to_owned())).unwrap();
    connection.response();
    let connection = rig.chat(&ask("x", json!({"stream": true})));
    let taken = rig.take();
    drop(connection);
    taken.wait_cancelled();
    *rig.engine.refusal.lock().unwrap() = Some(Refusal::Busy { queued: 3 });
    rig.chat(&ask("x", json!({}))).response().error(429);
    rig.get("/nowhere").error(404);

    for (line, value) in [
        ("luce_requests_total{endpoint=\"chat\",status=\"200\"}", 4.0),
        ("luce_requests_total{endpoint=\"chat\",status=\"429\"}", 1.0),
        ("luce_requests_total{endpoint=\"unknown\",status=\"404\"}", 1.0),
        ("luce_answers_total{finish=\"tool_calls\"}", 1.0),
        ("luce_answers_total{finish=\"stop\"}", 1.0),
        ("luce_answers_total{finish=\"error\"}", 1.0),
        ("luce_rejected_total{reason=\"queue_full\"}", 1.0),
        ("luce_prompt_tokens_total", 1000.0),
        ("luce_generated_tokens_total", 77.0),
        ("luce_cached_tokens_total", 4.0),
        ("luce_reasoning_tokens_total", 3.0),
        ("luce_tool_calls_total", 1.0),
        ("luce_tool_calls_failed_total", 1.0),
        ("luce_disconnects_total", 1.0),
        ("luce_running", 1.0),
        ("luce_queued", 3.0),
        ("luce_slots", 2.0),
        ("luce_ready", 1.0),
        ("luce_context_used_tokens", 42.0),
        ("luce_actor_busy_seconds_total{actor=\"gpu \\\"0\\\"\",kind=\"cpu\"}", 1.5),
        ("luce_queue_wait_seconds_count", 2.0),
        ("luce_first_token_seconds_count", 2.0),
        ("luce_decode_tokens_per_second_count", 2.0),
        ("luce_request_seconds_sum", 0.243),
    ] {
        let found = metric(&rig, line);
        assert!((found - value).abs() < 1e-6, "{line} is {found}, not {value}");
    }
    assert!(metric(&rig, "luce_inter_token_seconds_count") > 10.0);
}

#[test]
fn metrics_follow_prometheus_grammar() {
    let rig = Rig::new();
    *rig.engine.status.lock().unwrap() = snapshot();
    rig.chat_answered(&ask("x", json!({})), "ok");
    let mut known = std::collections::HashSet::new();
    for line in rig.get("/metrics").body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(known.insert(rest.split(' ').next().unwrap().to_owned()), "{line} comes twice");
        } else if !line.starts_with("# HELP ") {
            let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            assert!(known.contains(family) || known.contains(&name), "{line} has no type");
            line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
        }
    }
}

#[test]
fn slots_show_the_free_ones_too() {
    let rig = Rig::new();
    *rig.engine.status.lock().unwrap() = snapshot();
    let slots = rig.get("/slots").json();
    let free = json!({"id": 0, "state": "free", "is_processing": false, "n_ctx": 4096, "position": 0});
    assert_eq!(slots[0], free);
    assert_eq!((&slots[1]["state"], &slots[1]["position"]), (&json!("decode"), &json!(42)));
    assert_eq!(slots.as_array().unwrap().len(), 2);
}

#[test]
fn status_has_everything_and_is_there_while_the_model_loads() {
    let rig = Rig::new();
    *rig.engine.status.lock().unwrap() = snapshot();
    let status = rig.get("/status").json();
    assert_eq!((&status["status"], &status["progress"]), (&json!("ready"), &json!(1.0)));
    assert_eq!((&status["queued"], &status["running"]), (&json!(3), &json!(1)));
    assert_eq!(status["slots"], rig.get("/slots").json());
    assert_eq!(status["props"], rig.get("/props").json());
    assert_eq!(status["actors"][0]["busy_us"], 1_500_000);
    *rig.engine.lifecycle.lock().unwrap() = Lifecycle::Broken("gpu0".to_owned());
    let status = rig.get("/status").json();
    assert_eq!((&status["status"], &status["reason"]), (&json!("error"), &json!("gpu0")));

    let server = start(Arc::new(ApiState::pending()), |_| {});
    for (path, code) in [("/status", 200), ("/metrics", 200), ("/props", 503), ("/slots", 503), ("/", 200)] {
        let mut connection = Connection::open(server.address());
        connection.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let response = connection.response();
        assert_eq!(response.status, code, "{path}");
        if path == "/status" {
            assert_eq!(response.json()["status"], "loading");
            assert_eq!(response.json()["slots"], json!([]));
        }
    }
}

#[test]
fn props_name_model_family_and_limits() {
    let props = Rig::new().get("/props").json();
    assert_eq!((&props["model"], &props["family"], &props["context"]), (&json!("tiny"), &json!("v4"), &json!(4096)));
    assert_eq!(props["defaults"]["sampling"], "client");
    assert!(props["build"]["version"].is_string());
}

#[test]
fn texts_become_tokens_in_both_servers_words_and_come_back() {
    let rig = Rig::new();
    *rig.engine.refusal.lock().unwrap() = Some(Refusal::Busy { queued: 32 });
    assert_eq!(post(&rig, "/tokenize", &json!({"content": "hé"})).json(), json!({"tokens": [104, 0xc3, 0xa9]}));
    let counted = post(&rig, "/v1/tokenize", &json!({"prompt": "hi", "add_special_tokens": false})).json();
    assert_eq!(counted, json!({"tokens": [104, 105], "count": 2, "max_model_len": 4096}));
    let chat = post(&rig, "/tokenize", &ask("hello", json!({}))).json();
    assert_eq!(chat["count"], 5);
    let back = post(&rig, "/detokenize", &json!({"tokens": [104, 0xc3, 0xa9, 257]})).json();
    assert_eq!(back, json!({"content": "hé</think>", "prompt": "hé</think>"}));
    for (path, body, param) in [
        ("/tokenize", json!({}), Value::Null),
        ("/tokenize", json!({"content": 7}), json!("content")),
        ("/detokenize", json!({}), json!("tokens")),
        ("/detokenize", json!({"tokens": [1, 300]}), json!("tokens[1]")),
        ("/detokenize", json!({"tokens": [-1]}), json!("tokens[0]")),
        ("/apply-template", json!({"api": "telepathy", "messages": []}), json!("api")),
        ("/apply-template", json!({}), json!("messages")),
    ] {
        let response = post(&rig, path, &body);
        response.error(400);
        assert_eq!(response.json()["error"]["param"], param, "{path} {body}");
    }
    assert!(rig.nothing_was_taken());
}

#[test]
fn a_template_is_applied_to_bodies_of_all_protocols() {
    let rig = Rig::new();
    for (path, body) in [
        ("/apply-template", ask("hello", json!({}))),
        ("/apply-template", ask("hello", json!({"api": "messages"}))),
        ("/anthropic/v1/apply-template", ask("hello", json!({"system": [{"type": "text", "text": "s"}]}))),
        ("/apply-template", ask("", json!({"messages": [{"role": "user", "content": "hello"}], "system": "s"}))),
        ("/apply-template", json!({"input": "hello"})),
    ] {
        let answer = post(&rig, path, &body).json();
        assert_eq!((&answer["prompt"], &answer["tokens"][0]), (&json!("hello"), &json!(104)), "{path} {body}");
    }
    let tool_use = json!([{"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]);
    assert_eq!(post(&rig, "/apply-template", &ask("", json!({"messages": tool_use}))).status, 200);
}

#[test]
fn the_page_and_the_document_are_whole_and_load_nothing_from_elsewhere() {
    let rig = Rig::new();
    let page = rig.get("/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    for outside in ["http://", "https://", "src=\"//", "@import"] {
        let found =
            page.body.match_indices(outside).find(|(at, _)| !page.body[*at..].starts_with("http://www.w3.org/"));
        assert!(found.is_none(), "the page names {outside} at {found:?}");
    }
    let document = rig.get("/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    for path in document["paths"].as_object().unwrap().keys() {
        let concrete = path.replace("{id}", "tiny");
        let known = rig.get(&concrete);
        assert_ne!(known.status, 404, "{path} is in the document and not on the server");
    }
    let mut connection = Connection::open(rig.address);
    connection.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(connection.head().status, 200);
    let mut connection = Connection::open(rig.address);
    connection.send("HEAD /api/hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(connection.head().status, 404);
}

#[test]
fn a_finished_stream_counts_its_tokens_once() {
    let rig = Rig::new();
    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    taken.say("abc");
    taken.finish(Finish::Length);
    connection.response();
    assert_eq!(metric(&rig, "luce_answers_total{finish=\"length\"}"), 1.0);
    assert_eq!(metric(&rig, "luce_disconnects_total"), 0.0);
}
