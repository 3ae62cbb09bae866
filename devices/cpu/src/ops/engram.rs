//! Engram gate (spec/model.md 3.8, "Apply"): one row of streams gets the gated Engram value.

use super::norm::inverse_rms;
use super::num::{dot_f32, sigmoid};

/// Elements per partial sum of the gate's product; partial sums are added in order.
const CHUNK: usize = 512;

/// One row of `Op::EngramGate`: `kv` [(S + 1) * D] is S keys and one value, `q_weight` and `k_weight` are [S, D]; adds
/// gate_s * value to each stream of `streams` [S * D].
pub(crate) fn gate(kv: &[f32], q_weight: &[f32], k_weight: &[f32], streams: &mut [f32], count: usize, eps: f32) {
    let width = streams.len() / count;
    let (keys, value) = kv.split_at(count * width);
    let weights = q_weight.chunks_exact(width).zip(k_weight.chunks_exact(width));
    for ((x, key), (q, k)) in streams.chunks_exact_mut(width).zip(keys.chunks_exact(width)).zip(weights) {
        let norm = inverse_rms(x, eps) * inverse_rms(key, eps);
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
