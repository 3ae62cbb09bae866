//! The arithmetic that has to be fast: dot products of f32, half and quantised rows, exponentials, and the loop over the
//! rows of a matrix, each in a plain form and in forms for the instruction sets of the machine at hand.
//!
//! **One bit pattern per kernel.** Every form of a kernel adds in the same virtual lanes and reduces them by the same
//! tree, so all forms give equal bits:
//!
//! - *Float dots* have 32 lanes. Value `i` goes to lane `i % 32` by one fma; then lanes `l` and `l + 16` are added, then
//!   those 8, 4, 2 and 1 apart.
//! - *Quantised dots* have 8 lanes. Within each run of 32 values, value `i` goes to lane `i / 4`. The products of the
//!   codes of a block are added per lane as integers, which is exact, so only the scaling rounds: a 32-value block adds
//!   `fma(weight scale * activation scale, lane sum, lane)`, where the two halves of a block may have two scales (they
//!   are lanes 0-3 and 4-7). A 256-value block multiplies each 16-group by its integer scale first, and adds once per
//!   block; its minimums make one more fma over lanes of two 16-groups each. Then lanes 4, 2 and 1 apart are added.
//!   Q4_1 and Q5_1 add their minimums in a separate chain, in block order, after the lanes.
//!
//! Sums never depend on the number of activation rows or on the range of weight rows, so results are the same for any
//! batch and any split over threads. NaN stays NaN, but its sign and payload are not part of the contract.
//!
//! | file | what |
//! |---|---|
//! | `isa` | which instruction sets there are; the table of kernels of each |
//! | `math` | exp and its relatives |
//! | `layout` | block layouts and tables |
//! | `unpack` | blocks to 8-bit codes and scales |
//! | `plain` | the plain forms |
//! | `x86` | AVX2 and AVX-512 forms |
//! | `neon` | NEON forms of the hottest two |
//! | `matmul` | matrix times activation rows |
#![expect(unsafe_code, reason = "vector intrinsics and loads at computed addresses in the innermost loops")]

mod isa;
mod layout;
mod math;
mod matmul;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
mod unpack;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub use isa::Isa;
pub use math::{exp, sigmoid, silu, softplus};
pub use matmul::{ActRows, WeightRows, matmul_rows, vec_dot};

use std::sync::OnceLock;

fn best() -> Isa {
    static BEST: OnceLock<Isa> = OnceLock::new();
    *BEST.get_or_init(Isa::detect)
}

/// Sum of `a[i] * b[i]` in 32 lanes.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    best().dot_f32(a, b)
}

/// Sum of squares: [`dot_f32`] of `x` with itself.
#[inline]
pub fn sum_squares(x: &[f32]) -> f32 {
    best().dot_f32(x, x)
}

/// `y[i] = fma(alpha, x[i], y[i])`.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn axpy(alpha: f32, x: &[f32], y: &mut [f32]) {
    best().axpy(alpha, x, y);
}

/// `x[i] *= factor`.
#[inline]
pub fn scale(factor: f32, x: &mut [f32]) {
    best().scale(factor, x);
}

/// [`exp`] of every value, in place.
#[inline]
pub fn exp_slice(x: &mut [f32]) {
    best().exp_slice(x);
}

/// [`sigmoid`] of every value, in place.
#[inline]
pub fn sigmoid_slice(x: &mut [f32]) {
    best().sigmoid_slice(x);
}

/// [`silu`] of every value, in place.
#[inline]
pub fn silu_slice(x: &mut [f32]) {
    best().silu_slice(x);
}
