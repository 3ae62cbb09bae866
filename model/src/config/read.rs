//! From metadata to a [`ModelConfig`]: the values of spec/model.md 1.2 and its rules for missing ones.

use luce_core::{Catalog, MetaValue};

use super::keys::{self, Found, Key, Keys, check_layer_list};
use super::{CandidateConfig, EngramConfig, Family, IndexConfig, ModelConfig, RopeConfig};
use crate::ModelError;

/// Bounds that no DeepSeek model comes near. They keep the product of any two widths within 32 bits, so that a hostile
/// file cannot overflow a size, and a width of 0 out of every division.
mod limit {
    pub(super) const LAYERS: u32 = 1024;
    pub(super) const WIDTH: u32 = 1 << 16;
    pub(super) const EXPERT_WIDTH: u32 = 1 << 20;
    pub(super) const VOCAB: u32 = 1 << 22;
    pub(super) const CONTEXT: u32 = 1 << 30;
    pub(super) const HEADS: u32 = 1024;
    pub(super) const HEAD_DIM: u32 = 8192;
    pub(super) const EXPERTS: u32 = 1 << 14;
    /// What an exact sum of expert outputs holds without overflow.
    pub(super) const EXPERTS_USED: u32 = 512;
    pub(super) const INDEX_TOP: u32 = 1 << 20;
    pub(super) const STREAMS: u32 = 8;
    pub(super) const SINKHORN: u32 = 1000;
}

impl Family {
    /// The family of a file.
    ///
    /// # Errors
    /// [`ModelError::NoArchitecture`], [`ModelError::UnknownArchitecture`], or [`ModelError::NotAModel`] for drafters.
    pub fn of(catalog: &Catalog) -> Result<Family, ModelError> {
        let found =
            catalog.get("general.architecture").and_then(MetaValue::as_str).ok_or(ModelError::NoArchitecture)?;
        let family = match found {
            "deepseek4" => Family::V4,
            "deepseek41" => Family::V41,
            _ => {
                let found: String = found.chars().take(60).collect();
                return Err(match companion(&found) {
                    Some(what) => ModelError::NotAModel { found, what },
                    None => ModelError::UnknownArchitecture { found },
                });
            }
        };
        let has = |prefix: &str| {
            catalog.tensors.range(prefix.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(prefix))
        };
        if has("mtp.") && !has("blk.") {
            return Err(ModelError::NotAModel { found: found.to_owned(), what: MTP });
        }
        Ok(family)
    }
}

const MTP: &str = "a multi-token-prediction block (tensors mtp.*), which this engine does not run; \
                   pass the model's own file, which has blk.* tensors";

/// What a file with this architecture is, when it goes with a model.
fn companion(architecture: &str) -> Option<&'static str> {
    match architecture {
        "deepseek4-dflash-draft" => Some("a DSpark drafter for deepseek4 and goes under model.drafter, not model.path"),
        "deepseek41-dflash-draft" => {
            Some("a DSpark drafter for deepseek41 and goes under model.drafter, not model.path")
        }
        "dflash" => Some("a drafter of mx-llama.cpp, whose tensor names this engine does not know"),
        a if a.contains("mtp") => Some(MTP),
        a if a.contains("draft") => Some("a drafter, not a model"),
        _ => None,
    }
}

