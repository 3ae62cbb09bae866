//! The Engram part of the configuration: geometry, hash constants and token map, given or derived (spec/model.md 1.2,
//! "Rules for missing values").

use std::sync::Arc;

use luce_core::Catalog;

use super::keys::{self, Found, Keys};
use crate::ModelError;

/// Longest n-gram that the engine hashes (released: 4). Bounds the history of a sequence.
pub const MAX_NGRAM: usize = 8;

/// Hashed n-gram tables before some layers (spec/model.md 3.8). `n` = `max_ngram`, columns = heads * (n - 1).
#[derive(Clone, PartialEq, Debug)]
pub struct EngramConfig {
    /// The layers, in the order of the constants.
    pub layers: Vec<u16>,
    /// Longest n-gram: 2 to [`MAX_NGRAM`].
    pub max_ngram: u32,
    /// Hashes of each n-gram length.
    pub heads: u32,
    /// Values of one table row (w).
    pub width: u32,
    /// Per Engram layer, `n` multipliers; a product with a compressed id fits 63 bits.
    pub multipliers: Vec<Vec<u64>>,
    /// Per Engram layer and column, the modulus: the rows of this column.
    pub primes: Vec<Vec<u32>>,
    /// Per Engram layer and column, where the rows of this column begin.
    pub offsets: Vec<Vec<u32>>,
    /// Per Engram layer, rows of the table.
    pub rows: Vec<u32>,
    /// Compressed id of every entry of the vocabulary.
    pub token_map: Arc<[u32]>,
    /// Number of compressed ids.
    pub compressed_vocab: u32,
    /// Compressed id that stands in front of a sequence.
    pub pad: u32,
}

impl EngramConfig {
    /// Table rows per token and Engram layer.
    pub fn columns(&self) -> u32 {
        self.heads * (self.max_ngram - 1)
    }

    /// Engram of the file; `None` where it lists no layers.
    pub(super) fn read(keys: &Keys<'_>, layers: u16, vocab: u32) -> Result<Option<EngramConfig>, ModelError> {
        let ids = keys.list(&keys::ENGRAM_LAYERS, u64::from(u16::MAX))?;
        if ids.value.is_empty() {
            return Ok(None);
        }
        let n = ids.value.len();
        if ids.value.iter().enumerate().any(|(i, l)| *l >= u64::from(layers) || ids.value[..i].contains(l)) {
            return Err(ids.bad(format!("must name different layers below {layers}")));
        }
        let multipliers = read_multipliers(keys, n)?;
        let max_ngram = multipliers.value[0].len() as u32;
        let (primes, heads) = read_primes(keys, n, max_ngram)?;
        let ids: Vec<u16> = ids.value.iter().map(|&l| l as u16).collect();
        let width = read_width(keys, &ids, heads * (max_ngram - 1))?;
        let offsets: Vec<Vec<u32>> = primes.iter().map(|p| running_sum(p)).collect();
        check_offsets(keys, &offsets)?;
        let rows: Vec<u32> = primes.iter().map(|p| p.iter().sum()).collect();
        check_rows(keys, &rows)?;
        let (token_map, compressed_vocab) = read_token_map(keys, vocab)?;
        let pad = read_pad(keys, &token_map)?;
        check_encoding(keys, width)?;

        let largest = multipliers.value.iter().flatten().max().copied().unwrap_or(0);
        if largest.checked_mul(u64::from(compressed_vocab)).is_none_or(|p| p > i64::MAX as u64) {
            return Err(multipliers.bad(format!("{largest} times a compressed id does not fit 63 bits")));
        }
        Ok(Some(EngramConfig {
            layers: ids,
            max_ngram,
            heads,
            width,
            multipliers: multipliers.value,
            primes,
            offsets,
            rows,
            token_map,
            compressed_vocab,
            pad,
        }))
    }
}

