//! Captured requests of real clients to OpenAI's endpoints: each is taken, and answered in the form that it asks for.

use luce_core::{Finish, TokenId};
use serde_json::Value;

use crate::support::{Connection, Response, Rig, fixture, post};

/// The request's answer; `text` is what the engine says to it.
fn answered(rig: &Rig, path: &str, body: &Value, text: &str) -> Response {
    let mut connection = post(rig, path, body);
    let mut taken = rig.take();
    if taken.request.max_tokens == 1 {
        taken.say("x");
        taken.finish(Finish::Length);
        return connection.response();
    }
    let (thinking, words) = text.split_once("</think>").map_or(("", text), |(thinking, words)| (thinking, words));
    if !thinking.is_empty() {
        taken.obey(&format!("{thinking}</think>")).unwrap();
    }
    if taken.allowed().contains(TokenId(u32::from(b'T'))) {
        taken.say(words);
    } else {
        // A form binds the answer; any JSON of its schema will do.
        taken.obey("{").unwrap();
        assert!(taken.wander(7), "{path}: the answer does not end");
    }
    taken.finish(Finish::Stop);
    connection.response()
}

fn last_named_event(response: &Response) -> Value {
    let last = response.body.trim_end().rsplit("\n\n").next().unwrap();
    serde_json::from_str(last.split_once("\ndata: ").unwrap().1).unwrap()
}

#[test]
fn requests_of_real_clients_are_taken_and_answered_in_the_form_they_ask_for() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/clients"));
    let rig = Rig::with(|config| config.model_aliases = vec!["stub-model".to_owned()]);
    let mut seen = [0; 4];
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let name = name.into_string().unwrap();
        let file = fixture(&format!("clients/{name}"));
        if name.starts_with("anthropic-") || name.starts_with("claude-") || name.contains(".messages-") {
            continue;
        }
        let (path, body) = (file["path"].as_str().unwrap(), &file["body"]);
        let streamed = body["stream"] == true;
        match path {
            "/v1/chat/completions" => {
                seen[0] += 1;
                let response = answered(&rig, path, body, "Reason.</think>Text.");
                assert_eq!(response.status, 200, "{name}: {}", response.body);
                if streamed {
                    let (events, done) = response.events();
                    assert!(done, "{name}");
                    let finish = events.iter().find_map(|event| event["choices"][0]["finish_reason"].as_str());
                    assert_eq!(finish, Some("stop"), "{name}");
                    let usage = events.iter().filter(|event| event["usage"].is_object()).count();
                    assert_eq!(usage, usize::from(body["stream_options"]["include_usage"] == true), "{name}");
                } else {
                    assert_eq!(response.json()["choices"][0]["finish_reason"], "stop", "{name}");
                }
            }
            "/v1/responses" => {
                seen[1] += 1;
                let response = answered(&rig, path, body, "Reason.</think>Text.");
                assert_eq!(response.status, 200, "{name}: {}", response.body);
                let whole = if streamed {
                    let last = last_named_event(&response);
                    assert_eq!(last["type"], "response.completed", "{name}");
                    last["response"].clone()
                } else {
                    response.json()
                };
                if body["max_output_tokens"] == 1 {
                    assert_eq!(whole["status"], "incomplete", "{name}");
                    continue;
                }
                assert_eq!(whole["status"], "completed", "{name}");
                assert_eq!(whole["output"][1]["type"], "message", "{name}");
            }
            "/v1/completions" => {
                seen[2] += 1;
                let response = answered(&rig, path, body, "Text.");
                assert_eq!(response.status, 200, "{name}: {}", response.body);
                assert!(if streamed { response.events().1 } else { response.json()["usage"].is_object() }, "{name}");
            }
            _ => {
                seen[3] += 1;
                let mut connection = Connection::open(rig.address);
                let method = file["method"].as_str().unwrap();
                if method == "GET" {
                    connection.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
                } else {
                    connection.post(path, &body.to_string());
                }
                let wanted = match path {
                    "/v1/models" | "/v1/models/stub-model" | "/v1/responses/input_tokens" => 200,
                    "/v1/embeddings" | "/v1/responses/resp_x" => 404,
                    // Only where names are strict is another model none.
                    "/v1/models/nope" => 404,
                    other => panic!("{other} is new"),
                };
                let response = connection.response();
                assert_eq!(response.status, wanted, "{name}: {}", response.body);
                if wanted == 404 {
                    response.error(404);
                }
            }
        }
    }
    assert_eq!(seen, [28, 22, 3, 7], "the fixture is complete");
}
