//! Hyper-connections (spec/model.md 3.2): coefficients of a sub-layer, the final mix, collapse and expand.
//!
//! A row of streams is [S * D], stream after stream. A row of coefficients is [2S + S*S]: pre, post, then C row-major.

use super::norm::inverse_rms;
use super::num::{exp, sigmoid};

/// The most streams a model may have.
pub(crate) const STREAMS_MAX: usize = 8;

/// Elements of every stream that [`expand`] holds at a time: few enough for registers and L1, enough for wide vectors.
const EXPAND_CHUNK: usize = 16;

/// One row of `Op::HyperMix` after its product. `coef` [2S + S*S] holds `weight @ streams` on entry (a plain f32
/// product) and pre, post and C on return; `streams` [S * D] is the row that was multiplied. `base` [2S + S*S], `scale`
/// [3] for pre, post and C.
pub(crate) fn mix(
    coef: &mut [f32],
    streams: &[f32],
    base: &[f32],
    scale: &[f32],
    count: usize,
    rms_eps: f32,
    hc_eps: f32,
    iterations: u32,
) {
    let r = inverse_rms(streams, rms_eps);
    let (pre, rest) = coef.split_at_mut(count);
    let (post, c) = rest.split_at_mut(count);
    for (u, base) in pre.iter_mut().zip(base) {
        *u = sigmoid(*u * r * scale[0] + base) + hc_eps;
    }
    for (u, base) in post.iter_mut().zip(&base[count..]) {
        *u = 2.0 * sigmoid(*u * r * scale[1] + base);
    }
    for (u, base) in c.iter_mut().zip(&base[2 * count..]) {
        *u = *u * r * scale[2] + base;
    }
    sinkhorn(c, count, hc_eps, iterations);
}

/// One row of `Op::HyperHead` after its product: `pre` [S] holds `weight @ streams` on entry and
/// sigmoid(u * scale + base) + hc_eps on return. `base` [S], `scale` [1].
pub(crate) fn head(pre: &mut [f32], streams: &[f32], base: &[f32], scale: &[f32], rms_eps: f32, hc_eps: f32) {
    let r = inverse_rms(streams, rms_eps);
    for (u, base) in pre.iter_mut().zip(base) {
        *u = sigmoid(*u * r * scale[0] + base) + hc_eps;
    }
}

/// Makes the logits `c` [S * S] nearly doubly stochastic: a softmax per row and a column step, then `iterations - 1`
/// times a row step and a column step. `eps` is added to the softmax and to every divisor.
fn sinkhorn(c: &mut [f32], count: usize, eps: f32, iterations: u32) {
    for row in c.chunks_exact_mut(count) {
        let max = row.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
        let mut sum = 0.0;
        for v in row.iter_mut() {
            *v = exp(*v - max);
            sum += *v;
        }
        for v in row {
            *v = *v / sum + eps;
        }
    }
    column_step(c, count, eps);
    for _ in 1..iterations {
        for row in c.chunks_exact_mut(count) {
            let sum = row.iter().fold(0.0, |a, v| a + v) + eps;
            for v in row {
                *v /= sum;
            }
        }
        column_step(c, count, eps);
    }
}

fn column_step(c: &mut [f32], count: usize, eps: f32) {
    for k in 0..count {
        let sum = (0..count).fold(0.0, |a, j| a + c[j * count + k]) + eps;
        for j in 0..count {
            c[j * count + k] /= sum;
        }
    }
}

/// One row of `Op::Collapse`: `out` [D] = sum over s, ascending, of pre[s] * streams[s]. `pre` may be longer than S: the
/// first S values count, S being `streams.len() / out.len()`.
pub(crate) fn collapse(streams: &[f32], pre: &[f32], out: &mut [f32]) {
    let mut rows = streams.chunks_exact(out.len()).zip(pre);
    if let Some((x, p)) = rows.next() {
        for (out, x) in out.iter_mut().zip(x) {
            *out = p * x;
        }
    }
    for (x, p) in rows {
        for (out, x) in out.iter_mut().zip(x) {
            *out += p * x;
        }
    }
}

/// One row of `Op::Expand`, in place: streams[k] = post[k] * y + sum over j, ascending, of C[j][k] * streams[j].
/// `coef` [2S + S*S] is a row of [`mix`]. S is at most [`STREAMS_MAX`].
pub(crate) fn expand(y: &[f32], coef: &[f32], streams: &mut [f32], count: usize) {
    assert!(count <= STREAMS_MAX, "{count} hyper-connection streams: at most {STREAMS_MAX} are supported");
    let width = y.len();
    let (post, c) = coef[count..].split_at(count);
    let mut old = [[0.0f32; EXPAND_CHUNK]; STREAMS_MAX];
    for (at, y) in (0..width).step_by(EXPAND_CHUNK).zip(y.chunks(EXPAND_CHUNK)) {
        // All streams of an element are read before one of them is written.
        for (old, x) in old.iter_mut().zip(streams.chunks_exact(width)) {
            old[..y.len()].copy_from_slice(&x[at..at + y.len()]);
        }
        for (k, x) in streams.chunks_exact_mut(width).enumerate() {
            let x = &mut x[at..at + y.len()];
            for (x, y) in x.iter_mut().zip(y) {
                *x = post[k] * y;
            }
            for (j, old) in old[..count].iter().enumerate() {
                let c = c[j * count + k];
                for (x, old) in x.iter_mut().zip(old) {
                    *x += c * old;
                }
            }
        }
    }
}
