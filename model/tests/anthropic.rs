//! Messages bodies against the golden prompts and against the requests of real clients.

#![allow(clippy::unwrap_used)]

mod vocabulary;

use std::path::Path;

use luce_core::TokenId;
use luce_model::Family;
use luce_model::chat::anthropic::conversation;
use luce_model::chat::{
    AnswerFormat, BadRequest, ChatFormat, Conversation, Defaults, Effort, EffortProfile, Message, Part, ToolChoice,
    carry,
};
use serde_json::{Value, json};
use vocabulary::{V4, V41, cases};

fn convert(request: &Value, family: Family) -> Result<Conversation, BadRequest> {
    conversation(request.as_object().unwrap(), Defaults { family, thinking: true })
}

fn render(request: &Value, family: Family) -> String {
    let conversation = convert(request, family).unwrap_or_else(|e| panic!("{e}: {request}"));
    ChatFormat::new(family, EffortProfile::Official).encode(&conversation).text()
}

/// A body with one message of the user and more fields.
fn ask(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "q"}], "thinking": {"type": "disabled"}});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[test]
fn every_golden_prompt_is_reproduced_in_text_and_tokens() {
    let cases = cases("messages/prompts.json");
    assert_eq!(cases.len(), 14, "the fixture is complete");
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let (family, tokenizer) = if case["model"] == "v4" { (Family::V4, &*V4) } else { (Family::V41, &*V41) };
        let mut format = ChatFormat::new(family, EffortProfile::Official);
        format.images = name == "messages_image/v41";
        let prompt = format.encode(&convert(&case["request"], family).unwrap());
        let mut expected = case["expected"].as_str().unwrap().to_owned();
        if name.starts_with("messages_tool_choice_any") {
            // The reference takes any as auto; here the model has to call.
            let tag = if family == Family::V4 { "tool_calls" } else { " calls" };
            expected.push_str(&format!("\n\n<｜DSML｜{tag}>\n"));
            assert_eq!(prompt.text(), expected, "{name}");
            continue;
        }
        assert_eq!(prompt.text(), expected, "{name}");
        let golden = case["token_ids"].as_array().unwrap().iter().map(|id| TokenId(id.as_u64().unwrap() as u32));
        assert_eq!(prompt.tokens(tokenizer), golden.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn bad_requests_are_refused_with_the_field_and_tolerable_ones_taken() {
    for case in cases("messages/errors.json") {
        let name = case["name"].as_str().unwrap();
        let result = convert(&case["request"], Family::V4);
        match name {
            "messages/no_messages" => assert_eq!(result.unwrap_err().param.as_deref(), Some("messages")),
            "messages/tool_use_without_result" | "messages/result_without_tool_use" => drop(result.unwrap()),
            other => panic!("{other} is new"),
        }
    }
    let block = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    for (body, param) in [
        (json!({}), "messages"),
        (json!({"messages": 7}), "messages"),
        (json!({"messages": [7]}), "messages[0]"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content"),
        (block(json!(7)), "messages[0].content[0]"),
        (block(json!({"text": "x"})), "messages[0].content[0].type"),
        (block(json!({"type": "text"})), "messages[0].content[0].text"),
        (block(json!({"type": "tool_use", "id": "a"})), "messages[0].content[0].name"),
        (block(json!({"type": "document"})), "messages[0].content[0].source"),
        (
            block(json!({"type": "tool_result", "content": [{"type": "text", "text": 1}]})),
            "messages[0].content[0].content[0].text",
        ),
        (ask(json!({"system": 7})), "system"),
        (ask(json!({"tools": [{"name": "bad name"}]})), "tools[0].name"),
        (ask(json!({"tools": [{"name": "f"}, {"name": "f"}]})), "tools"),
        (ask(json!({"tools": [{"name": "f"}], "tool_choice": {"type": "tool", "name": "g"}})), "tool_choice"),
        (ask(json!({"output_config": {"effort": "huge"}})), "output_config.effort"),
        (ask(json!({"output_config": {"format": {"type": "json_schema"}}})), "output_config.format.schema"),
        (ask(json!({"output_config": {"format": {"type": "xml"}}})), "output_config.format.type"),
        (ask(json!({"thinking": {"type": 1}})), "thinking.type"),
    ] {
        let error = convert(&body, Family::V4).expect_err(&body.to_string());
        assert_eq!(error.param.as_deref(), Some(param), "{error}");
    }
}

#[test]
fn the_choice_among_tools_is_read_in_anthropics_words() {
    let choice = |choice: Value| {
        let tools = json!([{"name": "f"}, {"type": "custom", "name": "g"}, {"type": null, "name": "h"},
            {"type": "web_search_20260101", "name": "web_search"}]);
        let conversation = convert(&ask(json!({"tools": tools, "tool_choice": choice})), Family::V4).unwrap();
        assert_eq!(conversation.tools.len(), 3);
        conversation.choice
    };
    assert_eq!(choice(json!({"type": "auto", "disable_parallel_tool_use": true})), ToolChoice::Auto);
    assert_eq!(choice(json!({"type": "any"})), ToolChoice::Required);
    assert_eq!(choice(json!({"type": "none"})), ToolChoice::None);
    assert_eq!(choice(json!({"type": "tool", "name": "g"})), ToolChoice::Named("g".to_owned()));
    assert_eq!(choice(json!({"type": "tool", "name": "web_search"})), ToolChoice::Auto, "it was left out");
    assert_eq!(choice(Value::Null), ToolChoice::Auto);
}

#[test]
fn thinking_and_effort_follow_the_one_rule() {
    let thinking = |more: Value| {
        let mut body = ask(more.clone());
        if more.get("thinking").is_none() {
            body["thinking"] = Value::Null;
        }
        convert(&body, Family::V4).unwrap().thinking
    };
    assert_eq!(thinking(json!({})), Some(Effort::High));
    assert_eq!(thinking(json!({"thinking": {"type": "adaptive", "budget_tokens": 0}})), Some(Effort::High));
    assert_eq!(thinking(json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}})), None);
    assert_eq!(thinking(json!({"output_config": {"effort": "none"}})), None);
    assert_eq!(thinking(json!({"output_config": {"effort": "max"}})), Some(Effort::Max));
    let carried = json!([{"role": "user", "content": "q"}, {"role": "system", "output_config": {"effort": "low"}}]);
    assert_eq!(thinking(json!({"output_config": {"effort": "max"}, "messages": carried})), Some(Effort::Low));
    assert_eq!(convert(&ask(json!({"messages": carried})), Family::V4).unwrap().messages.len(), 1);
}