impl ModelConfig {
    /// Reads and checks the configuration of a V4 or V4.1 file, in any dialect.
    ///
    /// # Errors
    /// A [`ModelError`] that names the metadata key, and every spelling of a missing one.
    pub fn read(catalog: &Catalog) -> Result<ModelConfig, ModelError> {
        let family = Family::of(catalog)?;
        let keys = Keys { catalog, arch: family.architecture() };
        let (layers, ratios) = read_layers(&keys, family)?;
        let vocab = read_vocab(&keys)?;
        let (kv_sources, index_sources) = read_sources(&keys, family, &ratios)?;
        let swiglu_limits = keys.per_layer(&keys::CLAMP, ratios.len())?;
        let shared_swiglu_limits =
            keys.per_layer_opt(&keys::CLAMP_SHARED, ratios.len())?.unwrap_or_else(|| swiglu_limits.clone());
        check_constants(&keys)?;
        let config = ModelConfig {
            family,
            layers,
            hidden: keys.uint(&keys::HIDDEN, 1..=limit::WIDTH)?.value,
            context: keys.uint(&keys::CONTEXT, 1..=limit::CONTEXT)?.value,
            vocab,
            heads: keys.uint(&keys::HEADS, 1..=limit::HEADS)?.value,
            head_dim: read_head_dim(&keys)?,
            rope_dims: keys.uint(&keys::ROPE_DIMS, 2..=limit::HEAD_DIM)?.value,
            q_rank: keys.uint(&keys::Q_RANK, 1..=limit::WIDTH)?.value,
            o_rank: keys.uint(&keys::O_RANK, 1..=limit::WIDTH)?.value,
            o_groups: keys.uint(&keys::O_GROUPS, 1..=limit::HEADS)?.value,
            window: keys.uint(&keys::WINDOW, 1..=limit::WIDTH)?.value,
            rms_eps: keys.positive_f32(&keys::RMS_EPS)?,
            rope: read_rope(&keys)?,
            ratios,
            kv_sources,
            index_sources,
            index: IndexConfig {
                heads: keys.uint(&keys::INDEX_HEADS, 1..=limit::HEADS)?.value,
                head_dim: keys.uint(&keys::INDEX_DIM, 1..=limit::HEAD_DIM)?.value,
                top: keys.uint(&keys::INDEX_TOP, 1..=limit::INDEX_TOP)?.value,
            },
            candidates: match family {
                Family::V4 => None,
                Family::V41 => Some(read_candidates(&keys, layers)?),
            },
            experts: keys.uint(&keys::EXPERTS, 1..=limit::EXPERTS)?.value,
            experts_used: keys.uint(&keys::EXPERTS_USED, 1..=limit::EXPERTS_USED)?.value,
            expert_width: keys.uint(&keys::EXPERT_WIDTH, 1..=limit::EXPERT_WIDTH)?.value,
            expert_scale: keys.positive_f32(&keys::EXPERT_SCALE)?,
            expert_normalise: keys.flag(&keys::EXPERT_NORM)?,
            swiglu_limits,
            shared_swiglu_limits,
            hash_layers: read_hash_layers(&keys, family, layers)?,
            streams: keys.uint(&keys::STREAMS, 1..=limit::STREAMS)?.value,
            sinkhorn_iterations: keys.uint(&keys::SINKHORN, 1..=limit::SINKHORN)?.value,
            hyper_eps: keys.positive_f32(&keys::HYPER_EPS)?,
            engram: match family {
                Family::V4 => None,
                Family::V41 => EngramConfig::read(&keys, layers, vocab)?,
            },
        };
        super::check::check(&config, &keys)?;
        Ok(config)
    }
}

/// Values that are the same in every model of the families; a file that says otherwise is something else.
fn check_constants(keys: &Keys<'_>) -> Result<(), ModelError> {
    keys.uint(&keys::KV_HEADS, 1..=1)?;
    keys.uint(&keys::EXPERTS_SHARED, 1..=1)?;
    keys.gating()?;
    expect_text(keys, &keys::TOPK_METHOD, "noaux_tc")?;
    expect_text(keys, &keys::SCALING_TYPE, "yarn")
}

/// A text that may be missing, but is nothing else.
fn expect_text(keys: &Keys<'_>, key: &Key, expected: &str) -> Result<(), ModelError> {
    match keys.text_opt(key)? {
        Some(found) if found.value != expected => {
            let given: String = found.value.chars().take(60).collect();
            Err(found.bad(format!("is {given:?}; only {expected:?} is supported")))
        }
        _ => Ok(()),
    }
}

/// Number of backbone layers and their ratios.
///
/// Ratios may go on after the last layer, with a 0 for each draft block. A file may also count its draft blocks as
/// layers: then there is a number of draft blocks, no more ratios than layers, and the ratios of the last blocks are 0,
/// which no last layer of a backbone has.
fn read_layers(keys: &Keys<'_>, family: Family) -> Result<(u16, Vec<u32>), ModelError> {
    let counted = keys.uint(&keys::LAYERS, 1..=limit::LAYERS)?;
    let draft = keys.uint_opt(&keys::DRAFT_LAYERS, 0..=keys::MAX_DRAFT_LAYERS)?.map_or(0, |d| d.value);
    let found = keys.list(&keys::RATIOS, u64::from(u32::MAX))?;
    let mut layers = counted.value;
    check_layer_list(&found, found.value.len(), layers as usize)?;
    let zeros = found.value.iter().rev().take_while(|&&r| r == 0).count();
    let (len, draft) = (found.value.len(), draft as usize);
    if draft > 0 && len == layers as usize && zeros >= draft && zeros < len {
        layers -= draft as u32;
        tracing::info!("{}: {} counts {draft} draft blocks, which are left out", keys.arch, counted.key);
    }
    let (backbone, rest) = found.value.split_at(layers as usize);
    if rest.iter().any(|&r| r != 0) {
        return Err(found.bad(format!("goes on after the {layers} layers with other entries than 0 (draft blocks)")));
    }
    let allowed: &[u64] = match family {
        Family::V4 => &[0, 4, 128],
        Family::V41 => &[0, 1, 2],
    };
    if let Some(l) = backbone.iter().position(|r| !allowed.contains(r)) {
        return Err(found.bad(format!("is {} for layer {l}; {} has {allowed:?}", backbone[l], keys.arch)));
    }
    Ok((layers as u16, backbone.iter().map(|&r| r as u32).collect()))
}

