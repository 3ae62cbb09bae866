//! Answers of a given form, from a model without sense: what its constraint allows is drawn at random.

use luce_core::{Finish, TokenId};
use serde_json::{Value, json};

use crate::support::{DSML, END_THINK, EOS, Rig, Taken, ask};

/// A schema with what clients use: nested objects, arrays, alternatives, references, limits.
fn schema() -> Value {
    json!({
        "type": "object", "required": ["name", "kind", "parts"], "additionalProperties": false,
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 8},
            "kind": {"enum": ["a", "b", 3, null]},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1, "maxItems": 2},
        },
        "$defs": {"part": {"type": "object", "required": ["n"], "additionalProperties": false,
            "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 12}, "ok": {"type": "boolean"}}}},
    })
}

/// Whether `value` is of [`schema`], said by hand.
fn fits(value: &Value) -> bool {
    let only =
        |map: &Value, keys: &[&str]| map.as_object().is_some_and(|m| m.keys().all(|k| keys.contains(&k.as_str())));
    let part = |part: &Value| {
        only(part, &["n", "ok"])
            && part["n"].as_f64().is_some_and(|n| n.fract() == 0.0 && (1.0..=12.0).contains(&n))
            && part.get("ok").is_none_or(Value::is_boolean)
    };
    only(value, &["name", "kind", "parts"])
        && value["name"].as_str().is_some_and(|name| (1..=8).contains(&name.chars().count()))
        && [json!("a"), json!("b"), json!(3), Value::Null].contains(&value["kind"])
        && value.get("kind").is_some()
        && value["parts"].as_array().is_some_and(|parts| (1..=2).contains(&parts.len()) && parts.iter().all(part))
}

/// The choice of a drawn answer, and whether it ended by itself.
fn drawn(rig: &Rig, more: &Value, seed: u64) -> (Value, bool) {
    let mut connection = rig.chat(&ask("x", more.clone()));
    let mut taken = rig.take();
    let ended = taken.wander(seed);
    taken.finish(if ended { Finish::Stop } else { Finish::Length });
    (connection.response().json()["choices"][0].clone(), ended)
}

fn spellings() -> Vec<Value> {
    vec![
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}}}),
        json!({"response_format": {"type": "json_object", "schema": schema()}}),
        json!({"guided_json": schema()}),
        json!({"guided_json": schema().to_string()}),
        json!({"structured_outputs": {"json": schema()}}),
        json!({"json_schema": schema()}),
    ]
}

#[test]
fn an_answer_of_a_schema_validates_whenever_it_stops_in_every_spelling() {
    let rig = Rig::new();
    let mut stopped = 0;
    for (i, more) in spellings().into_iter().enumerate() {
        for seed in 0..8 {
            let (choice, ended) = drawn(&rig, &more, seed * 10 + i as u64);
            assert_eq!(choice["finish_reason"], if ended { "stop" } else { "length" });
            if ended {
                stopped += 1;
                let text = choice["message"]["content"].as_str().unwrap();
                let value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
                assert!(fits(&value), "{value}");
            }
        }
    }
    assert!(stopped >= 40, "only {stopped} answers ended");
}

#[test]
fn the_form_begins_where_the_thinking_ends_and_thinking_must_end() {
    let rig = Rig::new();
    let more = json!({"thinking": {"type": "enabled"}, "guided_json": schema()});
    let mut connection = rig.chat(&ask("x", more));
    let mut taken = rig.take();
    taken.obey("I think { freely").unwrap();
    let allowed = taken.allowed();
    assert!(!allowed.contains(TokenId(EOS)) && !allowed.contains(TokenId(DSML)), "the answer is still owed");
    taken.obey("</think>").unwrap();
    assert!(taken.obey("x").is_err());
    assert!(taken.wander(3));
    taken.finish(Finish::Stop);
    let message = connection.response().json()["choices"][0]["message"].clone();
    assert_eq!(message["reasoning_content"], "I think { freely");
    assert!(fits(&serde_json::from_str(message["content"].as_str().unwrap()).unwrap()));
}

