//! exp and what is made of it, with bits that no C library and no instruction set changes.
//!
//! exp(x) = 2^n * p(r) with n = round(x / ln 2) and r = x - n ln 2, ln 2 in two parts (Cody and Waite), and p the Taylor
//! polynomial of degree 7, whose remainder on |r| <= ln 2 / 2 is below 0.1 ulp. The factor 2^n is applied in two
//! halves, so that results in the subnormal range are rounded once. Error below 1.1 ulp (1.02 measured, against f64).

/// Beyond these the result is infinity or zero without further ado.
pub(super) const EXP_HIGH: f32 = 89.0;
pub(super) const EXP_LOW: f32 = -104.5;
/// 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits.
pub(super) const ROUNDER: f32 = 12582912.0;
pub(super) const LN2_HIGH: f32 = 0.693_359_4;
pub(super) const LN2_LOW: f32 = -2.121_944_4e-4;
/// 1/7!, 1/6!, ... 1/2!: the coefficients in Horner's order.
pub(super) const EXP_POLY: [f32; 6] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];

/// [`exp`] in the feature set of its caller: the place where its steps are written down.
#[inline(always)]
pub(super) fn exp_steps(x: f32) -> f32 {
    // Comparisons, so that NaN goes through.
    let x = if x > EXP_HIGH { EXP_HIGH } else { x };
    let x = if x < EXP_LOW { EXP_LOW } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    let mut q = EXP_POLY[0];
    for c in &EXP_POLY[1..] {
        q = q.mul_add(r, *c);
    }
    let p = (r * r).mul_add(q, r) + 1.0;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// 2^n for -126 <= n <= 127; anything for other n (they come from NaN only).
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[inline(always)]
pub(super) fn sigmoid_steps(x: f32) -> f32 {
    1.0 / (1.0 + exp_steps(-x))
}

#[inline(always)]
pub(super) fn silu_steps(x: f32) -> f32 {
    x / (1.0 + exp_steps(-x))
}

/// [`exp_steps`] of every value. Inlined, so that a caller with vector instructions gets a vector loop: each step is one
/// IEEE operation, so its width does not change the bits.
#[inline(always)]
pub(super) fn exp_all(x: &mut [f32]) {
    for x in x {
        *x = exp_steps(*x);
    }
}

/// [`sigmoid_steps`] of every value.
#[inline(always)]
pub(super) fn sigmoid_all(x: &mut [f32]) {
    for x in x {
        *x = sigmoid_steps(*x);
    }
}

/// [`silu_steps`] of every value.
#[inline(always)]
pub(super) fn silu_all(x: &mut [f32]) {
    for x in x {
        *x = silu_steps(*x);
    }
}

/// e^x. Infinity above 88.72, 0 below -103.97, NaN for NaN.
#[inline]
pub fn exp(x: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        #[target_feature(enable = "fma")]
        fn with_fma(x: f32) -> f32 {
            exp_steps(x)
        }
        // SAFETY: the processor has fma, as was just asked.
        return unsafe { with_fma(x) };
    }
    exp_steps(x)
}

/// Fused multiply-add: an instruction where the machine has one.
#[inline]
pub(super) fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        #[target_feature(enable = "fma")]
        fn instruction(a: f32, b: f32, c: f32) -> f32 {
            a.mul_add(b, c)
        }
        // SAFETY: the processor has fma, as was just asked.
        return unsafe { instruction(a, b, c) };
    }
    a.mul_add(b, c)
}

/// 1 / (1 + e^-x).
#[inline]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x / (1 + e^-x). NaN for negative infinity.
#[inline]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// ln(1 + e^x), as max(x, 0) + log1p(e^-|x|), which neither overflows nor cancels.
#[inline]
pub fn softplus(x: f32) -> f32 {
    x.max(0.0) + libm::log1pf(exp(-x.abs()))
}
