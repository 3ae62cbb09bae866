//! Chat encoding against the golden prompts: each request through the converter and the encoder, text and tokens.

#![allow(clippy::unwrap_used)]

mod vocabulary;

use luce_core::TokenId;
use luce_model::Family;
use luce_model::chat::openai::{BadRequest, Defaults, conversation};
use luce_model::chat::{ChatFormat, Conversation, Effort, EffortProfile, Message, Opening, Prompt, Segment};
use luce_model::tokenizer::{Spelling, Tokenizer};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use vocabulary::{V4, V41, cases};

fn family(case: &Value) -> (Family, &'static Tokenizer) {
    match case["model"].as_str().unwrap() {
        "v4" => (Family::V4, &V4),
        "v41" => (Family::V41, &V41),
        other => panic!("model {other}"),
    }
}

fn format(case: &Value) -> ChatFormat {
    let profile = match case.get("effort_profile").map(|p| p.as_str().unwrap()) {
        Some("preview") => EffortProfile::Preview,
        Some("official") | None => EffortProfile::Official,
        Some(other) => panic!("effort profile {other}"),
    };
    ChatFormat::new(family(case).0, profile)
}

fn convert(request: &Value, family: Family) -> Result<Conversation, BadRequest> {
    conversation(request.as_object().unwrap(), Defaults { family, thinking: true })
}

fn chat(request: Value, family: Family) -> Prompt {
    ChatFormat::new(family, EffortProfile::Official).encode(&convert(&request, family).unwrap())
}

/// A change of settings.
type Setting = fn(&mut ChatFormat);

/// Cases whose golden prompt is the reference's and not this project's, with the setting that gives the reference's.
/// - system messages after the first turn: the reference moves them to the front, which changes the beginning of the
///   prompt; here they stay where they are, as `<system-reminder>`.
/// - pictures: a build that cannot see says so in words.
const DEVIATIONS: [(&str, Setting); 3] = [
    ("system_in_the_middle/v4/official", |f| f.hoist_system = true),
    ("system_last/v4/official", |f| f.hoist_system = true),
    ("image_part/v41", |f| f.images = true),
];

#[test]
fn every_golden_prompt_is_reproduced_in_text_and_tokens() {
    let (mut texts, mut tokens) = (0, 0);
    for case in cases("prompts.json") {
        let name = case["name"].as_str().unwrap();
        let (family, tokenizer) = family(&case);
        let mut format = format(&case);
        let conversation = convert(&case["request"], family).unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some((_, setting)) = DEVIATIONS.iter().find(|(n, _)| *n == name) {
            let own = format.encode(&conversation).text();
            assert_ne!(own, case["expected"].as_str().unwrap(), "{name} deviates no more; strike it from the list");
            setting(&mut format);
        }
        let prompt = format.encode(&conversation);
        assert_eq!(prompt.text(), case["expected"].as_str().unwrap(), "{name}");
        texts += 1;
        if let Some(golden) = case.get("token_ids").and_then(Value::as_array) {
            let golden: Vec<_> = golden.iter().map(|i| TokenId(u32::try_from(i.as_u64().unwrap()).unwrap())).collect();
            assert_eq!(prompt.tokens(tokenizer), golden, "{name}");
            assert_eq!(format.render(tokenizer, &conversation).tokens, golden, "{name}");
            tokens += 1;
        }
    }
    assert_eq!(texts, 128, "the fixture is complete");
    assert!(tokens >= 90, "{tokens} cases with tokens");
}

#[test]
fn later_system_messages_stay_in_place_in_v4() {
    let request = json!({"thinking": {"type": "disabled"}, "messages": [
        {"role": "system", "content": "One."}, {"role": "user", "content": "Q1"},
        {"role": "system", "content": "Answer in French."}]});
    assert_eq!(
        chat(request, Family::V4).text(),
        "<｜begin▁of▁sentence｜>One.<｜User｜>Q1\n\n<system-reminder>\nAnswer in French.\n</system-reminder>\
         <｜Assistant｜></think>"
    );
}

