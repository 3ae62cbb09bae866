//! Bodies of the Responses API against the golden prompts.

#![allow(clippy::unwrap_used)]

mod vocabulary;

use luce_core::TokenId;
use luce_model::Family;
use luce_model::chat::responses::{Origin, Request, request};
use luce_model::chat::{
    AnswerFormat, Assistant, BadRequest, ChatFormat, Defaults, EffortProfile, Message, Part, ToolChoice, carry,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use vocabulary::{V4, V41, cases};

fn convert(body: &Value, family: Family) -> Result<Request, BadRequest> {
    request(body.as_object().unwrap(), Defaults { family, thinking: true })
}

fn messages(input: Value) -> Vec<Message> {
    convert(&json!({"input": input}), Family::V4).unwrap().conversation.messages
}

fn turn(reasoning: Option<&str>, content: &str) -> Assistant {
    Assistant { reasoning: reasoning.map(str::to_owned), content: content.to_owned(), ..Assistant::default() }
}

#[test]
fn every_golden_prompt_is_reproduced_in_text_and_tokens() {
    let cases = cases("responses/prompts.json");
    assert_eq!(cases.len(), 16, "the fixture is complete");
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let (family, tokenizer) = if case["model"] == "v4" { (Family::V4, &*V4) } else { (Family::V41, &*V41) };
        let format = ChatFormat::new(family, EffortProfile::Official);
        let prompt = format.encode(&convert(&case["request"], family).unwrap().conversation);
        let expected = case["expected"].as_str().unwrap();
        if name == "codex_first_turn/v4" {
            // The reference makes a user of the developer. Clients send their system prompt this way, so here it is one.
            let developer = "<permissions>sandbox</permissions>\n\n";
            let moved = expected
                .replace(developer, "")
                .replace("You are a coding agent.", &format!("You are a coding agent.\n\n{}", developer.trim_end()));
            assert_eq!(prompt.text(), moved);
            continue;
        }
        assert_eq!(prompt.text(), expected, "{name}");
        let golden = case["token_ids"].as_array().unwrap().iter().map(|id| TokenId(id.as_u64().unwrap() as u32));
        assert_eq!(prompt.tokens(tokenizer), golden.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn reasoning_message_and_calls_are_one_turn_in_any_order_and_the_next_reasoning_begins_another() {
    let reasoning = json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "R"}]});
    let message = json!({"role": "assistant", "content": [{"type": "output_text", "text": "M"}]});
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let orders = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 1, 0]];
    for order in orders {
        let items = [&reasoning, &message, &call];
        let input: Vec<_> = order.into_iter().map(|i| items[i].clone()).collect();
        let found = messages(input.into());
        let [Message::Assistant(assistant)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((assistant.reasoning.as_deref(), &*assistant.content, assistant.calls.len()), (Some("R"), "M", 1));
    }
    let two = messages(json!([reasoning, message, reasoning, message]));
    assert_eq!(two, vec![Message::Assistant(turn(Some("R"), "M")); 2]);
    assert_eq!(messages(json!([message, message])), vec![Message::Assistant(turn(None, "M")); 2]);
}

#[test]
fn reasoning_is_taken_from_the_content_or_from_what_the_client_kept_for_us_but_not_from_a_summary() {
    let summary = json!([{"type": "summary_text", "text": "S"}]);
    for (item, wanted) in [
        (json!({"type": "reasoning", "summary": summary, "encrypted_content": carry("E")}), Some("E")),
        (
            json!({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "C"}], "encrypted_content": carry("E")}),
            Some("C"),
        ),
        (json!({"type": "reasoning", "summary": summary, "encrypted_content": "foreign"}), None),
    ] {
        assert_eq!(messages(json!([item])), [Message::Assistant(turn(wanted, ""))]);
    }
}

