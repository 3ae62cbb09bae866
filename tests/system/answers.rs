//! What is answered does not depend on who asks at the same time, on streaming, or on how the model is spread.

use std::sync::Barrier;

use serde_json::{Value, json};

use crate::support::{Client, Server, Text};

const CPU: &str = "configs/cpu.toml";

fn ask(prompt: &str, more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": prompt}], "max_tokens": 48});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// Six requests that differ in everything that a band could mix up. The long one is read in several chunks.
fn requests() -> Vec<Value> {
    let plain = json!({"type": "disabled"});
    let long = format!("Repeat the last word: {} pear", "apple plum ".repeat(400));
    vec![
        ask("What is 3 + 4?", &json!({"temperature": 0})),
        ask("Count from 5 to 25 in steps of 5", &json!({"temperature": 0, "thinking": plain, "stream": true})),
        ask("Tell me about the sea", &json!({"temperature": 1, "seed": 7, "thinking": plain, "ignore_eos": true})),
        ask(
            "Tell me about the sea",
            &json!({"temperature": 1.3, "seed": 8, "top_p": 0.9, "top_k": 40, "stream": true}),
        ),
        ask(
            "Write a function that adds two numbers",
            &json!({"temperature": 0.8, "seed": -1, "min_p": 0.02, "repetition_penalty": 1.1, "presence_penalty": 0.3}),
        ),
        ask(&long, &json!({"temperature": 0, "thinking": plain, "stream": true})),
    ]
}

fn alone(client: &Client, requests: &[Value]) -> Vec<Text> {
    requests.iter().map(|request| client.text(request)).collect()
}

/// All at once; the threads start together.
fn together(client: &Client, requests: &[Value]) -> Vec<Text> {
    let start = Barrier::new(requests.len());
    std::thread::scope(|scope| {
        let send = |request| {
            start.wait();
            client.text(request)
        };
        let threads: Vec<_> = requests.iter().map(|request| scope.spawn(move || send(request))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_request_gives_the_same_text_alone_and_among_others() {
    // Six for four places: some wait. The small chunk makes prompts share bands with each other.
    let server = Server::start(CPU, &["schedule.prefill.chunk=96"]);
    let mut requests = requests();
    let expected = alone(server.client(), &requests);
    assert!(expected.iter().all(|text| !text.content.is_empty() || !text.reasoning.is_empty()), "{expected:#?}");
    assert_ne!(expected[2], expected[3]);
    for round in 0..3 {
        assert_eq!(together(server.client(), &requests), expected, "round {round}");
        // The others come first in the next round.
        for request in &mut requests {
            request["stream"] = json!(request["stream"] != json!(true));
        }
    }
}

#[test]
fn one_actor_and_two_actors_give_the_same_text_in_chunks_of_any_size() {
    let requests = requests();
    let expected = alone(Server::start(CPU, &[]).client(), &requests);
    let split = Server::start("configs/two-device.toml", &["schedule.prefill.chunk=80"]);
    assert_eq!(together(split.client(), &requests), expected);
}

#[test]
fn equal_seeds_give_equal_text_and_no_seed_gives_other_text() {
    let server = Server::start(CPU, &[]);
    let wild = |more: &Value| ask("Tell me about the sea", more);
    let seeded = vec![wild(&json!({"temperature": 2, "seed": 5, "ignore_eos": true})); 4];
    let texts = together(server.client(), &seeded);
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
    let unseeded = vec![wild(&json!({"temperature": 2, "ignore_eos": true})); 4];
    let texts = together(server.client(), &unseeded);
    assert!(texts.iter().any(|text| *text != texts[0]), "four draws without a seed are equal: {texts:#?}");
}
