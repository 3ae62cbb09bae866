//! The plain forms: the definition of every kernel's bits. The inner functions are inlined into their callers, so that a
//! form for an instruction set can fall back on them for a tail, with fma as an instruction.
#![allow(clippy::needless_range_loop, reason = "several arrays are indexed by the numbers of the formulas")]

use super::layout::{Head, Q8K_BYTES, Q8K_CODES, Q8K_SUMS, SUPER, UNIT, UnitActs, brain, half};

/// How 16 or 32 bits become an f32.
pub(super) trait Element {
    /// Value `i` of the row at `p`.
    ///
    /// # Safety
    /// The row has a value `i`.
    unsafe fn get(p: *const u8, i: usize) -> f32;
}

/// f32, little-endian.
pub(super) enum F32 {}
/// f16.
pub(super) enum F16 {}
/// bf16.
pub(super) enum Bf16 {}

impl Element for F32 {
    #[inline(always)]
    unsafe fn get(p: *const u8, i: usize) -> f32 {
        // SAFETY: the caller promises that value `i` exists; the read may be unaligned.
        f32::from_bits(u32::from_le(unsafe { p.cast::<u32>().add(i).read_unaligned() }))
    }
}

#[inline(always)]
unsafe fn u16_at(p: *const u8, i: usize) -> u16 {
    // SAFETY: the caller promises that value `i` exists; the read may be unaligned.
    u16::from_le(unsafe { p.cast::<u16>().add(i).read_unaligned() })
}

impl Element for F16 {
    #[inline(always)]
    unsafe fn get(p: *const u8, i: usize) -> f32 {
        // SAFETY: as promised by the caller.
        half(unsafe { u16_at(p, i) })
    }
}

impl Element for Bf16 {
    #[inline(always)]
    unsafe fn get(p: *const u8, i: usize) -> f32 {
        // SAFETY: as promised by the caller.
        brain(unsafe { u16_at(p, i) })
    }
}

/// Adds values `from..n` to their lanes and reduces the lanes.
///
/// # Safety
/// Both rows have `n` values; `from` is a multiple of 32.
#[inline(always)]
pub(super) unsafe fn finish_dot<A: Element, B: Element>(
    mut lanes: [f32; 32],
    a: *const u8,
    b: *const u8,
    from: usize,
    n: usize,
) -> f32 {
    let mut i = from;
    while i < n {
        let lane = &mut lanes[i % 32];
        // SAFETY: i < n.
        *lane = unsafe { A::get(a, i).mul_add(B::get(b, i), *lane) };
        i += 1;
    }
    let mut half = 16;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Dot product of two rows of `n` values.
///
/// # Safety
/// Both rows have `n` values.
pub(super) unsafe fn dot<A: Element, B: Element>(a: *const u8, b: *const u8, n: usize) -> f32 {
    // SAFETY: passed on.
    unsafe { finish_dot::<A, B>([0.0; 32], a, b, 0, n) }
}

#[inline(always)]
pub(super) fn axpy_steps(alpha: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = alpha.mul_add(*x, *y);
    }
}

#[inline(always)]
pub(super) fn scale_steps(factor: f32, x: &mut [f32]) {
    for x in x {
        *x *= factor;
    }
}

/// Lanes of integer products of 32 values.
#[inline(always)]
unsafe fn unit_lanes(codes: *const i8, acts: *const i8) -> [i32; 8] {
    let mut lanes = [0i32; 8];
    for i in 0..UNIT {
        // SAFETY: the caller promises 32 codes at both addresses.
        lanes[i / 4] += unsafe { i32::from(*codes.add(i)) * i32::from(*acts.add(i)) };
    }
    lanes
}

/// The tree over 8 lanes.
#[inline(always)]
pub(super) fn reduce(l: [f32; 8]) -> f32 {
    let (a, b, c, d) = (l[0] + l[4], l[1] + l[5], l[2] + l[6], l[3] + l[7]);
    (a + c) + (b + d)
}

/// An unpacked weight row of 32-value units with the scales of their halves, times activation rows.
///
/// # Safety
/// `codes`, `scales` and each activation row have `units` units.
pub(super) unsafe fn units<const B: usize>(
    codes: *const i8,
    scales: *const [f32; 2],
    units: usize,
    acts: [*const u8; B],
    at: UnitActs,
) -> [f32; B] {
    acts.map(|act| {
        let mut lanes = [0.0f32; 8];
        for u in 0..units {
            // SAFETY: u < units.
            let (sums, scale, d) = unsafe {
                let unit = act.add(u * at.stride);
                (unit_lanes(codes.add(u * UNIT), unit.add(at.codes_at).cast()), *scales.add(u), half(u16_at(unit, 0)))
            };
            for l in 0..8 {
                lanes[l] = (scale[l / 4] * d).mul_add(sums[l] as f32, lanes[l]);
            }
        }
        reduce(lanes)
    })
}

/// An unpacked weight row of 256-value blocks times activation rows.
///
/// # Safety
/// `codes`, `heads` and each activation row have `blocks` blocks.
pub(super) unsafe fn supers<const B: usize, const MINS: bool>(
    codes: *const i8,
    heads: *const Head,
    blocks: usize,
    acts: [*const u8; B],
) -> [f32; B] {
    acts.map(|act| {
        let mut lanes = [0.0f32; 8];
        for k in 0..blocks {
            // SAFETY: k < blocks.
            let (head, block) = unsafe { (&*heads.add(k), act.add(k * Q8K_BYTES)) };
            // SAFETY: a block begins with its scale.
            let d = unsafe { F32::get(block, 0) };
            let mut sums = [0i32; 8];
            for unit in 0..SUPER / UNIT {
                // SAFETY: unit < 8, inside the block.
                let part = unsafe {
                    unit_lanes(codes.add(k * SUPER + unit * UNIT), block.add(Q8K_CODES + unit * UNIT).cast())
                };
                for l in 0..8 {
                    sums[l] = sums[l].wrapping_add(part[l] * i32::from(head.scales[2 * unit + l / 4]));
                }
            }
            let factor = head.d * d;
            for l in 0..8 {
                lanes[l] = factor.mul_add(sums[l] as f32, lanes[l]);
            }
            if MINS {
                let factor = -(head.dmin * d);
                for l in 0..8 {
                    // SAFETY: a block ends with 16 sums.
                    let sum = unsafe {
                        let sums = block.add(Q8K_SUMS);
                        i32::from(head.mins[2 * l]) * i32::from(u16_at(sums, 2 * l) as i16)
                            + i32::from(head.mins[2 * l + 1]) * i32::from(u16_at(sums, 2 * l + 1) as i16)
                    };
                    lanes[l] = factor.mul_add(sum as f32, lanes[l]);
                }
            }
        }
        reduce(lanes)
    })
}
