//! Hyper-connections (spec/model.md 3.2): coefficients of a sub-layer, the final mix, collapse and expand.
//!
//! A row of streams is [S * D], stream after stream. A row of coefficients is [2S + S*S]: pre, post, then C row-major.

use super::norm::inverse_rms;
use crate::simd::{exp, sigmoid};

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
    let r = inverse_rms(streams, rms_eps) as f32;
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
    let r = inverse_rms(streams, rms_eps) as f32;
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

#[cfg(test)]
mod tests {
    use super::super::testing::{self, assert_close, noise, wide};
    use super::*;

    #[test]
    fn sinkhorn_gives_the_test_vector_of_the_specification() {
        let mut c = [1.0, 0.0, 0.0, -1.0, 0.0, 2.0, 0.0, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.5];
        sinkhorn(&mut c, 4, 1e-6, 20);
        let want = [
            0.590966, 0.127341, 0.216924, 0.064768, 0.140143, 0.606535, 0.139833, 0.113488, 0.107931, 0.171845,
            0.482639, 0.237584, 0.160958, 0.094278, 0.160602, 0.584160,
        ];
        assert_close(&c, &want, 1e-6);
    }

    #[test]
    fn coefficients_follow_the_formula() {
        let (s, d, eps, hc) = (4, 24, 1e-20f32, 1e-6f32);
        let (x, u) = (noise(s * d, 1), noise(2 * s + s * s, 2));
        let (base, scale) = (noise(2 * s + s * s, 3), [0.7f32, 1.3, 2.1]);
        let mut coef = u.clone();
        mix(&mut coef, &x, &base, &scale, s, eps, hc, 20);

        let r = 1.0 / (wide(&x).iter().map(|v| v * v).sum::<f64>() / (s * d) as f64 + f64::from(eps)).sqrt();
        let hc = f64::from(hc);
        let v: Vec<f64> = (0..u.len())
            .map(|i| {
                let scale = scale[if i < s {
                    0
                } else if i < 2 * s {
                    1
                } else {
                    2
                }];
                f64::from(u[i]) * r * f64::from(scale) + f64::from(base[i])
            })
            .collect();
        let mut want: Vec<f64> = v[..s].iter().map(|&v| testing::sigmoid(v) + hc).collect();
        want.extend(v[s..2 * s].iter().map(|&v| 2.0 * testing::sigmoid(v)));
        let mut c = vec![vec![0.0; s]; s];
        for j in 0..s {
            let sum: f64 = (0..s).map(|k| v[2 * s + j * s + k].exp()).sum();
            for k in 0..s {
                c[j][k] = v[2 * s + j * s + k].exp() / sum + hc;
            }
        }
        for step in 0..39 {
            // Even steps normalise columns, odd ones rows.
            let old = c.clone();
            for j in 0..s {
                for k in 0..s {
                    let sum: f64 = (0..s).map(|i| if step % 2 == 0 { old[i][k] } else { old[j][i] }).sum();
                    c[j][k] = old[j][k] / (sum + hc);
                }
            }
        }
        want.extend(c.concat());
        assert_close(&coef, &want, 2e-6);
    }

    #[test]
    fn the_final_mix_follows_the_formula() {
        let (x, u, base) = (noise(4 * 16, 4), noise(4, 5), noise(4, 6));
        let mut pre = u.clone();
        head(&mut pre, &x, &base, &[1.7], 1e-6, 1e-6);
        let r = 1.0 / (wide(&x).iter().map(|v| v * v).sum::<f64>() / 64.0 + 1e-6).sqrt();
        let want: Vec<f64> = (0..4)
            .map(|s| testing::sigmoid(f64::from(u[s]) * r * f64::from(1.7f32) + f64::from(base[s])) + 1e-6)
            .collect();
        assert_close(&pre, &want, 1e-6);
    }

    #[test]
    fn collapse_weighs_streams_with_the_first_values_of_a_longer_row() {
        let (x, coef) = (noise(4 * 21, 7), noise(24, 8));
        let mut out = [9.0; 21];
        collapse(&x, &coef, &mut out);
        let want: Vec<f64> =
            (0..21).map(|i| (0..4).map(|s| f64::from(coef[s]) * f64::from(x[s * 21 + i])).sum()).collect();
        assert_close(&out, &want, 1e-6);
    }

    #[test]
    fn collapse_with_the_one_hot_mix_copies_the_first_stream() {
        let x = noise(4 * 21, 9);
        let mut out = [9.0; 21];
        collapse(&x, &[1.0, 0.0, 0.0, 0.0], &mut out);
        assert_eq!(out[..], x[..21]);
    }

    #[test]
    fn expand_sums_over_the_first_index_of_the_mix_and_reads_before_it_writes() {
        for (s, d) in [(1, 5), (2, 16), (4, 37), (8, 48)] {
            let (x, y, coef) = (noise(s * d, 10), noise(d, 11), noise(2 * s + s * s, 12));
            let mut got = x.clone();
            expand(&y, &coef, &mut got, s);
            let (post, c) = coef[s..].split_at(s);
            let mut want = Vec::new();
            for k in 0..s {
                for i in 0..d {
                    let mixed: f64 = (0..s).map(|j| f64::from(c[j * s + k]) * f64::from(x[j * d + i])).sum();
                    want.push(f64::from(post[k]) * f64::from(y[i]) + mixed);
                }
            }
            assert_close(&got, &want, 1e-6);
        }
    }
}
