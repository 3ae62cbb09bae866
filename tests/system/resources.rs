//! What a server costs: time to start, processor when idle, memory. Numbers are printed (`--nocapture`); speed is not
//! asserted.
#![cfg(target_os = "linux")]

use std::time::Duration;

use serde_json::json;

use crate::support::{Process, Server};

const CPU: &str = "configs/cpu.toml";
const MIB: f64 = (1 << 20) as f64;
/// Ticks of `/proc/PID/stat` a second: fixed in Linux's interface to programs.
const TICKS: f64 = 100.0;

fn chat(server: &Server) {
    let body = json!({"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 64});
    assert_eq!(server.client().post(&body).status, 200);
}

/// Seconds of processor that a process has used. After the name, in brackets, utime and stime are the 12th and 13th word.
fn used(process: &Process) -> f64 {
    let stat = process.proc("stat");
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS
}

/// Most memory that a process had, in bytes.
fn peak(process: &Process) -> f64 {
    let status = process.proc("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<f64>().unwrap() * 1024.0
}

/// Bytes of weights, caches and lanes as the server states them, over all actors.
fn stated(process: &Process) -> [f64; 3] {
    let lines = process.stderr.iter().filter(|line| line.starts_with("actor "));
    let mut sums = [0.0; 3];
    for line in lines {
        for (sum, part) in sums.iter_mut().zip(["weights ", "caches ", "lanes "]) {
            let mut words = line.split_once(part).expect(part).1.split([' ', ',']);
            let number: f64 = words.next().unwrap().parse().unwrap();
            let unit = match words.next().unwrap() {
                "B" => 1.0,
                "KiB" => 1024.0,
                "MiB" => MIB,
                "GiB" => 1024.0 * MIB,
                other => panic!("{other} in {line}"),
            };
            *sum += number * unit;
        }
    }
    sums
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what a server does while time passes is what is measured")]
fn an_idle_server_uses_next_to_no_processor() {
    let server = Server::start(CPU, &[]);
    println!("{} (claim: under 2 s)", server.process.stderr.last().unwrap());
    for state in ["fresh", "after a chat"] {
        let before = used(&server.process);
        std::thread::sleep(Duration::from_secs(2));
        let share = (used(&server.process) - before) / 2.0;
        println!("idle, {state}: {:.1}% of one core", share * 100.0);
        assert!(share <= 0.05, "{state}: {share} of one core");
        chat(&server);
    }
}

#[test]
fn peak_memory_is_what_the_server_states_and_caches_cost_what_is_used() {
    for (config, sets) in [(CPU, [].as_slice()), ("configs/two-device.toml", &[])] {
        let server = Server::start(config, sets);
        chat(&server);
        let [weights, caches, lanes] = stated(&server.process);
        let peak = peak(&server.process);
        println!(
            "{config}: peak {:.1} MiB; weights {:.1}, caches {:.1}, lanes {:.1}",
            peak / MIB,
            weights / MIB,
            caches / MIB,
            lanes / MIB
        );
        assert!(peak >= weights && peak <= weights + caches + lanes + 64.0 * MIB, "{config}: {peak}");
    }
    let server = Server::start(CPU, &["schedule.decode.max_sequences=128"]);
    chat(&server);
    let [weights, caches, _] = stated(&server.process);
    let peak = peak(&server.process);
    println!("128 places: peak {:.1} MiB with caches of {:.1} MiB", peak / MIB, caches / MIB);
    assert!(caches > 300.0 * MIB && peak <= weights + 64.0 * MIB, "{peak}");
}
