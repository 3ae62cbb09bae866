//! Multi-query attention of one query row over its visible keys (spec/model.md 3.5), for any number of its heads.
//!
//! All heads share one latent per token as key and value, so keys are walked in small tiles that stay in the first-level
//! cache while every head uses them. Tiling and the number of heads in a call change no bit: each score is one dot
//! product and each output element is added up key by key, in the order of the keys.

use super::history::History;
use super::num::{axpy, dot_f32, exp};

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
    let mut sum = 0.0f64;
    for z in scores.iter_mut() {
        *z = exp(*z - max);
        sum += f64::from(*z);
    }
    sum += f64::from(exp(sink - max));
    let sum = sum as f32;
    for z in scores {
        *z /= sum;
    }
}
