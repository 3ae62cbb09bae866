//! Metadata and tensor directories that cannot be right: refused with the place, never a panic.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::OnceLock;

use luce_core::{Catalog, DType, MetaArray, MetaValue, TensorInfo};
use luce_model::{EngramHasher, EngramHistory, ModelConfig, ModelError, Role, StateShape, WeightMap};
use proptest::prelude::*;
use support::catalog;

fn set(c: &mut Catalog, key: &str, value: MetaValue) {
    let arch = c.get("general.architecture").and_then(MetaValue::as_str).unwrap().to_owned();
    c.metadata.insert(format!("{arch}.{key}"), value);
}

fn number(v: u64) -> MetaValue {
    MetaValue::Unsigned(v)
}

fn list(v: &[u64]) -> MetaValue {
    MetaValue::Array(MetaArray::Unsigned(v.to_vec()))
}

#[test]
fn values_that_no_code_could_run_are_refused_by_key() {
    let float = MetaValue::Float;
    let text = |s: &str| MetaValue::String(s.into());
    let v41: &[(&str, MetaValue)] = &[
        ("embedding_length", number(0)),
        ("embedding_length", number(1 << 40)),
        ("embedding_length", text("128")),
        ("vocab_size", number(511)), // fewer than the tokenizer's texts
        ("attention.head_count_kv", number(2)),
        ("attention.key_length", number(0)),
        ("attention.value_length", number(64)),
        ("rope.dimension_count", number(31)),
        ("rope.dimension_count", number(98)),         // more than the head width
        ("attention.indexer.key_length", number(16)), // less than the rotary width
        ("attention.output_group_count", number(3)),
        ("attention.sliding_window", number(0)),
        ("attention.layer_norm_rms_epsilon", float(0.0)),
        ("attention.layer_norm_rms_epsilon", float(1e-60)), // 0 as f32
        ("rope.freq_base", float(f64::NAN)),
        ("rope.freq_base", float(1.0)),
        ("rope.scaling.type", text("linear")),
        ("rope.scaling.yarn_beta_fast", float(0.5)),
        ("attention.compress_ratios", list(&[0, 0, 2, 2, 2, 2, 1, 1, 1, 4])),
        ("attention.compress_ratios", list(&[0, 0, 2, 2, 2, 2, 1, 1, 1])),
        ("attention.compress_ratios", list(&[0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1])),
        ("attention.compress_ratios", list(&[0; 100])),
        ("attention.kv_source_layer_ids", list(&[2, 4])), // layer 6 has another ratio than layer 4
        ("attention.kv_source_layer_ids", list(&[4, 6])), // layer 2 has no source
        ("attention.kv_source_layer_ids", list(&[1, 2, 4, 6])), // layer 1 has ratio 0
        ("attention.kv_source_layer_ids", list(&[2, 2, 4, 6])),
        ("attention.kv_source_layer_ids", list(&[2, 4, 10])),
        ("attention.index_source_layer_ids", list(&[2, 6, 8])), // layer 4 would choose among rows of layer 2
        ("attention.candidate_source_layer_id", number(8)),     // owns no rows
        ("attention.candidate_source_layer_id", number(10)),
        ("attention.candidate_topk_blocks", number(2)), // 3 rows, but the indexer chooses 4
        ("attention.candidate_block_size", number(0)),
        ("expert_used_count", number(9)),
        ("expert_shared_count", number(2)),
        ("expert_weights_norm", number(2)),
        ("expert_gating_func", number(1)),
        ("expert_gating_func", text("softmax")),
        ("topk_method", text("greedy")),
        ("swiglu_clamp_exp", MetaValue::Array(MetaArray::Float(vec![10.0; 9]))),
        ("swiglu_clamp_exp", float(-1.0)),
        ("hash_layer_count", number(3)),
        ("hyper_connection.count", number(0)),
        ("hyper_connection.sinkhorn_iterations", number(0)),
        ("engram.layer_ids", list(&[1, 1])),
        ("engram.layer_ids", list(&[1, 10])),
        ("engram.multipliers", list(&[1; 7])),
        ("engram.multipliers", list(&[u64::MAX; 8])),
        ("engram.primes", list(&[0; 12])),
        ("engram.primes", list(&[u64::from(u32::MAX); 12])),
        ("engram.offsets", list(&[0; 12])),
        ("engram.num_embeddings", list(&[1362, 1553])),
        ("engram.max_ngram_size", number(3)),
        ("engram.head_count", number(3)),
        ("engram.token_map", list(&[0; 511])),
        ("engram.compressed_vocab_size", number(299)),
        ("engram.encoding", text("q4_k_row144")),
    ];
    for (key, value) in v41 {
        let mut c = catalog("tiny-v41.gguf");
        set(&mut c, key, value.clone());
        let error = ModelConfig::read(&c).map(|_| ()).expect_err(&format!("{key} = {value:?} was accepted"));
        let named = match &error {
            ModelError::BadKey { key, .. } => key.clone(),
            ModelError::Conflict { first, second, .. } => format!("{first} {second}"),
            other => panic!("{key}: {other}"),
        };
        assert!(named.contains(key), "{key} = {value:?} blames another key: {error}");
    }
    for (key, value) in
        [("hash_layer_count", number(9)), ("attention.compress_ratios", list(&[0, 0, 4, 128, 4, 128, 4, 2]))]
    {
        let mut c = catalog("tiny-v4.gguf");
        set(&mut c, key, value);
        assert!(ModelConfig::read(&c).unwrap_err().to_string().contains(key));
    }
}