#[test]
fn a_schema_for_the_answer_is_read_from_both_places() {
    let schema = json!({"type": "object"});
    for more in [
        json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        json!({"output_format": {"type": "json_schema", "schema": schema}}),
    ] {
        assert_eq!(convert(&ask(more), Family::V4).unwrap().format, AnswerFormat::JsonSchema(schema.clone()));
    }
}

#[test]
fn an_unfinished_turn_at_the_end_is_continued_and_an_empty_one_dropped() {
    let body = |last: Value| {
        ask(json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": last}]}))
    };
    let head = "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>";
    assert_eq!(render(&body(json!("{\"a\":")), Family::V4), format!("{head}{{\"a\":"));
    assert_eq!(render(&body(json!("")), Family::V4), head);
    assert_eq!(render(&body(json!([])), Family::V4), head);
}

#[test]
fn reasoning_that_was_not_shown_comes_back_out_of_its_signature() {
    let body = |thinking: Value| {
        let mut body = ask(json!({"tools": [{"name": "f"}], "messages": [{"role": "user", "content": "q"},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "a"}]},
            {"role": "user", "content": "r"}]}));
        body["thinking"] = json!({"type": "adaptive", "display": "omitted"});
        render(&body, Family::V4)
    };
    let shown = body(json!({"type": "thinking", "thinking": "Why", "signature": "foreign"}));
    assert!(shown.contains("<think>Why</think>a"), "{shown}");
    assert_eq!(body(json!({"type": "thinking", "thinking": "", "signature": carry("Why")})), shown);
    let lost = body(json!({"type": "thinking", "thinking": "", "signature": "foreign"}));
    assert!(lost.contains("<think></think>a"), "{lost}");
    let redacted = body(json!({"type": "redacted_thinking", "data": "x"}));
    assert!(redacted.contains("<think></think>a"), "{redacted}");
}

#[test]
fn blocks_are_kept_in_order_and_documents_say_what_they_are() {
    let content = json!([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": {}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}]},
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "Go on."}, {"type": "search_result", "title": "left out"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Plain."}}]);
    let conversation = convert(&ask(json!({"messages": [{"role": "user", "content": content}]})), Family::V4).unwrap();
    let text = |text: &str| Part::Text(text.to_owned());
    assert_eq!(
        conversation.messages,
        [
            Message::ToolResult {
                call: Some("a".to_owned()),
                parts: vec![Part::Image, text("[Unsupported document type: application/pdf]")],
            },
            Message::ToolResult { call: Some("b".to_owned()), parts: Vec::new() },
            Message::User(vec![text("Go on."), text("Plain.")]),
        ]
    );
}

#[test]
fn a_deferred_tool_is_shown_where_the_history_brings_it_in_and_only_once() {
    let found = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
        "content": [{"type": "tool_reference", "tool_name": "late"}, {"type": "tool_reference", "tool_name": "gone"}]}]});
    let added = json!({"role": "system",
        "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "late"}}]});
    let schema = "### Updated Tool Schemas\n\n{\"name\": \"late\", \"description\": \"\", \"parameters\": {}}";
    for (family, message, expected) in [
        (Family::V4, &found, format!("late\n\ngone</tool_result>\n\n<system-reminder>\n{schema}\n</system-reminder>")),
        (Family::V41, &found, format!("late\n\ngone</tool_result><｜System｜>\n\n{schema}")),
        (Family::V41, &added, format!("<｜System｜>\n\n{schema}")),
    ] {
        let messages =
            json!([{"role": "user", "content": "q"}, message, {"role": "assistant", "content": "x"}, message]);
        let tools = json!([{"name": "f"}, {"name": "late", "defer_loading": true}]);
        let text = render(&ask(json!({"messages": messages, "tools": tools})), family);
        assert!(text.contains(&expected), "{text}");
        assert_eq!(text.matches("{\"name\": \"late\"").count(), 1, "{text}");
    }
}

/// Requests of one conversation, oldest first.
const CONVERSATIONS: [&[&str]; 6] = [
    &["claude-code.tools-1", "claude-code.tools-2", "claude-code.tools-3", "claude-code.tools-4"],
    &["claude-code.toolsearch-1", "claude-code.toolsearch-2", "claude-code.toolsearch-3"],
    &["opencode.messages-tools-1", "opencode.messages-tools-2", "opencode.messages-tools-4"],
    &["pi.messages-tools-1", "pi.messages-tools-2", "pi.messages-tools-4"],
    &["mini-swe-agent.messages-1", "mini-swe-agent.messages-3"],
    &["anthropic-python.tool-runner-2", "anthropic-python.tool-runner-3"],
];

fn clients() -> std::path::PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/clients")).to_owned()
}

