//! The tree, section by section, into the types.

use std::path::PathBuf;

use super::error::{ConfigError, Origin};
use super::load::Setting;
use super::section::Section;
use super::tree::{Node, Value};
use super::{
    Activations, ActorSection, BoxSection, Config, Decode, Kind, ModelSection, Numerics, Prefill, Qat, ReduceMode,
    Role, Schedule, WaitPolicy, bytes, check,
};

/// Most threads of one actor.
const MOST_THREADS: u32 = 4096;

/// Kinds of the format that later builds will have.
const LATER_KINDS: [&str; 4] = ["gpu", "ssd", "peer", "auto"];

/// Roles and their words.
pub(super) const ROLES: [(&str, Role); 4] =
    [("dense", Role::Dense), ("experts", Role::Experts), ("logits", Role::Logits), ("reduce", Role::Reduce)];

/// Reads the whole configuration and notes each value in `log`.
pub(super) fn config(root: &Node, log: &mut Vec<Setting>) -> Result<Config, ConfigError> {
    let file = Section::open(String::new(), root, &root.origin, &["model", "box", "schedule", "numerics", "api"])?;
    let model = model(&file, log)?;
    let boxes = boxes(&file, log)?;
    let schedule = schedule(&file, log)?;
    let numerics = numerics(&file, log)?;
    let api = api(&file, log)?;
    Ok(Config { model, boxes, schedule, numerics, api })
}

fn model(file: &Section<'_>, log: &mut Vec<Setting>) -> Result<ModelSection, ConfigError> {
    let section = file.child("model", &["path", "name", "context"])?;
    Ok(ModelSection {
        path: PathBuf::from(section.required(log, "path", "path = \"models/luce-nano/luce-nano.gguf\" to [model]")?),
        name: section.text(log, "name")?,
        context: section.number(log, "context", 4096, 1, u32::MAX)?,
    })
}

fn boxes(file: &Section<'_>, log: &mut Vec<Setting>) -> Result<Vec<BoxSection>, ConfigError> {
    let mut boxes: Vec<BoxSection> = Vec::new();
    for (i, node) in file.elements("box")?.iter().enumerate() {
        let section = Section::open(format!("box.{i}"), node, &node.origin, &["name", "actor"])?;
        let (section, name) = named(section, "box", log, boxes.iter().map(|b| b.name.as_str()))?;
        let mut actors: Vec<ActorSection> = Vec::new();
        for (j, node) in section.elements("actor")?.iter().enumerate() {
            let key = section.full("actor");
            let actor = Section::open(
                format!("{key}.{j}"),
                node,
                &node.origin,
                &["name", "kind", "roles", "threads", "pin", "memory"],
            )?;
            let (actor, name) = named(actor, &key, log, actors.iter().map(|a| a.name.as_str()))?;
            actors.push(self::actor(&actor, name, log)?);
        }
        let section_at = &section.at;
        let one = BoxSection { name, actors };
        check::roles(&one).map_err(|message| ConfigError::Roles {
            name: one.name.clone(),
            at: section_at.clone(),
            message,
        })?;
        boxes.push(one);
    }
    if boxes.is_empty() {
        return Err(file.missing("box", "a [[box]] with at least one [[box.actor]]"));
    }
    Ok(boxes)
}

/// Reads `name`, which has to be a word and differ from `others`, and puts it into the section's key.
fn named<'a, 'n>(
    section: Section<'a>,
    array: &str,
    log: &mut Vec<Setting>,
    mut others: impl Iterator<Item = &'n str>,
) -> Result<(Section<'a>, String), ConfigError> {
    const EXAMPLE: &str = "name = \"...\"";
    let Some(node) = section.node("name") else { return Err(section.missing("name", EXAMPLE)) };
    let name = section.string("name", node)?;
    let word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if !word || name.bytes().all(|b| b.is_ascii_digit()) {
        let message = format!("= \"{name}\" cannot be used: letters, digits, `-` and `_`, not digits alone");
        return Err(section.wrong("name", node, message));
    }
    if others.any(|other| other.eq_ignore_ascii_case(&name)) {
        return Err(section.wrong("name", node, format!("= \"{name}\" is taken: each needs its own (capitals aside)")));
    }
    let section = section.named(format!("{array}.{name}"));
    section.note(log, "name", Some(name.clone().into()), None);
    Ok((section, name))
}