#[test]
fn a_pad_that_means_two_things_is_refused() {
    let mut c = catalog("tiny-v41.gguf");
    // Raw id 305 is compressed id 5.
    set(&mut c, "engram.pad_id", number(305));
    set(&mut c, "engram.pad_token_id", number(305));
    let error = ModelConfig::read(&c).unwrap_err().to_string();
    assert!(error.contains("engram.pad_id") && error.contains("turns into 5"), "{error}");
}

fn edit(c: &mut Catalog, name: &str, change: impl FnOnce(&mut TensorInfo)) {
    change(c.tensors.get_mut(name).unwrap());
}

#[test]
fn every_wrong_tensor_is_listed_in_one_error() {
    let mut c = catalog("tiny-v41.gguf");
    let config = ModelConfig::read(&c).unwrap();
    c.tensors.remove("blk.1.engram_wkv.weight");
    edit(&mut c, "blk.0.attn_q_a.weight", |t| t.dims = vec![64, 128]);
    edit(&mut c, "blk.0.attn_norm.weight", |t| t.dtype = DType::Q8_0);
    edit(&mut c, "blk.2.ffn_up_exps.weight", |t| t.dtype = DType::Rocmfp3Mix);
    edit(&mut c, "blk.3.attn_kv.weight", |t| t.dtype = DType::Q8K);
    edit(&mut c, "blk.4.engram_embd.weight", |t| t.dims[0] = 265);
    edit(&mut c, "blk.5.attn_q_b.weight", |t| t.dtype = DType::Q4K);
    edit(&mut c, "blk.6.attn_sinks.weight", |t| t.bytes = 31);
    let again = c.tensor("blk.2.indexer.attn_k.weight").unwrap().clone();
    c.tensors.insert(
        "blk.2.indexer_compressor_kv.weight".into(),
        TensorInfo { name: "blk.2.indexer_compressor_kv.weight".into(), ..again },
    );
    let error = WeightMap::resolve(&config, &c).unwrap_err();
    let ModelError::Tensors { count: 9, .. } = &error else { panic!("{error}") };
    let text = error.to_string();
    for part in [
        "blk.1.engram_wkv.weight or blk.1.engram_kv.weight is missing",
        "blk.0.attn_q_a.weight has dimensions [64, 128]; expected [128, 64]",
        "blk.0.attn_norm.weight has type Q8_0; expected F32, F16 or BF16",
        "blk.2.ffn_up_exps.weight has type Q3_1_ROCMFP3_MIX; its codebooks",
        "blk.3.attn_kv.weight has type Q8_K",
        "blk.4.engram_embd.weight has dimensions [265, 1552]; expected [264, 1552]",
        "blk.5.attn_q_b.weight has type Q4_K, whose blocks of 256 do not fill its rows of 64",
        "blk.6.attn_sinks.weight has 31 bytes",
        "blk.2.indexer.attn_k.weight and blk.2.indexer_compressor_kv.weight are the same weight",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    c.tensors.clear();
    let text = WeightMap::resolve(&config, &c).unwrap_err().to_string();
    let count = Role::all(&config).len();
    assert!(text.contains(&format!("{count} tensors")) && text.contains(&format!("and {} more", count - 10)), "{text}");
}

#[test]
fn left_over_tensors_are_ignored_with_a_reason_or_listed_as_unknown() {
    let mut c = catalog("tiny-v4.gguf");
    let config = ModelConfig::read(&c).unwrap();
    let proto = c.tensor("output_norm.weight").unwrap().clone();
    for name in [
        "vision.a",
        "aligner.b",
        "blk.3.exp_probs_b_vl.bias",
        "blk.0.exp_probs_b.bias",
        "mtp.0.enorm.weight",
        "blk.8.x",
        "blk.3.x",
    ] {
        c.tensors.insert(name.into(), TensorInfo { name: name.into(), ..proto.clone() });
    }
    let map = WeightMap::resolve(&config, &c).unwrap();
    assert_eq!(map.ignored().len(), 7);
    assert_eq!(map.unknown().collect::<Vec<_>>(), ["blk.3.x"]);
}

#[test]
fn small_vectors_become_f32_and_matrices_stay() {
    assert_eq!(Role::AttnNorm(3).stored_as(DType::Bf16), DType::F32);
    assert_eq!(Role::CompressorApe(3).stored_as(DType::F16), DType::F32);
    assert_eq!(Role::EngramQuery(1).stored_as(DType::F16), DType::F32);
    assert_eq!(Role::HyperAttnFn(0).stored_as(DType::F16), DType::F16);
    assert_eq!(Role::ExpertUp(0).stored_as(DType::Mxfp4), DType::Mxfp4);
    assert_eq!(Role::RouterTable(0).stored_as(DType::I32), DType::I32);
}

fn catalogs() -> &'static [Catalog] {
    static CATALOGS: OnceLock<Vec<Catalog>> = OnceLock::new();
    CATALOGS.get_or_init(|| ["tiny-v41.gguf", "tiny-v41-q.gguf", "tiny-v4.gguf"].map(catalog).to_vec())
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20u64, 0..600u64, Just(u64::from(u32::MAX)), Just(u64::MAX), Just(1 << 53), any::<u64>()]
}

