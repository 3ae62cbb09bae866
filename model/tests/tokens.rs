//! The tokenizer against golden tokens of the Hugging Face library, over the published vocabulary of 129,280 entries.

#![allow(clippy::unwrap_used)]

mod vocabulary;

use std::time::Instant;

use luce_core::TokenId;
use luce_model::tokenizer::{Markers, StreamDecoder, Tokenizer, Utf8Stream};
use proptest::prelude::*;
use serde_json::Value;
use vocabulary::{V4, V41, cases, fixture, parts};

fn ids(v: &Value) -> Vec<TokenId> {
    v.as_array().unwrap().iter().map(|i| TokenId(u32::try_from(i.as_u64().unwrap()).unwrap())).collect()
}

fn texts() -> Vec<(String, Value)> {
    let all: Vec<_> = cases("tokens.json").into_iter().map(|c| (c["text"].as_str().unwrap().to_owned(), c)).collect();
    assert_eq!(all.len(), 113, "the fixture is complete");
    all
}

#[test]
fn plain_text_has_the_golden_tokens() {
    for (text, case) in texts() {
        assert_eq!(V4.encode_plain(&text), ids(&case["plain_ids"]), "{text:?}");
        assert_eq!(V41.encode_plain(&text), ids(&case["plain_ids"]), "{text:?}");
    }
}

#[test]
fn text_with_added_tokens_has_the_golden_tokens() {
    let mut differing = 0;
    for (text, case) in texts() {
        for (tokenizer, key) in [(&*V4, "ids_with_added_tokens_v4"), (&*V41, "ids_with_added_tokens_v41")] {
            // A case names the ids with added tokens only where they differ from the plain ones; V4.1's only where
            // they differ from V4's.
            let golden = case.get(key).or_else(|| case.get("ids_with_added_tokens_v4")).unwrap_or(&case["plain_ids"]);
            differing += usize::from(golden != &case["plain_ids"]);
            assert_eq!(tokenizer.encode_with_added(&text), ids(golden), "{text:?} by {key}");
        }
    }
    assert!(differing > 20, "{differing} cases with added tokens");
}

#[test]
fn special_ids_are_those_of_the_published_vocabularies() {
    let golden = fixture("tokens.json");
    for (tokenizer, key) in [(&*V4, "v4"), (&*V41, "v41")] {
        for (spelling, id) in golden["special_ids"][key].as_object().unwrap() {
            let id = id.as_u64().map(|i| TokenId(u32::try_from(i).unwrap()));
            assert_eq!(tokenizer.added_id(spelling), id, "{spelling} in {key}");
        }
    }
    assert_eq!(V4.vocabulary(), 129_280);
    assert_eq!(V4.specials().system, None);
    assert_eq!(V41.specials().system, Some(TokenId(128_799)));
    assert_eq!(V4.specials().image, Some(TokenId(129_279)), "the spelling of V4's file");
    assert_eq!(V41.specials().image, Some(TokenId(129_264)), "the spelling of V4.1's file comes first");
    assert_eq!(V4.specials().fim, Some([TokenId(128_801), TokenId(128_800), TokenId(128_802)]));
    assert_eq!(V4.specials().grounding[7], Some(TokenId(129_271)));
}

fn bytes(tokenizer: &Tokenizer, ids: &[TokenId]) -> Vec<u8> {
    ids.iter().flat_map(|&id| tokenizer.decode_bytes(id)).copied().collect()
}

#[test]
fn decoding_gives_every_text_back_byte_for_byte() {
    for (text, _) in texts() {
        for ids in [V4.encode_plain(&text), V4.encode_with_added(&text)] {
            assert_eq!(bytes(&V4, &ids), text.as_bytes(), "{text:?}");
            assert_eq!(V4.decode(&ids, Markers::Show), text, "{text:?}");
        }
    }
}

#[test]
fn decoding_token_by_token_shows_only_whole_characters() {
    for (text, _) in texts() {
        let (mut decoder, mut shown) = (StreamDecoder::new(Markers::Show), String::new());
        for &id in &V4.encode_plain(&text) {
            decoder.push(&V4, id, &mut shown);
            assert!(text.starts_with(&shown), "{shown:?} is not a beginning of {text:?}");
            assert_eq!(text.as_bytes()[..shown.len() + decoder.waiting().len()][shown.len()..], *decoder.waiting());
        }
        assert_eq!(shown, text);
    }
}

