//! Files of every dialect give one configuration and one set of weights; a file that lacks a value is refused by name.

#![allow(clippy::unwrap_used)]

mod support;

use luce_core::{Catalog, MetaArray, MetaValue};
use luce_model::{CandidateConfig, ModelConfig, ModelError, Role, WeightMap};
use luce_storage::Gguf;
use support::dialect::{Dialect, rewrite};
use support::{catalog, open, reopen, writer};

const DIALECTS: [Dialect; 3] = [Dialect::PWithCandidates, Dialect::M, Dialect::D];

fn rewritten(name: &str, dialect: Dialect) -> Gguf {
    let mut w = writer(name);
    rewrite(&mut w, dialect);
    reopen(&w)
}

/// Type, shape and bytes of every role.
fn weights(model: &Gguf, config: &ModelConfig) -> Vec<(Role, luce_core::DType, Vec<u64>, Vec<u8>)> {
    let map = WeightMap::resolve(config, model.catalog()).unwrap();
    assert_eq!(map.unknown().count(), 0, "tensors left over: {:?}", map.unknown().collect::<Vec<_>>());
    map.iter()
        .map(|(role, t)| {
            let mut data = vec![0; t.bytes as usize];
            model.read_tensor(t, 0, &mut data).unwrap();
            (role, t.dtype, t.dims.clone(), data)
        })
        .collect()
}

#[test]
fn every_dialect_gives_the_same_configuration_and_weights() {
    for name in ["tiny-v41.gguf", "tiny-v41-q.gguf"] {
        let original = open(name);
        let config = ModelConfig::read(original.catalog()).unwrap();
        let expected = weights(&original, &config);
        for dialect in DIALECTS {
            let model = rewritten(name, dialect);
            assert_eq!(ModelConfig::read(model.catalog()).unwrap(), config, "{name} as {dialect:?}");
            assert!(weights(&model, &config) == expected, "{name} as {dialect:?} has other weights");
        }
    }
}