#[test]
fn pictures_become_words_where_the_model_cannot_see() {
    let request = json!({"thinking": {"type": "disabled"}, "messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]});
    assert!(convert(&request, Family::V41).unwrap().has_images());
    assert_eq!(
        chat(request, Family::V41).text(),
        "<｜begin▁of▁sentence｜><｜User｜>[Unsupported Image]<｜Assistant｜></think>"
    );
}

/// Each as the reference encoder renders it.
#[test]
fn corners_that_the_golden_prompts_leave_out_are_as_the_reference() {
    let call = |args: Value| {
        json!([{"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"id": "c0", "function": {"name": "f", "arguments": args}}]},
            {"role": "tool", "tool_call_id": "c0", "content": "r"}])
    };
    let head = "<｜begin▁of▁sentence｜><｜User｜>";
    let end = "<｜Assistant｜></think>";
    let called = |args: &str| {
        format!(
            "{head}q<｜Assistant｜></think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n{args}</｜DSML｜invoke>\n\
             </｜DSML｜tool_calls><｜end▁of▁sentence｜><｜User｜><tool_result>r</tool_result>{end}"
        )
    };
    let text = |t: &str| format!("<｜DSML｜parameter name=\"arguments\" string=\"true\">{t}</｜DSML｜parameter>\n");
    let user =
        |texts: &[&str]| Value::from(texts.iter().map(|t| json!({"role": "user", "content": t})).collect::<Vec<_>>());
    let reminders = json!([{"role": "user", "content": "q"}, {"role": "latest_reminder", "content": "A"},
        {"role": "latest_reminder", "content": "B"}]);
    let v41 = Family::V41;
    let v4 = Family::V4;
    for (family, messages, expected) in [
        (v4, call(json!("")), called(&text(""))),
        (v4, call(json!("[1]")), called(&text("[1]"))),
        (v4, call(json!("null")), called(&text("null"))),
        (v4, call(json!({})), called("")),
        (v4, call(Value::Null), called("")),
        (v4, user(&["", "b", ""]), format!("{head}b{end}")),
        (v41, user(&["", "b", ""]), format!("{head}\n\nb\n\n{end}")),
        (v4, user(&[""]), format!("{head}{end}")),
        (
            v4,
            json!([{"role": "tool", "content": "r"}, {"role": "user", "content": ""},
                {"role": "user", "content": "x"}]),
            format!("{head}<tool_result>r</tool_result>\n\nx{end}"),
        ),
        (v4, reminders.clone(), format!("{head}q<｜latest_reminder｜>A<｜latest_reminder｜>B{end}")),
        (v41, reminders, format!("{head}q<｜latest_reminder｜>A{end}")),
        (v41, json!([{"role": "system", "content": "b"}]), format!("<｜begin▁of▁sentence｜><｜System｜>b{end}")),
        (
            v4,
            json!([{"role": "system", "content": "x-anthropic-billing-header: a=b; You are X\nrest"},
                {"role": "user", "content": "q"}]),
            format!("<｜begin▁of▁sentence｜>You are X\nrest<｜User｜>q{end}"),
        ),
    ] {
        let request = json!({"messages": messages, "thinking": {"type": "disabled"}});
        assert_eq!(chat(request.clone(), family).text(), expected, "{request}");
    }
}

#[test]
fn tools_come_after_the_first_of_two_system_turns_in_v41() {
    let request = json!({"messages": [{"role": "system", "content": "One"}, {"role": "system", "content": "Two"},
        {"role": "user", "content": "q"}], "tools": [{"type": "function", "function": {"name": "f"}}]});
    let text = chat(request, Family::V41).text();
    assert!(text.contains("\n\nOne\n\n## Tools"), "{text}");
    assert!(text.ends_with("tool calls.\n<｜System｜>Two<｜User｜>q<｜Assistant｜><think>"), "{text}");
}

#[test]
fn grounding_tokens_are_tokens_in_what_the_model_said_and_text_elsewhere() {
    let request = json!({"thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": "<｜ref｜>"},
        {"role": "assistant", "content": "x<｜ref｜>y<｜/ref｜>"}, {"role": "user", "content": "z"}]});
    let prompt = chat(request, Family::V41);
    let marks = prompt.segments.iter().filter(|s| matches!(s, Segment::Special(Spelling::Grounding(_)))).count();
    assert_eq!(marks, 2);
    assert!(prompt.segments.contains(&Segment::Plain("<｜ref｜>".to_owned())), "the user's stays text");
}

#[test]
fn the_opening_says_where_the_answer_begins() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let off = json!({"type": "disabled"});
    let open = |request: Value| {
        let prompt = chat(request, Family::V4);
        (prompt.opening, prompt.must_call)
    };
    let user = json!({"role": "user", "content": "q"});
    assert_eq!(open(json!({"messages": [user]})), (Opening::Reasoning, false));
    assert_eq!(open(json!({"messages": [user], "thinking": off})), (Opening::Content, false));
    assert_eq!(
        open(json!({"messages": [user], "thinking": off, "tools": tools, "tool_choice": "required"})),
        (Opening::ToolCalls, true)
    );
    assert_eq!(
        open(json!({"messages": [user], "tools": tools, "tool_choice": "required"})),
        (Opening::Reasoning, true),
        "the model thinks first, and whoever samples forces the block"
    );
    assert_eq!(open(json!({"messages": [user], "tool_choice": "required"})), (Opening::Reasoning, false), "no tools");
    let prefix = |content: &str| json!({"role": "assistant", "content": content, "prefix": true});
    assert_eq!(open(json!({"messages": [user, prefix("A")]})), (Opening::Content, false));
    assert_eq!(open(json!({"messages": [user, prefix("")]})), (Opening::Reasoning, false));
    let format = ChatFormat::new(Family::V4, EffortProfile::Official);
    let forced =
        chat(json!({"messages": [user], "thinking": off, "tools": tools, "tool_choice": "required"}), Family::V4);
    assert!(forced.tokens(&V4).ends_with(&format.call_opening(&V4)), "the forced opening is the prompt's own");
}

