//! Choice of compressed rows by the indexer (spec/model.md 3.6 and 3.7): one query row.
//!
//! Three steps, so that a caller may split the scoring of a long context over threads: [`Visible::needs_scores`],
//! [`score`] for any pieces of the pool, [`choose`]. [`index_select`] does all three.
//!
//! A NaN score counts as -inf: its row loses against every other and is still chosen where there are no more than `top`.

use std::ops::Range;

use super::top;
use crate::simd::dot_f32;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{assert_close, noise};
    use super::*;

    /// `choose` over scores given as numbers, one per row of the pool.
    fn chosen(
        visible: &Visible<'_>,
        scores: &[f32],
        top: usize,
        blocks: Option<usize>,
    ) -> (Vec<i32>, Option<Vec<i32>>) {
        assert_eq!(scores.len(), visible.pool());
        let keys: Vec<u32> = scores.iter().map(|&s| top::key(s)).collect();
        let mut scratch = vec![0; visible.scratch() - visible.pool()];
        let mut selected = vec![-9; 1 + top];
        let mut keep = blocks.map(|b| vec![-9; 1 + b]);
        choose(visible, &keys, &mut scratch, &mut selected, keep.as_deref_mut());
        (listed(&selected), keep.map(|k| listed(&k)))
    }

    /// The entries of a list operand, whose tail must be -1.
    fn listed(list: &[i32]) -> Vec<i32> {
        let (entries, tail) = list[1..].split_at(list[0] as usize);
        assert!(tail.iter().all(|&v| v == -1), "{list:?}");
        assert!(entries.windows(2).all(|w| w[0] < w[1]), "not ascending: {list:?}");
        entries.to_vec()
    }

    fn list(entries: &[i32], capacity: usize) -> Vec<i32> {
        let mut list = vec![-1; 1 + capacity];
        list[0] = entries.len() as i32;
        list[1..=entries.len()].copy_from_slice(entries);
        list
    }

    #[test]
    fn visible_rows_are_those_whose_last_token_has_passed() {
        let rows = |ratio, positions: &[u32]| -> Vec<usize> {
            positions.iter().map(|&p| Visible::new(p, ratio, None, 0).pool()).collect()
        };
        assert_eq!(rows(4, &[0, 1, 2, 3, 6, 7]), [0, 0, 0, 1, 1, 2]);
        assert_eq!(rows(128, &[126, 127, 255]), [0, 1, 2]);
        assert_eq!(rows(2, &[0, 1, 2, 3]), [0, 1, 1, 2]);
        assert_eq!(rows(1, &[0, 5, u32::MAX]), [1, 6, 1 << 32]);
    }

    #[test]
    fn candidate_blocks_of_the_specification_and_of_the_fixture_index() {
        for (scores, blocks, rows) in [
            ([5.0, 1.0, 0.0, 9.0, 2.0, 2.0, 3.0], [1, 3], vec![2, 3, 6]),
            ([4.0, 0.0, 4.0, 0.0, 4.0, 0.0, -1.0], [0, 3], vec![0, 1, 6]),
        ] {
            let (_, keep) = chosen(&Visible::new(6, 1, None, 2), &scores, 7, Some(2));
            assert_eq!(keep, Some(blocks.to_vec()));
            let within = list(&blocks, 2);
            let restricted = Visible::new(6, 1, Some(&within), 2);
            assert_eq!(restricted.pool(), 3);
            let (selected, _) = chosen(&restricted, &[1.0; 3], 4, None);
            assert_eq!(selected, rows);
        }
    }

    #[test]
    fn rows_outside_the_candidate_blocks_are_not_chosen_whatever_their_score() {
        let within = list(&[0, 2, 4], 5);
        let visible = Visible::new(17, 2, Some(&within), 2); // 9 rows; block 4 holds row 8 only
        let (selected, _) = chosen(&visible, &[1.0, 5.0, 5.0, 7.0, 5.0], 3, None);
        assert_eq!(selected, [1, 4, 5]);
        let q = Query { queries: &[1.0], weights: &[1.0], scale: 1.0, keys: &[1., 5., 99., 99., 5., 7., 99., 99., 5.] };
        let (mut scratch, mut out) = (vec![0; visible.scratch()], [-9; 4]);
        index_select(&visible, &q, &mut scratch, &mut out, None);
        assert_eq!(out, [3, 1, 4, 5]);
    }

    #[test]
    fn nan_loses_against_every_score_and_still_fills_a_small_pool() {
        let visible = Visible::new(4, 1, None, 2);
        assert_eq!(chosen(&visible, &[f32::NAN, -3.0, f32::NAN, -1e30, 0.0], 3, None).0, [1, 3, 4]);
        assert_eq!(chosen(&visible, &[f32::NAN; 5], 3, Some(2)), (vec![0, 1, 2], Some(vec![0, 2])));
        assert_eq!(chosen(&visible, &[f32::NAN; 5], 8, None).0, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn nothing_visible_gives_empty_lists() {
        assert_eq!(chosen(&Visible::new(0, 2, None, 2), &[], 3, Some(2)), (vec![], Some(vec![])));
    }

    #[test]
    fn scores_follow_the_formula_and_pieces_of_the_pool_give_the_same_keys() {
        let (heads, w, rows) = (8, 64, 50);
        let (queries, weights, keys) = (noise(heads * w, 1), noise(heads, 2), noise(rows * w, 3));
        let query = Query { queries: &queries, weights: &weights, scale: 0.044, keys: &keys };
        let want: Vec<f64> = (0..rows)
            .map(|j| {
                let head = |h: usize| -> f64 {
                    (0..w).map(|i| f64::from(queries[h * w + i]) * f64::from(keys[j * w + i])).sum()
                };
                f64::from(0.044f32) * (0..heads).map(|h| f64::from(weights[h]) * head(h).max(0.0)).sum::<f64>()
            })
            .collect();
        assert_close(&(0..rows).map(|j| query.score(j)).collect::<Vec<_>>(), &want, 1e-6);

        let visible = Visible::new(49, 1, None, 0);
        let (mut whole, mut pieces) = (vec![0; rows], vec![0; rows]);
        score(&visible, &query, 0..rows, &mut whole);
        for at in (0..rows).step_by(7) {
            let end = rows.min(at + 7);
            score(&visible, &query, at..end, &mut pieces[at..end]);
        }
        assert_eq!(whole, pieces);
        assert_eq!(whole, want.iter().enumerate().map(|(j, _)| top::key(query.score(j))).collect::<Vec<_>>());
    }

    #[test]
    fn a_nan_dot_product_is_not_turned_into_a_zero_score() {
        let query = Query { queries: &[1.0, 1.0], weights: &[1.0, -1.0], scale: 1.0, keys: &[f32::NAN, -1.0, 2.0] };
        assert!(query.score(0).is_nan());
        assert_eq!((query.score(1), query.score(2)), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn selection_and_candidates_equal_a_naive_stable_sort(
            position in 0u32..300, ratio in 1u32..5, top in 1usize..40, block in 1u32..9, most in 1usize..20,
            grain in 1i32..20, seed in any::<u64>(), restrict in any::<bool>(),
        ) {
            // Coarse scores, so that ties are common.
            let rows = ((position + 1) / ratio) as usize;
            let scores: Vec<f32> = noise(rows, seed).iter().map(|v| (v * grain as f32).round()).collect();
            let size = block as usize;
            let blocks: Vec<i32> = (0..rows.div_ceil(size) as i32).filter(|b| !restrict || (seed >> (b % 60)) & 1 == 1).collect();
            let within = list(&blocks, blocks.len() + 2);
            let visible = Visible::new(position, ratio, restrict.then_some(&within), block);
            let pool: Vec<usize> = (0..rows).filter(|j| blocks.contains(&((j / size) as i32))).collect();
            prop_assert_eq!(visible.pool(), pool.len());
            let pool_scores: Vec<f32> = pool.iter().map(|&j| scores[j]).collect();

            let mut best = pool.clone();
            best.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).expect("no NaN"));
            best.truncate(top);
            best.sort_unstable();
            let mut kept: Vec<usize> = (0..rows.div_ceil(size)).collect();
            let largest = |b: usize| {
                if b + 1 == rows.div_ceil(size) { return f32::INFINITY; }
                (b * size..(b + 1) * size).map(|j| scores[j]).fold(f32::NEG_INFINITY, f32::max)
            };
            kept.sort_by(|&a, &b| largest(b).partial_cmp(&largest(a)).expect("no NaN"));
            kept.truncate(most);
            kept.sort_unstable();

            let (selected, keep) = chosen(&visible, &pool_scores, top, (!restrict).then_some(most));
            prop_assert_eq!(selected, best.iter().map(|&j| j as i32).collect::<Vec<_>>());
            if let Some(keep) = keep {
                prop_assert_eq!(keep, kept.iter().map(|&b| b as i32).collect::<Vec<_>>());
            }
        }

        #[test]
        fn the_whole_operation_equals_its_steps_also_where_it_skips_the_scores(
            position in 0u32..60, top in 1usize..40, most in 1usize..20, seed in any::<u64>(),
        ) {
            let rows = position as usize + 1;
            let (queries, weights, keys) = (noise(4 * 8, seed), noise(4, seed ^ 1), noise(rows * 8, seed ^ 2));
            let query = Query { queries: &queries, weights: &weights, scale: 0.5, keys: &keys };
            let visible = Visible::new(position, 1, None, 4);
            let scores: Vec<f32> = (0..rows).map(|j| query.score(j)).collect();
            let (selected, keep) = chosen(&visible, &scores, top, Some(most));
            let mut scratch = vec![0; visible.scratch()];
            let (mut s, mut k) = (vec![-9; 1 + top], vec![-9; 1 + most]);
            index_select(&visible, &query, &mut scratch, &mut s, Some(&mut k));
            prop_assert_eq!(listed(&s), selected);
            prop_assert_eq!(Some(listed(&k)), keep);
        }
    }
}
