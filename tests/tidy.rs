//! House rules that no compiler checks: how files begin, how long they are, where `unsafe` and locks stand, and that what
//! the documentation names is there. An exception stands in a list here, with its reason.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use luce_api::ApiConfig;
use luce_runtime::config;

/// Most lines of a Rust file.
const MOST_LINES: usize = 500;

/// Longer files.
const LONG: [(&str, &str); 2] =
    [("devices/cpu/src/check.rs", "being split"), ("devices/cpu/src/simd/x86/int.rs", "being split")];

/// Files and folders (ending in `/`) that may hold `unsafe`. A new one is a matter of design.
const UNSAFE: [(&str, &str); 6] = [
    ("actors/src/exchange.rs", "host access to shared buffers, ordered by lanes and fences"),
    ("core/src/buffer.rs", "host memory that device queues share"),
    ("devices/core/src/conformance/host.rs", "host access to shared buffers, ordered by the suite"),
    ("devices/cpu/src/memory.rs", "views of buffers as slices, ordered by the queue"),
    ("devices/cpu/src/simd/", "vector intrinsics"),
    ("devices/cpu/tests/allocations.rs", "a counting allocator"),
];

/// Files of the data plane that may hold a lock.
const LOCKS: [(&str, &str); 5] = [
    ("actors/src/control/mod.rs", "control plane: what /health and /status show; the leader only tries to lock"),
    ("actors/src/control/unit.rs", "control plane: the state that /status shows"),
    ("devices/core/src/timeline.rs", "guards the condition variable of parked waiters; reaching a value takes no lock"),
    ("devices/cpu/src/pool.rs", "guards the condition variable of parked helpers"),
    ("devices/cpu/src/queue.rs", "guards the condition variable of the parked queue"),
];