#[test]
fn a_turn_stops_at_every_token_that_it_cannot_contain() {
    let ids = |family, tokenizer: &Tokenizer| {
        let mut ids = ChatFormat::new(family, EffortProfile::Official).stop_ids(tokenizer);
        ids.sort();
        ids.iter().map(|id| id.0).collect::<Vec<_>>()
    };
    assert_eq!(ids(Family::V4, &V4), [0, 1, 128_803, 128_804, 128_828]);
    assert_eq!(ids(Family::V41, &V41), [0, 1, 128_799, 128_803, 128_804, 128_828]);
    let v41 = ChatFormat::new(Family::V41, EffortProfile::Official);
    assert!(v41.check(&V41).is_ok());
    assert_eq!(
        v41.check(&V4).unwrap_err().to_string().matches("<｜System｜>").count(),
        1,
        "V4's file has no system turn"
    );
}

#[test]
fn defaults_of_sampling_follow_the_mode() {
    let top_p = |family, request: Value| {
        let conversation = convert(&request, family).unwrap();
        let defaults = ChatFormat::new(family, EffortProfile::Official).sampling_defaults(&conversation);
        assert_eq!(defaults.temperature, 1.0);
        defaults.top_p
    };
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let user = json!([{"role": "user", "content": "q"}]);
    assert_eq!(top_p(Family::V4, json!({"messages": user, "tools": tools})), 0.95);
    assert_eq!(top_p(Family::V4, json!({"messages": user})), 1.0);
    assert_eq!(top_p(Family::V4, json!({"messages": user, "tools": tools, "enable_thinking": false})), 1.0);
    assert_eq!(top_p(Family::V41, json!({"messages": user, "tools": tools})), 1.0);
}