fn actor(section: &Section<'_>, name: String, log: &mut Vec<Setting>) -> Result<ActorSection, ConfigError> {
    if let Some(node) = section.node("kind") {
        let value = section.string("kind", node)?;
        if LATER_KINDS.contains(&value.as_str()) {
            return Err(not_in_build(section, "kind", &node.origin, value, "\"cpu\""));
        }
    }
    Ok(ActorSection {
        name,
        kind: section.choice(log, "kind", &[("cpu", Kind::Cpu)])?,
        roles: roles(section, log)?,
        threads: section.number(log, "threads", 0, 0, MOST_THREADS)? as usize,
        pin: section.flag(log, "pin", false)?,
        memory: memory(section, log)?,
    })
}

fn roles(section: &Section<'_>, log: &mut Vec<Setting>) -> Result<Vec<Role>, ConfigError> {
    let Some(node) = section.node("roles") else {
        return Err(
            section.missing("roles", "roles = [\"dense\", \"experts\", \"logits\", \"reduce\"], or some of them")
        );
    };
    let Value::Array(items) = &node.value else {
        return Err(section.wrong_type("roles", node, "an array of strings"));
    };
    let mut roles = Vec::new();
    for item in items {
        let word = section.string("roles", item)?;
        if word == "draft" {
            let instead = "\"dense\", \"experts\", \"logits\", \"reduce\"";
            return Err(not_in_build(section, "roles", &item.origin, word, instead));
        }
        let (_, role) = section.word("roles", item, &word, &ROLES)?;
        if roles.contains(&role) {
            return Err(section.wrong("roles", item, format!("names \"{word}\" twice")));
        }
        roles.push(role);
    }
    if roles.is_empty() {
        return Err(section.wrong("roles", node, "is empty: give the actor a role or leave it out".to_owned()));
    }
    section.note(log, "roles", Some(node.to_toml()), None);
    Ok(roles)
}

fn memory(section: &Section<'_>, log: &mut Vec<Setting>) -> Result<Option<u64>, ConfigError> {
    let text = section.text(log, "memory")?;
    match (section.node("memory"), text) {
        (Some(node), Some(text)) => {
            bytes::parse(&text).map(Some).map_err(|message| section.wrong("memory", node, message))
        }
        _ => Ok(None),
    }
}

fn not_in_build(section: &Section<'_>, name: &str, at: &Origin, value: String, instead: &str) -> ConfigError {
    ConfigError::NotInBuild { key: section.full(name), at: at.clone(), value, instead: instead.to_owned() }
}

fn schedule(file: &Section<'_>, log: &mut Vec<Setting>) -> Result<Schedule, ConfigError> {
    let section = file.child("schedule", &["prefill", "decode", "max_queue", "wait"])?;
    let prefill = section.child("prefill", &["chunk", "bands_in_flight"])?;
    let decode = section.child("decode", &["max_sequences"])?;
    let wait = section.child("wait", &["spin_us"])?;
    Ok(Schedule {
        prefill: Prefill {
            chunk: prefill.number(log, "chunk", 512, 1, u32::MAX)?,
            bands_in_flight: prefill.number(log, "bands_in_flight", 2, 1, u32::MAX)?,
        },
        decode: Decode { max_sequences: decode.number(log, "max_sequences", 4, 1, u32::MAX)? },
        max_queue: section.number(log, "max_queue", 32, 1, u32::MAX)?,
        wait: WaitPolicy { spin_us: wait.number(log, "spin_us", 50, 0, 1_000_000)? },
    })
}

fn numerics(file: &Section<'_>, log: &mut Vec<Setting>) -> Result<Numerics, ConfigError> {
    let section = file.child("numerics", &["activations", "reduce", "qat"])?;
    Ok(Numerics {
        activations: section.choice(log, "activations", &[("int8", Activations::Int8), ("f32", Activations::F32)])?,
        reduce: section.choice(log, "reduce", &[("exact", ReduceMode::Exact), ("f32", ReduceMode::F32)])?,
        qat: section.choice(log, "qat", &[("off", Qat::Off), ("kv", Qat::Kv)])?,
    })
}

/// `[api]` as it stands; each of its values is noted without a default.
fn api(file: &Section<'_>, log: &mut Vec<Setting>) -> Result<toml::Table, ConfigError> {
    let Some(node) = file.node("api") else { return Ok(toml::Table::new()) };
    match (&node.value, node.to_toml()) {
        (Value::Table(entries), toml::Value::Table(table)) => {
            for entry in entries {
                log.push(Setting {
                    key: file.full(&format!("api.{}", entry.key)),
                    value: Some(entry.node.to_toml()),
                    default: None,
                    origin: entry.node.origin.clone(),
                });
            }
            Ok(table)
        }
        _ => Err(file.wrong_type("api", node, "a table")),
    }
}