/// Crates whose steps must not wait for a lock.
const DATA_PLANE: [&str; 4] = ["actors/src/", "core/src/", "devices/core/src/", "devices/cpu/src/"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below the repository's root with one of these endings, as paths with `/`, sorted. Left out: what is built or
/// fetched, hidden folders but `.ci`, and fixtures, which hold what others wrote.
fn files(endings: &[&str]) -> Vec<String> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let path = folder.join(&name);
            if entry.file_type().unwrap().is_dir() {
                let skipped = ["target", "fixtures", "corpus", "artifacts", "state"].contains(&name.as_str());
                if !skipped && (!name.starts_with('.') || name == ".ci") {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                files.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "no files with {endings:?}");
    files
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Fails with one line for each finding.
fn none(rule: &str, findings: impl Iterator<Item = String>) {
    let findings: Vec<String> = findings.collect();
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// Whether `path` is one of the listed files or lies in one of the listed folders.
fn listed(list: &[(&str, &str)], path: &str) -> bool {
    list.iter().any(|(home, _)| path == *home || (home.ends_with('/') && path.starts_with(home)))
}

/// Numbered lines of Rust source outside line comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn every_rust_file_says_what_it_is_for() {
    let silent = files(&[".rs"]).into_iter().filter(|path| !read(path).starts_with("//! "));
    none("a file opens with //! and what it is for", silent);
}

#[test]
fn no_rust_file_is_two_of_something() {
    let long = files(&[".rs"]).into_iter().filter_map(|path| {
        let lines = read(&path).lines().count();
        (lines > MOST_LINES && !listed(&LONG, &path)).then(|| format!("{path}: {lines} lines"))
    });
    none("no file has more than 500 lines: what is it two of?", long);
}

#[test]
fn names_say_what_is_inside() {
    let vague = ["util", "utils", "helper", "helpers", "misc", "common"];
    let vague = files(&[".rs"]).into_iter().filter(|path| {
        Path::new(path).with_extension("").components().any(|part| vague.contains(&part.as_os_str().to_str().unwrap()))
    });
    none("a name says what is inside", vague);
}

#[test]
fn no_file_depends_on_the_machine_it_was_written_on() {
    let folders = ["work", "tmp", "root"].map(|name| format!("/{name}/"));
    let found = files(&[".rs", ".md", ".toml", ".sh", "run"]).into_iter().flat_map(|path| {
        let text = read(&path);
        let lines = (1..).zip(text.lines()).filter(|(_, line)| folders.iter().any(|folder| line.contains(folder)));
        lines.map(|(number, line)| format!("{path}:{number}: {}", line.trim())).collect::<Vec<_>>()
    });
    none("paths are relative to the repository", found);
}

#[test]
fn unsafe_stays_in_its_homes() {
    let forms = ["{", "fn ", "impl ", "extern ", "trait "].map(|form| format!("unsafe {form}"));
    let found = files(&[".rs"]).into_iter().filter(|path| !listed(&UNSAFE, path)).flat_map(|path| {
        let text = read(&path);
        let lines = code(&text).filter(|(_, line)| forms.iter().any(|form| line.contains(form)));
        lines.map(|(number, line)| format!("{path}:{number}: {}", line.trim())).collect::<Vec<_>>()
    });
    // This file names the forms.
    none("unsafe code has listed homes", found.filter(|line| !line.starts_with("tests/tidy.rs")));
}

#[test]
fn locks_of_the_data_plane_have_a_reason() {
    let of_plane = |path: &String| DATA_PLANE.iter().any(|home| path.starts_with(home)) && !listed(&LOCKS, path);
    let found = files(&[".rs"]).into_iter().filter(of_plane).flat_map(|path| {
        let text = read(&path);
        let lines = code(&text).filter(|(_, line)| ["Mutex<", "RwLock<"].iter().any(|lock| line.contains(lock)));
        lines.map(|(number, line)| format!("{path}:{number}: {}", line.trim())).collect::<Vec<_>>()
    });
    none("a lock in the data plane needs a reason", found);
}

#[test]
fn exceptions_are_still_needed() {
    let all = [&LONG[..], &UNSAFE, &LOCKS].concat();
    none(
        "an exception for what is gone",
        all.iter().map(|(path, _)| (*path).to_owned()).filter(|p| !root().join(p).exists()),
    );
    let short = LONG.iter().filter(|(path, _)| read(path).lines().count() <= MOST_LINES);
    none("an exception for a file that is short enough", short.map(|(path, _)| (*path).to_owned()));
    let free = LOCKS.iter().filter(|(path, _)| !read(path).contains("Mutex<"));
    none("an exception for a file without a lock", free.map(|(path, _)| (*path).to_owned()));
}

#[test]
fn every_shipped_configuration_loads() {
    for path in files(&[".toml"]).iter().filter(|path| path.starts_with("configs/")) {
        let loaded = config::parse::<ApiConfig>(path, &read(path), [], &[]).unwrap_or_else(|e| panic!("{e}"));
        loaded.config.api.check().unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}

/// Targets of the links of a Markdown text, outside code.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).collect::<String>();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors that GitHub gives the headings of a Markdown text.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
    headings.map(|heading| heading.to_lowercase().replace(|c| !kept(c), "").replace(' ', "-")).collect()
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let broken = files(&[".md"]).into_iter().flat_map(|path| {
        let text = read(&path);
        let broken = links(&text).into_iter().filter(|target| {
            if target.contains("://") || target.starts_with("mailto:") {
                return false;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => PathBuf::from(&path),
                file => Path::new(&path).parent().unwrap().join(file),
            };
            !root().join(&file).exists()
                || (!anchor.is_empty() && !anchors(&read(file.to_str().unwrap())).contains(&anchor.to_owned()))
        });
        broken.map(|target| format!("{path}: {target}")).collect::<Vec<_>>()
    });
    none("links lead to files and headings that are there", broken);
}

#[test]
fn the_architecture_names_every_crate_and_no_other() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap().iter().map(|member| member.as_str().unwrap());
    let mut crates: Vec<String> = members
        .map(|folder| {
            let member: toml::Table = read(&format!("{folder}/Cargo.toml")).parse().unwrap();
            format!("`{folder}` ({})", member["package"]["name"].as_str().unwrap())
        })
        .collect();
    // A paragraph about a crate begins **`folder` (name)**.
    let text = read("ARCHITECTURE.md");
    let mut named: Vec<String> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("**`")?.split_once("**")?.0))
        .map(|s| format!("`{s}"))
        .collect();
    crates.sort();
    named.sort();
    assert_eq!(named, crates, "ARCHITECTURE.md and the members of the workspace");
}
