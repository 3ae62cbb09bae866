//! The tokenizer as the bundled model's file describes it, and files that describe one badly.

#![allow(clippy::unwrap_used)]

use luce_core::{Catalog, MetaArray, MetaValue, TokenId};
use luce_model::Family;
use luce_model::chat::{ChatFormat, Conversation, EffortProfile, Message, Part};
use luce_model::tokenizer::{Markers, TokenKind, Tokenizer, TokenizerError};

fn nano() -> Catalog {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/luce-nano/luce-nano.gguf");
    luce_storage::Gguf::open(path).unwrap().catalog().clone()
}

fn changed(change: impl FnOnce(&mut Catalog)) -> Result<Tokenizer, TokenizerError> {
    let mut catalog = nano();
    change(&mut catalog);
    Tokenizer::from_catalog(&catalog)
}

fn tokens(catalog: &mut Catalog) -> &mut Vec<String> {
    match catalog.metadata.get_mut("tokenizer.ggml.tokens") {
        Some(MetaValue::Array(MetaArray::String(tokens))) => tokens,
        other => panic!("tokens are {other:?}"),
    }
}

#[test]
fn the_bundled_model_speaks_the_chat_format_of_its_family() {
    let tokenizer = Tokenizer::from_catalog(&nano()).unwrap();
    let ids = tokenizer.specials();
    assert_eq!((tokenizer.vocabulary(), ids.bos, ids.eos, ids.dsml), (4096, TokenId(0), TokenId(1), TokenId(8)));
    assert_eq!(
        (tokenizer.kind(ids.bos), tokenizer.kind(ids.think)),
        (Some(TokenKind::Control), Some(TokenKind::Added))
    );
    for text in ["Hello, world!\n  x = 12345", "naïve 中文😀\r\n\t", "<think>"] {
        let plain = tokenizer.encode_plain(text);
        assert_eq!(tokenizer.decode(&plain, Markers::Show), text);
    }
    assert!(tokenizer.encode_plain("the").len() == 1, "merges are in use");
    let format = ChatFormat::new(Family::V41, EffortProfile::guess(&nano()));
    format.check(&tokenizer).unwrap();
    let conversation =
        Conversation { messages: vec![Message::User(vec![Part::Text("Hi".to_owned())])], ..Conversation::default() };
    let prompt = format.render(&tokenizer, &conversation).tokens;
    assert_eq!(tokenizer.decode(&prompt, Markers::Show), "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>");
    assert_eq!(prompt.first(), Some(&ids.bos));
    assert_eq!(prompt.last(), Some(&ids.end_think));
    assert_eq!(format.stop_ids(&tokenizer).len(), 6, "the stated end of sequence is the one that is spelled so");
}

#[test]
fn the_three_names_of_the_same_split_are_known_and_others_refused() {
    let with = |name: &str| {
        changed(|c| {
            c.metadata.insert("tokenizer.ggml.pre".to_owned(), MetaValue::String(name.to_owned()));
        })
    };
    for name in ["joyai-llm", "deepseek-v3", "hunyuan-dense"] {
        assert!(with(name).is_ok(), "{name}");
    }
    let error = with("llama-bpe").unwrap_err();
    assert!(error.to_string().contains("llama-bpe") && error.to_string().contains("joyai-llm"), "{error}");
}

#[test]
fn a_file_without_a_token_that_prompts_need_is_refused_by_name() {
    for spelling in ["<｜User｜>", "<think>", "｜DSML｜", "<｜latest_reminder｜>", "<｜System｜>"] {
        let error = changed(|c| {
            let token = tokens(c).iter_mut().find(|t| *t == spelling).unwrap();
            *token = "<｜gone｜>".to_owned();
        })
        .unwrap_err();
        assert!(matches!(error, TokenizerError::MissingSpecial { spelling: s } if s == spelling), "{error}");
    }
}

#[test]
fn a_v4_file_needs_no_system_token() {
    let loaded = changed(|c| {
        c.metadata.insert("general.architecture".to_owned(), MetaValue::String("deepseek4".to_owned()));
        let token = tokens(c).iter_mut().find(|t| *t == "<｜System｜>").unwrap();
        *token = "<｜gone｜>".to_owned();
    });
    assert_eq!(loaded.unwrap().specials().system, None);
}

#[test]
fn damaged_vocabularies_are_refused_with_the_reason() {
    let error = |change: fn(&mut Catalog)| changed(change).unwrap_err().to_string();
    assert!(error(|c| drop(c.metadata.remove("tokenizer.ggml.merges"))).contains("`tokenizer.ggml.merges`"));
    assert!(error(|c| drop(tokens(c).pop())).contains("4095 tokens but 4096 token types"));
    let without_z = error(|c| tokens(c).iter_mut().filter(|t| *t == "z").for_each(|t| *t = "zzzzzzzzzz".to_owned()));
    assert!(without_z.contains("0x7a") || without_z.contains("merge rules"), "{without_z}");
    assert!(
        error(|c| drop(c.metadata.insert("tokenizer.ggml.eos_token_id".to_owned(), MetaValue::Unsigned(4096))))
            .contains("outside the vocabulary of 4096")
    );
    for (rule, expected) in [("ab", "not two parts"), ("q qqqqq", "do not fit")] {
        let text = changed(|c| match c.metadata.get_mut("tokenizer.ggml.merges") {
            Some(MetaValue::Array(MetaArray::String(merges))) => merges[0] = rule.to_owned(),
            other => panic!("merges are {other:?}"),
        })
        .unwrap_err()
        .to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_effort_profile_is_guessed_from_the_name() {
    let guess = |name: &str| {
        let mut catalog = Catalog::default();
        catalog.metadata.insert("general.name".to_owned(), MetaValue::String(name.to_owned()));
        EffortProfile::guess(&catalog)
    };
    assert_eq!(guess("DeepSeek-V4-Flash"), EffortProfile::Preview);
    assert_eq!(guess("DeepSeek-V4-Flash-0731"), EffortProfile::Official);
    assert_eq!(guess("DeepSeek V4 Flash dSpark"), EffortProfile::Official);
}