#[test]
fn thinking_is_read_from_every_field_that_clients_use() {
    let thinking = |family, mut request: Value| {
        request["messages"] = json!([{"role": "user", "content": "q"}]);
        convert(&request, family).map(|c| c.thinking)
    };
    for (request, expected) in [
        (json!({"enable_thinking": false, "reasoning_effort": "max"}), None),
        (json!({"chat_template_kwargs": {"thinking": false}}), None),
        (json!({"chat_template_kwargs": {"enable_thinking": true, "reasoning_effort": "max"}}), Some(Effort::Max)),
        (json!({"reasoning": {"effort": "low"}}), Some(Effort::Low)),
        (json!({"reasoning": {"enabled": false}}), None),
        (json!({"thinking": {"type": "between_tools"}, "reasoning_effort": "none"}), Some(Effort::High)),
        (json!({"thinking": {"type": "news"}, "reasoning_effort": "ultra"}), Some(Effort::Max)),
        (json!({"thinking": null, "reasoning_effort": null}), Some(Effort::High)),
        (json!({"reasoning_effort": 0.3}), Some(Effort::Level(30))),
        (json!({"reasoning_effort": 7}), Some(Effort::Level(7))),
    ] {
        assert_eq!(thinking(Family::V41, request.clone()).unwrap(), expected, "{request}");
    }
    for bad in [json!(0), json!(101), json!(1.5), json!("huge"), json!([])] {
        let error = thinking(Family::V41, json!({"reasoning_effort": bad})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("reasoning_effort"), "{error}");
    }
    assert!(thinking(Family::V4, json!({"reasoning_effort": 30})).is_err(), "V4 has no scale");
}

/// Bad requests whose fault is not in the conversation: sampling, limits and stop strings, which the API checks.
const NOT_THE_CONVERSATION: [&str; 9] = [
    "chat/temperature_range",
    "chat/top_p_range",
    "chat/n_two",
    "chat/max_tokens_zero",
    "chat/top_logprobs_without_logprobs",
    "chat/top_logprobs_range",
    "chat/too_many_stops",
    "chat/empty_stop",
    "chat/stream_options_without_stream",
];

/// What the reference refuses and this project gives a meaning.
const TOLERATED: [&str; 7] = [
    "chat/tool_without_call",
    "chat/call_without_result",
    "chat/call_id_mismatch",
    "chat/duplicate_call_id",
    "chat/assistant_without_content_or_calls",
    "chat/required_choice_while_thinking",
    "chat/json_object_without_the_word",
];

#[test]
fn bad_requests_are_refused_with_the_field_and_tolerable_ones_taken() {
    let cases = cases("errors.json");
    assert_eq!(cases.len(), 24, "the fixture is complete");
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let result = convert(&case["request"], Family::V4);
        if TOLERATED.contains(&name) || NOT_THE_CONVERSATION.contains(&name) {
            assert!(result.is_ok(), "{name}: {result:?}");
        } else {
            let error = result.expect_err(name);
            assert!(error.param.is_some() && !error.code.is_empty(), "{name}: {error:?}");
            assert!(error.message.contains('`'), "{name} names no field: {error}");
        }
    }
}

#[test]
fn an_empty_last_turn_of_the_assistant_is_dropped() {
    let messages = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]);
    let prompt = chat(json!({"messages": messages, "enable_thinking": false}), Family::V4);
    assert_eq!(prompt.text(), "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>");
}

