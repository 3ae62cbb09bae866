//! The parser against recorded outputs, under every way of cutting them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A text with markers by their spelling, as symbols: each marker one, the text between cut by `cut`.
fn symbols(text: &str, mut cut: impl FnMut(&str) -> Vec<String>) -> Vec<(String, Option<Symbol<'static>>)> {
    let markers = [("<think>", Symbol::ThinkOpen), ("</think>", Symbol::ThinkClose), (DSML, Symbol::Dsml)];
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let next = markers
            .iter()
            .filter_map(|(spelling, symbol)| Some((rest.find(spelling)?, spelling, *symbol)))
            .min_by_key(|m| m.0);
        let plain = next.map_or(rest, |(at, ..)| &rest[..at]);
        out.extend(cut(plain).into_iter().map(|piece| (piece, None)));
        rest = match next {
            Some((at, spelling, symbol)) => {
                out.push((String::new(), Some(symbol)));
                &rest[at + spelling.len()..]
            }
            None => "",
        };
    }
    out
}

fn by_character(text: &str) -> Vec<String> {
    text.chars().map(String::from).collect()
}

fn whole(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

struct Setup {
    opening: Opening,
    mode: ToolMode,
    tools: Value,
    stops: Vec<String>,
    cause: Cause,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            opening: Opening::Content,
            mode: ToolMode::Parse { first_only: false },
            tools: json!({}),
            stops: Vec::new(),
            cause: Cause::Stop,
        }
    }
}

impl Setup {
    fn run(&self, text: &str, cut: impl FnMut(&str) -> Vec<String>) -> Value {
        let schemas: ToolSchemas =
            self.tools.as_object().unwrap().iter().map(|(name, s)| (name.clone(), ToolSchema::new(s))).collect();
        let mut parser = OutputParser::new(self.opening, self.mode, Arc::new(schemas), self.stops.clone());
        let (mut reasoning, mut content) = (String::new(), String::new());
        let mut calls: Vec<(String, String)> = Vec::new();
        let mut take = |deltas: Deltas| {
            for delta in deltas {
                match delta {
                    Delta::Reasoning(text) => reasoning.push_str(&text),
                    Delta::Content(text) => content.push_str(&text),
                    Delta::Call { index, name, .. } => {
                        assert_eq!(index, calls.len(), "calls are counted without gaps");
                        calls.push((name, String::new()));
                    }
                    Delta::Arguments { index, json } => calls[index].1.push_str(&json),
                }
            }
        };
        for (piece, marker) in symbols(text, cut) {
            let mut deltas = Deltas::default();
            parser.push(marker.unwrap_or(Symbol::Text(&piece)), &mut deltas);
            take(deltas);
        }
        let mut deltas = Deltas::default();
        let reason = parser.end(self.cause, &mut deltas);
        take(deltas);
        let calls: Vec<Value> =
            calls.into_iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect();
        json!({"reasoning": reasoning, "content": content, "tool_calls": calls, "finish_reason": reason.name()})
    }

    /// The arguments of the only call, the same under both extreme cuttings.
    fn arguments(&self, text: &str) -> String {
        let result = self.run(text, whole);
        assert_eq!(result, self.run(text, by_character));
        assert_eq!(result["tool_calls"].as_array().unwrap().len(), 1, "{result}");
        result["tool_calls"][0]["arguments"].as_str().unwrap().to_owned()
    }

    fn content(&self, text: &str) -> String {
        let result = self.run(text, whole);
        assert_eq!(result, self.run(text, by_character));
        result["content"].as_str().unwrap().to_owned()
    }
}

fn cases() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/chat/outputs.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn setup_of(case: &Value) -> Setup {
    let stops = case["stop"].as_array().into_iter().flatten();
    Setup {
        opening: if case["thinking"] == true { Opening::Reasoning } else { Opening::Content },
        mode: if case["parse_tool_calls"] == true { ToolMode::Parse { first_only: false } } else { ToolMode::Verbatim },
        stops: stops.map(|stop| stop.as_str().unwrap().to_owned()).collect(),
        cause: if case["backend_finish"] == "length" { Cause::Length } else { Cause::Stop },
        ..Setup::default()
    }
}

fn expected_of(case: &Value) -> Value {
    let mut expected = case["expected"].clone();
    if let Some(calls) = case.get("recommended_tool_calls") {
        expected["tool_calls"] = calls.clone();
    }
    expected
}

#[test]
fn recorded_outputs_parse_as_recorded_in_one_piece_and_by_character() {
    let cases = cases();
    assert_eq!(cases.len(), 76);
    for case in &cases {
        let (setup, output) = (setup_of(case), case["output"].as_str().unwrap());
        assert_eq!(setup.run(output, whole), expected_of(case), "{}", case["name"]);
        assert_eq!(setup.run(output, by_character), expected_of(case), "{} by character", case["name"]);
    }
}