fn any_value() -> impl Strategy<Value = MetaValue> {
    prop_oneof![
        4 => any_number().prop_map(MetaValue::Unsigned),
        1 => any::<i64>().prop_map(MetaValue::Signed),
        1 => any::<f64>().prop_map(MetaValue::Float),
        1 => (0.0..1000.0f64).prop_map(MetaValue::Float),
        1 => any::<bool>().prop_map(MetaValue::Bool),
        1 => ".{0,8}".prop_map(MetaValue::String),
        3 => prop::collection::vec(any_number(), 0..20).prop_map(|v| MetaValue::Array(MetaArray::Unsigned(v))),
        1 => prop::collection::vec(0..4u64, 4..14).prop_map(|v| MetaValue::Array(MetaArray::Unsigned(v))),
        1 => prop::collection::vec(any::<i64>(), 0..20).prop_map(|v| MetaValue::Array(MetaArray::Signed(v))),
        1 => prop::collection::vec(any::<f64>(), 0..20).prop_map(|v| MetaValue::Array(MetaArray::Float(v))),
        1 => prop::collection::vec(".{0,4}", 0..3).prop_map(|v| MetaValue::Array(MetaArray::String(v))),
        1 => prop::collection::vec(any::<u8>(), 0..9).prop_map(|v| MetaValue::Array(MetaArray::U8(v))),
    ]
}

/// Everything that later code asks of a configuration that was accepted.
fn use_all(config: &ModelConfig, catalog: &Catalog) {
    for l in 0..usize::from(config.layers) {
        assert_eq!(config.kv_source(l).is_some(), config.ratio(l) > 0);
        if let Some(s) = config.kv_source(l) {
            assert!(s <= l && config.ratio(s) == config.ratio(l) && config.is_kv_source(s));
        }
        if let Some(s) = config.index_source(l) {
            assert!(config.kv_source(s) == config.kv_source(l) && config.is_index_source(s));
        }
        let _ = (config.uses_candidates(l), config.hash_routed(l), config.engram_index(l));
    }
    assert_eq!(config.swiglu_limits.len(), usize::from(config.layers));
    assert_eq!(config.rope_freqs(true).len(), config.rope_dims as usize / 2);
    let window_rows = config.window_rows(u32::MAX);
    let _ = config.state_size(StateShape { slots: u32::MAX, context: u32::MAX, window_rows }).total();
    let _ = config.check_fake_quantisation();
    let _ = WeightMap::resolve(config, catalog);
    if let Some(engram) = &config.engram {
        let hasher = EngramHasher::new(engram);
        let mut rows = vec![0; 3 * hasher.columns()];
        for (layer, &limit) in engram.rows.iter().enumerate() {
            hasher.rows(layer, &EngramHistory::of(&[5]), &[0, 1, config.vocab - 1], &mut rows).unwrap();
            assert!(rows.iter().all(|&r| r < limit));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_metadata_makes_the_reader_panic(
        file in 0..3usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::weighted(0.9, any_value())), 1..4),
    ) {
        let mut c = catalogs()[file].clone();
        for (which, value) in changes {
            let keys: Vec<String> = c.metadata.keys().cloned().collect();
            let key = &keys[which.index(keys.len())];
            match value {
                Some(value) => drop(c.metadata.insert(key.clone(), value)),
                None => drop(c.metadata.remove(key)),
            }
        }
        if let Ok(config) = ModelConfig::read(&c) {
            use_all(&config, &c);
        }
    }
}