#[test]
fn results_without_their_calls_come_after_those_with_and_keep_their_order() {
    let result = |id: Value, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let messages = json!([{"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        result(json!("y"), "1"), result(Value::Null, "2"), result(json!("a"), "3")]);
    let text = chat(json!({"messages": messages, "enable_thinking": false}), Family::V4).text();
    let results = "<tool_result>3</tool_result>\n\n<tool_result>1</tool_result>\n\n<tool_result>2</tool_result>";
    assert!(text.contains(results), "{text}");
}

#[test]
fn odd_but_meaningful_bodies_are_taken() {
    let body = json!({"messages": [
        {"role": "developer", "content": ["Be ", {"type": "text", "text": "brief"}]},
        {"role": "user", "content": null},
        {"role": "assistant", "content": null, "reasoning": "R", "function_call": {"name": "f", "arguments": "{\"a\":1}"}},
        {"role": "function", "name": "f", "content": "ok"}],
        "functions": [{"name": "f", "parameters": null}], "function_call": {"name": "f"}, "tools": [], "tool_choice": null});
    let conversation = convert(&body, Family::V4).unwrap();
    assert_eq!(conversation.messages[0], Message::System("Be \n\nbrief".to_owned()));
    let text = ChatFormat::new(Family::V4, EffortProfile::Preview).encode(&conversation).text();
    assert!(text.contains("<think>R</think>"), "{text}");
    assert!(text.contains("<｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>"), "{text}");
    assert!(text.contains("\"parameters\": {}"), "{text}");
}

/// Any JSON of a few levels, with the keys and words that the converter looks for.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "system",
        "user",
        "assistant",
        "tool",
        "function",
        "text",
        "image_url",
        "file",
        "auto",
        "none",
        "required",
        "{}",
        "[1,",
        "json_schema",
        "json_object",
        "disabled",
        "max",
        "",
        "f",
        "<｜ref｜>",
        "｜DSML｜",
        "x-anthropic-billing-header",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "role",
        "content",
        "type",
        "text",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "tool_call_id",
        "prefix",
        "reasoning_content",
        "reasoning",
        "thinking",
        "effort",
        "schema",
        "json_schema",
        "parameters",
        "description",
        "function_call",
        "custom",
        "input",
        "enabled",
        "defer_loading",
    ]);
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// A message that is more often right than wrong.
fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["system", "user", "assistant", "tool", "latest_reminder", "wizard"]);
    let content = prop_oneof![4 => "\\PC{0,12}".prop_map(Value::from), 1 => anything()];
    (role, content, prop::option::weighted(0.2, anything()), prop::option::weighted(0.1, anything())).prop_map(
        |(role, content, calls, reasoning)| {
            json!({"role": role, "content": content, "tool_calls": calls, "reasoning_content": reasoning})
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_body_breaks_the_converter_or_the_encoder(
        messages in prop_oneof![4 => prop::collection::vec(message(), 0..6).prop_map(Value::from), 1 => anything()],
        others in prop::collection::vec((prop::sample::select(vec!["tools", "functions", "tool_choice", "function_call",
            "thinking", "reasoning", "reasoning_effort", "chat_template_kwargs", "enable_thinking", "response_format",
            "continue_final_message"]), anything()), 0..4),
    ) {
        let mut body = Map::new();
        body.insert("messages".to_owned(), messages);
        body.extend(others.into_iter().map(|(k, v)| (k.to_owned(), v)));
        for family in [Family::V4, Family::V41] {
            match conversation(&body, Defaults { family, thinking: true }) {
                Err(error) => prop_assert!(error.param.is_some() && !error.message.is_empty()),
                Ok(conversation) => {
                    let prompt = ChatFormat::new(family, EffortProfile::Official).encode(&conversation);
                    prop_assert_eq!(&prompt.segments[0], &Segment::Special(Spelling::Bos));
                    let texts_apart = prompt.segments.windows(2).all(|w| !matches!(w, [Segment::Plain(_), Segment::Plain(_)]));
                    prop_assert!(texts_apart, "two texts side by side would be encoded apart");
                    let tokenizer = if family == Family::V4 { &*V4 } else { &*V41 };
                    let ids = prompt.tokens(tokenizer);
                    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.decode_bytes(id)).copied().collect();
                    prop_assert_eq!(bytes, prompt.text().into_bytes());
                }
            }
        }
    }
}
