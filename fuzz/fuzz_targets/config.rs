//! Any text as a configuration, with overrides behind it: the reader answers with values or with one line that says what
//! is wrong. Lines that begin with `set ` are overrides, the others the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use luce_runtime::config::{Loaded, parse};

fuzz_target!(|text: &str| {
    let (sets, file): (Vec<&str>, Vec<&str>) = text.split('\n').partition(|line| line.starts_with("set "));
    let sets: Vec<String> = sets.iter().map(|line| line["set ".len()..].to_owned()).collect();
    let read: Result<Loaded, _> = parse("fuzz.toml", &file.join("\n"), [], &sets);
    match read {
        Ok(loaded) => assert_eq!(loaded.print().lines().count(), loaded.origins.len()),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.trim().is_empty() && !message.contains(char::is_control), "{message:?}");
            assert!(error.excerpt().is_none_or(|excerpt| excerpt.lines().count() == 3));
        }
    }
});
