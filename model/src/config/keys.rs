//! Metadata keys: every spelling of every value (spec/model.md 1.2), and reading a value under whichever of them a file
//! uses. P, M and D stand for the three vocabularies of V4.1 files; V4 files use the first spelling.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use luce_core::{Catalog, MetaValue};

use crate::ModelError;

/// A value and its spellings, without the `<arch>.` in front.
pub(crate) struct Key {
    /// Meaning, as the messages name it.
    pub(crate) what: &'static str,
    /// Spellings.
    pub(crate) names: &'static [&'static str],
}

macro_rules! keys {
    ($($name:ident $what:literal: $($spelling:literal),+;)*) => {
        $(pub(crate) const $name: Key = Key { what: $what, names: &[$($spelling),+] };)*

        /// Every key, for tests that go through all of them.
        #[cfg(test)]
        pub(crate) const ALL: &[Key] = &[$($name),*];
    };
}

keys! {
    LAYERS "number of layers": "block_count", "num_hidden_layers";
    DRAFT_LAYERS "number of draft blocks": "nextn_predict_layers", "num_nextn_predict_layers";
    HIDDEN "hidden width": "embedding_length", "hidden_size";
    CONTEXT "longest context": "context_length", "max_position_embeddings";
    VOCAB "size of the vocabulary": "vocab_size";
    HEADS "number of query heads": "attention.head_count", "num_attention_heads";
    KV_HEADS "number of key heads": "attention.head_count_kv", "num_key_value_heads";
    HEAD_DIM "head width": "attention.key_length", "head_dim";
    VALUE_DIM "value width": "attention.value_length";
    ROPE_DIMS "rotary width": "rope.dimension_count", "qk_rope_head_dim";
    Q_RANK "rank of the query projection": "attention.q_lora_rank", "q_lora_rank";
    O_RANK "rank of the output projection": "attention.output_lora_rank", "o_lora_rank";
    O_GROUPS "number of output groups": "attention.output_group_count", "o_groups";
    WINDOW "sliding window": "attention.sliding_window", "sliding_window";
    RMS_EPS "epsilon of the norms": "attention.layer_norm_rms_epsilon", "rms_norm_eps";
    THETA "rope base": "rope.freq_base", "rope_theta";
    COMPRESSED_THETA "rope base of compressed layers": "attention.compress_rope_freq_base", "compress_rope_theta";
    SCALING_TYPE "kind of rope scaling": "rope.scaling.type", "rope_scaling.type", "rope_scaling.rope_type";
    YARN_FACTOR "YaRN factor": "rope.scaling.factor", "rope_scaling.factor";
    YARN_ORIGINAL "YaRN original context": "rope.scaling.original_context_length", "rope_scaling.original_max_position_embeddings";
    YARN_FAST "YaRN fast beta": "rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast";
    YARN_SLOW "YaRN slow beta": "rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow";
    RATIOS "compress ratios": "attention.compress_ratios", "compress_ratios";
    INDEX_HEADS "number of index heads": "attention.indexer.head_count", "index_n_heads";
    INDEX_DIM "index head width": "attention.indexer.key_length", "index_head_dim";
    INDEX_TOP "number of rows that the indexer chooses": "attention.indexer.top_k", "index_topk";
    KV_SOURCES "layers that own compressed rows": "attention.kv_source_layer_ids", "attention.kv_source_layers", "kv_source_layer_ids";
    INDEX_SOURCES "layers that own an index query": "attention.index_source_layer_ids", "attention.index_source_layers", "index_source_layer_ids";
    CANDIDATE_SOURCE "candidate source layer": "attention.candidate_source_layer_id", "candidate_source_layer_id";
    CANDIDATE_BLOCKS "number of candidate blocks": "attention.candidate_topk_blocks", "candidate_topk_blocks";
    CANDIDATE_SIZE "rows of a candidate block": "attention.candidate_block_size", "candidate_block_size";
    EXPERTS "number of routed experts": "expert_count", "n_routed_experts";
    EXPERTS_USED "number of experts of a token": "expert_used_count", "num_experts_per_tok";
    EXPERTS_SHARED "number of shared experts": "expert_shared_count", "n_shared_experts";
    EXPERT_WIDTH "expert width": "expert_feed_forward_length", "moe_intermediate_size";
    EXPERT_SCALE "factor of the expert weights": "expert_weights_scale", "routed_scaling_factor";
    EXPERT_NORM "normalisation of the expert weights": "expert_weights_norm", "norm_topk_prob";
    GATING "scoring function of the router": "expert_gating_func", "scoring_func";
    TOPK_METHOD "method of choosing experts": "topk_method";
    CLAMP "SwiGLU limit": "swiglu_clamp_exp", "swiglu_limit";
    CLAMP_SHARED "SwiGLU limit of the shared expert": "swiglu_clamp_shexp";
    HASH_LAYERS "number of hash-routed layers": "hash_layer_count", "num_hash_layers";
    STREAMS "number of streams": "hyper_connection.count", "hc_mult";
    SINKHORN "number of Sinkhorn iterations": "hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters";
    HYPER_EPS "epsilon of the hyper-connections": "hyper_connection.epsilon", "hc_eps";
    ENGRAM_LAYERS "Engram layers": "engram.layer_ids";
    ENGRAM_NGRAM "longest Engram n-gram": "engram.max_ngram_size";
    ENGRAM_HEADS "number of Engram heads": "engram.head_count", "engram.n_heads";
    ENGRAM_WIDTH "width of an Engram row": "engram.key_length", "engram.head_dim";
    ENGRAM_ROWS "number of Engram rows": "engram.num_embeddings", "engram.rows";
    ENGRAM_MULTIPLIERS "Engram multipliers": "engram.multipliers";
    ENGRAM_PRIMES "Engram primes": "engram.primes";
    ENGRAM_OFFSETS "Engram offsets": "engram.offsets";
    ENGRAM_TOKEN_MAP "Engram token map": "engram.token_map";
    ENGRAM_PAD "Engram pad id": "engram.pad_id", "engram.pad_token_id";
    ENGRAM_VOCAB "size of the compressed vocabulary": "engram.compressed_vocab_size";
    ENGRAM_ENCODING "encoding of the Engram rows": "engram.encoding";
}