#[test]
fn other_forms_bind_too() {
    let rig = Rig::new();
    let run = |more: Value, good: &[&str], bad: &[&str]| {
        for (list, wanted) in [(good, true), (bad, false)] {
            for text in list {
                let mut connection = rig.chat(&ask("x", more.clone()));
                let mut taken = rig.take();
                let whole = taken.obey(text).is_ok() && taken.allowed().contains(TokenId(EOS));
                assert_eq!(whole, wanted, "{text:?} with {more}");
                taken.finish(Finish::Length);
                assert_eq!(connection.response().status, 200);
            }
        }
    };
    run(json!({"response_format": {"type": "json_object"}}), &["{}", "{\"a\": [1, {}]}"], &["[]", "1", "{\"a\"}"]);
    run(json!({"structured_outputs": {"json_object": true}}), &["{}"], &["[]"]);
    run(json!({"json_schema": {}}), &["[1, null]", "\"x\""], &["x"]);
    run(json!({"guided_regex": "[a-c]{2}\\d+"}), &["ab1", "cc99"], &["abc", "a1", "ab"]);
    run(json!({"response_format": {"type": "regex", "pattern": "yes|no"}}), &["yes", "no"], &["ye", "maybe"]);
    run(json!({"structured_outputs": {"regex": "(a|b)*c"}}), &["c", "abc"], &["ab"]);
    run(json!({"guided_choice": ["good", "good \"enough\"\n"]}), &["good", "good \"enough\"\n"], &["bad", "goo"]);
    run(json!({"structured_outputs": {"choice": ["x"]}}), &["x"], &["y"]);
    run(json!({"guided_grammar": "start: \"a\"+ B\nB: /[0-9]/"}), &["aa1"], &["1", "a"]);
    run(json!({"grammar": "start: \"hi\""}), &["hi"], &["ho"]);
}

#[test]
fn a_form_that_cannot_be_enforced_is_refused_with_its_place() {
    let rig = Rig::new();
    let format = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}});
    let strict = |parameters: Value| json!({"tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": parameters}}]});
    for (more, place, word) in [
        (format(json!({"type": "objekt"})), "response_format.json_schema.schema", "objekt"),
        (format(json!({"type": "array", "uniqueItems": true})), "response_format.json_schema.schema", "uniqueItems"),
        (format(json!({"$ref": "#/$defs/x"})), "response_format.json_schema.schema", "x"),
        (format(json!({"type": "string", "pattern": "("})), "response_format.json_schema.schema", "("),
        (json!({"guided_json": "{"}), "guided_json", "JSON"),
        (json!({"guided_json": 7}), "guided_json", "object"),
        (json!({"guided_regex": "(a"}), "guided_regex", "enforced"),
        (json!({"guided_choice": []}), "guided_choice", "at least one"),
        (json!({"guided_choice": ["a", 1]}), "guided_choice", "strings"),
        (json!({"guided_grammar": "start: x"}), "guided_grammar", "x"),
        (json!({"grammar": "root ::= \"x\""}), "grammar", "GBNF"),
        (json!({"structured_outputs": {"structural_tag": {}}}), "structured_outputs.structural_tag", "not supported"),
        (json!({"guided_regex": "a", "guided_json": {}}), "guided_regex", "both"),
        (json!({"guided_regex": "a", "min_tokens": 3}), "min_tokens", "form"),
        (json!({"response_format": {"type": "regex"}}), "response_format.pattern", "missing"),
        (
            strict(json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}})),
            "tools: parameters of f",
            "uniqueItems",
        ),
    ] {
        let response = rig.chat(&ask("x", more.clone())).response();
        let message = response.error(400);
        assert!(message.contains(word), "{more}: {message}");
        assert_eq!(response.json()["error"]["param"], place, "{more}: {message}");
        assert!(!message.contains("backtrace") && message.len() < 400, "{message}");
    }
    assert!(rig.nothing_was_taken());
}

/// A strict tool with each kind of parameter, and a tool that is not.
fn tools() -> Value {
    let parameters = json!({
        "type": "object", "required": ["mode", "count", "note"], "additionalProperties": false,
        "properties": {
            "mode": {"type": "string", "enum": ["fast", "slow"]},
            "count": {"type": "integer"},
            "path": {"type": "string"},
            "note": {"type": ["string", "null"]},
            "item": {"$ref": "#/$defs/item"},
        },
        "$defs": {"item": {"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]{3}$"}},
            "required": ["id"], "additionalProperties": false}},
    });
    json!([
        {"type": "function", "function": {"name": "strict", "strict": true, "parameters": parameters}},
        {"type": "function", "function": {"name": "loose"}},
    ])
}

fn check_call(call: &Value) {
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    if call["function"]["name"] == "strict" {
        assert!(["fast", "slow"].contains(&arguments["mode"].as_str().unwrap()), "{arguments}");
        assert!(arguments["count"].as_f64().is_some_and(|n| n.fract() == 0.0), "{arguments}");
        assert!(arguments.get("note").is_some_and(|n| n.is_string() || n.is_null()), "{arguments}");
        assert!(arguments.get("path").is_none_or(Value::is_string), "{arguments}");
        let id = |item: &Value| item["id"].as_str().is_some_and(|id| id.len() == 3);
        assert!(arguments.get("item").is_none_or(id), "{arguments}");
    } else {
        assert_eq!(call["function"]["name"], "loose");
        assert!(arguments.is_object());
    }
}

/// Lets a drawn answer run until the server has its calls or the answer ends.
fn drawn_calls(rig: &Rig, more: &Value, seed: u64) -> Option<Value> {
    let mut connection = rig.chat(&ask("x", more.clone()));
    let mut taken = rig.take();
    let ended = taken.wander(seed);
    taken.finish(if ended { Finish::Stop } else { Finish::Length });
    let choice = connection.response().json()["choices"][0].clone();
    ended.then_some(choice)
}

