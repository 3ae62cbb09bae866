//! Compressor pooling (spec/model.md 3.6 and 3.7): one compressed group of one sequence.

use super::history::History;
use crate::simd::exp_slice;

/// Channels pooled at a time; their maxima and sums live on the stack.
const CHANNELS: usize = 64;

/// One group of `Op::Pool`. `values` and `scores` hold a row of coff * W per token, coff being 2 with `overlap` and 1
/// without; the group covers positions `first ..= first + ratio - 1`, `first` being a multiple of `ratio`. `ape` is
/// [ratio, coff * W]. `out` [W] = per channel, softmax over the slots of (score + ape) times value; slots are added
/// oldest first. With `overlap` the slots are the A halves (first W) of the group before, none where `first` is 0, then
/// the B halves of this group; without, the tokens of this group.
pub(crate) fn pool(
    values: &History<'_>,
    scores: &History<'_>,
    ape: Option<&[f32]>,
    first: usize,
    ratio: usize,
    overlap: bool,
    out: &mut [f32],
) {
    let width = out.len();
    let row_width = values.width();
    let (start, behind) = (if overlap { first.saturating_sub(ratio) } else { first }, first + ratio);
    for (at, out) in (0..width).step_by(CHANNELS).zip(out.chunks_mut(CHANNELS)) {
        let n = out.len();
        // First column of these channels in the row of a position.
        let column = |position: usize| if overlap && position >= first { width + at } else { at };
        let score = |position: usize, to: &mut [f32; CHANNELS]| {
            let from = column(position);
            to[..n].copy_from_slice(&scores.row(position)[from..from + n]);
            if let Some(ape) = ape {
                let ape = &ape[(position - start) % ratio * row_width + from..][..n];
                for (to, ape) in to.iter_mut().zip(ape) {
                    *to += ape;
                }
            }
        };
        let mut s = [0.0f32; CHANNELS];
        let mut max = [f32::NEG_INFINITY; CHANNELS];
        for position in start..behind {
            score(position, &mut s);
            for (max, &s) in max.iter_mut().zip(&s[..n]) {
                *max = if s > *max { s } else { *max };
            }
        }
        let mut sum = [0.0f32; CHANNELS];
        out.fill(0.0);
        for position in start..behind {
            score(position, &mut s);
            let value = &values.row(position)[column(position)..];
            for (s, max) in s.iter_mut().zip(&max) {
                *s -= max;
            }
            exp_slice(&mut s[..n]);
            for i in 0..n {
                sum[i] += s[i];
                out[i] += s[i] * value[i];
            }
        }
        for (out, sum) in out.iter_mut().zip(&sum) {
            *out /= sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{Split, assert_close, bits, noise};
    use super::*;

    /// Shape of one pooling operation over a sequence of `groups` groups.
    #[derive(Clone, Copy)]
    struct Case {
        ratio: usize,
        overlap: bool,
        width: usize,
        groups: usize,
    }

    const CASES: [Case; 5] = [
        Case { ratio: 1, overlap: false, width: 5, groups: 4 },
        Case { ratio: 2, overlap: false, width: 96, groups: 5 },
        Case { ratio: 4, overlap: true, width: 130, groups: 5 },
        Case { ratio: 4, overlap: true, width: 64, groups: 3 },
        Case { ratio: 128, overlap: false, width: 70, groups: 2 },
    ];

    impl Case {
        fn row_width(self) -> usize {
            self.width * if self.overlap { 2 } else { 1 }
        }

        fn numbers(self) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
            let n = self.groups * self.ratio * self.row_width();
            let scores = noise(n, 2).iter().map(|v| v * 4.0).collect();
            (noise(n, 1), scores, noise(self.ratio * self.row_width(), 3))
        }

        /// All groups, the sequence being cut into bands at `cuts`; rings as short as they may be.
        fn pooled(self, cuts: &[usize], with_ape: bool) -> Vec<f32> {
            let (values, scores, ape) = self.numbers();
            let (w, len) = (self.row_width(), self.ratio * if self.overlap { 2 } else { 1 });
            let mut out = vec![0.0; self.groups * self.width];
            let mut bounds = vec![0];
            bounds.extend(cuts);
            bounds.push(self.groups * self.ratio);
            for band in bounds.windows(2) {
                let value = Split::new(&values, w, len, band[0], band[1]);
                let score = Split::new(&scores, w, len, band[0], band[1]);
                for last in (band[0]..band[1]).filter(|p| (p + 1) % self.ratio == 0) {
                    let group = (last + 1) / self.ratio - 1;
                    pool(
                        &value.history(),
                        &score.history(),
                        with_ape.then_some(&ape),
                        group * self.ratio,
                        self.ratio,
                        self.overlap,
                        &mut out[group * self.width..][..self.width],
                    );
                }
            }
            out
        }
    }

    #[test]
    fn pooling_is_a_softmax_per_channel_over_the_slots_of_the_specification() {
        for case in CASES {
            for with_ape in [false, true] {
                let Case { ratio, overlap, width, groups } = case;
                let (values, scores, ape) = case.numbers();
                let w = case.row_width();
                let at = |v: &[f32], row: usize, column: usize| f64::from(v[row * w + column]);
                let mut want = Vec::new();
                for j in 0..groups {
                    for i in 0..width {
                        // (score, value) of every slot.
                        let mut slots = Vec::new();
                        let mut slot = |row: usize, place: usize, column: usize| {
                            let ape = if with_ape { at(&ape, place, column) } else { 0.0 };
                            slots.push((at(&scores, row, column) + ape, at(&values, row, column)));
                        };
                        for r in 0..ratio {
                            if overlap && j > 0 {
                                slot((j - 1) * ratio + r, r, i);
                            }
                            slot(j * ratio + r, r, if overlap { width + i } else { i });
                        }
                        let sum: f64 = slots.iter().map(|(s, _)| s.exp()).sum();
                        want.push(slots.iter().map(|(s, v)| s.exp() * v).sum::<f64>() / sum);
                    }
                }
                assert_close(&case.pooled(&[], with_ape), &want, 2e-6);
            }
        }
    }

    #[test]
    fn a_group_of_one_token_is_its_value_unchanged() {
        let case = CASES[0];
        assert_eq!(bits(&case.pooled(&[], true)), bits(&case.numbers().0));
    }

    #[test]
    fn scores_far_from_zero_do_not_overflow() {
        let (values, scores) = (noise(4, 1), [300.0, 1000.0, -300.0, 1000.0]);
        let (v, s) = (Split::new(&values, 2, 2, 0, 2), Split::new(&scores, 2, 2, 0, 2));
        let mut out = [0.0; 2];
        pool(&v.history(), &s.history(), None, 0, 2, false, &mut out);
        assert_close(&out, &[f64::from(values[0]), (f64::from(values[1]) + f64::from(values[3])) / 2.0], 1e-6);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn bands_of_any_size_pool_to_the_same_bits(
            case in 0..CASES.len(), cuts in prop::collection::btree_set(1usize..256, 0..12)
        ) {
            let case = CASES[case];
            let cuts: Vec<usize> = cuts.into_iter().filter(|&c| c < case.groups * case.ratio).collect();
            prop_assert_eq!(bits(&case.pooled(&cuts, true)), bits(&case.pooled(&[], true)));
        }
    }
}