/// A value and the full key that gave it.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    pub(crate) key: String,
    pub(crate) value: T,
}

impl<T> Found<T> {
    /// The error that this key's value cannot be right.
    pub(crate) fn bad(&self, problem: impl Into<String>) -> ModelError {
        ModelError::BadKey { key: self.key.clone(), problem: problem.into() }
    }
}

/// Metadata of one file under its architecture's prefix.
pub(crate) struct Keys<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) arch: &'a str,
}

impl Keys<'_> {
    /// The error that `key` is missing under every spelling.
    pub(crate) fn missing(&self, key: &Key, hint: &str) -> ModelError {
        ModelError::MissingKey {
            arch: self.arch.to_owned(),
            what: key.what,
            tried: key.names.iter().map(|n| format!("{}.{n}", self.arch)).collect(),
            hint: hint.to_owned(),
        }
    }

    fn require<T>(&self, key: &Key, found: Option<Found<T>>) -> Result<Found<T>, ModelError> {
        found.ok_or_else(|| self.missing(key, ""))
    }

    /// The value under any spelling, read by `convert`; spellings that disagree are an error.
    fn find<T: PartialEq + Debug>(
        &self,
        key: &Key,
        expected: &str,
        convert: impl Fn(&MetaValue) -> Option<T>,
    ) -> Result<Option<Found<T>>, ModelError> {
        let mut first: Option<Found<T>> = None;
        for name in key.names {
            let full = format!("{}.{name}", self.arch);
            let Some(raw) = self.catalog.get(&full) else { continue };
            let Some(value) = convert(raw) else {
                return Err(ModelError::BadKey {
                    problem: format!("is {}, but the {} must be {expected}", describe(raw), key.what),
                    key: full,
                });
            };
            match &first {
                None => first = Some(Found { key: full, value }),
                Some(f) if f.value == value => {}
                Some(f) => {
                    return Err(ModelError::Conflict { what: key.what, first: f.key.clone(), second: full });
                }
            }
        }
        Ok(first)
    }

    /// A whole number within `range`, if the file gives one.
    pub(crate) fn uint_opt(&self, key: &Key, range: RangeInclusive<u32>) -> Result<Option<Found<u32>>, ModelError> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.find(key, &expected, |v| v.as_u64().and_then(|v| u32::try_from(v).ok()).filter(|v| range.contains(v)))
    }

    /// A whole number within `range`.
    pub(crate) fn uint(&self, key: &Key, range: RangeInclusive<u32>) -> Result<Found<u32>, ModelError> {
        self.require(key, self.uint_opt(key, range)?)
    }

    /// A finite number above 0.
    pub(crate) fn positive(&self, key: &Key) -> Result<Found<f64>, ModelError> {
        let found = self.find(key, "a finite number above 0", |v| v.as_f64().filter(|v| v.is_finite() && *v > 0.0))?;
        self.require(key, found)
    }

    /// A finite number above 0 that is also one as f32.
    pub(crate) fn positive_f32(&self, key: &Key) -> Result<f32, ModelError> {
        let found = self.find(key, "a finite 32-bit number above 0", |v| {
            v.as_f64().map(|v| v as f32).filter(|v| v.is_finite() && *v >= f32::MIN_POSITIVE)
        })?;
        Ok(self.require(key, found)?.value)
    }

    /// A truth value.
    pub(crate) fn flag(&self, key: &Key) -> Result<bool, ModelError> {
        let found =
            self.find(key, "true or false", |v| v.as_bool().or_else(|| v.as_u64().filter(|v| *v < 2).map(|v| v == 1)))?;
        Ok(self.require(key, found)?.value)
    }

    /// A text, if the file gives one.
    pub(crate) fn text_opt(&self, key: &Key) -> Result<Option<Found<String>>, ModelError> {
        self.find(key, "a text", |v| v.as_str().map(str::to_owned))
    }

    /// A list of whole numbers of at most `max`, if the file gives one; one bare number counts as a list of one.
    pub(crate) fn list_opt(&self, key: &Key, max: u64) -> Result<Option<Found<Vec<u64>>>, ModelError> {
        self.find(key, &format!("a list of whole numbers from 0 to {max}"), |v| {
            let list = match v.as_array() {
                // An empty array has no elements of the wrong type.
                Some(a) if a.is_empty() => Vec::new(),
                Some(a) => a.to_u64s()?,
                None => vec![v.as_u64()?],
            };
            list.iter().all(|&x| x <= max).then_some(list)
        })
    }

    /// A list of whole numbers of at most `max`.
    pub(crate) fn list(&self, key: &Key, max: u64) -> Result<Found<Vec<u64>>, ModelError> {
        self.require(key, self.list_opt(key, max)?)
    }

    /// Positive finite numbers, one for all layers or one per layer; `layers` of them come back.
    pub(crate) fn per_layer_opt(&self, key: &Key, layers: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let found = self.find(key, "finite numbers above 0, one in all or one per layer", |v| {
            let list: Vec<f64> = match v {
                MetaValue::Array(luce_core::MetaArray::Float(v)) => v.clone(),
                MetaValue::Array(v) => v.to_u64s()?.into_iter().map(|v| v as f64).collect(),
                v => vec![v.as_f64()?; layers],
            };
            let list: Vec<f32> = list.into_iter().map(|v| v as f32).collect();
            list.iter().all(|v| v.is_finite() && *v > 0.0).then_some(list)
        })?;
        let Some(mut found) = found else { return Ok(None) };
        check_layer_list(&found, found.value.len(), layers)?;
        found.value.truncate(layers);
        Ok(Some(found.value))
    }

    /// As [`Keys::per_layer_opt`], required.
    pub(crate) fn per_layer(&self, key: &Key, layers: usize) -> Result<Vec<f32>, ModelError> {
        self.per_layer_opt(key, layers)?.ok_or_else(|| self.missing(key, ""))
    }

    /// The scoring function of the router as a text: ggml's number 4 and its names are one.
    pub(crate) fn gating(&self) -> Result<Found<String>, ModelError> {
        let found = self.find(&GATING, "4 or \"sqrtsoftplus\"", |v| match (v.as_str(), v.as_u64()) {
            (Some("sqrtsoftplus" | "sqrt_softplus" | "sqrt-softplus"), _) | (_, Some(4)) => Some("sqrtsoftplus".into()),
            _ => None,
        })?;
        self.require(&GATING, found)
    }
}

