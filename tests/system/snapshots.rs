//! What `config` and `wiring` print for every file in `configs/`, against texts in `tests/fixtures/cli`. After a wanted
//! change: `LUCE_REWRITE=1 cargo test --release --test system snapshots`, then look at the difference in git.

use crate::support::{read, root, run};

/// The configurations that are shipped.
fn configs() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("configs")).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    assert!(names.len() >= 2, "{names:?}");
    names
}

fn compare(command: &str) {
    let mut differences = Vec::new();
    for config in configs() {
        let ended = run(&[command, "--config", &format!("configs/{config}")]);
        assert_eq!(ended.code, Some(0), "{config}: {}", ended.stderr);
        let file = format!("tests/fixtures/cli/{command}-{}.txt", config.trim_end_matches(".toml"));
        if std::env::var_os("LUCE_REWRITE").is_some() {
            std::fs::create_dir_all(root().join("tests/fixtures/cli")).unwrap();
            std::fs::write(root().join(&file), &ended.stdout).unwrap();
        }
        let wanted = if root().join(&file).exists() { read(&file) } else { String::new() };
        let (mut old, mut new) = (wanted.lines(), ended.stdout.lines());
        for line in 1.. {
            match (old.next(), new.next()) {
                (None, None) => break,
                (old, new) if old == new => {}
                (old, new) => {
                    let [old, new] = [old, new].map(|line| line.unwrap_or("(nothing)"));
                    differences.push(format!("{file}:{line}\n  - {old}\n  + {new}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "LUCE_REWRITE=1 accepts these:\n{}", differences.join("\n"));
}

#[test]
fn config_prints_every_value_with_default_and_origin() {
    compare("config");
}

#[test]
fn wiring_prints_where_each_stage_runs() {
    compare("wiring");
}
