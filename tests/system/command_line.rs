//! The command line as people use it: help, mistakes, output that nobody reads, a terminal.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

use crate::support::{Ended, Server, command, run};

const CPU: &str = "configs/cpu.toml";

fn usage_error(args: &[&str]) -> String {
    let Ended { code, stdout, stderr } = run(args);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{args:?}: {stderr}");
    assert!(stderr.contains("Usage: luce-actors") || stderr.contains("try '--help'"), "{args:?}: {stderr}");
    stderr
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for word in ["Usage: luce-actors", "--config <FILE>", "--set", "--box", "run", "inspect", "config", "wiring"] {
        assert!(help.stdout.contains(word), "{word} in {}", help.stdout);
    }
    for args in [["run", "--help"], ["wiring", "--help"], ["help", "inspect"]] {
        assert_eq!(run(&args).code, Some(0), "{args:?}");
    }
    let version = run(&["--version"]);
    assert_eq!(version.stdout, concat!("luce-actors ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn mistakes_on_the_command_line_name_the_way_out() {
    // Nothing at all: the whole help.
    assert!(usage_error(&[]).contains("--config <FILE>"));
    assert!(usage_error(&["--no-such-flag"]).contains("'--no-such-flag'"));
    assert!(usage_error(&["wirring"]).contains("'wiring'"));
    assert!(usage_error(&["--box", "main"]).contains("--config <FILE>"));
    assert!(usage_error(&["run", "--config", CPU]).contains("<PROMPT>"));
    assert!(usage_error(&["run", "--config", CPU, "--max-tokens", "0", "Hi"]).contains("--max-tokens"));
    assert!(usage_error(&["run", "--config", CPU, "--temperature", "warm", "Hi"]).contains("'warm'"));
    for bad in ["-1", "NaN", "inf"] {
        let ended = run(&["run", "--config", CPU, "--temperature", bad, "Hi"]);
        assert!(ended.code == Some(1) && ended.stderr.starts_with("error: --temperature"), "{}", ended.stderr);
    }
    let ended = run(&["run", "--config", CPU, &"apple ".repeat(9000)]);
    assert!(ended.code == Some(1) && ended.stdout.is_empty(), "{}", ended.stdout);
    assert!(ended.stderr.contains("exceed the context of 4096"), "{}", ended.stderr);
    let inspected = run(&["inspect", CPU]);
    assert!(inspected.code == Some(1) && inspected.stderr.contains("configs/cpu.toml"), "{}", inspected.stderr);
}

#[test]
fn run_prints_the_answer_that_http_gives_and_nothing_else() {
    let prompt = "Count from 5 to 25 in steps of 5";
    let ended = run(&["run", "--config", CPU, prompt]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("ready after ") && ended.stderr.contains("tokens/s"), "{}", ended.stderr);
    assert!(!ended.stderr.contains(['\r', '\u{1b}']), "no bar without a terminal: {:?}", ended.stderr);
    let server = Server::start("configs/cpu.toml", &[]);
    let body = json!({"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 512,
        "thinking": {"type": "disabled"}});
    assert_eq!(ended.stdout, format!("{}\n", server.client().text(&body).content));
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    for args in [
        vec!["config", "--config", CPU],
        vec!["wiring", "--config", CPU, "--dot"],
        vec!["inspect", "models/luce-nano/luce-nano.gguf"],
        vec!["completions", "bash"],
        vec!["run", "--config", CPU, "Hello"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(&args).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("panicked"), "{args:?}: {stderr}");
        assert!(!stderr.contains("error"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_terminal_shows_a_bar_while_the_model_loads() {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut child = command(&["run", "--config", CPU, "Hello"]).stdout(Stdio::null()).stderr(terminal).spawn().unwrap();
    // It ends with an error once the last holder of the other side is gone, which the child is.
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    let mut screen = File::from(master);
    while let Ok(read @ 1..) = screen.read(&mut part) {
        text.extend_from_slice(&part[..read]);
    }
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains('\u{1b}') && text.contains("loading ") && text.contains("0%"), "{text:?}");
    assert!(text.contains("ready after ") && !text.contains("loading: "), "{text:?}");
}