#[test]
fn tools_of_namespaces_get_flat_names_and_are_known_by_their_own() {
    let body = json!({
        "input": [{"role": "user", "content": "x"},
            {"type": "function_call", "namespace": "agents", "name": "close", "call_id": "c", "arguments": "{\"a\": 1}"}],
        "tools": [
            {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close", "strict": true}]},
            {"type": "custom", "name": "patch", "description": "Patches.",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
            {"type": "web_search"}, {"type": "function", "name": "plain", "parameters": null}],
        "tool_choice": {"type": "function", "namespace": "agents", "name": "close"},
    });
    for (family, flat) in [(Family::V4, "agents__close"), (Family::V41, "agents::close")] {
        let Request { conversation, origins } = convert(&body, family).unwrap();
        let names: Vec<_> = conversation.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, [flat, "patch", "plain"]);
        assert!(conversation.tools[0].strict);
        assert_eq!(conversation.choice, ToolChoice::Named(flat.to_owned()));
        let agents = Some("agents".to_owned());
        assert_eq!(origins[flat], Origin { name: "close".to_owned(), namespace: agents, custom: false });
        assert_eq!(origins["patch"], Origin { name: "patch".to_owned(), namespace: None, custom: true });
        assert!(!origins.contains_key("plain"));
        assert_eq!(conversation.tools[1].description, "Patches.\n\nThe input must follow this lark grammar:\nstart: X");
        let Message::Assistant(turn) = &conversation.messages[1] else { panic!() };
        assert_eq!(turn.calls[0].name, flat);
    }
}

#[test]
fn choices_of_hosted_tools_mean_auto_and_allowed_tools_leave_only_those() {
    let tools =
        json!([{"type": "function", "name": "a"}, {"type": "function", "name": "b"}, {"type": "custom", "name": "c"}]);
    let run = |choice: Value| {
        let body = json!({"input": "x", "tools": tools, "tool_choice": choice});
        let conversation = convert(&body, Family::V4).unwrap().conversation;
        (conversation.tools.into_iter().map(|t| t.name).collect::<Vec<_>>().join(" "), conversation.choice)
    };
    let all = "a b c".to_owned();
    assert_eq!(run(json!("required")), (all.clone(), ToolChoice::Required));
    assert_eq!(run(json!({"type": "web_search_preview"})), (all.clone(), ToolChoice::Auto));
    assert_eq!(run(json!({"type": "custom", "name": "c"})), (all, ToolChoice::Named("c".to_owned())));
    let allowed = json!([{"type": "function", "name": "b"}, {"type": "custom", "name": "c"}]);
    let choice = json!({"type": "allowed_tools", "mode": "required", "tools": allowed});
    assert_eq!(run(choice), ("b c".to_owned(), ToolChoice::Required));
    let body = json!({"input": "x", "tools": tools, "tool_choice": {"type": "function", "name": "z"}});
    assert_eq!(convert(&body, Family::V4).unwrap_err().param.as_deref(), Some("tool_choice"));
}

#[test]
fn tools_that_come_with_the_input_are_known_and_found_ones_are_shown_where_they_were_found() {
    let body = json!({"input": [
        {"role": "user", "content": "x"},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "more"}]},
        {"type": "tool_search_call", "call_id": "s"},
        {"type": "tool_search_output", "call_id": "s", "tools": [{"type": "function", "name": "found", "description": "F"}]},
        {"type": "unheard_of"}, {"type": "web_search_call", "id": "w"},
    ]});
    for family in [Family::V4, Family::V41] {
        let conversation = convert(&body, family).unwrap().conversation;
        assert_eq!(conversation.tools.iter().map(|t| t.deferred).collect::<Vec<_>>(), [false, true]);
        let prompt = ChatFormat::new(family, EffortProfile::Official).encode(&conversation).text();
        let (head, turns) = prompt.split_once("<｜User｜>").unwrap();
        assert!(head.contains("{\"name\": \"more\"") && !head.contains("\"found\""), "{head}");
        assert!(turns.contains("{\"name\": \"found\", \"description\": \"F\""), "{turns}");
    }
}

#[test]
fn outputs_are_results_whatever_their_kind_and_other_calls_are_calls() {
    let found = messages(json!([
        {"type": "local_shell_call", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "custom_tool_call", "id": "b", "name": "p", "input": "text"},
        {"type": "local_shell_call_output", "call_id": "a", "output": "A"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "B"}, {"type": "input_image"}]},
    ]));
    let Message::Assistant(turn) = &found[0] else { panic!() };
    let calls: Vec<_> = turn.calls.iter().map(|call| (call.id.as_deref().unwrap(), call.name.as_str())).collect();
    assert_eq!(calls, [("a", "local_shell"), ("b", "p")]);
    let result = |id: &str, parts| Message::ToolResult { call: Some(id.to_owned()), parts };
    let text = |text: &str| Part::Text(text.to_owned());
    assert_eq!(found[1..], [result("a", vec![text("A")]), result("b", vec![text("B"), Part::Image])]);
}