/// The vocabulary's size, else the number of its texts; ids of the tokenizer must all have an embedding.
fn read_vocab(keys: &Keys<'_>) -> Result<u32, ModelError> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let tokens = keys.catalog.get(TOKENS).and_then(MetaValue::as_array).map(luce_core::MetaArray::len);
    match (keys.uint_opt(&keys::VOCAB, 1..=limit::VOCAB)?, tokens) {
        (Some(given), Some(tokens)) if tokens > given.value as usize => {
            Err(given.bad(format!("is {}, but {TOKENS} has {tokens} entries", given.value)))
        }
        (Some(given), _) => Ok(given.value),
        (None, Some(tokens)) if (1..=limit::VOCAB as usize).contains(&tokens) => Ok(tokens as u32),
        (None, _) => Err(keys.missing(&keys::VOCAB, &format!("; {TOKENS} does not give it either"))),
    }
}

fn read_head_dim(keys: &Keys<'_>) -> Result<u32, ModelError> {
    let key = keys.uint(&keys::HEAD_DIM, 1..=limit::HEAD_DIM)?;
    match keys.uint_opt(&keys::VALUE_DIM, 1..=limit::HEAD_DIM)? {
        Some(value) if value.value != key.value => Err(value.bad(format!(
            "is {}, but the one latent of a token is key and value, and {} is {}",
            value.value, key.key, key.value
        ))),
        _ => Ok(key.value),
    }
}

fn read_rope(keys: &Keys<'_>) -> Result<RopeConfig, ModelError> {
    let base = |key: &Key| {
        let found = keys.positive(key)?;
        if found.value <= 1.0 {
            Err(found.bad(format!("is {:e}; must be above 1", found.value)))
        } else {
            Ok(found.value)
        }
    };
    Ok(RopeConfig {
        theta: base(&keys::THETA)?,
        compressed_theta: base(&keys::COMPRESSED_THETA)?,
        factor: keys.positive(&keys::YARN_FACTOR)?.value,
        beta_fast: keys.positive(&keys::YARN_FAST)?.value,
        beta_slow: keys.positive(&keys::YARN_SLOW)?.value,
        original_context: keys.uint(&keys::YARN_ORIGINAL, 1..=limit::CONTEXT)?.value,
    })
}

/// Which layers own rows and which own index queries: listed, or, in P files, those that have the tensors for it.
fn read_sources(keys: &Keys<'_>, family: Family, ratios: &[u32]) -> Result<(Vec<u16>, Vec<u16>), ModelError> {
    let layers_where = |f: &dyn Fn(usize) -> bool| (0..ratios.len()).filter(|&l| f(l)).map(|l| l as u16).collect();
    if family == Family::V4 {
        return Ok((layers_where(&|l| ratios[l] > 0), layers_where(&|l| ratios[l] == 4)));
    }
    let listed_or = |key: &Key, leaf: &str| match keys.list_opt(key, u64::from(u16::MAX))? {
        None => Ok(layers_where(&|l| keys.catalog.tensor(&format!("blk.{l}.{leaf}")).is_some())),
        Some(found) => sorted_layers(&found, ratios.len()),
    };
    Ok((
        listed_or(&keys::KV_SOURCES, "attn_compressor_kv.weight")?,
        listed_or(&keys::INDEX_SOURCES, "indexer.attn_q_b.weight")?,
    ))
}

fn sorted_layers(found: &Found<Vec<u64>>, layers: usize) -> Result<Vec<u16>, ModelError> {
    let mut list = found.value.clone();
    list.sort_unstable();
    if list.windows(2).any(|w| w[0] == w[1]) || list.last().is_some_and(|&l| l >= layers as u64) {
        return Err(found.bad(format!("must name different layers below {layers}")));
    }
    Ok(list.into_iter().map(|l| l as u16).collect())
}

/// Candidate blocks. P files do not give them: the released model's values are then assumed for a model of its depth.
fn read_candidates(keys: &Keys<'_>, layers: u16) -> Result<CandidateConfig, ModelError> {
    const RELEASED_LAYERS: u16 = 40;
    let number = |key: &Key, range, released: u32| {
        match keys.uint_opt(key, range)? {
        Some(found) => Ok(found.value),
        None if layers == RELEASED_LAYERS => {
            tracing::warn!("{}: {} is missing; assuming {released}, the value of V4.1 Flash", keys.arch, key.what);
            Ok(released)
        }
        None => Err(keys.missing(
            key,
            &format!(
                "; the value of V4.1 Flash is assumed only for a file of {RELEASED_LAYERS} layers, and this one has {layers}: \
                 add the key to the file"
            ),
        )),
    }
    };
    Ok(CandidateConfig {
        source: number(&keys::CANDIDATE_SOURCE, 0..=u32::from(layers) - 1, 20)? as u16,
        blocks: number(&keys::CANDIDATE_BLOCKS, 1..=limit::INDEX_TOP, 2048)?,
        block_size: number(&keys::CANDIDATE_SIZE, 1..=limit::WIDTH, 8)?,
    })
}

/// Layers that route by token: V4 says how many, V4.1 has none.
fn read_hash_layers(keys: &Keys<'_>, family: Family, layers: u16) -> Result<u16, ModelError> {
    let found = match family {
        Family::V4 => keys.uint(&keys::HASH_LAYERS, 0..=u32::from(layers))?.value,
        Family::V41 => keys.uint_opt(&keys::HASH_LAYERS, 0..=0)?.map_or(0, |f| f.value),
    };
    Ok(found as u16)
}