/// Cuts at pseudo-random places that `seed` decides.
fn cut_by(seed: u64) -> impl FnMut(&str) -> Vec<String> {
    let mut state = seed | 1;
    move |text| {
        let mut pieces = vec![String::new()];
        for c in text.chars() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (state >> 33).is_multiple_of(3) {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(c);
        }
        pieces
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_cutting_of_a_recorded_output_changes_the_result(seed: u64) {
        for case in cases() {
            let result = setup_of(&case).run(case["output"].as_str().unwrap(), cut_by(seed));
            prop_assert_eq!(result, expected_of(&case), "{}", &case["name"]);
        }
    }
}

/// Things that tags, values and answers are made of, in any order.
fn fragments() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "｜DSML｜",
        "<｜DSML｜",
        "</｜DSML｜",
        "</think>",
        "<think>",
        "tool_calls>",
        " calls>",
        "invoke name=\"f\">",
        " invoke name=\"g\"/>",
        "parameter name=\"n\" string=\"true\">",
        "parameter name=\"arguments\">",
        "parameter>",
        "invoke>",
        "parameter name=\"x\" string=\"false\">",
        "{\"n\": 1}",
        "12",
        "\"",
        "\\",
        "<",
        "</",
        ">",
        "\n",
        "\n\n",
        "text",
        "END",
        "EN",
        "é👩‍👧",
        " ",
    ]);
    prop::collection::vec(fragment, 0..24).prop_map(|list| list.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_parses_the_same_however_it_is_cut_and_leaks_no_marker(
        text in fragments(), seed: u64, length: bool, start in 0..3, first_only: bool,
    ) {
        let setup = Setup {
            opening: [Opening::Reasoning, Opening::Content, Opening::ToolCalls][start as usize],
            mode: ToolMode::Parse { first_only },
            tools: json!({"f": {"properties": {"n": {"type": "integer"}, "x": {"type": "string"}}}}),
            stops: vec!["END".to_owned(), "\n\ntext".to_owned()],
            cause: if length { Cause::Length } else { Cause::Stop },
        };
        let result = setup.run(&text, whole);
        prop_assert_eq!(&result, &setup.run(&text, cut_by(seed)));
        prop_assert_eq!(&result, &setup.run(&text, by_character));
        prop_assert!(!result.to_string().contains("DSML"), "{}", result);
        let calls = result["tool_calls"].as_array().unwrap();
        let complete = result["finish_reason"] != "length";
        for call in calls.iter().filter(|_| complete) {
            let arguments = call["arguments"].as_str().unwrap();
            let parsed = serde_json::from_str::<serde_json::Map<String, Value>>(arguments);
            prop_assert!(parsed.is_ok(), "{arguments} of {text:?}");
        }
        prop_assert_eq!(result["finish_reason"] == "tool_calls", complete && !calls.is_empty());
    }
}

fn call(parameters: &str) -> String {
    format!("<{DSML}tool_calls>\n<{DSML}invoke name=\"f\">\n{parameters}</{DSML}invoke>\n</{DSML}tool_calls>")
}

fn parameter(name: &str, string: &str, value: &str) -> String {
    format!("<{DSML}parameter name=\"{name}\"{string}>{value}</{DSML}parameter>\n")
}

const TRUE: &str = " string=\"true\"";
const FALSE: &str = " string=\"false\"";

fn typed() -> Setup {
    let tools = json!({"f": {"type": "object", "properties": {
        "flag": {"type": "boolean"}, "n": {"type": "integer"}, "list": {"type": "array"}, "text": {"type": "string"},
        "either": {"type": ["integer", "null"]},
    }}});
    Setup { tools, ..Setup::default() }
}