/// `len(multipliers) / layers` numbers per layer; that quotient is the longest n-gram.
fn read_multipliers(keys: &Keys<'_>, layers: usize) -> Result<Found<Vec<Vec<u64>>>, ModelError> {
    let found = keys.list(&keys::ENGRAM_MULTIPLIERS, u64::MAX)?;
    let given = keys.uint_opt(&keys::ENGRAM_NGRAM, 2..=MAX_NGRAM as u32)?;
    let each = found.value.len() / layers;
    if !found.value.len().is_multiple_of(layers) || !(2..=MAX_NGRAM).contains(&each) {
        return Err(found.bad(format!(
            "has {} entries for {layers} layers; expected 2 to {MAX_NGRAM} for each layer",
            found.value.len()
        )));
    }
    if let Some(given) = given.filter(|g| g.value as usize != each) {
        return Err(given.bad(format!("is {}, but there are {each} multipliers for each layer", given.value)));
    }
    let value = found.value.chunks(each).map(<[u64]>::to_vec).collect();
    Ok(Found { key: found.key, value })
}

/// One prime per column and layer, and the number of heads.
fn read_primes(keys: &Keys<'_>, layers: usize, max_ngram: u32) -> Result<(Vec<Vec<u32>>, u32), ModelError> {
    const MAX_HEADS: usize = 64;
    let found = keys.list(&keys::ENGRAM_PRIMES, u64::from(u32::MAX))?;
    let given = keys.uint_opt(&keys::ENGRAM_HEADS, 1..=MAX_HEADS as u32)?;
    let per_head = layers * (max_ngram as usize - 1);
    let heads = found.value.len() / per_head;
    if !found.value.len().is_multiple_of(per_head) || !(1..=MAX_HEADS).contains(&heads) {
        return Err(found.bad(format!(
            "has {} entries; expected 1 to {MAX_HEADS} for each of {layers} layers and {} n-gram lengths",
            found.value.len(),
            max_ngram - 1
        )));
    }
    if let Some(given) = given.filter(|g| g.value as usize != heads) {
        return Err(given.bad(format!("is {}, but there are primes for {heads} heads", given.value)));
    }
    if found.value.iter().any(|&p| p < 2) {
        return Err(found.bad("has an entry below 2"));
    }
    let columns = found.value.len() / layers;
    if found.value.chunks(columns).any(|p| p.iter().sum::<u64>() > u64::from(u32::MAX)) {
        return Err(found.bad("add up to more table rows than 32 bits can count"));
    }
    Ok((found.value.chunks(columns).map(|p| p.iter().map(|&p| p as u32).collect()).collect(), heads as u32))
}

/// Width of a row: given, or the input width of the projection over the columns.
fn read_width(keys: &Keys<'_>, layers: &[u16], columns: u32) -> Result<u32, ModelError> {
    const MAX_WIDTH: u32 = 8192;
    if let Some(given) = keys.uint_opt(&keys::ENGRAM_WIDTH, 1..=MAX_WIDTH)? {
        return Ok(given.value);
    }
    let projection = projection(keys.catalog, layers[0])
        .ok_or_else(|| keys.missing(&keys::ENGRAM_WIDTH, "; nor is there an Engram projection to derive it from"))?;
    let (input, columns) = (projection.dim(0), u64::from(columns));
    if !input.is_multiple_of(columns) || input / columns > u64::from(MAX_WIDTH) {
        return Err(keys.missing(
            &keys::ENGRAM_WIDTH,
            &format!(
                "; it cannot be derived from {}, whose {input} inputs are no whole rows of {columns} columns",
                projection.name
            ),
        ));
    }
    Ok((input / columns) as u32)
}

fn projection(catalog: &Catalog, layer: u16) -> Option<&luce_core::TensorInfo> {
    ["engram_wkv", "engram_kv"].iter().find_map(|leaf| catalog.tensor(&format!("blk.{layer}.{leaf}.weight")))
}

