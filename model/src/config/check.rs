//! What must hold between the values of a configuration.

use super::keys::{self, Key, Keys};
use super::{Family, ModelConfig};
use crate::ModelError;

/// Refuses combinations that no code could run; the message names the key that is most likely wrong.
pub(super) fn check(c: &ModelConfig, keys: &Keys<'_>) -> Result<(), ModelError> {
    let demand = |holds: bool, key: &Key, problem: &dyn Fn() -> String| {
        if holds { Ok(()) } else { Err(ModelError::BadKey { key: spelling(keys, key), problem: problem() }) }
    };
    let r = c.rope_dims;
    demand(r.is_multiple_of(2), &keys::ROPE_DIMS, &|| format!("is {r}; pairs need an even number"))?;
    demand(r <= c.head_dim, &keys::ROPE_DIMS, &|| format!("is {r}, more than the head width {}", c.head_dim))?;
    demand(r <= c.index.head_dim, &keys::INDEX_DIM, &|| {
        format!("is {}, less than the rotary width {r}", c.index.head_dim)
    })?;
    demand(c.heads.is_multiple_of(c.o_groups), &keys::O_GROUPS, &|| {
        format!("is {}, which does not divide the {} heads", c.o_groups, c.heads)
    })?;
    demand(c.experts_used <= c.experts, &keys::EXPERTS_USED, &|| {
        format!("is {}, but a layer has {} experts", c.experts_used, c.experts)
    })?;
    demand(c.rope.beta_fast >= c.rope.beta_slow, &keys::YARN_FAST, &|| {
        format!("is {}, less than the slow beta {}", c.rope.beta_fast, c.rope.beta_slow)
    })?;
    let freqs = [c.rope_freqs(false), c.rope_freqs(true)].concat();
    demand(freqs.iter().all(|f| f.is_finite()), &keys::YARN_FACTOR, &|| {
        "gives, with the rope bases, frequencies that are not finite".to_owned()
    })?;
    if c.family == Family::V41 {
        check_sources(c, &demand)?;
        check_candidates(c, &demand)?;
    }
    Ok(())
}

type Demand<'a> = dyn Fn(bool, &Key, &dyn Fn() -> String) -> Result<(), ModelError> + 'a;

/// Every layer with a ratio has an owner of rows and a chooser with the same ratio and rows.
fn check_sources(c: &ModelConfig, demand: &Demand<'_>) -> Result<(), ModelError> {
    for (list, key) in [(&c.kv_sources, &keys::KV_SOURCES), (&c.index_sources, &keys::INDEX_SOURCES)] {
        if let Some(&l) = list.iter().find(|&&l| c.ratio(usize::from(l)) == 0) {
            demand(false, key, &|| format!("names layer {l}, whose compress ratio is 0"))?;
        }
    }
    for l in (0..usize::from(c.layers)).filter(|&l| c.ratio(l) > 0) {
        for (source, key) in [(c.kv_source(l), &keys::KV_SOURCES), (c.index_source(l), &keys::INDEX_SOURCES)] {
            demand(source.is_some(), key, &|| {
                format!("names no layer up to {l}, whose compress ratio is {}", c.ratio(l))
            })?;
            let s = source.unwrap_or(l);
            demand(c.ratio(s) == c.ratio(l), key, &|| {
                format!("makes layer {s} (ratio {}) the source of layer {l} (ratio {})", c.ratio(s), c.ratio(l))
            })?;
        }
        let (rows, chooser) = (c.kv_source(l), c.index_source(l));
        demand(chooser.is_some_and(|s| c.kv_source(s) == rows), &keys::INDEX_SOURCES, &|| {
            format!("makes layer {chooser:?} choose for layer {l} among rows that are not those of layer {rows:?}")
        })?;
    }
    Ok(())
}

/// The candidate source scores rows of its own, and its pool can fill the choice.
fn check_candidates(c: &ModelConfig, demand: &Demand<'_>) -> Result<(), ModelError> {
    let Some(candidates) = c.candidates else { return Ok(()) };
    let source = usize::from(candidates.source);
    demand(c.has_index_keys(source), &keys::CANDIDATE_SOURCE, &|| {
        format!("is {source}, which is not both a source of rows and a source of index queries")
    })?;
    let pool = (u64::from(candidates.blocks) - 1) * u64::from(candidates.block_size) + 1;
    demand(pool >= u64::from(c.index.top), &keys::CANDIDATE_BLOCKS, &|| {
        format!(
            "is {} blocks of {} rows: they may hold only {pool} rows, fewer than the {} that the indexer chooses",
            candidates.blocks, candidates.block_size, c.index.top
        )
    })
}

/// The spelling of `key` that the file uses, else its first one.
fn spelling(keys: &Keys<'_>, key: &Key) -> String {
    let full = |name: &&str| format!("{}.{name}", keys.arch);
    let used = key.names.iter().map(full).find(|k| keys.catalog.get(k).is_some());
    used.unwrap_or_else(|| full(&key.names[0]))
}

impl ModelConfig {
    /// Whether the widths suit the reference's fake quantisation (spec/model.md 3.9), for `numerics.qat = "kv"`.
    ///
    /// # Errors
    /// [`ModelError::NoFakeQuantisation`] with the width that does not fit its blocks.
    pub fn check_fake_quantisation(&self) -> Result<(), ModelError> {
        let (width, block, what) = match self.family {
            Family::V4 => (self.head_dim - self.rope_dims, 64, "head width without its rotary part"),
            Family::V41 => (self.head_dim, 32, "head width"),
        };
        let fail = |problem| Err(ModelError::NoFakeQuantisation { problem });
        let w = self.index.head_dim;
        if !width.is_multiple_of(block) {
            return fail(format!("the {what} is {width}, no multiple of {block}"));
        }
        if !w.is_multiple_of(32) {
            return fail(format!("the index head width is {w}, no multiple of 32"));
        }
        if self.family == Family::V4 && !w.is_power_of_two() {
            return fail(format!("the index head width is {w}, no power of two, as the Hadamard transform needs"));
        }
        Ok(())
    }
}
