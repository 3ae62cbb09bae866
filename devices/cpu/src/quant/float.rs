//! Half-precision conversions written so that loops over them vectorise on any target.

/// IEEE half bits to f32, exact for every finite value; NaN stays NaN, with its payload.
///
/// Exponent and mantissa move to their f32 places and the bias is added. A subnormal half is first given the exponent of
/// 2^-14, which is then subtracted, so that no subnormal f32 (slow on many cores) takes part.
#[inline]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    const BIAS: u32 = (127 - 15) << 23;
    const SMALLEST_NORMAL: u32 = BIAS + (1 << 23);
    let magnitude = u32::from(bits & 0x7FFF) << 13;
    let subnormal = (f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL)).to_bits();
    let special = magnitude | 0x7F80_0000;
    let finite = if magnitude < 0x0400 << 13 { subnormal } else { magnitude + BIAS };
    let result = if magnitude < 0x7C00 << 13 { finite } else { special };
    f32::from_bits(result | u32::from(bits & 0x8000) << 16)
}

/// Little-endian IEEE half at `offset`.
#[inline]
pub(crate) fn f16_at(bytes: &[u8], offset: usize) -> f32 {
    f16_to_f32(u16_at(bytes, offset))
}

/// Little-endian u16 at `offset`.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// Little-endian u32 at `offset`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

/// BF16 bits to f32: the upper half of the word.
#[inline]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to BF16 bits, to nearest, ties to even; NaN becomes a quiet NaN of the same sign.
#[inline]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    (if bits & 0x7FFF_FFFF > 0x7F80_0000 { bits | 0x0040_0000 } else { rounded } >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let (got, want) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "half {bits:#06x}: {got} {want}");
            assert_eq!(got.is_sign_negative(), want.is_sign_negative());
        }
    }

    #[test]
    fn bf16_rounding_agrees_with_the_half_crate_around_every_bf16_value() {
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF] {
                let value = f32::from_bits(u32::from(high) << 16 | low);
                let (got, want) = (f32_to_bf16(value), half::bf16::from_f32(value));
                assert!(got == want.to_bits() || value.is_nan() && want.is_nan(), "{value:e}");
                assert_eq!(value.is_nan(), bf16_to_f32(got).is_nan());
            }
        }
    }
}
