//! Rewrites a V4.1 model file into the pure forms of its three dialects (spec/model.md 1.2): P (llama.cpp's pull
//! request), M (mx-llama.cpp) and D (DwarfStar's converter). The input has P's and M's keys side by side, as the
//! fixtures have; the weights stay the same bytes.

use luce_core::{DType, MetaArray, MetaValue};
use luce_storage::{GgufWriter, TypedValue};

/// A dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// No source lists, no candidate keys.
    P,
    /// As P, but with candidate keys, which no program writes: what an owner adds to make a small P file load.
    PWithCandidates,
    /// Source lists under `attention.`; tensor names of its own.
    M,
    /// Names of the Hugging Face configuration; Engram geometry is not given; tensor names of its own.
    D,
}

const ARCH: &str = "deepseek41.";

/// Turns `w` into the pure form of `dialect`.
pub(crate) fn rewrite(w: &mut GgufWriter, dialect: Dialect) {
    match dialect {
        Dialect::P => to_p(w, false),
        Dialect::PWithCandidates => to_p(w, true),
        Dialect::M => to_m(w),
        Dialect::D => to_d(w),
    }
}

fn drop_keys(w: &mut GgufWriter, keys: &[&str]) {
    for key in keys {
        assert!(w.remove(&format!("{ARCH}{key}")).is_some(), "the file has no {key}");
    }
}

fn to_p(w: &mut GgufWriter, keep_candidates: bool) {
    drop_keys(w, &["attention.kv_source_layer_ids", "attention.index_source_layer_ids"]);
    if !keep_candidates {
        let candidates = ["candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"];
        drop_keys(w, &candidates.map(|c| format!("attention.{c}")).each_ref().map(String::as_str));
    }
    let m_only = ["n_heads", "head_dim", "pad_token_id", "num_embeddings", "compressed_vocab_size"];
    drop_keys(w, &m_only.map(|k| format!("engram.{k}")).each_ref().map(String::as_str));
}

fn to_m(w: &mut GgufWriter) {
    drop_keys(w, &["engram.head_count", "engram.key_length", "engram.pad_id", "hash_layer_count"]);
    rename_tensors(w, M_TENSORS);
}

fn to_d(w: &mut GgufWriter) {
    drop_keys(
        w,
        &[
            "attention.value_length",
            "rope.scaling.type",
            "hash_layer_count",
            "expert_gating_func",
            "engram.head_count",
            "engram.n_heads",
            "engram.key_length",
            "engram.head_dim",
            "engram.max_ngram_size",
            "engram.offsets",
            "engram.pad_token_id",
            "swiglu_clamp_shexp",
        ],
    );
    w.rename_keys(|key| {
        let short = key.strip_prefix(ARCH);
        let renamed = short.and_then(|short| D_KEYS.iter().find(|(old, _)| *old == short));
        Some(renamed.map_or_else(|| key.to_owned(), |(_, new)| format!("{ARCH}{new}")))
    });
    let set = |w: &mut GgufWriter, key: &str, value: TypedValue| {
        w.set(&format!("{ARCH}{key}"), value);
    };
    set(w, "scoring_func", "sqrtsoftplus".into());
    set(w, "topk_method", "noaux_tc".into());
    set(w, "num_nextn_predict_layers", 3u32.into());
    let limit = match w.metadata.get(&format!("{ARCH}swiglu_limit")).map(|v| &v.value) {
        Some(MetaValue::Array(MetaArray::Float(v))) => v[0],
        other => panic!("the file has no list of limits but {other:?}"),
    };
    set(w, "swiglu_limit", limit.into());
    // The converter copies the list of the Hugging Face file, which goes on with one 0 per draft stage.
    match w.metadata.get_mut(&format!("{ARCH}compress_ratios")).map(|v| &mut v.value) {
        Some(MetaValue::Array(MetaArray::Signed(v))) => v.extend([0, 0, 0]),
        other => panic!("the file has no list of ratios but {other:?}"),
    }
    let packed = w.tensors.iter().find(|t| t.name.ends_with("engram_embd.weight") && t.dtype == DType::I8);
    if let Some(table) = packed {
        let encoding = format!("e4m3_e8m0_32_row{}", table.dims[0]);
        set(w, "engram.encoding", encoding.as_str().into());
    }
    rename_tensors(w, D_TENSORS);
}

fn rename_tensors(w: &mut GgufWriter, names: &[(&str, &str)]) {
    w.rename_tensors(|name| {
        let renamed = names.iter().find_map(|(old, new)| {
            let block = name.strip_suffix(old).filter(|b| b.starts_with("blk.") && b.ends_with('.'))?;
            Some(format!("{block}{new}"))
        });
        Some(renamed.unwrap_or_else(|| name.to_owned()))
    });
}

const M_TENSORS: &[(&str, &str)] = &[
    ("indexer.attn_k.weight", "indexer_compressor_kv.weight"),
    ("indexer.k_norm.weight", "indexer_compressor_norm.weight"),
    ("engram_embd.weight", "engram_embed.weight"),
];

const D_TENSORS: &[(&str, &str)] = &[
    ("engram_wkv.weight", "engram_kv.weight"),
    ("engram_q.weight", "engram_q_norm.weight"),
    ("engram_k.weight", "engram_k_norm.weight"),
];

const D_KEYS: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("context_length", "max_position_embeddings"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("rope.dimension_count", "qk_rope_head_dim"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("attention.output_lora_rank", "o_lora_rank"),
    ("attention.output_group_count", "o_groups"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("rope.freq_base", "rope_theta"),
    ("attention.compress_rope_freq_base", "compress_rope_theta"),
    ("rope.scaling.factor", "rope_scaling.factor"),
    ("rope.scaling.original_context_length", "rope_scaling.original_max_position_embeddings"),
    ("rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast"),
    ("rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow"),
    ("attention.compress_ratios", "compress_ratios"),
    ("attention.indexer.head_count", "index_n_heads"),
    ("attention.indexer.key_length", "index_head_dim"),
    ("attention.indexer.top_k", "index_topk"),
    ("attention.kv_source_layer_ids", "kv_source_layer_ids"),
    ("attention.index_source_layer_ids", "index_source_layer_ids"),
    ("attention.candidate_source_layer_id", "candidate_source_layer_id"),
    ("attention.candidate_topk_blocks", "candidate_topk_blocks"),
    ("attention.candidate_block_size", "candidate_block_size"),
    ("expert_count", "n_routed_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("expert_weights_norm", "norm_topk_prob"),
    ("swiglu_clamp_exp", "swiglu_limit"),
    ("hyper_connection.count", "hc_mult"),
    ("hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"),
    ("hyper_connection.epsilon", "hc_eps"),
    ("engram.num_embeddings", "engram.rows"),
];
