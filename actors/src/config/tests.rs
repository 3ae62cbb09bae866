//! What users write and what they get, without touching the process's environment.

use std::ffi::OsString;
use std::path::Path;

use super::load::parse;
use super::{Activations, Config, ConfigError, Kind, Loaded, Origin, Qat, ReduceMode, Role};

const MINIMAL: &str = "\
[model]
path = \"m.gguf\"
[[box]]
name = \"main\"
[[box.actor]]
name = \"cpu\"
roles = [\"dense\", \"experts\", \"logits\", \"reduce\"]
";

fn with(extra: &str) -> Result<Loaded, ConfigError> {
    overridden(&format!("{MINIMAL}{extra}"), &[], &[])
}

fn overridden(text: &str, env: &[(&str, &str)], sets: &[&str]) -> Result<Loaded, ConfigError> {
    let env: Vec<(OsString, OsString)> = env.iter().map(|(k, v)| (k.into(), v.into())).collect();
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    parse("test.toml", text, env, &sets)
}

/// The message of a configuration that must be refused.
fn refused(result: Result<Loaded, ConfigError>) -> String {
    result.expect_err("must be refused").to_string()
}

/// A box with actors of these roles.
fn actors(roles: &[&str]) -> Result<Loaded, ConfigError> {
    let mut text = "[model]\npath = \"m\"\n[[box]]\nname = \"main\"\n".to_owned();
    for (i, roles) in roles.iter().enumerate() {
        text.push_str(&format!("[[box.actor]]\nname = \"a{i}\"\nroles = [{roles}]\n"));
    }
    overridden(&text, &[], &[])
}

fn shipped(name: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    overridden(&text, &[], &[]).unwrap().config
}

#[test]
fn shipped_cpu_file_loads_and_states_the_defaults() {
    let file = shipped("cpu.toml");
    let defaults = with("").unwrap().config;
    assert_eq!(file.schedule, defaults.schedule);
    assert_eq!(file.numerics, defaults.numerics);
    assert_eq!(file.model.context, defaults.model.context);
    assert_eq!(file.boxes[0].actors, defaults.boxes[0].actors);
    assert_eq!(file.model.path, Path::new("models/luce-nano/luce-nano.gguf"));
    assert_eq!(file.api["listen"].as_str(), Some("127.0.0.1:8080"));
}

#[test]
fn shipped_two_device_file_splits_experts_from_the_rest() {
    let file = shipped("two-device.toml");
    let [dgpu, igpu] = file.boxes[0].actors.as_slice() else { panic!("two actors") };
    assert_eq!((dgpu.name.as_str(), dgpu.threads), ("dgpu", 1));
    assert_eq!(dgpu.roles, [Role::Dense, Role::Logits, Role::Reduce]);
    assert_eq!((igpu.name.as_str(), igpu.threads), ("igpu", 1));
    assert_eq!(igpu.roles, [Role::Experts]);
}

#[test]
fn models_of_shipped_files_are_in_the_repository() {
    for name in ["cpu.toml", "two-device.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(shipped(name).model.path);
        assert!(path.is_file(), "{name}: {}", path.display());
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let config = with("").unwrap().config;
    assert_eq!(config.model.context, 4096);
    assert_eq!(config.model.name, None);
    let schedule = &config.schedule;
    assert_eq!((schedule.prefill.chunk, schedule.prefill.bands_in_flight), (512, 2));
    assert_eq!((schedule.decode.max_sequences, schedule.max_queue, schedule.wait.spin_us), (4, 32, 50));
    let numerics = config.numerics;
    assert_eq!((numerics.activations, numerics.reduce, numerics.qat), (Activations::Int8, ReduceMode::Exact, Qat::Off));
    let actor = &config.boxes[0].actors[0];
    assert_eq!((actor.kind, actor.threads, actor.pin, actor.memory), (Kind::Cpu, 0, false, None));
    assert!(config.api.is_empty());
}

#[test]
fn inline_tables_are_read_like_tables() {
    let config = with("[schedule]\nprefill = { chunk = 7 }\nwait = { spin_us = 0 }\n").unwrap().config;
    assert_eq!((config.schedule.prefill.chunk, config.schedule.wait.spin_us), (7, 0));
}

#[test]
fn unknown_key_names_its_line_and_the_nearest_key() {
    let message = refused(with("[schedule]\nmax_sequences = 3\nmax_qeue = 3\n"));
    assert!(message.starts_with("test.toml:9: unknown key `schedule.max_sequences`"), "{message}");
    let message = refused(with("[schedule]\nmax_qeue = 3\n"));
    assert!(message.starts_with("test.toml:9: unknown key `schedule.max_qeue`"), "{message}");
    assert!(message.contains("nearest known key: `schedule.max_queue`"), "{message}");
    let message = refused(with("thread = 1\n"));
    assert!(message.starts_with("test.toml:8: unknown key `box.main.actor.0.thread`"), "{message}");
    assert!(message.contains("`box.main.actor.0.threads`"), "{message}");
    let message = refused(with("[modle]\n"));
    assert!(message.contains("test.toml:8") && message.contains("nearest known key: `model`"), "{message}");
}

#[test]
fn wrong_type_names_key_line_and_both_types() {
    let message = refused(with("[schedule.prefill]\n\nchunk = \"many\"\n"));
    assert_eq!(message, "test.toml:10: `schedule.prefill.chunk` takes an integer, but this is a string");
    let message = refused(with("pin = 1\n"));
    assert_eq!(message, "test.toml:8: `box.main.actor.cpu.pin` takes true or false, but this is an integer");
    let message = refused(with("memory = 4096\n"));
    assert_eq!(message, "test.toml:8: `box.main.actor.cpu.memory` takes a string, but this is an integer");
    let message = refused(with("[api]\n[numerics]\nqat = false\n"));
    assert_eq!(message, "test.toml:10: `numerics.qat` takes a string, but this is a boolean");
    let message = refused(overridden("api = 3\n[model]\npath = \"m\"\n", &[], &["box=[]"]));
    assert!(message.contains("`box` is missing"), "{message}");
    let message = refused(overridden(MINIMAL, &[], &["api=3"]));
    assert_eq!(message, "--set api=3: `api` takes a table, but this is an integer");
}

#[test]
fn numbers_out_of_range_are_refused() {
    for line in [
        "[model2]",
        "[schedule]\nmax_queue = 0",
        "[schedule.prefill]\nchunk = 0",
        "[schedule.prefill]\nbands_in_flight = -1",
        "[schedule.decode]\nmax_sequences = 0",
        "[schedule]\nmax_queue = 4294967296",
        "[schedule]\nmax_queue = 99999999999999999999",
        "threads = -1",
    ] {
        assert!(with(line).is_err(), "{line}");
    }
    let message = refused(with("[schedule]\nmax_queue = 0"));
    assert_eq!(message, "test.toml:9: `schedule.max_queue` = 0 is out of range: it takes 1 to 4294967295");
}

#[test]
fn unknown_words_name_the_known_ones() {
    let message = refused(with("[numerics]\nactivations = \"int4\"\n"));
    assert_eq!(message, "test.toml:9: `numerics.activations` = \"int4\" is unknown: it takes \"int8\", \"f32\"");
}

#[test]
fn kinds_and_roles_of_later_builds_say_so() {
    for kind in ["gpu", "ssd", "peer", "auto"] {
        let message = refused(with(&format!("kind = \"{kind}\"\n")));
        assert!(message.contains("test.toml:8") && message.contains("not in this build yet"), "{message}");
    }
    assert!(refused(with("kind = \"noop\"\n")).contains("is unknown"));
    assert!(refused(actors(&["\"dense\", \"draft\""])).contains("not in this build yet"));
}

#[test]
fn missing_roles_are_named() {
    for (roles, role) in [
        (&["\"experts\", \"logits\", \"reduce\""][..], "dense"),
        (&["\"dense\", \"experts\", \"reduce\""], "logits"),
        (&["\"dense\", \"experts\", \"logits\""], "reduce"),
        (&["\"dense\", \"logits\", \"reduce\""], "experts"),
    ] {
        let message = refused(actors(roles));
        assert!(message.contains(&format!("no actor has the role \"{role}\"")), "{message}");
        assert!(message.starts_with("test.toml:3: box `main`"), "{message}");
    }
    assert!(refused(actors(&[])).contains("no actor has the role \"dense\""));
}

#[test]
fn roles_that_this_build_cannot_spread_are_refused() {
    let message = refused(actors(&["\"dense\", \"logits\", \"reduce\"", "\"dense\", \"experts\""]));
    assert!(message.contains("a0, a1 all have the role \"dense\""), "{message}");
    let message = refused(actors(&["\"dense\", \"reduce\"", "\"logits\", \"experts\""]));
    assert!(message.contains("move it to `a0`"), "{message}");
    let message = refused(actors(&["\"dense\", \"logits\"", "\"reduce\", \"experts\""]));
    assert!(message.contains("\"reduce\"") && message.contains("move it to `a0`"), "{message}");
    assert!(refused(actors(&["\"dense\", \"dense\""])).contains("twice"));
    assert!(refused(actors(&[""])).contains("is empty"));
    let spread = actors(&["\"dense\", \"logits\", \"reduce\", \"experts\"", "\"experts\"", "\"experts\""]);
    assert_eq!(spread.unwrap().config.boxes[0].actors.len(), 3);
}

#[test]
fn missing_keys_are_named_with_an_example() {
    assert!(refused(overridden("", &[], &[])).contains("`model.path` is missing; add path = "));
    assert!(refused(overridden("[model]\npath = \"m\"\n", &[], &[])).contains("`box` is missing"));
    let text = "[model]\npath = \"m\"\n[[box]]\n";
    assert_eq!(refused(overridden(text, &[], &[])), "test.toml:3: `box.0.name` is missing; add name = \"...\"");
    assert!(refused(overridden("[model]\npath = \"\"\n", &[], &[])).contains("`model.path` is empty"));
}

#[test]
fn names_can_be_addressed_by_overrides() {
    for name in ["a.b", "7", "a b"] {
        let text = MINIMAL.replace("\"main\"", &format!("\"{name}\""));
        assert!(refused(overridden(&text, &[], &[])).contains("cannot be used"), "{name}");
    }
    let twice = "[[box.actor]]\nname = \"CPU\"\nroles = [\"experts\"]\n";
    assert!(refused(with(twice)).contains("is taken"));
}

#[test]
fn command_line_beats_environment_beats_file() {
    let text = format!("{MINIMAL}[schedule]\nmax_queue = 1\n");
    let env = [("LUCE__SCHEDULE__MAX_QUEUE", "2"), ("LUCE__API__LISTEN", "127.0.0.1:0"), ("LUCE_LOG", "debug")];
    let queue = |loaded: Loaded| loaded.config.schedule.max_queue;
    assert_eq!(queue(overridden(&text, &[], &[]).unwrap()), 1);
    assert_eq!(queue(overridden(&text, &env, &[]).unwrap()), 2);
    assert_eq!(queue(overridden(&text, &env, &["schedule.max_queue=3"]).unwrap()), 3);
    assert_eq!(queue(overridden(&text, &env, &["schedule.max_queue=3", "schedule.max_queue=4"]).unwrap()), 4);
    let api = overridden(&text, &env, &[]).unwrap().config.api;
    assert_eq!(api["listen"].as_str(), Some("127.0.0.1:0"));
}

#[test]
fn overrides_reach_boxes_and_actors_by_name_and_number() {
    let env = [("LUCE__BOX__MAIN__ACTOR__CPU__MEMORY", "2GiB")];
    let sets = ["box.0.actor.0.threads=3", "box.main.actor.cpu.pin=true", "schedule={prefill={chunk=9}}"];
    let loaded = overridden(&format!("{MINIMAL}[schedule]\nmax_queue = 5\n"), &env, &sets).unwrap();
    let actor = &loaded.config.boxes[0].actors[0];
    assert_eq!((actor.memory, actor.threads, actor.pin), (Some(2 << 30), 3, true));
    assert_eq!((loaded.config.schedule.prefill.chunk, loaded.config.schedule.max_queue), (9, 5), "tables are merged");
}

#[test]
fn overrides_of_strings_need_no_quotes() {
    let name = |set: &str| overridden(MINIMAL, &[], &[set]).unwrap().config.model.name;
    assert_eq!(name("model.name=4.10").as_deref(), Some("4.10"));
    assert_eq!(name("model.name=luce nano").as_deref(), Some("luce nano"));
    assert_eq!(name("model.name=\"quoted\"").as_deref(), Some("quoted"));
}

#[test]
fn bad_overrides_name_themselves() {
    let set = |set: &str| refused(overridden(MINIMAL, &[], &[set]));
    assert!(set("schedule.max_queue").starts_with("--set schedule.max_queue: write it as key=value"));
    assert!(set("schedule..max_queue=1").contains("empty"));
    assert!(set("schedule.max_queu=1").contains("nearest known key: `schedule.max_queue`"));
    assert!(set("box.other.name=x").contains("no element `other`; there are: main"));
    assert!(set(&format!("{}=1", ["a"; 60_000].join("."))).contains("no key has more than"));
    assert!(set("model.path.x=1").contains("cannot be set inside a string (test.toml:2)"));
    let message = refused(overridden(MINIMAL, &[("LUCE__SCHEDULE__MAX_QUEUE", "many")], &[]));
    assert_eq!(
        message,
        "environment LUCE__SCHEDULE__MAX_QUEUE: `schedule.max_queue` takes an integer, but this is a string"
    );
}

#[test]
fn broken_toml_and_missing_files_name_the_place() {
    let message = refused(with("[schedule\n"));
    assert!(message.starts_with("test.toml:8: not TOML"), "{message}");
    assert!(refused(with("[api]\nx = 1\nx = 2\n")).starts_with("test.toml:10: not TOML"));
    let message = refused(super::load(Path::new("no/such.toml"), &[]));
    assert!(message.starts_with("cannot read the configuration no/such.toml"), "{message}");
}

#[test]
fn printing_names_every_value_its_default_and_origin() {
    let env = [("LUCE__NUMERICS__QAT", "kv")];
    let loaded = overridden(&format!("{MINIMAL}[api]\nlisten = \"x\"\n"), &env, &["schedule.max_queue=8"]).unwrap();
    let text = loaded.print();
    let line = |key: &str| {
        let line = text.lines().find(|l| l.split(' ').next() == Some(key)).unwrap_or_else(|| panic!("{key}: {text}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("schedule.max_queue"), "schedule.max_queue = 8 # --set schedule.max_queue=8; default 32");
    assert_eq!(line("numerics.qat"), "numerics.qat = \"kv\" # environment LUCE__NUMERICS__QAT; default \"off\"");
    assert_eq!(line("schedule.prefill.chunk"), "schedule.prefill.chunk = 512 # default");
    assert_eq!(line("model.path"), "model.path = \"m.gguf\" # test.toml:2; no default");
    assert_eq!(line("model.name"), "model.name is not set # default");
    assert_eq!(line("box.main.actor.cpu.threads"), "box.main.actor.cpu.threads = 0 # default");
    assert_eq!(line("api.listen"), "api.listen = \"x\" # test.toml:9; no default");
    assert_eq!(text.lines().count(), 3 + 1 + 6 + 5 + 3 + 1);
}

#[test]
fn this_box_goes_by_name_then_only_one_then_host() {
    let one = with("").unwrap().config;
    assert_eq!(one.this_box(None).unwrap().name, "main");
    assert_eq!(one.this_box(Some("main")).unwrap().name, "main");
    let error = one.this_box(Some("other")).unwrap_err();
    assert_eq!(error.to_string(), "there is no box `other`; boxes of this configuration: main. Name one with --box");
    assert_eq!(error.origin(), None);

    let mut two = one.clone();
    two.boxes.push(one.boxes[0].clone());
    two.boxes[1].name = "second".to_owned();
    assert_eq!(two.find_box(None, || Some("second".to_owned())).unwrap().name, "second");
    assert!(two.find_box(None, || Some("third".to_owned())).is_err());
    assert!(two.find_box(None, || None).is_err());
}

#[test]
fn errors_carry_the_line_for_pointing_at_it() {
    let error = with("[schedule]\nmax_queue = 0").unwrap_err();
    assert!(matches!(error.origin(), Some(Origin::File(place)) if place.line() == 9), "{error:?}");
    assert_eq!(error.excerpt().unwrap(), "  |\n9 | max_queue = 0\n  |             ^");
    let error = with("[schedule]\nmax_qeue = 3 # typo").unwrap_err();
    assert_eq!(error.excerpt().unwrap(), "  |\n9 | max_qeue = 3 # typo\n  | ^^^^^^^^");
    let error = overridden(MINIMAL, &[], &["schedule.max_queue=0"]).unwrap_err();
    assert_eq!(error.excerpt(), None, "an override has no line");
}

/// Stands for the API crate's section.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Api {
    listen: String,
    limit: u16,
    key: Option<String>,
}

fn with_api(api: &str, sets: &[&str]) -> Result<Loaded<Api>, ConfigError> {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    parse("test.toml", &format!("{MINIMAL}{api}"), [], &sets)
}

#[test]
fn mistakes_in_the_api_section_name_key_and_line() {
    let refused = |api: &str| with_api(api, &[]).unwrap_err().to_string();
    assert_eq!(
        refused("[api]\nlimt = 1"),
        "test.toml:9: unknown key `api.limt`; nearest known key: `api.limit` (known here: listen, limit, key)"
    );
    let message = refused("[api]\nlisten = \"x\"\nlimit = 70000");
    assert!(
        message.starts_with("test.toml:10: `api.limit` cannot be used: ") && message.contains("70000"),
        "{message}"
    );
    let sets = &["api=1"];
    assert_eq!(with_api("", sets).unwrap_err().to_string(), "--set api=1: `api` takes a table, but this is an integer");
}

#[test]
fn the_api_section_is_printed_with_its_defaults() {
    let loaded = with_api("[api]\nlimit = 3", &["api.key=7"]).unwrap();
    assert_eq!(loaded.config.api, Api { listen: String::new(), limit: 3, key: Some("7".into()) });
    let text: Vec<String> =
        loaded.print().lines().rev().take(3).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let wanted = ["api.key = \"7\" # --set api.key=7; no default", "api.limit = 3 # test.toml:9; default 0"];
    assert_eq!(text[..2], wanted);
    assert_eq!(text[2], "api.listen = \"\" # default");
}
