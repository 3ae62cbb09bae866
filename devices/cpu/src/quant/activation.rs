//! Activation rows in the form that the dot product with a weight type wants (spec/formats.md section 3.1).
//!
//! ```text
//! Q8_0   34 bytes, 32 values:   f16 d | 32 x i8 q                     value = d q
//! Q8_1   36 bytes, 32 values:   f16 d | f16 s | 32 x i8 q             s = d (sum of q)
//! Q8_K  292 bytes, 256 values:  f32 d | 256 x i8 q | 16 x i16 sums    sums of 16 consecutive q
//! ```
//!
//! The bytes equal those of ggml. Rounding differs on purpose: half away from zero for Q8_0 and Q8_1, half to even for
//! Q8_K. A block that holds NaN or an infinity gets scale NaN and codes 0, so every dot product with it is NaN: a poisoned
//! row stays visible. Codes are never below -127, which the saturating 16-bit sums of SIMD kernels rely on.

use half::slice::HalfFloatSliceExt;
use luce_core::DType;

use super::float::f32_to_bf16;

/// Form of an activation row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ActFormat {
    /// As is.
    F32,
    /// Rounded to IEEE half.
    F16,
    /// Rounded to BF16.
    Bf16,
    /// Blocks of 32 with an f16 scale.
    Q8_0,
    /// Blocks of 32 with an f16 scale and the scaled sum.
    Q8_1,
    /// Blocks of 256 with an f32 scale and sums of 16.
    Q8K,
}

impl ActFormat {
    /// Values in one block.
    pub const fn block_values(self) -> usize {
        match self {
            ActFormat::F32 | ActFormat::F16 | ActFormat::Bf16 => 1,
            ActFormat::Q8_0 | ActFormat::Q8_1 => 32,
            ActFormat::Q8K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            ActFormat::F32 => 4,
            ActFormat::F16 | ActFormat::Bf16 => 2,
            ActFormat::Q8_0 => 34,
            ActFormat::Q8_1 => 36,
            ActFormat::Q8K => 292,
        }
    }
}

/// The activation form that rows of weight type `dtype` are multiplied with; `None` for types that cannot be multiplied.
pub fn partner(dtype: DType) -> Option<ActFormat> {
    match dtype {
        DType::F32 | DType::Mxfp8 | DType::Rocmfp3Mix | DType::Rocmfp2Mix => Some(ActFormat::F32),
        DType::F16 => Some(ActFormat::F16),
        DType::Bf16 => Some(ActFormat::Bf16),
        DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::Iq4Nl | DType::Mxfp4 | DType::Nvfp4 => Some(ActFormat::Q8_0),
        DType::Rocmfp4 | DType::Rocmfp4Fast | DType::Rocmfp6 | DType::Rocmfp8 | DType::Rocmfp3 | DType::Rocmfp2 => {
            Some(ActFormat::Q8_0)
        }
        DType::Q4_1 | DType::Q5_1 => Some(ActFormat::Q8_1),
        DType::Q2K | DType::Q3K | DType::Q4K | DType::Q5K | DType::Q6K => Some(ActFormat::Q8K),
        DType::Iq2Xxs | DType::Iq2Xs | DType::Iq2S | DType::Iq3Xxs | DType::Iq3S => Some(ActFormat::Q8K),
        DType::Iq1S | DType::Iq1M | DType::Iq4Xs => Some(ActFormat::Q8K),
        DType::Q8_1 | DType::Q8K | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 => None,
    }
}

/// Bytes of `n` values in form `format`.
///
/// # Panics
/// When `n` is not a whole number of blocks.
pub const fn act_bytes(format: ActFormat, n: usize) -> usize {
    assert!(n.is_multiple_of(format.block_values()), "activation rows are whole blocks");
    n / format.block_values() * format.block_bytes()
}

/// Writes `x` in form `format` to `out`, little-endian.
///
/// # Panics
/// When `x` is not a whole number of blocks or `out` is not [`act_bytes`] long.
pub fn quantize(format: ActFormat, x: &[f32], out: &mut [u8]) {
    assert_eq!(out.len(), act_bytes(format, x.len()), "length of the activation row");
    match format {
        ActFormat::F32 => {
            for (x, out) in x.iter().zip(out.as_chunks_mut::<4>().0) {
                *out = x.to_le_bytes();
            }
        }
        ActFormat::F16 => to_f16(x, out),
        ActFormat::Bf16 => {
            for (x, out) in x.iter().zip(out.as_chunks_mut::<2>().0) {
                *out = f32_to_bf16(*x).to_le_bytes();
            }
        }
        ActFormat::Q8_0 => {
            for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<34>().0) {
                let (scale, q) = symmetric(x);
                out[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
                for (out, q) in out[2..].iter_mut().zip(q) {
                    *out = q as u8;
                }
            }
        }
        ActFormat::Q8_1 => {
            for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<36>().0) {
                let (scale, q) = symmetric(x);
                let sum = q.iter().map(|&q| i32::from(q)).sum::<i32>() as f32;
                out[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
                out[2..4].copy_from_slice(&half::f16::from_f32(scale * sum).to_le_bytes());
                for (out, q) in out[4..].iter_mut().zip(q) {
                    *out = q as u8;
                }
            }
        }
        ActFormat::Q8K => {
            for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<292>().0) {
                q8_k(x, out);
            }
        }
    }
}

/// Halves, 64 at a time through a buffer, because `out` need not be aligned.
fn to_f16(x: &[f32], out: &mut [u8]) {
    let mut buffer = [half::f16::ZERO; 64];
    for (x, out) in x.chunks(64).zip(out.chunks_mut(128)) {
        let buffer = &mut buffer[..x.len()];
        buffer.convert_from_f32_slice(x);
        for (value, out) in buffer.iter().zip(out.as_chunks_mut::<2>().0) {
            *out = value.to_le_bytes();
        }
    }
}