#[test]
fn the_format_of_the_text_reaches_the_prompt() {
    let run = |format: Value| convert(&json!({"input": "x", "text": {"format": format}}), Family::V4);
    assert_eq!(run(json!({"type": "json_object"})).unwrap().conversation.format, AnswerFormat::JsonObject);
    let schema = json!({"type": "object"});
    let format = json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true});
    assert_eq!(run(format).unwrap().conversation.format, AnswerFormat::JsonSchema(schema));
    assert_eq!(run(json!({"type": "text"})).unwrap().conversation.format, AnswerFormat::Text);
    assert_eq!(run(json!({"type": "json_schema"})).unwrap_err().param.as_deref(), Some("text.format.schema"));
    assert_eq!(run(json!({"type": "yaml"})).unwrap_err().param.as_deref(), Some("text.format.type"));
}

#[test]
fn bad_requests_are_refused_with_the_field_and_tolerable_ones_taken() {
    for case in cases("responses/errors.json") {
        let result = convert(&case["request"], Family::V4);
        match case["name"].as_str().unwrap() {
            "responses/empty_input" => assert_eq!(result.unwrap_err().param.as_deref(), Some("input")),
            "responses/output_without_call" | "responses/call_without_output" => drop(result.unwrap()),
            other => panic!("{other} is new"),
        }
    }
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": 7}), "input"),
        (json!({"input": [7]}), "input[0]"),
        (json!({"input": [{}]}), "input[0].type"),
        (json!({"input": [{"role": "wizard"}]}), "input[0].role"),
        (json!({"input": [{"role": "user", "content": 7}]}), "input[0].content"),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0]"),
        (json!({"input": [{"type": "function_call", "call_id": "c"}]}), "input[0].name"),
        (json!({"input": [{"type": "reasoning", "content": "x"}]}), "input[0].content"),
        (json!({"input": "x", "instructions": 7}), "instructions"),
        (json!({"input": "x", "tools": [{"type": "function", "name": "a b"}]}), "tools[0].name"),
        (json!({"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [7]}]}), "tools[0].tools[0]"),
        (json!({"input": "x", "tools": [{"name": "a"}, {"name": "a"}]}), "tools"),
        (json!({"input": "x", "reasoning": {"effort": "extreme"}}), "reasoning.effort"),
    ] {
        let error = convert(&body, Family::V4).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
    }
    // A probe: an empty text is a message.
    assert_eq!(messages(json!("")), [Message::User(vec![Part::Text(String::new())])]);
}

fn item() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "additional_tools",
        "tool_search_output",
        "local_shell_call",
        "x",
    ]);
    let text = prop::sample::select(vec!["", "user", "assistant", "developer", "f", "{}", "[", "<｜ref｜>"]);
    let leaf = prop_oneof![
        text.clone().prop_map(Value::from),
        Just(Value::Null),
        Just(json!([])),
        Just(json!({"type": "exec"})),
        text.prop_map(|t| json!([{"type": "input_text", "text": t, "name": t}])),
    ];
    let key = prop::sample::select(vec![
        "role",
        "content",
        "name",
        "arguments",
        "call_id",
        "output",
        "input",
        "tools",
        "action",
        "encrypted_content",
    ]);
    (kind, prop::collection::vec((key, leaf), 0..6)).prop_map(|(kind, fields)| {
        let mut item = json!({"type": kind});
        for (key, value) in fields {
            item[key] = value;
        }
        item
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_body_breaks_the_converter_or_the_encoder(input in prop::collection::vec(item(), 0..6), tools in item()) {
        let body = json!({"input": input, "tools": [tools]});
        for family in [Family::V4, Family::V41] {
            match convert(&body, family) {
                Err(error) => prop_assert!(error.param.is_some() && !error.message.is_empty()),
                Ok(request) => {
                    let prompt = ChatFormat::new(family, EffortProfile::Official).encode(&request.conversation);
                    prop_assert!(prompt.text().starts_with("<｜begin▁of▁sentence｜>"));
                }
            }
        }
    }
}
