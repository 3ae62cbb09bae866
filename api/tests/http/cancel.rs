//! A client that goes away takes its request along, in every phase.

use std::time::Duration;

use luce_core::Event;
use serde_json::json;

use crate::support::{Rig, ask};

/// An engine step may take a second; hearing of the end must not add much to it.
const SOON: Duration = Duration::from_millis(1000);

#[test]
fn a_closed_connection_cancels_a_queued_request() {
    let rig = Rig::new();
    for stream in [true, false] {
        let connection = rig.chat(&ask("x", json!({"stream": stream})));
        let taken = rig.take();
        drop(connection);
        assert!(taken.wait_cancelled() < SOON, "stream: {stream}");
    }
}

#[test]
fn a_closed_connection_cancels_a_running_request() {
    let rig = Rig::new();
    for stream in [true, false] {
        let connection = rig.chat(&ask("x", json!({"stream": stream})));
        let mut taken = rig.take();
        taken.sink.send(Event::Admitted).unwrap();
        taken.say("some text");
        drop(connection);
        assert!(taken.wait_cancelled() < SOON, "stream: {stream}");
        // The engine learns from the sink as well.
        assert!(taken.sink.send(Event::Admitted).is_err());
    }
}

#[test]
fn a_half_close_counts_as_going_away() {
    let rig = Rig::new();
    for stream in [true, false] {
        let mut connection = rig.chat(&ask("x", json!({"stream": stream})));
        let taken = rig.take();
        connection.half_close();
        assert!(taken.wait_cancelled() < SOON, "stream: {stream}");
    }
}

#[test]
fn a_half_close_may_be_allowed() {
    let rig = Rig::with(|config| config.cancel_on_half_close = false);
    for stream in [true, false] {
        let mut connection = rig.chat(&ask("x", json!({"stream": stream})));
        let mut taken = rig.take();
        connection.half_close();
        std::thread::sleep(Duration::from_millis(100));
        assert!(taken.cancelled.try_recv().is_err(), "stream: {stream}");
        taken.answer("still here");
        assert!(connection.response().body.contains("still here") || stream);
    }
}

#[test]
fn a_finished_request_is_not_cancelled() {
    let rig = Rig::new();
    for stream in [true, false] {
        let mut connection = rig.chat(&ask("x", json!({"stream": stream})));
        let mut taken = rig.take();
        taken.answer("ok");
        assert_eq!(connection.response().status, 200);
        drop(connection);
        assert!(taken.cancelled.recv_timeout(Duration::from_millis(50)).is_err(), "stream: {stream}");
    }
}

#[test]
fn a_slow_reader_does_not_hold_the_engine_up() {
    let rig = Rig::new();
    let connection = rig.chat(&ask("x", json!({"stream": true, "max_tokens": 4000})));
    let mut taken = rig.take();
    // Nothing is read; the socket's buffers fill, the engine must not notice.
    let begun = std::time::Instant::now();
    for _ in 0..4000 {
        taken
            .sink
            .send(Event::Token(luce_core::Chosen { token: luce_core::TokenId(97), stop: false, logprobs: None }))
            .unwrap();
    }
    assert!(begun.elapsed() < SOON);
    drop(connection);
    taken.wait_cancelled();
}
