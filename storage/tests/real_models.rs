//! The bundled model opens and says what its README says; a vocabulary of real size parses fast.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use luce_core::{DType, MetaArray, MetaValue};
use luce_storage::{Gguf, GgufWriter, MemoryStore, TensorClass, summarize};

fn nano(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/luce-nano")).join(name)
}

#[test]
fn luce_nano_has_the_shape_that_its_readme_states() {
    let model = Gguf::open(nano("luce-nano.gguf")).unwrap();
    let number = |key: &str| model.catalog().get(key).unwrap().as_u64().unwrap();
    assert_eq!(model.catalog().get("general.architecture").unwrap().as_str(), Some("deepseek41"));
    assert_eq!(number("deepseek41.block_count"), 10);
    assert_eq!(number("deepseek41.embedding_length"), 256);
    assert_eq!(number("deepseek41.expert_count"), 24);
    let tokens = model.catalog().get("tokenizer.ggml.tokens").unwrap().as_array().unwrap();
    assert_eq!(tokens.len(), 4096);

    let gate = model.catalog().tensor("blk.3.ffn_gate_exps.weight").unwrap();
    assert_eq!((gate.dtype, gate.dims.as_slice()), (DType::Mxfp4, &[256, 128, 24][..]));
    assert_eq!(gate.bytes, 256 / 32 * 17 * 128 * 24);
    let table = model.catalog().tensor("blk.1.engram_embd.weight").unwrap();
    assert_eq!((table.dtype, table.dim(0)), (DType::I8, 33));
    let mut row = [0; 33];
    model.read_tensor(table, 33 * (table.dim(1) - 1), &mut row).unwrap();
    assert_ne!(row[32], 255, "the scale of the last row is no NaN");
}

#[test]
fn the_drafter_opens_and_its_own_tensors_are_told_apart() {
    let model = Gguf::open(nano("luce-nano-dspark.gguf")).unwrap();
    assert_eq!(model.catalog().get("general.architecture").unwrap().as_str(), Some("deepseek41-dflash-draft"));
    let summary = summarize(&model);
    assert!(summary.lines.iter().any(|l| l.class == TensorClass::Drafter), "{summary}");
    assert!(summary.lines.iter().all(|l| l.class != TensorClass::Other), "{summary}");
}

#[test]
fn the_summary_accounts_for_every_tensor_and_byte() {
    let model = Gguf::open(nano("luce-nano.gguf")).unwrap();
    let summary = summarize(&model);
    assert_eq!(summary.tensors as usize, model.catalog().tensors.len());
    assert_eq!(summary.bytes, model.catalog().tensors.values().map(|t| t.bytes).sum::<u64>());
    let file = &model.files()[0];
    assert!(summary.bytes <= file.bytes - file.data_start);
    let line = |class, dtype| summary.lines.iter().find(|l| l.class == class && l.dtype == dtype).unwrap();
    let experts = line(TensorClass::RoutedExperts, DType::Mxfp4);
    assert_eq!((experts.tensors, experts.values), (30, 10 * 3 * 24 * 256 * 128));
    assert_eq!(line(TensorClass::EngramTables, DType::I8).tensors, 2);
    assert!(summary.lines.iter().all(|l| l.class != TensorClass::Other), "{summary}");

    let text = summary.to_string();
    let table: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("class")).collect();
    assert_eq!(table.len(), summary.lines.len() + 2, "{text}");
    assert!(table.iter().all(|l| l.len() == table[0].len()), "columns are aligned:\n{text}");
    assert!(table.last().unwrap().starts_with("total") && text.contains("32.9"), "{text}");
}

#[test]
fn luce_nano_written_again_is_the_same_model() {
    let model = Gguf::open(nano("luce-nano.gguf")).unwrap();
    let writer = GgufWriter::from_gguf(&model).unwrap();
    let store = Arc::new(MemoryStore::new("again.gguf", writer.to_bytes().unwrap()));
    let again = Gguf::from_stores(vec![store]).unwrap();
    assert_eq!(again.catalog().metadata, model.catalog().metadata);
    assert_eq!(again.types(), model.types());
    assert_eq!(GgufWriter::from_gguf(&again).unwrap(), writer);

    let mut renamed = writer;
    renamed
        .rename_keys(|k| Some(k.replace("deepseek41.", "other.")))
        .rename_tensors(|t| (t != "output.weight").then(|| t.to_owned()));
    let store = Arc::new(MemoryStore::new("renamed.gguf", renamed.to_bytes().unwrap()));
    let other = Gguf::from_stores(vec![store]).unwrap();
    let key = "engram.multipliers";
    let multipliers = |m: &Gguf, prefix: &str| m.catalog().get(&format!("{prefix}.{key}")).unwrap().clone();
    assert_eq!(multipliers(&other, "other"), multipliers(&model, "deepseek41"));
    let largest = multipliers(&model, "deepseek41").as_array().and_then(MetaArray::to_u64s).unwrap().into_iter().max();
    assert!(largest > Some(0));
    assert_eq!(other.catalog().tensors.len() + 1, model.catalog().tensors.len());
}

#[test]
fn integers_above_2_to_the_53_survive() {
    let exact = vec![(1u64 << 53) + 1, u64::MAX, 3];
    let mut w = GgufWriter::new();
    w.set("x.a", exact.clone())
        .set("x.b", MetaValue::Array(MetaArray::Unsigned(exact.clone())))
        .set("x.c", i64::MIN + 1);
    let model = Gguf::from_stores(vec![Arc::new(MemoryStore::new("m", w.to_bytes().unwrap()))]).unwrap();
    for key in ["x.a", "x.b"] {
        assert_eq!(model.catalog().get(key).unwrap().as_array().unwrap().to_u64s().unwrap(), exact, "{key}");
    }
    assert_eq!(model.catalog().get("x.c"), Some(&MetaValue::Signed(i64::MIN + 1)));
}

#[test]
fn a_header_of_ten_megabytes_parses_in_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocabulary.gguf");
    let mut w = GgufWriter::new();
    w.set("tokenizer.ggml.tokens", (0..129_280).map(|i| format!("token number {i}")).collect::<Vec<String>>());
    w.set(
        "tokenizer.ggml.merges",
        (0..127_741).map(|i| format!("left half {i} right half {i}")).collect::<Vec<String>>(),
    );
    w.set("tokenizer.ggml.token_type", vec![1i32; 129_280]).set("engram.token_map", (0..129_280).collect::<Vec<u32>>());
    w.write(&path).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 8_000_000);
    // The best of five, so that a busy machine does not decide.
    let best = (0..5).map(|_| {
        let start = Instant::now();
        let model = Gguf::open(&path).unwrap();
        let took = start.elapsed();
        assert_eq!(model.catalog().metadata.len(), 4);
        took
    });
    let best = best.min().unwrap();
    println!("opened in {best:?}");
    assert!(best < Duration::from_millis(300), "opening took {best:?}");
}
