//! Bad requests: each gets one clear error in OpenAI's form, and the server goes on.

use serde_json::{Value, json};

use crate::support::{Client, Reply, Server};

fn chat(key: &str, value: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 4});
    body[key] = value.clone();
    body
}

/// The message of an answer with this status.
fn message(reply: &Reply, status: u16) -> &str {
    let error = &reply.body["error"];
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.body.as_object().unwrap().len(), 1, "nothing beside the error: {reply:?}");
    assert!(!error["type"].is_null(), "{reply:?}");
    error["message"].as_str().unwrap()
}

fn refused(client: &Client, key: &str, value: Value, words: &[&str]) {
    let reply = client.post(&chat(key, &value));
    let message = message(&reply, 400);
    assert_eq!(reply.body["error"]["param"].as_str(), Some(key).filter(|_| key != "messages"), "{value}: {reply:?}");
    assert!(message.contains(key) && words.iter().all(|word| message.contains(word)), "{key} = {value}: {message}");
}

#[test]
fn every_bad_request_gets_one_clear_error_and_the_server_goes_on() {
    let server = Server::start("configs/cpu.toml", &["api.strict_model_names=true", "api.model_aliases=[\"nano\"]"]);
    let client = server.client();

    for (text, word) in [("{\"messages\": [", "not valid JSON"), ("[]", "an array"), ("", "empty"), ("{} x", "JSON")] {
        let reply = client.post_text(text);
        assert!(message(&reply, 400).contains(word), "{text}: {reply:?}");
    }
    let reply = client.post_text("{\"messages\": [],\n \"temperature\": 1e999}");
    assert!(message(&reply, 400).contains("line 2"), "{reply:?}");

    let reply = client.post(&chat("model", &json!("gpt-5")));
    let text = message(&reply, 404);
    assert!(text.contains("\"gpt-5\"") && text.contains("luce-nano"), "{text}");
    assert_eq!(reply.body["error"]["code"], "model_not_found");

    for (key, values, range) in [
        ("temperature", [json!(-0.1), json!(2.1)], "between 0 and 2"),
        ("top_p", [json!(0), json!(1.1)], "above 0 and at most 1"),
        ("min_p", [json!(-0.1), json!(1.1)], "between 0 and 1"),
        ("repetition_penalty", [json!(0), json!(2.1)], "above 0 and at most 2"),
        ("presence_penalty", [json!(-2.1), json!(2.1)], "between -2 and 2"),
        ("frequency_penalty", [json!(-2.1), json!(2.1)], "between -2 and 2"),
    ] {
        values.into_iter().for_each(|value| refused(client, key, value, &[range]));
        refused(client, key, json!("high"), &["a number", "a string"]);
    }
    refused(client, "top_k", json!(-2), &["at least 0", "-1"]);
    refused(client, "top_k", json!(1.5), &["an integer"]);
    refused(client, "seed", json!("lucky"), &["an integer", "a string"]);
    refused(client, "max_tokens", json!(0), &["at least 1"]);
    refused(client, "n", json!(2), &["only 1"]);
    refused(client, "stop", json!(1), &["a string or an array"]);
    refused(client, "stop_token_ids", json!([4096]), &["4096", "vocabulary"]);

    let reply = client.post(&chat("messages", &json!([{"role": "user", "content": "apple ".repeat(9000)}])));
    let text = message(&reply, 400);
    assert!(text.contains("maximum context length is 4096 tokens") && text.contains("reduce"), "{text}");
    assert_eq!(reply.body["error"]["code"], "context_length_exceeded");
    // As long, but streamed: still an error and not a stream.
    let mut streamed = chat("messages", &json!([{"role": "user", "content": "apple ".repeat(9000)}]));
    streamed["stream"] = json!(true);
    assert_eq!(client.post(&streamed).body["error"]["code"], "context_length_exceeded");

    for name in ["luce-nano", "nano"] {
        assert_eq!(client.post(&chat("model", &json!(name))).status, 200, "{name}");
    }
    let mut process = server.process;
    process.signal(rustix::process::Signal::TERM);
    process.wait();
    let after = process.stderr.iter().skip_while(|line| !line.starts_with("ready")).skip(1);
    let said: Vec<&String> = after.filter(|line| !line.starts_with("draining")).collect();
    assert!(said.is_empty(), "the server speaks of its clients' mistakes: {said:?}");
}

#[test]
fn a_full_queue_refuses_and_who_waits_is_served_when_there_is_room() {
    let server = Server::start("configs/cpu.toml", &["schedule.max_queue=1", "schedule.decode.max_sequences=1"]);
    let long = json!({"messages": [{"role": "user", "content": "Count to a million"}], "max_tokens": 4000,
        "ignore_eos": true, "stream": true, "temperature": 0});
    let mut running = server.client().stream(&long);
    running.by_ref().take(2).for_each(drop);
    let mut short = long.clone();
    short["max_tokens"] = json!(8);
    // Its first event comes when it is taken, so it waits now.
    let mut waiting = server.client().stream(&short);
    waiting.next().expect("an event");
    let reply = server.client().post(&short);
    assert!(message(&reply, 429).contains("queue is full"), "{reply:?}");
    drop(running);
    assert_eq!(waiting.text().finish, "length");
}
