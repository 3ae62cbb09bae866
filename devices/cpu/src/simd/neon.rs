//! NEON forms: the f32 dot and the dot of 32-value units. The rest are the plain forms, in which fma is an instruction on
//! this architecture. Written without an AArch64 machine at hand: the tests of this module are what accepts it there.

use std::arch::aarch64::*;

use super::isa::{Kernels, PLAIN};
use super::layout::{UNIT, UnitActs, half};
use super::plain::{F32, finish_dot, reduce};

pub(super) static NEON: Kernels = Kernels { name: "NEON", dot_f32, units1: units::<1>, units4: units::<4>, ..PLAIN };

/// # Safety
/// Both rows have `n` values.
#[target_feature(enable = "neon")]
unsafe fn dot_f32(a: *const u8, b: *const u8, n: usize) -> f32 {
    let mut lanes = [0.0f32; 32];
    let whole = n / 32 * 32;
    // SAFETY: i + 32 <= n for every step.
    unsafe {
        let (x, y) = (a.cast::<f32>(), b.cast::<f32>());
        let mut acc = [vdupq_n_f32(0.0); 8];
        let mut i = 0;
        while i < whole {
            for (j, acc) in acc.iter_mut().enumerate() {
                *acc = vfmaq_f32(*acc, vld1q_f32(x.add(i + 4 * j)), vld1q_f32(y.add(i + 4 * j)));
            }
            i += 32;
        }
        for (j, acc) in acc.iter().enumerate() {
            vst1q_f32(lanes.as_mut_ptr().add(4 * j), *acc);
        }
        finish_dot::<F32, F32>(lanes, a, b, whole, n)
    }
}

/// Products of 16 and 16 codes, four neighbours added.
///
/// # Safety
/// 16 codes lie at each address.
#[target_feature(enable = "neon")]
unsafe fn four_lanes(codes: *const i8, acts: *const i8) -> float32x4_t {
    // SAFETY: passed on to the caller.
    unsafe {
        let (c, a) = (vld1q_s8(codes), vld1q_s8(acts));
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(c), vget_low_s8(a)));
        let high = vpaddlq_s16(vmull_s8(vget_high_s8(c), vget_high_s8(a)));
        vcvtq_f32_s32(vpaddq_s32(low, high))
    }
}

/// # Safety
/// As for the plain form.
#[target_feature(enable = "neon")]
unsafe fn units<const B: usize>(
    codes: *const i8,
    scales: *const [f32; 2],
    units: usize,
    acts: [*const u8; B],
    at: UnitActs,
) -> [f32; B] {
    let mut results = [0.0; B];
    for (result, act) in results.iter_mut().zip(acts) {
        let mut lanes = [0.0f32; 8];
        // SAFETY: units u < units.
        unsafe {
            let (mut lower, mut upper) = (vdupq_n_f32(0.0), vdupq_n_f32(0.0));
            for u in 0..units {
                let unit = act.add(u * at.stride);
                let d = half(u16::from_le(unit.cast::<u16>().read_unaligned()));
                let [low, high] = scales.add(u).read();
                let (c, a) = (codes.add(u * UNIT), unit.add(at.codes_at).cast::<i8>());
                lower = vfmaq_f32(lower, vdupq_n_f32(low * d), four_lanes(c, a));
                upper = vfmaq_f32(upper, vdupq_n_f32(high * d), four_lanes(c.add(16), a.add(16)));
            }
            vst1q_f32(lanes.as_mut_ptr(), lower);
            vst1q_f32(lanes.as_mut_ptr().add(4), upper);
        }
        *result = reduce(lanes);
    }
    results
}
