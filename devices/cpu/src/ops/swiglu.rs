//! Clamped SwiGLU (spec/model.md 3.10). NaN stays NaN: the clamps are comparisons, not `min` and `max`.

use super::num::silu;

/// silu(min(gate, limit)) * clamp(up, -limit, limit).
#[inline]
fn activate(gate: f32, up: f32, limit: f32) -> f32 {
    let gate = if gate > limit { limit } else { gate };
    let up = if up > limit {
        limit
    } else if up < -limit {
        -limit
    } else {
        up
    };
    silu(gate) * up
}

/// One row of `Op::SwiGlu`: `out` = silu(min(gate, limit)) * clamp(up, -limit, limit), all [F].
pub(crate) fn swiglu(gate: &[f32], up: &[f32], limit: f32, out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = activate(gate, up, limit);
    }
}

/// [`swiglu`] with `out` in the place of `gate`.
pub(crate) fn swiglu_in_place(gate: &mut [f32], up: &[f32], limit: f32) {
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate = activate(*gate, up, limit);
    }
}

/// The activation of a routed expert, in the place of `gate`: `weight` * [`swiglu`].
pub(crate) fn swiglu_weighted(gate: &mut [f32], up: &[f32], limit: f32, weight: f32) {
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate = weight * activate(*gate, up, limit);
    }
}