/// Bits of the largest magnitude. As integers, because those order like magnitudes and their maximum vectorises; above
/// the bits of infinity when a NaN is among the values.
#[inline]
fn magnitude_bits<const N: usize>(x: &[f32; N]) -> i32 {
    x.iter().fold(0, |most, x| most.max((x.to_bits() & 0x7FFF_FFFF) as i32))
}

const INFINITY_BITS: i32 = 0x7F80_0000;

/// 1.5 * 2^23: adding it to a value of magnitude below 2^22 rounds that to an integer, half to even, in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// f32 scale and codes of a Q8_0 or Q8_1 block.
#[inline]
fn symmetric(x: &[f32; 32]) -> (f32, [i8; 32]) {
    let most = magnitude_bits(x);
    if most >= INFINITY_BITS {
        return (f32::NAN, [0; 32]);
    }
    let scale = f32::from_bits(most as u32) / 127.0;
    let inverse = 1.0 / scale;
    // Below 2^-128 the reciprocal overflows; the stored half is 0 there, so the codes mean nothing.
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    let mut q = [0; 32];
    for (q, x) in q.iter_mut().zip(x) {
        let value = x * inverse;
        // Half to even first, then one step outwards where that moved a tie inwards.
        let even = (value + ROUNDER) - ROUNDER;
        let half = 0.5f32.copysign(value);
        let outward = if value - even == half { half + half } else { 0.0 };
        *q = (even + outward + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()) as i8;
    }
    (scale, q)
}

/// One Q8_K block. The value of largest magnitude, the first of equals, maps to -127.
#[inline]
fn q8_k(x: &[f32; 256], out: &mut [u8; 292]) {
    let (parts, _) = x.as_chunks::<32>();
    let mut most = [0; 8];
    for (most, part) in most.iter_mut().zip(parts) {
        *most = magnitude_bits(part);
    }
    let largest = most.iter().fold(0, |a, &b| a.max(b));
    out.fill(0);
    if largest >= INFINITY_BITS {
        out[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        return;
    }
    let part = most.iter().position(|&m| m == largest).unwrap_or(0);
    let extreme = parts[part].iter().copied().find(|x| x.to_bits() & 0x7FFF_FFFF == largest as u32).unwrap_or(0.0);
    let scale = -127.0 / extreme;
    // Zero block, or one below 3.8e-37 whose reciprocal overflows: all zero.
    if !scale.is_finite() {
        return;
    }
    out[..4].copy_from_slice(&(1.0 / scale).to_le_bytes());
    let (codes, sums) = out[4..].split_at_mut(256);
    for (out, x) in codes.iter_mut().zip(x) {
        let rounded = ((scale * x + ROUNDER).to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
        *out = rounded.min(127) as u8;
    }
    for (codes, sum) in codes.as_chunks::<16>().0.iter().zip(sums.as_chunks_mut::<2>().0) {
        *sum = codes.iter().map(|&q| i16::from(q as i8)).sum::<i16>().to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_32_blocks_round_half_away_from_zero() {
        let mut x = [0.0f32; 32];
        x[..10].copy_from_slice(&[127.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.499_999_97, -126.5, 126.5]);
        let (scale, q) = symmetric(&x);
        assert_eq!(scale, 1.0);
        assert_eq!(q[..10], [127, 1, -1, 2, -2, 3, -3, 0, -127, 127]);
        for v in -25_400..=25_400 {
            let value = v as f32 / 200.0;
            x[1] = value;
            assert_eq!(f32::from(symmetric(&x).1[1]), value.round(), "{value}");
        }
    }

    #[test]
    fn codes_of_256_blocks_round_half_to_even_and_the_first_extreme_becomes_minus_127() {
        let mut x = [0.0f32; 256];
        x[40] = -127.0;
        x[41] = 127.0;
        for (i, x) in x[..9].iter_mut().enumerate() {
            *x = i as f32 - 4.5;
        }
        let mut out = [0; 292];
        quantize(ActFormat::Q8K, &x, &mut out);
        assert_eq!(out[..4], 1.0f32.to_le_bytes());
        let q: Vec<i8> = out[4..260].iter().map(|&b| b as i8).collect();
        assert_eq!(q[..9], [-4, -4, -2, -2, 0, 0, 2, 2, 4]);
        assert_eq!((q[40], q[41]), (-127, 127));
        assert_eq!(out[260..262], (-4i16).to_le_bytes());
    }

    #[test]
    fn a_block_with_nan_or_infinity_poisons_itself_and_no_other() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0f32; 512];
            x[7] = bad;
            for format in [ActFormat::Q8_0, ActFormat::Q8_1, ActFormat::Q8K] {
                let mut out = vec![0; act_bytes(format, 512)];
                quantize(format, &x, &mut out);
                let scale = |block: usize| match format {
                    ActFormat::Q8K => f32::from_le_bytes(out[292 * block..][..4].try_into().unwrap()),
                    _ => super::super::float::f16_at(&out, format.block_bytes() * block),
                };
                assert!(scale(0).is_nan(), "{format:?} {bad}");
                assert!(scale(1).is_finite(), "{format:?} {bad}");
            }
        }
    }

    #[test]
    fn magnitudes_whose_reciprocal_overflows_give_zero_blocks() {
        for tiny in [1e-45f32, 1e-39, 1e-38] {
            for format in [ActFormat::Q8_0, ActFormat::Q8_1, ActFormat::Q8K] {
                let mut out = vec![1; act_bytes(format, 256)];
                quantize(format, &[tiny; 256], &mut out);
                assert!(out.iter().all(|&b| b == 0), "{format:?} {tiny:e}");
            }
        }
    }
}