#[test]
fn values_of_the_fixtures_are_read_as_written() {
    let c = ModelConfig::read(&catalog("tiny-v41.gguf")).unwrap();
    assert_eq!((c.layers, c.hidden, c.vocab, c.heads, c.head_dim, c.rope_dims), (10, 128, 512, 8, 96, 32));
    assert_eq!((c.q_rank, c.o_rank, c.o_groups, c.window, c.context), (64, 32, 4, 8, 4096));
    assert_eq!((c.experts, c.experts_used, c.expert_width, c.expert_scale), (8, 3, 32, 1.5));
    assert_eq!((c.index.heads, c.index.head_dim, c.index.top), (8, 64, 4));
    assert_eq!((c.streams, c.sinkhorn_iterations, c.hyper_eps, c.rms_eps), (4, 20, 1e-6, 1e-20));
    assert_eq!(c.candidates, Some(CandidateConfig { source: 6, blocks: 3, block_size: 2 }));
    let sources: Vec<_> = (0..10).map(|l| (c.kv_source(l), c.index_source(l))).collect();
    let pair = |kv, index| (Some(kv), Some(index));
    let (first, second, third, fourth) = (pair(2, 2), pair(4, 4), pair(6, 6), pair(6, 8));
    let none = (None, None);
    assert_eq!(sources, [none, none, first, first, second, second, third, third, fourth, fourth]);
    assert_eq!((0..10).filter(|&l| c.uses_candidates(l)).collect::<Vec<_>>(), [8]);
    assert_eq!((c.engram_index(1), c.engram_index(4), c.engram_index(2)), (Some(0), Some(1), None));
    let engram = c.engram.as_ref().unwrap();
    assert_eq!((engram.heads, engram.max_ngram, engram.width, engram.columns()), (2, 4, 256, 6));
    assert_eq!((engram.pad, engram.compressed_vocab, &engram.rows[..]), (2, 300, &[1362, 1552][..]));
    c.check_fake_quantisation().unwrap();

    let c = ModelConfig::read(&catalog("tiny-v4.gguf")).unwrap();
    assert_eq!(c.ratios, [0, 0, 4, 128, 4, 128, 4, 128]);
    assert_eq!((0..8).filter(|&l| c.hash_routed(l)).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((c.kv_source(3), c.index_source(3), c.index_source(4), c.kv_source(1)), (Some(3), None, Some(4), None));
    assert!((0..8).all(|l| !c.uses_candidates(l)) && c.engram.is_none() && c.rms_eps == 1e-6);
    assert_eq!(ModelConfig::read(&catalog("tiny-v41-q.gguf")).unwrap().swiglu_limits, [0.5; 4]);
}

#[test]
fn every_fixture_resolves_without_left_over_tensors() {
    for name in ["tiny-v41", "tiny-v41-q", "tiny-v4", "tiny-v4-q", "tiny-v4-k"] {
        let catalog = catalog(&format!("{name}.gguf"));
        let config = ModelConfig::read(&catalog).unwrap();
        let map = WeightMap::resolve(&config, &catalog).unwrap();
        assert!(map.ignored().is_empty(), "{name}: {:?}", map.ignored());
        assert_eq!(map.iter().count(), catalog.tensors.len(), "{name}");
        let bytes: u64 = map.bytes_by_class().values().map(|b| b.0).sum();
        assert_eq!(bytes, catalog.tensors.values().map(|t| t.bytes).sum::<u64>(), "{name}");
    }
    // Engram rows of 32 values and 33 bytes.
    let catalog = catalog("../../../models/luce-nano/luce-nano.gguf");
    let config = ModelConfig::read(&catalog).unwrap();
    assert_eq!(WeightMap::resolve(&config, &catalog).unwrap().ignored(), []);
}

#[test]
fn a_small_p_file_without_candidate_keys_is_refused_with_the_way_out() {
    let error = ModelConfig::read(rewritten("tiny-v41.gguf", Dialect::P).catalog()).unwrap_err().to_string();
    for part in [
        "deepseek41.attention.candidate_source_layer_id",
        "deepseek41.candidate_source_layer_id",
        "40 layers",
        "has 10",
    ] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn a_p_file_of_40_layers_gets_the_released_candidates_and_its_sources_from_its_tensors() {
    let mut c = rewritten("tiny-v41.gguf", Dialect::P).catalog().clone();
    let proto = c.tensor("blk.0.attn_norm.weight").unwrap().clone();
    c.tensors.clear();
    let mut set = |key: &str, value| c.metadata.insert(format!("deepseek41.{key}"), value);
    let ratios = (0..43).map(|l| [0, 2, 1, 0][usize::from(l > 1) + usize::from(l > 19) + usize::from(l > 39)]);
    set("block_count", MetaValue::Unsigned(40));
    set("attention.compress_ratios", MetaValue::Array(MetaArray::Unsigned(ratios.collect())));
    set("swiglu_clamp_exp", MetaValue::Float(10.0));
    set("swiglu_clamp_shexp", MetaValue::Float(7.0));
    let mut add = |l: u64, leaf: &str| c.tensors.insert(format!("blk.{l}.{leaf}"), proto.clone());
    for l in [2, 8, 14, 20] {
        add(l, "attn_compressor_kv.weight");
    }
    for l in [2, 8, 14, 20, 24, 28, 32, 36] {
        add(l, "indexer.attn_q_b.weight");
    }
    let config = ModelConfig::read(&c).unwrap();
    assert_eq!(config.candidates, Some(CandidateConfig { source: 20, blocks: 2048, block_size: 8 }));
    assert_eq!(config.kv_sources, [2, 8, 14, 20]);
    assert_eq!(config.index_sources, [2, 8, 14, 20, 24, 28, 32, 36]);
    assert_eq!((0..40).filter(|&l| config.uses_candidates(l)).collect::<Vec<_>>(), [24, 28, 32, 36]);
    assert_eq!((config.swiglu_limits[39], config.shared_swiglu_limits[39]), (10.0, 7.0));
}

/// Keys without which a file still says everything; all others must be missed by name.
const OPTIONAL: &[&str] = &[
    "vocab_size", // the tokenizer has as many texts
    "attention.value_length",
    "embedding_length_out",
    "rope.scaling.type",
    "topk_method",
    "num_nextn_predict_layers",
    "swiglu_clamp_shexp",
    "attention.kv_source_layer_ids", // the tensors say it
    "attention.index_source_layer_ids",
    "kv_source_layer_ids",
    "index_source_layer_ids",
    "engram.max_ngram_size",
    "engram.head_count",
    "engram.n_heads",
    "engram.key_length",
    "engram.head_dim",
    "engram.pad_id",
    "engram.pad_token_id",
    "engram.offsets",
    "engram.rows",
    "engram.num_embeddings",
    "engram.compressed_vocab_size",
    "engram.encoding",
];

fn check_each_key(catalog: &Catalog, arch: &str) {
    let whole = ModelConfig::read(catalog).unwrap();
    let prefix = format!("{arch}.");
    let mut required = 0;
    for key in catalog.metadata.keys().filter(|k| k.starts_with(&prefix)) {
        let mut less = catalog.clone();
        less.metadata.remove(key);
        let short = &key[prefix.len()..];
        let optional = OPTIONAL.contains(&short) || (arch == "deepseek41" && short == "hash_layer_count");
        match ModelConfig::read(&less) {
            Ok(config) => {
                assert!(optional, "{key} is required, but its absence was not noticed");
                assert_eq!(config, whole, "without {key}");
            }
            Err(ModelError::MissingKey { arch: named, tried, .. }) => {
                assert!(!optional, "{key} can be derived");
                assert!(tried.contains(key) && named == arch, "{key}: {tried:?}");
                required += 1;
            }
            Err(other) => panic!("without {key}: {other}"),
        }
    }
    assert!(required >= 30, "only {required} required keys in {arch}");
}

#[test]
fn a_missing_key_is_named_with_all_its_spellings() {
    check_each_key(&catalog("tiny-v4.gguf"), "deepseek4");
    for dialect in DIALECTS {
        check_each_key(rewritten("tiny-v41.gguf", dialect).catalog(), "deepseek41");
    }
    let mut less = catalog("tiny-v41.gguf");
    less.metadata.remove("deepseek41.attention.sliding_window");
    let error = ModelConfig::read(&less).unwrap_err().to_string();
    assert!(error.contains("deepseek41.attention.sliding_window, deepseek41.sliding_window"), "{error}");
}

#[test]
fn a_missing_vocabulary_size_is_the_number_of_texts_or_an_error() {
    let mut c = catalog("tiny-v41.gguf");
    c.metadata.remove("deepseek41.vocab_size");
    assert_eq!(ModelConfig::read(&c).unwrap().vocab, 512);
    c.metadata.remove("tokenizer.ggml.tokens");
    assert!(ModelConfig::read(&c).unwrap_err().to_string().contains("deepseek41.vocab_size"));
}

#[test]
fn draft_blocks_that_a_file_counts_as_layers_are_left_out() {
    let original = catalog("tiny-v41.gguf");
    let config = ModelConfig::read(&original).unwrap();
    let mut c = original.clone();
    let mut set = |key: &str, value| c.metadata.insert(format!("deepseek41.{key}"), value);
    set("block_count", MetaValue::Unsigned(13));
    set("nextn_predict_layers", MetaValue::Unsigned(3));
    set(
        "attention.compress_ratios",
        MetaValue::Array(MetaArray::Unsigned(vec![0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0])),
    );
    for key in ["swiglu_clamp_exp", "swiglu_clamp_shexp"] {
        set(key, MetaValue::Array(MetaArray::Float(vec![10.0; 13])));
    }
    let mut draft = c.tensor("blk.0.attn_norm.weight").unwrap().clone();
    draft.name = "blk.12.attn_norm.weight".into();
    c.tensors.insert(draft.name.clone(), draft);
    assert_eq!(ModelConfig::read(&c).unwrap(), config);
    let map = WeightMap::resolve(&config, &c).unwrap();
    assert_eq!(map.ignored().len(), 1);
    assert_eq!(map.ignored()[0].reason, Some("draft block"));
}

#[test]
fn spellings_that_disagree_are_refused_and_equal_ones_are_not() {
    let mut c = catalog("tiny-v41.gguf");
    c.metadata.insert("deepseek41.hidden_size".into(), MetaValue::Signed(128));
    ModelConfig::read(&c).unwrap();
    c.metadata.insert("deepseek41.hidden_size".into(), MetaValue::Signed(256));
    let error = ModelConfig::read(&c).unwrap_err().to_string();
    assert!(error.contains("deepseek41.embedding_length") && error.contains("deepseek41.hidden_size"), "{error}");
}

#[test]
fn files_that_are_no_models_are_told_what_they_are() {
    let with_arch = |arch: &str| {
        let mut c = catalog("tiny-v41.gguf");
        c.metadata.insert("general.architecture".into(), MetaValue::String(arch.into()));
        c
    };
    let text = |c: &Catalog| ModelConfig::read(c).unwrap_err().to_string();
    let error = text(&with_arch("llama"));
    assert!(error.contains("llama") && error.contains("deepseek4 ") && error.contains("deepseek41 "), "{error}");
    for arch in ["deepseek4-dflash-draft", "deepseek41-dflash-draft"] {
        assert!(text(&with_arch(arch)).contains("DSpark drafter"), "{arch}");
    }
    assert!(text(&with_arch("deepseek4-mtp")).contains("multi-token-prediction"));
    let mut mtp = with_arch("deepseek4");
    let proto = mtp.tensor("output_norm.weight").unwrap().clone();
    mtp.tensors.clear();
    mtp.tensors.insert("mtp.0.enorm.weight".into(), proto);
    assert!(text(&mtp).contains("multi-token-prediction"));
    mtp.metadata.remove("general.architecture");
    assert_eq!(ModelConfig::read(&mtp).unwrap_err(), ModelError::NoArchitecture);
}
