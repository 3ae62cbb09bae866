//! SIGTERM: running answers finish, new requests are refused, exit code 0.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::Server;

const CPU: &str = "configs/cpu.toml";

/// A streamed answer of exactly `tokens` tokens.
fn long(tokens: u32) -> Value {
    let messages = json!([{"role": "user", "content": "Count to a million"}]);
    json!({"messages": messages, "max_tokens": tokens, "ignore_eos": true, "stream": true, "temperature": 0,
        "stream_options": {"include_usage": true}})
}

#[test]
fn a_running_answer_finishes_and_new_requests_get_503() {
    let mut server = Server::start(CPU, &[]);
    let mut events = server.client().stream(&long(800));
    // The role, then a first piece of text: the request is running.
    events.by_ref().take(2).for_each(drop);
    server.process.signal(Signal::TERM);
    server.process.line("draining");
    let refused = server.client().post(&json!({"messages": [{"role": "user", "content": "Hi"}]}));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body["error"]["message"].as_str().unwrap().contains("shutting down"), "{refused:?}");
    let last = events.last().expect("more events");
    assert_eq!(last["usage"]["completion_tokens"], 800, "{last}");
    assert_eq!(server.process.wait().code(), Some(0));
}

#[test]
fn an_idle_server_and_one_that_loads_end_at_once_with_exit_code_0() {
    let mut idle = Server::start(CPU, &[]);
    idle.process.signal(Signal::INT);
    assert_eq!(idle.process.wait().code(), Some(0));
    let mut loading = Server::launch(CPU, &[]);
    loading.process.signal(Signal::TERM);
    assert_eq!(loading.process.wait().code(), Some(0), "{:#?}", loading.process.stderr);
}

#[test]
fn a_second_signal_does_not_wait_for_running_answers() {
    let mut server = Server::start(CPU, &[]);
    let mut events = server.client().stream(&long(4000));
    events.by_ref().take(2).for_each(drop);
    server.process.signal(Signal::INT);
    server.process.line("draining");
    server.process.signal(Signal::INT);
    assert_eq!(server.process.wait().code(), Some(1));
    server.process.stderr.iter().find(|line| line.contains("second signal")).expect("it says why");
}