#[test]
fn a_demanded_call_comes_with_and_without_thinking_and_keeps_to_a_strict_schema() {
    let rig = Rig::new();
    let mut complete = 0;
    for seed in 0..12 {
        for thinking in ["enabled", "disabled"] {
            let more = json!({"thinking": {"type": thinking}, "tools": tools(), "tool_choice": "required"});
            let Some(choice) = drawn_calls(&rig, &more, seed) else { continue };
            complete += 1;
            assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
            assert!(choice["message"]["content"].is_null(), "{choice}");
            choice["message"]["tool_calls"].as_array().unwrap().iter().for_each(check_call);
        }
    }
    assert!(complete >= 12, "only {complete} answers were complete");
}

#[test]
fn a_named_choice_calls_that_tool_and_a_single_call_ends_the_block() {
    let rig = Rig::new();
    let choice = json!({"type": "function", "function": {"name": "loose"}});
    let more = json!({"tools": tools(), "tool_choice": choice, "parallel_tool_calls": false});
    let mut connection = rig.chat(&ask("x", more));
    let mut taken = rig.take();
    assert!(taken.obey("<｜DSML｜invoke name=\"s").is_err());
    drop((taken, connection));
    let more = json!({"tools": tools(), "tool_choice": "required", "parallel_tool_calls": false});
    connection = rig.chat(&ask("x", more));
    taken = rig.take();
    let call = "<｜DSML｜invoke name=\"loose\">\n<｜DSML｜parameter name=\"a b\" string=\"true\">x < y </ z\n</｜DSML｜parameter>\n\
                </｜DSML｜invoke>\n";
    taken.obey(call).unwrap();
    assert!(taken.allowed().contains(TokenId(u32::from(b'<'))));
    assert!(taken.obey("<｜DSML｜").is_err(), "no second call");
    taken.finish(Finish::Stop);
    let call = connection.response().json()["choices"][0]["message"]["tool_calls"][0].clone();
    assert_eq!(call["function"], json!({"name": "loose", "arguments": "{\"a b\": \"x < y </ z\\n\"}"}));
}

#[test]
fn a_strict_tool_binds_a_call_that_the_model_begins_by_itself_also_while_thinking() {
    let rig = Rig::new();
    for start in ["Sure.\n\n<｜DSML｜", "Hm</think>Sure.\n\n<｜DSML｜", "Hm\n\n<｜DSML｜"] {
        let thinking = if start.starts_with("Hm") { "enabled" } else { "disabled" };
        let more = json!({"thinking": {"type": thinking}, "tools": tools()});
        let mut connection = rig.chat(&ask("x", more));
        let mut taken = rig.take();
        taken.obey(start).unwrap();
        assert!(taken.obey("invoke").is_err());
        taken.obey("tool_calls>\n<｜DSML｜invoke name=\"strict\">\n<｜DSML｜parameter name=\"").unwrap();
        assert!(taken.obey("x").is_err(), "no such parameter");
        assert!(taken.obey("path").is_err(), "a required one is left out");
        assert!(taken.wander(5));
        taken.finish(Finish::Stop);
        let choice = connection.response().json()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], "tool_calls");
        check_call(&choice["message"]["tool_calls"][0]);
    }
}

#[test]
fn with_tools_and_a_form_the_answer_is_either_of_them() {
    let rig = Rig::new();
    let more = json!({"tools": tools(), "guided_json": schema()});
    let begin = |text: &str| {
        let mut connection = rig.chat(&ask("x", more.clone()));
        let mut taken: Taken = rig.take();
        let fits = taken.obey(text).is_ok();
        taken.finish(Finish::Length);
        connection.response();
        fits
    };
    assert!(begin("{\"name\": \"x\""));
    assert!(begin(
        "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"loose\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    ));
    assert!(!begin("Sure"));
}

#[test]
fn thinking_ends_at_the_budget_where_budgets_are_honoured() {
    let body = ask("x", json!({"thinking": {"type": "enabled", "budget_tokens": 5}}));
    let free = Rig::new();
    let _waiting = free.chat(&body);
    assert!(free.take().request.constraint.is_none());
    let rig = Rig::with(|config| config.honour_budget = true);
    let mut connection = rig.chat(&body);
    let mut taken = rig.take();
    taken.obey("12345").unwrap();
    let allowed = taken.allowed();
    let all: Vec<u32> = (0..300).filter(|&id| allowed.contains(TokenId(id))).collect();
    assert_eq!(all, [END_THINK]);
    taken.obey("</think>so it is").unwrap();
    taken.finish(Finish::Stop);
    let body = connection.response().json();
    assert_eq!(
        body["choices"][0]["message"],
        json!({"role": "assistant", "content": "so it is", "reasoning_content": "12345"})
    );
    assert_eq!(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 5);
}
