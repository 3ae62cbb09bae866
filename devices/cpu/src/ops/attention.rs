//! Multi-query attention of one query row over its visible keys (spec/model.md 3.5), for any number of its heads.
//!
//! All heads share one latent per token as key and value, so keys are walked in small tiles that stay in the first-level
//! cache while every head uses them. Tiling and the number of heads in a call change no bit: each score is one dot
//! product and each output element is added up key by key, in the order of the keys.

use super::history::History;
use crate::simd::{axpy, dot_f32, exp, exp_slice};

/// Keys per tile: 8 rows of 512 values are 16 KiB, half of a small first-level cache.
const TILE: usize = 8;

/// Which compressed rows a query attends to, behind its raw rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compressed<'a> {
    /// None: a layer with the sliding window only.
    Absent,
    /// Rows 0 .. count of the sequence's plane [rows, d].
    All {
        /// The plane of the sequence's slot.
        plane: &'a [f32],
        /// Visible rows.
        count: usize,
    },
    /// These rows of the sequence's plane [rows, d].
    Selected {
        /// The plane of the sequence's slot.
        plane: &'a [f32],
        /// Row numbers, ascending.
        rows: &'a [i32],
    },
}

impl<'a> Compressed<'a> {
    /// The rows that a query at `position` attends to: those of `selected`, a row of `Op::IndexSelect`'s output (count,
    /// then row numbers), or without it all (position + 1) / ratio visible ones.
    pub(crate) fn new(plane: &'a [f32], position: u32, ratio: u32, selected: Option<&'a [i32]>) -> Self {
        match selected {
            Some(list) => Compressed::Selected { plane, rows: &list[1..1 + list[0] as usize] },
            None if ratio == 0 => Compressed::Absent,
            None => Compressed::All { plane, count: ((u64::from(position) + 1) / u64::from(ratio)) as usize },
        }
    }

    fn count(&self) -> usize {
        match self {
            Compressed::Absent => 0,
            Compressed::All { count, .. } => *count,
            Compressed::Selected { rows, .. } => rows.len(),
        }
    }

    /// The `i`-th of these rows.
    #[inline]
    fn row(&self, i: usize, width: usize) -> &'a [f32] {
        let (plane, row) = match self {
            Compressed::Absent => (&[][..], i),
            Compressed::All { plane, .. } => (*plane, i),
            Compressed::Selected { plane, rows } => (*plane, rows[i] as usize),
        };
        &plane[row * width..(row + 1) * width]
    }
}

/// The keys of one query row, in their order: raw rows by position, then compressed rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    raw: History<'a>,
    first: usize,
    raw_count: usize,
    compressed: Compressed<'a>,
}

impl<'a> Keys<'a> {
    /// Raw rows of positions max(0, position - window + 1) ..= position and the given compressed rows.
    pub(crate) fn new(raw: History<'a>, position: u32, window: u32, compressed: Compressed<'a>) -> Self {
        let behind = position as usize + 1;
        let first = behind.saturating_sub(window as usize);
        Keys { raw, first, raw_count: behind - first, compressed }
    }

    /// Number of keys; [`attend`] needs this many words of scratch per head.
    pub(crate) fn len(&self) -> usize {
        self.raw_count + self.compressed.count()
    }

    #[inline]
    fn key(&self, i: usize) -> &'a [f32] {
        if i < self.raw_count {
            self.raw.row(self.first + i)
        } else {
            self.compressed.row(i - self.raw_count, self.raw.width())
        }
    }
}

/// One row of `Op::Attention`, or some of its heads: `q` and `out` [heads * d], `sinks` [heads]. Per head
/// z_i = scale * (q . key_i), out = sum of exp(z_i - m) key_i / (sum of exp(z_i - m) + exp(sink - m)), m being the
/// largest of all z_i and the sink. `scratch` has at least heads * keys.len() words.
pub(crate) fn attend(keys: &Keys<'_>, q: &[f32], sinks: &[f32], scale: f32, scratch: &mut [f32], out: &mut [f32]) {
    let (d, n) = (keys.raw.width(), keys.len());
    let scores = &mut scratch[..sinks.len() * n];
    let mut tile = [&[][..]; TILE];
    for start in (0..n).step_by(TILE) {
        let tile = load(keys, start, n, &mut tile);
        for (q, scores) in q.chunks_exact(d).zip(scores.chunks_exact_mut(n)) {
            for (key, z) in tile.iter().zip(&mut scores[start..]) {
                *z = dot_f32(q, key) * scale;
            }
        }
    }
    for (scores, &sink) in scores.chunks_exact_mut(n).zip(sinks) {
        softmax_with_sink(scores, sink);
    }
    out.fill(0.0);
    for start in (0..n).step_by(TILE) {
        let tile = load(keys, start, n, &mut tile);
        for (scores, out) in scores.chunks_exact(n).zip(out.chunks_exact_mut(d)) {
            for (key, &p) in tile.iter().zip(&scores[start..]) {
                axpy(p, key, out);
            }
        }
    }
}

