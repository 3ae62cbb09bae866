//! Whether and how hard the model thinks, from the fields of all protocols. An explicit on or off wins; else effort
//! `none` is off and any other effort on; else the server decides. On without an effort is high.

use serde_json::{Map, Value};

use super::conversation::Effort;
use super::read::{self, BadRequest, Defaults};
use crate::Family;

/// An effort as clients ask for it.
enum Asked {
    None,
    Some(Effort),
}

pub(super) fn thinking(body: &Map<String, Value>, defaults: Defaults) -> Result<Option<Effort>, BadRequest> {
    const KWARGS: &str = "chat_template_kwargs";
    let empty = Map::new();
    let thinking = read::object(body, "", "thinking")?.unwrap_or(&empty);
    let kwargs = read::object(body, "", KWARGS)?.unwrap_or(&empty);
    let reasoning = read::object(body, "", "reasoning")?.unwrap_or(&empty);
    let output = read::object(body, "", "output_config")?.unwrap_or(&empty);

    // All are read, so that a wrong type is refused wherever it stands; the first that says something counts.
    let switches = [
        match read::string(thinking, "thinking", "type")? {
            Some("enabled" | "adaptive" | "between_tools") => Some(true),
            Some("disabled") => Some(false),
            _ => None,
        },
        read::boolean(body, "", "enable_thinking")?,
        read::boolean(kwargs, KWARGS, "thinking")?,
        read::boolean(kwargs, KWARGS, "enable_thinking")?,
        read::boolean(reasoning, "reasoning", "enabled")?,
    ];
    let efforts = [
        effort(body, "", "reasoning_effort", defaults.family)?,
        effort(reasoning, "reasoning", "effort", defaults.family)?,
        effort(kwargs, KWARGS, "reasoning_effort", defaults.family)?,
        effort(output, "output_config", "effort", defaults.family)?,
    ];
    let asked = efforts.into_iter().flatten().next();
    let on = switches.into_iter().flatten().next().unwrap_or(match asked {
        Some(Asked::None) => false,
        Some(Asked::Some(_)) => true,
        None => defaults.thinking,
    });
    Ok(on.then_some(match asked {
        Some(Asked::Some(effort)) => effort,
        Some(Asked::None) | None => Effort::High,
    }))
}

fn effort(map: &Map<String, Value>, at: &str, key: &str, family: Family) -> Result<Option<Asked>, BadRequest> {
    let place = read::place(at, key);
    let Some(value) = read::get(map, key) else { return Ok(None) };
    let known = match value {
        Value::String(name) => named(name),
        Value::Number(_) if family == Family::V4 => {
            let text = format!("`{place}` is a number, which DeepSeek V4 does not know; use low, high or max");
            return Err(BadRequest::new(place, "invalid_value", text));
        }
        Value::Number(number) => number.as_f64().and_then(level).map(|l| Asked::Some(Effort::Level(l))),
        other => return Err(read::wrong(&place, "a string or a number", other)),
    };
    known.map(Some).ok_or_else(|| {
        let numbers = if family == Family::V41 { ", or a number from 1 to 100" } else { "" };
        let text =
            format!("`{place}` is {value}; it must be none, minimal, low, medium, high, xhigh, ultra or max{numbers}");
        BadRequest::new(place, "invalid_value", text)
    })
}

fn named(name: &str) -> Option<Asked> {
    Some(match name {
        "none" => Asked::None,
        "minimal" | "low" => Asked::Some(Effort::Low),
        "medium" | "high" | "xhigh" => Asked::Some(Effort::High),
        "max" | "ultra" => Asked::Some(Effort::Max),
        _ => return None,
    })
}

/// A whole number from 1 to 100, or a share below 1 of 100.
fn level(x: f64) -> Option<u8> {
    if x > 0.0 && x < 1.0 {
        return Some(((x * 100.0).round() as u8).clamp(1, 99));
    }
    ((1.0..=100.0).contains(&x) && x.fract() == 0.0).then_some(x as u8)
}
