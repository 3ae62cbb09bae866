//! The fixed texts of prompts, byte for byte as the models were trained on them.

use super::conversation::Effort;
use super::format::EffortProfile;
use crate::Family;

const EFFORT_ABSOLUTE: &str = include_str!("templates/effort_absolute.txt");
const EFFORT_BEYOND: &str = include_str!("templates/effort_beyond.txt");

/// Before the tools' descriptions.
pub(super) fn tools_head(family: Family) -> &'static str {
    match family {
        Family::V4 => include_str!("templates/tools_head_v4.txt"),
        Family::V41 => include_str!("templates/tools_head_v41.txt"),
    }
}

/// After them.
pub(super) const TOOLS_TAIL: &str = include_str!("templates/tools_tail.txt");

/// Before a JSON schema that the answer must follow.
pub(super) const SCHEMA_HEAD: &str =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

/// V4's words for an answer that must be a JSON object; V4.1 gives [`ANY_OBJECT`] as the schema.
pub(super) const JSON_OBJECT_V4: &str =
    "\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.";

/// See [`JSON_OBJECT_V4`].
pub(super) const ANY_OBJECT: &str = "{\"type\": \"json_object\"}";

/// What a model that cannot see gets in place of a picture.
pub(super) const NO_IMAGE: &str = "[Unsupported Image]";

/// V4 has no system turns: a later system text is said by the user.
pub(super) fn reminder(text: &str) -> String {
    format!("<system-reminder>\n{text}\n</system-reminder>")
}

/// What opens the prompt of a model that is to think. V4's two sets of weights know different words; V4 has no scale, so
/// a level takes the words of the nearest effort.
pub(super) fn effort(family: Family, profile: EffortProfile, effort: Effort) -> String {
    if family == Family::V41 {
        let level = effort.level();
        return format!(
            "Reasoning Effort: {level} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
        );
    }
    let text = match (profile, effort.level()) {
        (EffortProfile::Official, 88..) => EFFORT_BEYOND,
        (EffortProfile::Official, 63..88) | (EffortProfile::Preview, 88..) => EFFORT_ABSOLUTE,
        _ => "",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn golden(path: &[&str]) -> String {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/chat/templates.json");
        let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        path.iter().fold(&file, |v, key| &v[key]).as_str().unwrap().to_owned()
    }

    #[test]
    fn fixed_texts_are_the_golden_ones() {
        for (family, key) in [(Family::V4, "v4"), (Family::V41, "v41")] {
            assert_eq!(tools_head(family), golden(&[key, "tools_head"]));
            assert_eq!(TOOLS_TAIL, golden(&[key, "tools_tail"]));
            assert_eq!(format!("{SCHEMA_HEAD}{{schema}}"), golden(&[key, "json_schema_after_system"]));
        }
        assert_eq!(JSON_OBJECT_V4, golden(&["v4", "json_object_after_system"]));
        assert_eq!(format!("{SCHEMA_HEAD}{ANY_OBJECT}"), golden(&["v41", "json_object_after_system"]));
    }

    #[test]
    fn effort_texts_are_the_golden_ones() {
        for (name, level) in [("low", Effort::Low), ("high", Effort::High), ("max", Effort::Max)] {
            for (profile, key) in
                [(EffortProfile::Official, "effort_official"), (EffortProfile::Preview, "effort_preview")]
            {
                assert_eq!(effort(Family::V4, profile, level), golden(&["v4", key, name]), "{key} {name}");
            }
            let text = format!("<｜System｜>{}", effort(Family::V41, EffortProfile::Official, level));
            assert_eq!(text, golden(&["v41", "effort", name]));
        }
    }
}
