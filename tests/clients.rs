//! The `openai` and `anthropic` Python packages, pinned, against the real binary with luce-nano. `tests/setup.sh` installs
//! them; the scripts in `tests/clients` say what has to hold.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::io::Write;
use std::process::Command;

use support::{Server, root};

const CPU: &str = "configs/cpu.toml";

/// Runs a script to its end; it fails by itself when an answer does not come in time.
fn script(name: &str, arguments: &[&str]) {
    let python = root().join("tests/.cache/clients/bin/python");
    assert!(python.exists(), "{} is missing; run tests/setup.sh, which installs the clients", python.display());
    let mut command = Command::new(python);
    command.arg(root().join("tests/clients").join(name)).args(arguments);
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    let ended = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{name}:\n{}{}", text(&ended.stdout), text(&ended.stderr));
}

#[test]
fn openais_sdk_gets_answers_streams_tools_forms_and_its_own_errors() {
    script("openai_sdk.py", &[&Server::start(CPU, &[]).client().url]);
}

#[test]
fn anthropics_sdk_gets_answers_streams_thinking_tools_counts_and_its_own_errors() {
    script("anthropic_sdk.py", &[&Server::start(CPU, &[]).client().url]);
}

#[test]
fn many_streams_at_once_give_the_answers_of_one_and_clients_that_leave_free_their_places() {
    script("load.py", &[&Server::start(CPU, &[]).client().url]);
}

#[test]
fn full_queues_and_wrong_keys_raise_what_the_sdks_know() {
    let mut keys = tempfile::NamedTempFile::new().unwrap();
    keys.write_all(b"the-key\n").unwrap();
    let file = format!("api.keys_file={}", keys.path().display());
    let server = Server::start(CPU, &["schedule.decode.max_sequences=1", "schedule.max_queue=1", &file]);
    script("refused.py", &[&server.client().url, "the-key"]);
}