/// A per-layer list has one entry per layer, and may have a few more for draft blocks.
pub(crate) fn check_layer_list<T>(found: &Found<T>, len: usize, layers: usize) -> Result<(), ModelError> {
    if len < layers || len > layers + MAX_DRAFT_LAYERS as usize {
        return Err(found.bad(format!(
            "has {len} entries; expected one for each of the {layers} layers, and at most {MAX_DRAFT_LAYERS} more for draft blocks"
        )));
    }
    Ok(())
}

/// Draft blocks that a file may count beside its layers (released: 1 and 3).
pub(crate) const MAX_DRAFT_LAYERS: u32 = 8;

/// A value in a few words, safe to print whatever the file says.
fn describe(value: &MetaValue) -> String {
    match value {
        MetaValue::String(s) => format!("the text {:?}", s.chars().take(40).collect::<String>()),
        MetaValue::Array(a) if a.len() <= 8 && !matches!(a, luce_core::MetaArray::String(_)) => format!("{a:?}"),
        MetaValue::Array(a) => format!("a list of {} entries", a.len()),
        MetaValue::Unsigned(v) => v.to_string(),
        MetaValue::Signed(v) => v.to_string(),
        MetaValue::Float(v) => format!("{v:e}"),
        MetaValue::Bool(v) => v.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn no_spelling_stands_for_two_values() {
        let mut names: Vec<_> = ALL.iter().flat_map(|k| k.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
