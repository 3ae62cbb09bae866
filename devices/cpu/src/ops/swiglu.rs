//! Clamped SwiGLU (spec/model.md 3.10). NaN stays NaN: the clamps are comparisons, not `min` and `max`.

use crate::simd::silu_slice;

/// min(value, limit).
#[inline]
fn below(value: f32, limit: f32) -> f32 {
    if value > limit { limit } else { value }
}

/// clamp(value, -limit, limit).
#[inline]
fn within(value: f32, limit: f32) -> f32 {
    let value = below(value, limit);
    if value < -limit { -limit } else { value }
}

/// One row of `Op::SwiGlu`: `out` = silu(min(gate, limit)) * clamp(up, -limit, limit), all [F].
pub(crate) fn swiglu(gate: &[f32], up: &[f32], limit: f32, out: &mut [f32]) {
    out.copy_from_slice(gate);
    swiglu_in_place(out, up, limit);
}

/// [`swiglu`] with `out` in the place of `gate`.
pub(crate) fn swiglu_in_place(gate: &mut [f32], up: &[f32], limit: f32) {
    open(gate, limit);
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate *= within(up, limit);
    }
}

/// The activation of a routed expert, in the place of `gate`: `weight` * [`swiglu`].
pub(crate) fn swiglu_weighted(gate: &mut [f32], up: &[f32], limit: f32, weight: f32) {
    open(gate, limit);
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate = weight * (*gate * within(up, limit));
    }
}

/// silu(min(gate, limit)) of every value, in place.
fn open(gate: &mut [f32], limit: f32) {
    for gate in gate.iter_mut() {
        *gate = below(*gate, limit);
    }
    silu_slice(gate);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, bits, noise, sigmoid};
    use super::*;

    #[test]
    fn the_gate_is_clamped_from_above_and_the_other_branch_from_both_sides() {
        let gate: Vec<f32> = noise(64, 1).iter().map(|v| v * 3.0).collect();
        let up: Vec<f32> = noise(64, 2).iter().map(|v| v * 3.0).collect();
        for limit in [0.5f32, 10.0] {
            let mut out = vec![0.0; 64];
            swiglu(&gate, &up, limit, &mut out);
            let want: Vec<f64> = gate
                .iter()
                .zip(&up)
                .map(|(&g, &u)| {
                    let (g, u, limit) = (f64::from(g), f64::from(u), f64::from(limit));
                    let g = g.min(limit);
                    g * sigmoid(g) * u.clamp(-limit, limit)
                })
                .collect();
            assert_close(&out, &want, 1e-6);
            let mut same = gate.clone();
            swiglu_in_place(&mut same, &up, limit);
            assert_eq!(bits(&same), bits(&out));
            let mut weighted = gate.clone();
            swiglu_weighted(&mut weighted, &up, limit, 0.25);
            assert_eq!(bits(&weighted), bits(&out.iter().map(|v| 0.25 * v).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn nan_is_not_hidden_by_a_clamp() {
        let mut out = [0.0; 2];
        swiglu(&[f32::NAN, 1.0], &[1.0, f32::NAN], 0.5, &mut out);
        assert!(out[0].is_nan() && out[1].is_nan());
    }
}
