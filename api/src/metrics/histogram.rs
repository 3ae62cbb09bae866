//! A histogram in Prometheus' form, counted without locks.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of observations by upper bound.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all.
    counts: Box<[AtomicU64]>,
    /// In millionths, so that adding needs no loop.
    sum_millionths: AtomicU64,
}

impl Histogram {
    /// `bounds` rise.
    pub(crate) fn new(bounds: &'static [f64]) -> Histogram {
        debug_assert!(bounds.is_sorted());
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum_millionths: AtomicU64::new(0) }
    }

    /// Adds one observation; negative ones count as 0.
    pub(crate) fn observe(&self, value: f64) {
        let at = self.bounds.partition_point(|&bound| bound < value);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum_millionths.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    /// Appends the lines of `name`.
    pub(crate) fn write(&self, name: &str, out: &mut String) {
        let mut below = 0;
        for (i, count) in self.counts.iter().enumerate() {
            below += count.load(Ordering::Relaxed);
            let bound = self.bounds.get(i).map_or("+Inf".to_owned(), ToString::to_string);
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let sum = self.sum_millionths.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {below}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_at_most_their_bound_and_add_up() {
        let histogram = Histogram::new(&[0.5, 2.0]);
        [0.25, 0.5, 1.0, 3.0].into_iter().for_each(|value| histogram.observe(value));
        let mut text = String::new();
        histogram.write("x", &mut text);
        let lines =
            ["x_bucket{le=\"0.5\"} 2", "x_bucket{le=\"2\"} 3", "x_bucket{le=\"+Inf\"} 4", "x_sum 4.75", "x_count 4"];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }
}
