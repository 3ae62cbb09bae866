//! Engram gate (spec/model.md 3.8, "Apply"): one row of streams gets the gated Engram value.

use super::norm::inverse_rms;
use crate::simd::{dot_f32, sigmoid};

/// Elements per partial sum of the gate's product; partial sums are added in order.
const CHUNK: usize = 512;

/// One row of `Op::EngramGate`: `kv` [(S + 1) * D] is S keys and one value, `q_weight` and `k_weight` are [S, D]; adds
/// gate_s * value to each stream of `streams` [S * D].
pub(crate) fn gate(kv: &[f32], q_weight: &[f32], k_weight: &[f32], streams: &mut [f32], count: usize, eps: f32) {
    let width = streams.len() / count;
    let (keys, value) = kv.split_at(count * width);
    let weights = q_weight.chunks_exact(width).zip(k_weight.chunks_exact(width));
    for ((x, key), (q, k)) in streams.chunks_exact_mut(width).zip(keys.chunks_exact(width)).zip(weights) {
        let norm = (inverse_rms(x, eps) * inverse_rms(key, eps)) as f32;
        let dot = product(x, q, key, k) * norm / (width as f32).sqrt();
        let g = openness(dot);
        for (x, v) in x.iter_mut().zip(value) {
            *x += g * v;
        }
    }
}

/// sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)); +0 counts as positive, so that it gives sigmoid(0.001).
fn openness(dot: f32) -> f32 {
    let magnitude = dot.abs();
    let magnitude = if magnitude < 1e-6 { 1e-6 } else { magnitude };
    sigmoid(magnitude.sqrt().copysign(dot))
}

/// Sum over i of x q key k.
fn product(x: &[f32], q: &[f32], key: &[f32], k: &[f32]) -> f32 {
    let (mut a, mut b) = ([0.0f32; CHUNK], [0.0f32; CHUNK]);
    let mut sum = 0.0;
    for (((x, q), key), k) in x.chunks(CHUNK).zip(q.chunks(CHUNK)).zip(key.chunks(CHUNK)).zip(k.chunks(CHUNK)) {
        let n = x.len();
        for i in 0..n {
            a[i] = x[i] * q[i];
            b[i] = key[i] * k[i];
        }
        sum += dot_f32(&a[..n], &b[..n]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, assert_close, bits, noise, wide};
    use super::*;

    #[test]
    fn streams_get_the_gated_value() {
        // 700 is more than one partial sum.
        for (s, d) in [(4, 24), (2, 700)] {
            let (x, kv) = (noise(s * d, 1), noise((s + 1) * d, 2));
            let (q, k) = (noise(s * d, 3), noise(s * d, 4));
            let mut got = x.clone();
            gate(&kv, &q, &k, &mut got, s, 1e-20);
            let (xw, kvw) = (wide(&x), wide(&kv));
            let mut want = Vec::new();
            for stream in 0..s {
                let run = stream * d..(stream + 1) * d;
                let mean = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>() / d as f64;
                let n = 1.0 / (mean(&xw[run.clone()]) + 1e-20).sqrt() / (mean(&kvw[run.clone()]) + 1e-20).sqrt();
                let dot = run.clone().map(|i| xw[i] * f64::from(q[i]) * f64::from(k[i]) * kvw[i]).sum::<f64>() * n
                    / (d as f64).sqrt();
                let g = testing::sigmoid(dot.signum() * dot.abs().max(1e-6).sqrt());
                want.extend(run.enumerate().map(|(i, at)| xw[at] + g * kvw[s * d + i]));
            }
            assert_close(&got, &want, 2e-6);
        }
    }

    #[test]
    fn a_zero_product_opens_the_gate_a_little_more_than_half() {
        assert_close(&[openness(0.0), openness(-0.0)], &[testing::sigmoid(0.001), testing::sigmoid(-0.001)], 1e-7);
        assert!(openness(0.0) > 0.5 && openness(-0.0) < 0.5);
        assert_close(&[openness(-4.0)], &[testing::sigmoid(-2.0)], 1e-7);
        assert!(openness(f32::NAN).is_nan());
    }

    #[test]
    fn a_key_of_zeros_gives_the_smallest_gate_and_no_nan() {
        let (d, mut x) = (8, noise(8, 5));
        let mut kv = vec![0.0; 2 * d];
        kv[d..].fill(1.0);
        let before = x.clone();
        gate(&kv, &[1.0; 8], &[1.0; 8], &mut x, 1, 1e-20);
        let want: Vec<f32> = before.iter().map(|v| v + openness(0.0)).collect();
        // A product of zeros may have either sign; both lie within 0.001 of one half.
        assert_close(&x, &wide(&want), 1e-3);
        assert_ne!(bits(&x), bits(&before));
    }
}