fn body_of(file: &str) -> Value {
    let text = std::fs::read(clients().join(format!("{file}.json"))).unwrap_or_else(|e| panic!("{file}: {e}"));
    serde_json::from_slice::<Value>(&text).unwrap()["body"].clone()
}

#[test]
fn a_clients_next_prompt_begins_with_the_one_before() {
    for files in CONVERSATIONS {
        for family in [Family::V4, Family::V41] {
            let prompts: Vec<String> = files.iter().map(|file| render(&body_of(file), family)).collect();
            for (pair, names) in prompts.windows(2).zip(files.windows(2)) {
                let same = pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
                assert_eq!(same, pair[0].len(), "{names:?}: {family:?} differs at {:?}", &pair[0][same..]);
            }
        }
    }
}

/// Every text in `value` that the model has to read, below the keys that hold such texts.
fn texts<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
    match value {
        Value::Array(list) => list.iter().for_each(|item| texts(item, out)),
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("text" | "thinking" | "content" | "system" | "tool_name", Value::String(text)) => out.push(text),
                    ("name" | "description", Value::String(text)) if map.get("defer_loading").is_none() => {
                        out.push(text);
                    }
                    ("input", Value::Object(input)) => out.extend(input.values().filter_map(Value::as_str)),
                    (_, nested) => texts(nested, out),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn no_text_tool_call_or_result_of_a_real_request_is_lost() {
    let mut seen = 0;
    let mut files: Vec<_> = std::fs::read_dir(clients()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let (body, name) = (&file["body"], path.file_name().unwrap().to_str().unwrap());
        let messages = file["path"].as_str().is_some_and(|path| path.contains("/messages")) && body.is_object();
        // `thread` stands for a history that the request does not carry; the API refuses it.
        if !messages || body.get("thread").is_some() {
            continue;
        }
        seen += 1;
        for family in [Family::V4, Family::V41] {
            let conversation = convert(body, family).unwrap_or_else(|e| panic!("{name}: {e}"));
            let blocks: Vec<&Value> = body["messages"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|message| message["content"].as_array())
                .flatten()
                .collect();
            let count = |kind: &str| blocks.iter().filter(|block| block["type"] == kind).count();
            let calls = conversation.messages.iter().map(|message| match message {
                Message::Assistant(turn) => turn.calls.len(),
                _ => 0,
            });
            assert_eq!(calls.sum::<usize>(), count("tool_use"), "{name}");
            let results = conversation.messages.iter().filter(|m| matches!(m, Message::ToolResult { .. }));
            assert_eq!(results.count(), count("tool_result"), "{name}");
            assert_eq!(conversation.tools.len(), body["tools"].as_array().map_or(0, Vec::len), "{name}");
            let prompt = ChatFormat::new(family, EffortProfile::Official).encode(&conversation).text();
            let mut wanted = Vec::new();
            // Schemas are printed in another style, so of tools only names and descriptions are looked for.
            for part in [&body["system"], &body["messages"]] {
                texts(part, &mut wanted);
            }
            if let Some(system) = body["system"].as_str() {
                wanted.push(system);
            }
            for tool in body["tools"].as_array().into_iter().flatten().filter(|t| t.get("defer_loading").is_none()) {
                wanted.extend([&tool["name"], &tool["description"]].into_iter().filter_map(Value::as_str));
            }
            for text in wanted.into_iter().filter(|text| !text.starts_with("x-anthropic-billing-header")) {
                assert!(prompt.contains(text), "{name}: {text:?} is not in the prompt");
            }
        }
    }
    assert_eq!(seen, 33, "the fixture is complete");
}