#[test]
fn decoding_does_not_depend_on_where_bytes_are_cut() {
    for (text, _) in texts() {
        for cut in 0..=text.len() {
            let (mut stream, mut shown) = (Utf8Stream::new(), String::new());
            stream.push(&text.as_bytes()[..cut], &mut shown);
            assert!(text.starts_with(&shown), "{text:?} cut at {cut} shows {shown:?}");
            stream.push(&text.as_bytes()[cut..], &mut shown);
            assert_eq!(shown, text, "cut at {cut}");
        }
    }
}

#[test]
fn control_tokens_hide_or_show_and_end_an_unfinished_character() {
    let half = V4.encode_plain("😀")[0];
    assert_ne!(V4.decode_bytes(half), "😀".as_bytes(), "the first token of the emoji is a part of it");
    let eos = V4.specials().eos;
    assert_eq!(V4.decode(&[eos, half, eos], Markers::Hide), "\u{FFFD}");
    assert_eq!(V4.decode(&[half, eos], Markers::Show), "\u{FFFD}<｜end▁of▁sentence｜>");
    assert_eq!(V4.decode(&[V4.specials().think, half], Markers::Hide), "<think>", "added tokens are text");
    assert_eq!(V4.decode_bytes(TokenId(129_280)), b"", "outside the vocabulary");
}

#[test]
fn the_whole_vocabulary_loads_in_less_than_a_second() {
    let parts = parts(&[]);
    let start = Instant::now();
    let tokenizer = Tokenizer::from_parts(parts).unwrap();
    let took = start.elapsed();
    assert_eq!(tokenizer.vocabulary(), 129_280);
    eprintln!("129,280 tokens loaded in {took:?}");
    assert!(took.as_secs_f64() < 1.0, "loading took {took:?}");
}

#[test]
fn a_long_text_is_encoded_to_its_last_byte() {
    let text: String = texts().iter().map(|(t, _)| t.as_str()).collect::<Vec<_>>().join("\n\n").repeat(400);
    let start = Instant::now();
    let ids = V4.encode_plain(&text);
    let took = start.elapsed().as_secs_f64();
    eprintln!("{} bytes, {} tokens, {:.1} MB/s", text.len(), ids.len(), text.len() as f64 / took / 1e6);
    assert_eq!(bytes(&V4, &ids), text.as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_survives_encoding(text in "\\PC{0,40}|[ \\t\\r\\n0-9a-zA-Z中あ，.!<>/｜éش😀]{0,60}") {
        prop_assert_eq!(bytes(&V4, &V4.encode_plain(&text)), text.as_bytes());
        prop_assert_eq!(bytes(&V4, &V4.encode_with_added(&text)), text.as_bytes());
    }

    #[test]
    fn any_bytes_decode_alike_however_they_are_cut(
        chunks in prop::collection::vec(
            prop::collection::vec(
                prop_oneof![any::<u8>(), Just(0xE4), Just(0xB8), Just(0xAD), Just(0xF0), Just(0x9F), Just(b'a')],
                0..6,
            ),
            0..12,
        ),
    ) {
        let whole = chunks.concat();
        let (mut once, mut at_once) = (Utf8Stream::new(), String::new());
        once.push(&whole, &mut at_once);
        let (mut many, mut cut) = (Utf8Stream::new(), String::new());
        for chunk in &chunks {
            many.push(chunk, &mut cut);
        }
        let (mut single, mut bytewise) = (Utf8Stream::new(), String::new());
        for byte in &whole {
            single.push(std::slice::from_ref(byte), &mut bytewise);
        }
        prop_assert_eq!(&cut, &at_once);
        prop_assert_eq!(&bytewise, &at_once);
        prop_assert_eq!(many.waiting(), once.waiting());
        let complete = &whole[..whole.len() - once.waiting().len()];
        prop_assert_eq!(at_once, String::from_utf8_lossy(complete));
    }
}