#[test]
fn a_string_attribute_gives_way_to_the_schema_only_if_the_text_is_of_its_type() {
    let text = [("flag", "true"), ("n", "42"), ("list", "[1, 2]"), ("text", "7"), ("either", "7"), ("other", "7")]
        .map(|(name, value)| parameter(name, TRUE, value))
        .concat();
    let wanted = r#"{"flag": true, "n": 42, "list": [1, 2], "text": "7", "either": "7", "other": "7"}"#;
    assert_eq!(typed().arguments(&call(&text)), wanted);
    let text =
        [("flag", "yes"), ("n", "4.5"), ("list", "{}")].map(|(name, value)| parameter(name, TRUE, value)).concat();
    assert_eq!(typed().arguments(&call(&text)), r#"{"flag": "yes", "n": "4.5", "list": "{}"}"#);
}

#[test]
fn without_the_attribute_the_schema_decides_and_else_it_is_a_string() {
    let text = [("n", " 3 "), ("text", "3"), ("other", "3")].map(|(name, value)| parameter(name, "", value)).concat();
    assert_eq!(typed().arguments(&call(&text)), r#"{"n": 3, "text": "3", "other": "3"}"#);
}

#[test]
fn arguments_wrapped_into_one_parameter_are_unwrapped_only_if_they_fit_the_schema() {
    let wrapped = |name, string, value| typed().arguments(&call(&parameter(name, string, value)));
    assert_eq!(wrapped("arguments", FALSE, r#"{"n": 1}"#), r#"{"n": 1}"#);
    assert_eq!(wrapped("input", TRUE, r#"{"text": "x", "flag": false}"#), r#"{"text": "x", "flag": false}"#);
    assert_eq!(wrapped("arguments", FALSE, r#"{"unknown": 1}"#), r#"{"arguments": {"unknown": 1}}"#);
    assert_eq!(wrapped("arguments", TRUE, "plain"), r#"{"arguments": "plain"}"#);
    let followed = parameter("arguments", FALSE, r#"{"n": 1}"#) + &parameter("n", FALSE, "2");
    assert_eq!(typed().arguments(&call(&followed)), r#"{"arguments": {"n": 1}, "n": 2}"#);
    // Without a schema nothing is known to be a wrapper.
    let bare = Setup::default().arguments(&call(&parameter("arguments", FALSE, r#"{"n": 1}"#)));
    assert_eq!(bare, r#"{"arguments": {"n": 1}}"#);
}

#[test]
fn missing_closing_tags_end_values_and_calls_where_the_next_one_begins() {
    let text = format!(
        "<{DSML}invoke name=\"f\"><{DSML}parameter name=\"a\" string=\"true\">1\
         <{DSML}parameter name=\"b\" string=\"true\">2<{DSML}invoke name=\"g\"></{DSML}tool_calls>"
    );
    let result = Setup::default().run(&text, whole);
    let calls = json!([{"name": "f", "arguments": "{\"a\": \"1\", \"b\": \"2\"}"}, {"name": "g", "arguments": "{}"}]);
    assert_eq!(result["tool_calls"], calls);
}

#[test]
fn the_end_of_the_turn_closes_an_open_call_and_a_limit_does_not() {
    let open =
        format!("<{DSML}tool_calls><{DSML}invoke name=\"f\"><{DSML}parameter name=\"a\" string=\"true\">so far <");
    assert_eq!(Setup::default().arguments(&open), r#"{"a": "so far <"}"#);
    let cut = Setup { cause: Cause::Length, ..Setup::default() };
    assert_eq!(cut.arguments(&open), r#"{"a": "so far <"#);
    assert_eq!(cut.run(&open, whole)["finish_reason"], "length");
    let held = format!("<{DSML}tool_calls><{DSML}invoke name=\"f\"><{DSML}parameter name=\"a\" string=\"false\">[1, ");
    assert_eq!(Setup::default().arguments(&held), r#"{"a": "[1, "}"#);
    assert_eq!(cut.arguments(&held), r#"{"a": [1, "#);
}

#[test]
fn without_parallel_calls_the_first_one_is_the_last() {
    let setup = Setup { mode: ToolMode::Parse { first_only: true }, ..Setup::default() };
    let two =
        format!("<{DSML}tool_calls><{DSML}invoke name=\"f\"></{DSML}invoke><{DSML}invoke name=\"g\"></{DSML}invoke>");
    let result = setup.run(&two, by_character);
    assert_eq!(result["tool_calls"], json!([{"name": "f", "arguments": "{}"}]));
    assert_eq!(result["finish_reason"], "tool_calls");
}

#[test]
fn a_block_that_nobody_asked_for_is_taken_out() {
    let setup = Setup { mode: ToolMode::Remove, ..Setup::default() };
    let text = format!("Sure.\n\n{}", call(&parameter("a", TRUE, "1")));
    let result = setup.run(&text, by_character);
    assert_eq!(result, json!({"reasoning": "", "content": "Sure.", "tool_calls": [], "finish_reason": "stop"}));
}

#[test]
fn a_block_without_a_usable_call_says_so_instead_of_nothing() {
    let result = Setup::default().run(&format!("\n\n<{DSML}tool_calls>\n<{DSML}invo"), whole);
    assert_eq!(result["content"], UNREADABLE_CALL);
    assert_eq!(result["finish_reason"], "stop");
}

#[test]
fn a_stray_closing_tag_disappears_from_the_answer() {
    assert_eq!(Setup::default().content(&format!("one</{DSML}tool_calls> two <")), "one two <");
}

#[test]
fn a_forced_opening_starts_inside_the_block() {
    let setup = Setup { opening: Opening::ToolCalls, ..Setup::default() };
    assert_eq!(setup.arguments(&format!("<{DSML}invoke name=\"f\">\n</{DSML}invoke>\n</{DSML}tool_calls>")), "{}");
}

#[test]
fn reasoning_keeps_an_angle_bracket_at_its_end_and_newlines_inside() {
    let setup = Setup { opening: Opening::Reasoning, ..Setup::default() };
    let result = setup.run("\na\n\nb <\n</think>\nc\n", by_character);
    assert_eq!((&result["reasoning"], &result["content"]), (&json!("a\n\nb <"), &json!("c\n")));
    let result = setup.run("1 <</think>c", by_character);
    assert_eq!(result["reasoning"], "1 <");
}
