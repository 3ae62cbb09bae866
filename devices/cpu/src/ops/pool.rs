//! Compressor pooling (spec/model.md 3.6 and 3.7): one compressed group of one sequence.

use super::history::History;
use super::num::exp;

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
            for i in 0..n {
                let e = exp(s[i] - max[i]);
                sum[i] += e;
                out[i] += e * value[i];
            }
        }
        for (out, sum) in out.iter_mut().zip(&sum) {
            *out /= sum;
        }
    }
}
