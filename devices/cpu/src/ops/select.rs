//! Choice of compressed rows by the indexer (spec/model.md 3.6 and 3.7): one query row.
//!
//! Three steps, so that a caller may split the scoring of a long context over threads: [`Visible::needs_scores`],
//! [`score`] for any pieces of the pool, [`choose`]. [`index_select`] does all three.
//!
//! A NaN score counts as -inf: its row loses against every other and is still chosen where there are no more than `top`.

use std::ops::Range;

use super::num::dot_f32;
use super::top;

/// The rows that one query may choose from, in ascending order: its pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visible<'a> {
    rows: usize,
    within: Option<&'a [i32]>,
    block: usize,
}

impl<'a> Visible<'a> {
    /// The `(position + 1) / ratio` compressed rows that a query at `position` sees; of these only the ones inside the
    /// candidate blocks of `within`, where given: a row of `Op::IndexSelect`'s operand, the count and then ascending
    /// block numbers. `block` is the number of rows of a block (used by `within` and by `keep`).
    pub(crate) fn new(position: u32, ratio: u32, within: Option<&'a [i32]>, block: u32) -> Self {
        let within = within.map(|w| &w[1..1 + w[0] as usize]);
        Visible { rows: ((u64::from(position) + 1) / u64::from(ratio)) as usize, within, block: block as usize }
    }

    /// Number of rows in the pool.
    pub(crate) fn pool(&self) -> usize {
        let Some(blocks) = self.within else { return self.rows };
        // Blocks ascend, so only the last ones can reach past the newest visible row.
        let mut rows = blocks.len() * self.block;
        for &b in blocks.iter().rev() {
            let end = (b as usize + 1) * self.block;
            if end <= self.rows {
                break;
            }
            rows -= (end - self.rows).min(self.block);
        }
        rows
    }

    /// The compressed row at place `i` of the pool.
    #[inline]
    fn row(&self, i: usize) -> usize {
        match self.within {
            None => i,
            Some(blocks) => blocks[i / self.block] as usize * self.block + i % self.block,
        }
    }

    /// Number of candidate blocks that hold a visible row.
    fn blocks(&self) -> usize {
        self.rows.div_ceil(self.block.max(1))
    }

    /// Whether anything has to be scored: not while all rows of the pool are chosen and all blocks are kept. `keep` is
    /// the number of blocks to keep, `None` where the layer keeps none.
    pub(crate) fn needs_scores(&self, top: usize, keep: Option<usize>) -> bool {
        self.pool() > top || keep.is_some_and(|k| self.blocks() > k || self.within.is_some())
    }

    /// Words of scratch that [`index_select`] needs; [`choose`] needs `pool()` fewer.
    pub(crate) fn scratch(&self) -> usize {
        2 * self.pool() + 2 * self.blocks()
    }
}

/// What the rows are scored with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    /// The row's index queries, [heads * w].
    pub(crate) queries: &'a [f32],
    /// One weight per head; may be negative.
    pub(crate) weights: &'a [f32],
    /// Factor of every score.
    pub(crate) scale: f32,
    /// Index keys of the sequence: the plane of its slot, [rows, w].
    pub(crate) keys: &'a [f32],
}

impl Query<'_> {
    /// scale * sum over the heads, ascending, of weights[h] * relu(queries[h] . keys[row]).
    fn score(&self, row: usize) -> f32 {
        let w = self.queries.len() / self.weights.len();
        let key = &self.keys[row * w..(row + 1) * w];
        let mut sum = 0.0;
        for (q, weight) in self.queries.chunks_exact(w).zip(self.weights) {
            let d = dot_f32(q, key);
            // Not `max`: that would turn NaN into 0.
            sum += weight * if d < 0.0 { 0.0 } else { d };
        }
        sum * self.scale
    }
}

/// Scores places `part` of the pool; `keys` [part.len()] gets what [`choose`] compares.
pub(crate) fn score(visible: &Visible<'_>, query: &Query<'_>, part: Range<usize>, keys: &mut [u32]) {
    for (i, key) in part.zip(keys) {
        *key = top::key(query.score(visible.row(i)));
    }
}

/// Writes the `top` best rows of the pool to `selected` [1 + top]: their number, then the rows ascending, then -1. The
/// lowest row wins among equal scores. `keep` [1 + blocks] gets, in the same form, the best `blocks` candidate blocks by
/// their largest score; the block of the newest visible row is always among them, the lowest block wins among equals.
/// `keys` [pool] comes from [`score`]; where [`Visible::needs_scores`] is false it may be empty.
pub(crate) fn choose(
    visible: &Visible<'_>,
    keys: &[u32],
    scratch: &mut [u32],
    selected: &mut [i32],
    keep: Option<&mut [i32]>,
) {
    let (pool, top) = (visible.pool(), selected.len() - 1);
    let mut list = List::new(selected);
    if pool <= top {
        (0..pool).for_each(|i| list.push(visible.row(i)));
    } else {
        top::largest(&keys[..pool], top, scratch, |i| list.push(visible.row(i)));
    }
    list.finish();

    let Some(keep) = keep else { return };
    let (blocks, most) = (visible.blocks(), keep.len() - 1);
    let mut list = List::new(keep);
    if !visible.needs_scores(usize::MAX, Some(most)) {
        (0..blocks).for_each(|b| list.push(b));
    } else {
        let (best, scratch) = scratch.split_at_mut(blocks);
        best.fill(top::NONE);
        for (i, &key) in keys[..pool].iter().enumerate() {
            let b = visible.row(i) / visible.block;
            best[b] = best[b].max(key);
        }
        if let Some(last) = best.last_mut() {
            *last = top::ALWAYS;
        }
        top::largest(best, most, scratch, |b| list.push(b));
    }
    list.finish();
}

/// One row of `Op::IndexSelect`; see [`choose`] for the outputs. `scratch` has at least `visible.scratch()` words.
pub(crate) fn index_select(
    visible: &Visible<'_>,
    query: &Query<'_>,
    scratch: &mut [u32],
    selected: &mut [i32],
    keep: Option<&mut [i32]>,
) {
    let scored =
        if visible.needs_scores(selected.len() - 1, keep.as_ref().map(|k| k.len() - 1)) { visible.pool() } else { 0 };
    let (keys, scratch) = scratch.split_at_mut(scored);
    score(visible, query, 0..scored, keys);
    choose(visible, keys, scratch, selected, keep);
}

/// A list in an I32 operand: the count, the entries, -1 behind them.
struct List<'a> {
    to: &'a mut [i32],
    count: usize,
}

impl<'a> List<'a> {
    fn new(to: &'a mut [i32]) -> Self {
        List { to, count: 0 }
    }

    fn push(&mut self, entry: usize) {
        self.count += 1;
        self.to[self.count] = entry as i32;
    }

    fn finish(self) {
        self.to[0] = self.count as i32;
        self.to[1 + self.count..].fill(-1);
    }
}
