//! IndexSelect and Attention: cut by row, and inside a row by heads or by pieces of the pool where a band has few rows.

use std::ops::Range;

use luce_core::Op;

use super::{Context, Need, Work, area};
use crate::memory::Tensor;
use crate::ops::attention::{Compressed, Keys, attend};
use crate::ops::history::History;
use crate::ops::select::{Query, Visible, choose, index_select, score};

/// Heads of an item of Attention: they share the keys in the first-level cache.
const HEADS: usize = 8;
/// Rows of the pool in an item that scores for one query.
const PIECE: usize = 1024;

/// The plane of a slot.
fn plane(state: &Tensor, slot: u32) -> &[f32] {
    state.read(slot as usize * state.rows, state.rows)
}

/// The most rows that a query chooses from.
fn pool_max(keys: &Tensor, within: Option<&Tensor>, block: u32) -> usize {
    within.map_or(keys.rows, |w| keys.rows.min((w.width - 1) * block as usize))
}

pub(super) fn scratch(op: &Op<Tensor>, threads: usize) -> Need {
    match op {
        Op::IndexSelect { keys, within, block, .. } => {
            let pool = pool_max(keys, within.as_ref(), *block);
            let blocks = keys.rows.div_ceil((*block).max(1) as usize);
            Need { shared: area(threads * pool * 4), worker: area((2 * pool + 2 * blocks) * 4) }
        }
        Op::Attention { compressed, selected, heads, window, .. } => {
            let rows = compressed.as_ref().map_or(0, |c| c.rows);
            let rows = selected.as_ref().map_or(rows, |s| rows.min(s.width - 1));
            let keys = *window as usize + rows;
            Need { shared: 0, worker: area(HEADS.min(*heads as usize) * keys * 4) }
        }
        _ => Need::default(),
    }
}

/// True when a band has so few rows that the pool of each is cut into pieces.
fn splits(c: &Context<'_>) -> bool {
    c.threads > 1 && c.rows() < c.threads
}

pub(super) fn work(op: &Op<Tensor>, phase: usize, c: &Context<'_>) -> Option<Work> {
    match op {
        Op::IndexSelect { queries, keys, within, block, ratio, .. } => {
            let longest = c.facts().iter().map(|f| (f.position as usize + 1) / *ratio as usize).max().unwrap_or(0);
            let pool = longest.min(pool_max(keys, within.as_ref(), *block));
            let one = pool * (queries.width + 8);
            match (splits(c), phase) {
                (false, 0) => Some(Work::new(c.rows(), one)),
                (true, 0) => {
                    let pieces = pool.div_ceil(PIECE);
                    Some(Work { items: c.rows() * pieces, units: c.rows() * one })
                }
                (true, 1) => Some(Work::new(c.rows(), pool * 8)),
                _ => None,
            }
        }
        Op::Attention { fresh, compressed, selected, heads, window, ratio, .. } if phase == 0 => {
            let longest = c.facts().iter().map(|f| f.position as usize + 1).max().unwrap_or(0);
            let mut keys = longest.min(*window as usize);
            if compressed.is_some() {
                let visible = longest / *ratio as usize;
                keys += selected.as_ref().map_or(visible, |s| visible.min(s.width - 1));
            }
            let heads = *heads as usize;
            let items = c.rows() * heads.div_ceil(HEADS);
            Some(Work { items, units: c.rows() * heads * keys * (2 * fresh.width + 8) })
        }
        _ => None,
    }
}

pub(super) fn compute(op: &Op<Tensor>, phase: usize, items: Range<usize>, c: &Context<'_>) -> Result<(), String> {
    match op {
        Op::IndexSelect { queries, weights, keys, within, selected, keep, ratio, scale, block, .. } => {
            let limit = pool_max(keys, within.as_ref(), *block);
            let longest = c.facts().iter().map(|f| (f.position as usize + 1) / *ratio as usize).max().unwrap_or(0);
            let pieces = longest.min(limit).div_ceil(PIECE).max(1);
            let per_row = if splits(c) && phase == 0 { pieces } else { 1 };
            for item in items {
                let (row, piece) = (item / per_row, item % per_row);
                let f = &c.facts()[row];
                let list = within.as_ref().map(|w| w.read::<i32>(row, 1));
                if let (Some(list), Some(w)) = (list, within) {
                    check_list(list, keys.rows.div_ceil(*block as usize), w.width, "candidate block")?;
                }
                let visible = Visible::new(f.position, *ratio, list, *block);
                let query = Query {
                    queries: queries.read(row, 1),
                    weights: weights.read(row, 1),
                    scale: *scale,
                    keys: plane(keys, f.slot),
                };
                let kept = keep.as_ref().map(|k| k.width - 1);
                let needs = visible.needs_scores(selected.width - 1, kept);
                if !splits(c) {
                    let own = c.scratch.own(c.worker, 0, visible.scratch());
                    index_select(&visible, &query, own, selected.write(row, 1), keep.as_ref().map(|k| k.write(row, 1)));
                } else if phase == 0 {
                    let part = piece * PIECE..((piece + 1) * PIECE).min(visible.pool());
                    if needs && part.start < part.end {
                        let at = (row * limit + part.start) * 4;
                        score(&visible, &query, part.clone(), c.scratch.shared_mut(at, part.len()));
                    }
                } else {
                    let scored = if needs { visible.pool() } else { 0 };
                    let scores = c.scratch.shared(row * limit * 4, scored);
                    let own = c.scratch.own(c.worker, 0, visible.scratch());
                    choose(&visible, scores, own, selected.write(row, 1), keep.as_ref().map(|k| k.write(row, 1)));
                }
            }
            Ok(())
        }
        Op::Attention { q, fresh, ring, sinks, compressed, selected, out, heads, window, ratio, scale } => {
            let (heads, d, n) = (*heads as usize, fresh.width, c.rows());
            let chunks = heads.div_ceil(HEADS);
            for item in items {
                let (row, first) = (item / chunks, item % chunks * HEADS);
                let part = first..heads.min(first + HEADS);
                let columns = part.start * d..part.end * d;
                let f = &c.facts()[row];
                let history = History::new(plane(ring, f.slot), fresh.read(0, n), d, f);
                let compressed = match compressed {
                    None => Compressed::Absent,
                    Some(state) => {
                        let list = selected.as_ref().map(|s| s.read::<i32>(row, 1));
                        if let Some(list) = list {
                            check_list(list, state.rows, list.len(), "selected row")?;
                        }
                        Compressed::new(plane(state, f.slot), f.position, *ratio, list)
                    }
                };
                let keys = Keys::new(history, f.position, *window, compressed);
                let own = c.scratch.own(c.worker, 0, part.len() * keys.len());
                let q = &q.read::<f32>(row, 1)[columns.clone()];
                attend(&keys, q, &sinks.all()[part], *scale, own, out.columns(row, columns));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A list (count, then ascending numbers) that an earlier operation wrote: nothing in it may lead outside.
fn check_list(list: &[i32], limit: usize, width: usize, what: &str) -> Result<(), String> {
    let count = list[0];
    if count < 0 || count as usize >= width {
        return Err(format!("a list of {count} {what}s in {} places", width - 1));
    }
    match list[1..=count as usize].iter().find(|&&i| i < 0 || i as usize >= limit) {
        Some(i) => Err(format!("{what} {i} of {limit}")),
        None => Ok(()),
    }
}
