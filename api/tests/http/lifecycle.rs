//! Loading, broken, draining; health and models.

use std::sync::Arc;
use std::time::Duration;

use luce_api::{ApiState, Backend};
use luce_core::{Lifecycle, Refusal};
use serde_json::json;

use crate::support::{ByteCodec, Connection, Rig, ask, engine, start};

#[test]
fn the_listener_is_up_before_the_model_is_known() {
    let state = Arc::new(ApiState::pending());
    let server = start(Arc::clone(&state), |_| {});
    let request = |line: &str, body: &str| {
        let mut connection = Connection::open(server.address());
        connection.send(&format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        connection.response()
    };
    let health = request("GET /health", "");
    assert_eq!((health.status, health.json()), (503, json!({"status": "loading", "progress": 0.0})));
    let chat = request("POST /v1/chat/completions", &ask("x", json!({})).to_string());
    assert!(chat.error(503).starts_with("Overloaded"));
    assert_eq!(chat.header("retry-after"), Some("5"));
    assert_eq!(chat.json()["error"]["code"], "server_is_overloaded");
    request("GET /v1/models", "").error(503);
    let (generate, _taken) = engine();
    assert!(state.complete(Backend { generate, codec: Arc::new(ByteCodec) }));
    assert_eq!(request("GET /health", "").status, 200);
    assert_eq!(request("GET /v1/models", "").json()["data"][0]["id"], "tiny");
}

#[test]
fn health_says_what_the_engine_says_under_all_its_names() {
    let rig = Rig::new();
    for path in ["/health", "/healthz", "/v1/health", "//health/", "/health?x=1"] {
        let health = rig.get(path);
        assert_eq!((health.status, health.json()), (200, json!({"status": "ok"})), "{path}");
    }
    *rig.engine.lifecycle.lock().unwrap() = Lifecycle::Loading(0.4);
    let health = rig.get("/health");
    assert_eq!((health.status, health.json()), (503, json!({"status": "loading", "progress": 0.4})));
    *rig.engine.lifecycle.lock().unwrap() = Lifecycle::Broken("peer b is lost".to_owned());
    let health = rig.get("/health");
    assert_eq!((health.status, health.json()), (503, json!({"status": "error", "reason": "peer b is lost"})));
    // Trying again cannot help, and the SDKs are told so.
    let chat = rig.chat(&ask("x", json!({}))).response();
    assert!(chat.error(503).contains("peer b is lost"));
    assert_eq!(chat.header("x-should-retry"), Some("false"));
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let rig = Rig::new();
    let mut connection = Connection::open(rig.address);
    connection.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(connection.head().status, 200);
    // The connection goes on with the next answer: no body was in between.
    connection.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(connection.response().json(), json!({"status": "ok"}));
}

#[test]
fn a_full_queue_is_429_with_a_time_to_wait() {
    let rig = Rig::new();
    *rig.engine.refusal.lock().unwrap() = Some(Refusal::Busy { queued: 4 });
    for stream in [true, false] {
        let response = rig.chat(&ask("x", json!({"stream": stream}))).response();
        response.error(429);
        assert_eq!(response.header("retry-after"), Some("8"));
        assert_eq!(response.json()["error"]["type"], "rate_limit_error");
    }
    *rig.engine.refusal.lock().unwrap() = Some(Refusal::Busy { queued: u32::MAX });
    assert_eq!(rig.chat(&ask("x", json!({}))).response().header("retry-after"), Some("60"));
}

#[test]
fn draining_lets_running_answers_finish_and_refuses_new_ones() {
    let mut rig = Rig::new();
    let mut running = rig.chat(&ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    let server = rig.server.take().unwrap();
    let drain = std::thread::spawn(move || server.drain(Duration::from_secs(10)));
    while rig.get("/health").json()["status"] != "draining" {
        std::thread::sleep(Duration::from_millis(5));
    }
    rig.chat(&ask("x", json!({}))).response().error(503);
    taken.answer("to the end");
    let (events, done) = running.response().events();
    assert!(done && events.iter().any(|event| event["choices"][0]["finish_reason"] == "stop"));
    assert_eq!(drain.join().unwrap(), 0);
    assert!(std::net::TcpStream::connect(rig.address).is_err(), "nobody listens any more");
}

#[test]
fn answers_that_outlast_the_drain_end_with_an_error_event() {
    let mut rig = Rig::new();
    let mut streamed = rig.chat(&ask("x", json!({"stream": true})));
    let first = rig.take();
    let mut whole = rig.chat(&ask("x", json!({})));
    let second = rig.take();
    let server = rig.server.take().unwrap();
    assert_eq!(server.drain(Duration::from_millis(50)), 2);
    let (events, done) = streamed.response().events();
    assert!(done && events.last().unwrap()["error"]["code"] == "server_is_overloaded");
    whole.response().error(503);
    first.wait_cancelled();
    second.wait_cancelled();
}

#[test]
fn models_lists_the_name_and_its_aliases_with_the_context() {
    let rig =
        Rig::with(|config| config.model_aliases = vec!["flash".to_owned(), "org/flash".to_owned(), "tiny".to_owned()]);
    let list = rig.get("/v1/models?client_version=1").json();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(ids, ["tiny", "flash", "org/flash"]);
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    assert_eq!((&list["first_id"], &list["last_id"]), (&json!("tiny"), &json!("org/flash")));
    let model = rig.get("/models/org%2Fflash/").json();
    assert_eq!((&model["object"], &model["context_length"]), (&json!("model"), &json!(4096)));
    assert!(model["created_at"].as_str().unwrap().ends_with('Z'));
    let unknown = rig.get("/v1/models/gpt");
    unknown.error(404);
    assert_eq!(unknown.json()["error"]["code"], "model_not_found");
}

#[test]
fn strict_names_refuse_other_models() {
    let rig = Rig::with(|config| {
        config.strict_model_names = true;
        config.model_aliases = vec!["flash".to_owned()];
    });
    let refused = rig.chat(&ask("x", json!({"model": "gpt"}))).response();
    assert!(refused.error(404).contains("tiny"));
    assert_eq!(refused.json()["error"]["code"], "model_not_found");
    for name in ["tiny", "flash", "flash[1m]"] {
        assert_eq!(rig.chat_answered(&ask("x", json!({"model": name})), "ok").status, 200, "{name}");
    }
    assert_eq!(rig.chat_answered(&ask("x", json!({})), "ok").json()["model"], "tiny");
}