fn running_sum(primes: &[u32]) -> Vec<u32> {
    primes.iter().scan(0, |sum, p| Some(std::mem::replace(sum, *sum + p))).collect()
}

/// Offsets, where given, are the running sums.
fn check_offsets(keys: &Keys<'_>, expected: &[Vec<u32>]) -> Result<(), ModelError> {
    let Some(found) = keys.list_opt(&keys::ENGRAM_OFFSETS, u64::from(u32::MAX))? else { return Ok(()) };
    if !found.value.iter().copied().eq(expected.iter().flatten().map(|&o| u64::from(o))) {
        return Err(found.bad("are not the running sums of the primes of each layer"));
    }
    Ok(())
}

/// Row counts, where given, are the sums of the primes. The tables' own row counts are checked with their tensors.
fn check_rows(keys: &Keys<'_>, expected: &[u32]) -> Result<(), ModelError> {
    let Some(found) = keys.list_opt(&keys::ENGRAM_ROWS, u64::MAX)? else { return Ok(()) };
    if !found.value.iter().copied().eq(expected.iter().map(|&r| u64::from(r))) {
        return Err(found.bad(format!("is {:?}, but the primes add up to {expected:?}", preview(&found.value))));
    }
    Ok(())
}

fn preview(v: &[u64]) -> &[u64] {
    &v[..v.len().min(8)]
}

/// The map and the number of compressed ids, which is given or one more than the largest.
fn read_token_map(keys: &Keys<'_>, vocab: u32) -> Result<(Arc<[u32]>, u32), ModelError> {
    let found = keys.list(&keys::ENGRAM_TOKEN_MAP, u64::from(vocab - 1))?;
    if found.value.len() != vocab as usize {
        return Err(found.bad(format!("has {} entries, but the vocabulary {vocab}", found.value.len())));
    }
    let map: Arc<[u32]> = found.value.iter().map(|&v| v as u32).collect();
    let used = map.iter().max().map_or(1, |m| m + 1);
    let given = keys.uint_opt(&keys::ENGRAM_VOCAB, 1..=vocab)?;
    if let Some(given) = given.as_ref().filter(|g| g.value < used) {
        return Err(given.bad(format!("is {}, but {} maps a token to {}", given.value, found.key, used - 1)));
    }
    Ok((map, given.map_or(used, |g| g.value)))
}

/// The pad id. Files give it as a raw or as a compressed id; both must be the same number, because a file does not say
/// which it means.
fn read_pad(keys: &Keys<'_>, token_map: &[u32]) -> Result<u32, ModelError> {
    const DEFAULT: u32 = 2;
    let last = token_map.len() as u32 - 1;
    let found = keys
        .uint_opt(&keys::ENGRAM_PAD, 0..=last)?
        .unwrap_or_else(|| Found { key: format!("{}.{}", keys.arch, keys::ENGRAM_PAD.names[0]), value: DEFAULT });
    match token_map.get(found.value as usize) {
        Some(&mapped) if mapped == found.value => Ok(mapped),
        Some(&mapped) => Err(found.bad(format!(
            "is {}, which the token map turns into {mapped}: as a raw and as a compressed id it would mean different things",
            found.value
        ))),
        None => Err(found.bad(format!("is missing, and its default {DEFAULT} is outside the vocabulary"))),
    }
}

/// D files name the format of packed rows. Others exist and are not read.
fn check_encoding(keys: &Keys<'_>, width: u32) -> Result<(), ModelError> {
    let Some(found) = keys.text_opt(&keys::ENGRAM_ENCODING)? else { return Ok(()) };
    let expected = format!("e4m3_e8m0_32_row{}", width + width / 32);
    if found.value != expected {
        let given: String = found.value.chars().take(60).collect();
        return Err(found.bad(format!("is {given:?}; only {expected:?} and tensors of ordinary types are read")));
    }
    Ok(())
}
