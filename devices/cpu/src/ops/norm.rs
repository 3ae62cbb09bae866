//! RMS norm and the one-hot mix.

use super::num::sum_squares;

/// `1 / sqrt(mean(x^2) + eps)` of one run of values.
#[inline]
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_squares(x) / x.len() as f32 + eps).sqrt()
}

/// One row of `Op::RmsNorm`: `out = weight * x / sqrt(mean(x^2) + eps)` over each run of `width` values of `x`
/// [runs * width]. `weight` is [width], applied to every run; without it the factor is 1.
pub(crate) fn rms_norm(x: &[f32], weight: Option<&[f32]>, width: usize, eps: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let r = inverse_rms(x, eps);
        match weight {
            Some(weight) => {
                for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * r * w;
                }
            }
            None => {
                for (out, x) in out.iter_mut().zip(x) {
                    *out = x * r;
                }
            }
        }
    }
}

/// [`rms_norm`] where `x` and `out` are the same operand; the bits are the same.
pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: Option<&[f32]>, width: usize, eps: f32) {
    for x in x.chunks_exact_mut(width) {
        let r = inverse_rms(x, eps);
        match weight {
            Some(weight) => {
                for (x, w) in x.iter_mut().zip(weight) {
                    *x = *x * r * w;
                }
            }
            None => {
                for x in x {
                    *x *= r;
                }
            }
        }
    }
}

/// One row of `Op::OneHot`: (1, 0, 0, ...).
pub(crate) fn one_hot(out: &mut [f32]) {
    out.fill(0.0);
    if let Some(first) = out.first_mut() {
        *first = 1.0;
    }
}