/// Up to [`TILE`] keys from `start` on.
fn load<'t, 'a>(keys: &Keys<'a>, start: usize, n: usize, tile: &'t mut [&'a [f32]; TILE]) -> &'t [&'a [f32]] {
    let count = TILE.min(n - start);
    for (i, key) in tile[..count].iter_mut().enumerate() {
        *key = keys.key(start + i);
    }
    &tile[..count]
}

/// Scores become probabilities; the sink takes its share and has no place of its own. The denominator is added up in
/// f64, keys in order and the sink last.
fn softmax_with_sink(scores: &mut [f32], sink: f32) {
    let max = scores.iter().fold(sink, |m, &z| if z > m { z } else { m });
    for z in scores.iter_mut() {
        *z -= max;
    }
    exp_slice(scores);
    let sum = scores.iter().fold(0.0, |sum, &e| sum + f64::from(e)) + f64::from(exp(sink - max));
    let sum = sum as f32;
    for z in scores {
        *z /= sum;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{Split, assert_close, bits, noise, wide};
    use super::*;

    const HEADS: usize = 3;
    const D: usize = 36;
    const POSITIONS: usize = 40;
    const WINDOW: u32 = 8;
    const SCALE: f32 = 0.3;

    /// Queries, raw rows, compressed rows and sinks of one sequence.
    struct Sequence {
        q: Vec<f32>,
        raw: Vec<f32>,
        compressed: Vec<f32>,
        sinks: Vec<f32>,
    }

    fn sequence() -> Sequence {
        Sequence {
            q: noise(POSITIONS * HEADS * D, 1),
            raw: noise(POSITIONS * D, 2),
            compressed: noise(POSITIONS * D, 3),
            sinks: noise(HEADS, 4),
        }
    }

    fn row(keys: &Keys<'_>, q: &[f32], sinks: &[f32]) -> Vec<f32> {
        let (mut scratch, mut out) = (vec![f32::NAN; sinks.len() * keys.len()], vec![f32::NAN; q.len()]);
        attend(keys, q, sinks, SCALE, &mut scratch, &mut out);
        out
    }

    impl Sequence {
        fn q(&self, t: usize) -> &[f32] {
            &self.q[t * HEADS * D..][..HEADS * D]
        }

        /// Every row's output, all compressed rows of `ratio` being visible, with the sequence cut into bands at `cuts`.
        fn attended(&self, ratio: u32, ring_len: usize, cuts: &[usize]) -> Vec<f32> {
            let mut bounds = vec![0];
            bounds.extend(cuts);
            bounds.push(POSITIONS);
            let mut out = Vec::new();
            for band in bounds.windows(2) {
                let raw = Split::new(&self.raw, D, ring_len, band[0], band[1]);
                for t in band[0]..band[1] {
                    let compressed = Compressed::new(&self.compressed, t as u32, ratio, None);
                    let keys = Keys::new(raw.history(), t as u32, WINDOW, compressed);
                    out.extend(row(&keys, self.q(t), &self.sinks));
                }
            }
            out
        }

        /// The formula of the specification in f64 for the query at `t` over the given keys.
        fn expected(&self, t: usize, keys: &[&[f32]]) -> Vec<f64> {
            let mut out = Vec::new();
            for (q, &sink) in self.q(t).chunks_exact(D).zip(&self.sinks) {
                let p: Vec<f64> = keys
                    .iter()
                    .map(|k| {
                        let z: f64 = k.iter().zip(q).map(|(&k, &q)| f64::from(k) * f64::from(q)).sum();
                        (z * f64::from(SCALE)).exp()
                    })
                    .collect();
                let sum = p.iter().sum::<f64>() + f64::from(sink).exp();
                out.extend((0..D).map(|i| p.iter().zip(keys).map(|(p, k)| p * f64::from(k[i])).sum::<f64>() / sum));
            }
            out
        }
    }

    #[test]
    fn a_query_sees_its_window_and_the_completed_compressed_rows() {
        let s = sequence();
        for ratio in [0usize, 1, 2, 4, 128] {
            let got = s.attended(ratio as u32, WINDOW as usize, &[]);
            for t in 0..POSITIONS {
                let mut keys: Vec<&[f32]> =
                    (0..=t).filter(|p| t - p < WINDOW as usize).map(|p| &s.raw[p * D..][..D]).collect();
                // Row j covers tokens j * ratio ..= j * ratio + ratio - 1.
                keys.extend(
                    (0..POSITIONS)
                        .filter(|j| ratio > 0 && (j + 1) * ratio <= t + 1)
                        .map(|j| &s.compressed[j * D..][..D]),
                );
                assert_close(&got[t * HEADS * D..][..HEADS * D], &s.expected(t, &keys), 1e-6);
            }
        }
    }

    #[test]
    fn only_selected_rows_are_attended() {
        let s = sequence();
        let raw = Split::new(&s.raw, D, WINDOW as usize, 0, POSITIONS);
        let selected = [3, 1, 4, 7, -1];
        let keys = Keys::new(raw.history(), 20, WINDOW, Compressed::new(&s.compressed, 20, 2, Some(&selected)));
        let mut want: Vec<&[f32]> = (13..=20).map(|p| &s.raw[p * D..][..D]).collect();
        want.extend([1, 4, 7].map(|j| &s.compressed[j * D..][..D]));
        assert_eq!(keys.len(), want.len());
        assert_close(&row(&keys, s.q(20), &s.sinks), &s.expected(20, &want), 1e-6);
    }

    #[test]
    fn selecting_every_row_gives_the_bits_of_no_selection() {
        let s = sequence();
        let raw = Split::new(&s.raw, D, WINDOW as usize, 0, POSITIONS);
        let mut selected = vec![-1; 30];
        selected[0] = 20;
        for j in 0..20 {
            selected[1 + j as usize] = j;
        }
        let with = Keys::new(raw.history(), 39, WINDOW, Compressed::new(&s.compressed, 39, 2, Some(&selected)));
        let without = Keys::new(raw.history(), 39, WINDOW, Compressed::new(&s.compressed, 39, 2, None));
        assert_eq!(bits(&row(&with, s.q(39), &s.sinks)), bits(&row(&without, s.q(39), &s.sinks)));
    }

    #[test]
    fn heads_alone_give_the_bits_of_all_heads_together() {
        let s = sequence();
        let raw = Split::new(&s.raw, D, WINDOW as usize, 0, POSITIONS);
        let keys = Keys::new(raw.history(), 33, WINDOW, Compressed::new(&s.compressed, 33, 1, None));
        let alone: Vec<f32> =
            s.q(33).chunks(D).zip(s.sinks.chunks(1)).flat_map(|(q, sink)| row(&keys, q, sink)).collect();
        assert_eq!(bits(&alone), bits(&row(&keys, s.q(33), &s.sinks)));
    }

    #[test]
    fn the_sink_only_takes_its_share() {
        let s = sequence();
        let raw = Split::new(&s.raw, D, WINDOW as usize, 0, 1);
        let keys = Keys::new(raw.history(), 0, WINDOW, Compressed::Absent);
        // One key: without a sink it is the output, under a huge sink nothing is left.
        assert_close(&row(&keys, s.q(0), &[f32::NEG_INFINITY; HEADS]), &wide(&s.raw[..D].repeat(HEADS)), 1e-6);
        assert_eq!(row(&keys, s.q(0), &[1e30; HEADS]), vec![0.0; HEADS * D]);
    }

    #[test]
    fn scores_far_below_zero_do_not_vanish_together() {
        let raw = Split::new(&[1.0; 2 * D], D, WINDOW as usize, 0, 2);
        let keys = Keys::new(raw.history(), 1, WINDOW, Compressed::Absent);
        // Both keys score scale * -1e3 * D = -10800, as does the sink: each takes a third.
        let sink = -1e3 * D as f32 * SCALE;
        assert_close(&row(&keys, &[-1e3; HEADS * D], &[sink; HEADS]), &[2.0 / 3.0; HEADS * D], 1e-2);
    }

    #[test]
    fn scores_far_from_zero_do_not_overflow() {
        let mut s = sequence();
        s.q.iter_mut().for_each(|v| *v *= 1e4);
        assert!(s.attended(2, WINDOW as usize, &[]).iter().all(|v| v.is_finite()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn bands_of_any_size_attend_to_the_same_bits(
            cuts in prop::collection::btree_set(1..POSITIONS, 0..POSITIONS), ratio in 0u32..4, extra in 0usize..5
        ) {
            let s = sequence();
            let cuts: Vec<usize> = cuts.into_iter().collect();
            let whole = s.attended(ratio, WINDOW as usize, &[]);
            prop_assert_eq!(bits(&s.attended(ratio, WINDOW as usize + extra, &cuts)), bits(&whole));
        }
    }
}
