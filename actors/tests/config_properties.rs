//! Properties of the configuration reader over random texts: it never panics, every mistake is one line that can be
//! pointed at, and what is written is what comes out. `fuzz/fuzz_targets/config.rs` drives the same entry.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;

use luce_runtime::config::{ConfigError, Loaded, parse};
use proptest::collection::vec;
use proptest::prelude::*;

const SHIPPED: [&str; 2] = [include_str!("../../configs/cpu.toml"), include_str!("../../configs/two-device.toml")];

fn read(text: &str, environment: Vec<(String, String)>, sets: &[String]) -> Result<Loaded, ConfigError> {
    let environment = environment.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    parse("test.toml", text, environment, sets)
}

/// Whatever came out can be shown.
fn check(result: Result<Loaded, ConfigError>) {
    match result {
        Ok(loaded) => assert_eq!(loaded.print().lines().count(), loaded.origins.len()),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.trim().is_empty() && !text.contains(char::is_control), "one line: {text:?}");
            assert!(error.origin().is_some(), "{text}");
            if let Some(excerpt) = error.excerpt() {
                assert_eq!(excerpt.lines().count(), 3, "{excerpt}");
            }
        }
    }
}

/// A part of a key or value: words of the format, and anything.
fn piece() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "model",
        "path",
        "box",
        "actor",
        "name",
        "main",
        "cpu",
        "roles",
        "dense",
        "schedule",
        "prefill",
        "chunk",
        "max_queue",
        "wait",
        "spin_us",
        "numerics",
        "qat",
        "api",
        "listen",
        "memory",
        "2GiB",
        "0",
        "-1",
        "4294967296",
        "1e9",
        "true",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'''",
        "=",
        ".",
        ",",
        "\n",
        "#",
        "[[box]]\n",
        "[[box.actor]]\n",
        "1979-05-27T07:32:00Z",
        "0x",
        "_",
        "\u{feff}",
        "\"\\u001b\"",
        "\\n",
        "\u{e4}",
    ];
    prop_oneof![4 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => any::<String>()]
}

fn pieces(most: usize) -> impl Strategy<Value = String> {
    vec(piece(), 0..most).prop_map(|pieces| pieces.concat())
}

/// A shipped file in which parts are replaced.
fn damaged() -> impl Strategy<Value = String> {
    let cut = (any::<prop::sample::Index>(), 0..20usize, pieces(3));
    (0..SHIPPED.len(), vec(cut, 1..4)).prop_map(|(file, cuts)| {
        let mut text: Vec<char> = SHIPPED[file].chars().collect();
        for (at, length, with) in cuts {
            let at = at.index(text.len() + 1);
            let end = text.len().min(at + length);
            text.splice(at..end, with.chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_values_or_one_error(text in prop_oneof![pieces(40), damaged()]) {
        check(read(&text, Vec::new(), &[]));
    }

    #[test]
    fn any_override_gives_values_or_one_error(
        environment in vec((vec(piece(), 1..6), pieces(4)), 0..3),
        sets in vec((vec(piece(), 1..6), pieces(4)), 0..3),
    ) {
        let environment = environment.into_iter().map(|(key, value)| (format!("LUCE__{}", key.join("__")), value));
        let sets: Vec<String> = sets.into_iter().map(|(key, value)| format!("{}={value}", key.join("."))).collect();
        check(read(SHIPPED[0], environment.collect(), &sets));
    }

    #[test]
    fn a_value_in_range_is_taken_from_wherever_it_is_set(chunk in 1..=u32::MAX, spin in 0..=1_000_000u32, pin: bool) {
        let file = SHIPPED[0].replace("chunk = 512", &format!("chunk = {chunk}"));
        let environment = vec![("LUCE__SCHEDULE__WAIT__SPIN_US".to_owned(), spin.to_string())];
        let config = read(&file, environment, &[format!("box.main.actor.cpu.pin={pin}")]).unwrap().config;
        prop_assert_eq!((config.schedule.prefill.chunk, config.schedule.wait.spin_us), (chunk, spin));
        prop_assert_eq!(config.boxes[0].actors[0].pin, pin);
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range(chunk in prop_oneof![i64::MIN..=0, 4_294_967_296..=i64::MAX]) {
        let message = read(SHIPPED[0], Vec::new(), &[format!("schedule.prefill.chunk={chunk}")]).unwrap_err().to_string();
        let wanted = format!("`schedule.prefill.chunk` = {chunk} is out of range: it takes 1 to 4294967295");
        prop_assert!(message.ends_with(&wanted), "{}", message);
    }
}
