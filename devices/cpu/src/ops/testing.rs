//! Helpers of this module's tests: numbers that look random, comparisons that say where they fail, sequences split into ring and band.

use luce_device::RowFacts;

use super::history::History;

/// `n` values in [-1, 1), the same for the same seed.
pub(super) fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Asserts that `got` is within `tolerance` of `want`, absolutely or relative to it.
#[track_caller]
pub(super) fn assert_close(got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(g) - w).abs();
        assert!(error <= tolerance * w.abs().max(1.0), "value {i}: {g}, expected {w}");
    }
}

/// The bits of every value.
pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The values in f64.
pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// 1 / (1 + exp(-x)) in f64.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A sequence whose first rows lie in a ring and whose other rows form a band, as after a launch that ended before
/// `first_position`; foreign rows stand in front of the band's.
pub(super) struct Split {
    ring: Vec<f32>,
    fresh: Vec<f32>,
    width: usize,
    facts: RowFacts,
}

impl Split {
    /// `rows` is the whole sequence, [positions, width]; `end` the position behind the band.
    pub(super) fn new(rows: &[f32], width: usize, ring_len: usize, first_position: usize, end: usize) -> Self {
        let mut ring = vec![f32::NAN; ring_len * width];
        for (p, row) in rows.chunks_exact(width).enumerate().take(first_position) {
            ring[p % ring_len * width..][..width].copy_from_slice(row);
        }
        let foreign = 3;
        let mut fresh = vec![f32::NAN; foreign * width];
        fresh.extend(&rows[first_position * width..end * width]);
        let facts = RowFacts {
            first_row: foreign as u32,
            first_position: first_position as u32,
            end_row: (foreign + end - first_position) as u32,
            ..RowFacts::default()
        };
        Split { ring, fresh, width, facts }
    }

    pub(super) fn history(&self) -> History<'_> {
        History::new(&self.ring, &self.fresh, self.width, &self.facts)
    }
}
