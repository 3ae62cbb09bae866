//! Who may ask: keys, pages of other origins, and how long.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use luce_api::{ApiConfig, ApiState, serve};
use luce_core::Event;
use serde_json::{Value, json};

use crate::support::{Connection, Response, Rig, ask};

fn request(rig: &Rig, line: &str, headers: &str) -> Response {
    let mut connection = Connection::open(rig.address);
    connection.send(&format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: 0\r\n\r\n"));
    connection.response()
}

fn keys_file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn with_keys_everything_but_health_and_the_page_needs_one() {
    let file = keys_file("# of the desk\nalpha-key\n\n  beta-key  \n");
    let rig = Rig::with(|config| config.keys_file = Some(file.path().to_owned()));
    let models = |headers: &str| request(&rig, "GET /v1/models", headers);
    for headers in [
        "Authorization: Bearer alpha-key\r\n",
        "authorization: bearer beta-key\r\n",
        "x-api-key: beta-key\r\n",
        "Authorization: Bearer dummy\r\nx-api-key: alpha-key\r\n",
    ] {
        assert_eq!(models(headers).status, 200, "{headers}");
    }
    for headers in [
        "",
        "Authorization: Bearer alpha-ke\r\n",
        "Authorization: Bearer alpha-keyx\r\n",
        "Authorization: Basic alpha-key\r\n",
        "Authorization: alpha-key\r\n",
        "Authorization: Bearer \r\n",
        "x-api-key: # of the desk\r\n",
    ] {
        let response = models(headers);
        response.error(401);
        assert_eq!(response.json()["error"]["code"], "invalid_api_key", "{headers}");
        assert!(!response.body.contains("alpha"));
    }
    let response = models("anthropic-version: 2023-06-01\r\n");
    assert_eq!((response.status, &response.json()["error"]["type"]), (401, &json!("authentication_error")));
    for path in ["/metrics", "/status", "/props", "/slots", "/openapi.json", "/nowhere"] {
        assert_eq!(request(&rig, &format!("GET {path}"), "").status, 401, "{path}");
    }
    for path in ["/health", "/"] {
        assert_eq!(request(&rig, &format!("GET {path}"), "").status, 200, "{path}");
    }
    assert_eq!(request(&rig, "POST /v1/chat/completions", "").status, 401);
}

#[test]
fn without_keys_dummies_are_taken() {
    let rig = Rig::new();
    assert_eq!(request(&rig, "GET /v1/models", "Authorization: Bearer x\r\n").status, 200);
}

#[test]
fn a_server_with_keys_that_are_not_there_does_not_start() {
    let empty = keys_file("\n# nothing\n");
    for (path, text) in [(empty.path().to_owned(), "holds no key"), ("missing.keys".into(), "missing.keys")] {
        let listen = "127.0.0.1:0".parse().unwrap();
        let config = ApiConfig { listen, keys_file: Some(path), ..ApiConfig::default() };
        let error = serve(config, Arc::new(ApiState::pending())).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("keys_file"), "{error}");
    }
}

#[test]
fn pages_of_other_origins_are_not_let_in_unless_they_are_listed() {
    let closed = Rig::new();
    let ask_first = "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n\
                     Access-Control-Request-Headers: authorization, X-Stainless-Lang, x-evil\r\n";
    assert_eq!(request(&closed, "OPTIONS /v1/messages", ask_first).status, 405);
    let response = request(&closed, "GET /v1/models", "Origin: https://a.example\r\n");
    assert!(response.header("access-control-allow-origin").is_none());

    let file = keys_file("k");
    let rig = Rig::with(|config| {
        config.cors_origins = vec!["https://a.example".to_owned()];
        config.keys_file = Some(file.path().to_owned());
    });
    let response = request(&rig, "OPTIONS /v1/messages", ask_first);
    assert_eq!(response.status, 204, "a browser asks without the key");
    assert_eq!(response.header("access-control-allow-origin"), Some("https://a.example"));
    assert_eq!(response.header("access-control-allow-methods"), Some("GET, POST, OPTIONS"));
    assert_eq!(response.header("access-control-allow-headers"), Some("authorization, x-stainless-lang"));
    assert_eq!(response.header("access-control-max-age"), Some("86400"));
    assert_eq!(response.header("vary"), Some("Origin"));
    let refused = request(&rig, "GET /v1/models", "Origin: https://a.example\r\n");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some("https://a.example")));
    let other = request(&rig, "GET /v1/models", "x-api-key: k\r\nOrigin: https://b.example\r\n");
    assert_eq!((other.status, other.header("access-control-allow-origin")), (200, None));
    assert_eq!(other.header("vary"), Some("Origin"), "a cache must tell the origins apart");
    let other = request(&rig, "OPTIONS /v1/messages", &ask_first.replace("a.example", "b.example"));
    assert_eq!((other.status, other.header("access-control-allow-methods")), (204, None));
}

#[test]
fn nobody_waits_in_the_queue_longer_than_allowed() {
    let rig = Rig::with(|config| config.max_queue_wait = 1);
    let mut connection = rig.chat(&ask("x", json!({})));
    let taken = rig.take();
    let response = connection.response();
    assert!(response.error(503).contains("within 1 seconds"));
    assert_eq!(response.header("retry-after"), Some("5"));
    assert!(taken.wait_cancelled() < Duration::from_secs(1));

    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    let taken = rig.take();
    let (events, done) = connection.response().events();
    assert!(done && events.last().unwrap()["error"]["code"] == "server_is_overloaded");
    taken.wait_cancelled();

    let mut connection = Connection::open(rig.address);
    connection.post("/v1/messages", &ask("x", json!({"stream": true})).to_string());
    let taken = rig.take();
    let body = connection.response().body;
    let last: Value = serde_json::from_str(body.trim_end().rsplit_once("data: ").unwrap().1).unwrap();
    assert_eq!(last["error"]["type"], "overloaded_error");
    taken.wait_cancelled();
}

#[test]
fn a_request_that_was_admitted_in_time_may_take_longer() {
    let rig = Rig::with(|config| {
        config.max_queue_wait = 1;
        config.keep_alive = 1;
    });
    let mut connection = rig.chat(&ask("x", json!({"stream": true})));
    let mut taken = rig.take();
    taken.sink.send(Event::Admitted).unwrap();
    connection.head();
    connection.chunk().unwrap();
    for _ in 0..2 {
        assert_eq!(connection.chunk().unwrap(), ": keep-alive\n\n");
    }
    taken.answer("late");
    assert!(connection.response_body().contains("late"));
}
