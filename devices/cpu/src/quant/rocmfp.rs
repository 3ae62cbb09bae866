//! The ROCMFP types: integer levels, one or two UE4M3 scale bytes at the end of each block of 32 (spec/formats.md
//! section 2.5). With two, the first scales values 0..16 and the second values 16..32.

use super::codebook::{ROCMFP2_LEVELS, ROCMFP3_LEVELS, ROCMFP4_LEVELS, ROCMFP6_LEVELS, UE4M3_HALF};
use super::decode::{MixBook, each_block};

#[inline(always)]
fn scale(byte: u8) -> f32 {
    UE4M3_HALF[usize::from(byte)]
}

pub(super) fn fp4(bytes: &[u8], out: &mut [f32]) {
    each_block::<18, 32>(bytes, out, |b, out| {
        let (low, high) = (scale(b[16]), scale(b[17]));
        for j in 0..16 {
            out[j] = f32::from(ROCMFP4_LEVELS[usize::from(b[j] & 15)]) * low;
            out[j + 16] = f32::from(ROCMFP4_LEVELS[usize::from(b[j] >> 4)]) * high;
        }
    });
}

pub(super) fn fp4_fast(bytes: &[u8], out: &mut [f32]) {
    each_block::<17, 32>(bytes, out, |b, out| {
        let d = scale(b[16]);
        for j in 0..16 {
            out[j] = f32::from(ROCMFP4_LEVELS[usize::from(b[j] & 15)]) * d;
            out[j + 16] = f32::from(ROCMFP4_LEVELS[usize::from(b[j] >> 4)]) * d;
        }
    });
}

pub(super) fn fp6(bytes: &[u8], out: &mut [f32]) {
    each_block::<26, 32>(bytes, out, |b, out| {
        let (groups, scales) = b.as_chunks::<3>();
        for (g, (codes, out)) in groups.iter().zip(out.as_chunks_mut::<4>().0).enumerate() {
            let d = scale(scales[g / 4]);
            let codes = little_endian_24(codes);
            for (j, out) in out.iter_mut().enumerate() {
                *out = f32::from(ROCMFP6_LEVELS[(codes >> (6 * j)) as usize & 63]) * d;
            }
        }
    });
}

pub(super) fn fp8(bytes: &[u8], out: &mut [f32]) {
    each_block::<33, 32>(bytes, out, |b, out| {
        let d = scale(b[32]);
        for (out, &code) in out.iter_mut().zip(b) {
            *out = f32::from(code as i8) * d;
        }
    });
}

pub(super) fn fp3(bytes: &[u8], out: &mut [f32]) {
    let levels = ROCMFP3_LEVELS.map(f32::from);
    each_block::<14, 32>(bytes, out, |b, out| {
        three_bits(b, out, (&levels, scale(b[12])), (&levels, scale(b[13])));
    });
}

/// A set bit 7 of a scale byte negates its half block.
pub(super) fn fp2(bytes: &[u8], out: &mut [f32]) {
    let signed = |byte: u8| {
        let magnitude = scale(byte & 127);
        if byte & 128 == 0 { magnitude } else { -magnitude }
    };
    let levels = ROCMFP2_LEVELS.map(f32::from);
    each_block::<10, 32>(bytes, out, |b, out| {
        two_bits(b, out, (&levels, signed(b[8])), (&levels, signed(b[9])));
    });
}

pub(super) fn fp3_mix(bytes: &[u8], out: &mut [f32], book: &MixBook) {
    if book.mode() == 0 {
        return fp3(bytes, out);
    }
    let half = |byte: u8| (&book.books()[usize::from(byte >> 7)], scale(byte & 127));
    each_block::<14, 32>(bytes, out, |b, out| three_bits(b, out, half(b[12]), half(b[13])));
}

pub(super) fn fp2_mix(bytes: &[u8], out: &mut [f32], book: &MixBook) {
    let fixed = ROCMFP2_LEVELS.map(f32::from);
    let adaptive = book.books().map(|[a, b, c, d, ..]| [a, b, c, d]);
    let half = |byte: u8| match book.mode() {
        // Unlike type 107, bit 7 is no sign here: such bytes are above 0x7E and scale by 0.
        0 => (&fixed, scale(byte)),
        _ => (&adaptive[usize::from(byte >> 7)], scale(byte & 127)),
    };
    each_block::<10, 32>(bytes, out, |b, out| two_bits(b, out, half(b[8]), half(b[9])));
}

/// 32 codes of 3 bits in the first 12 bytes; each half block has its levels and scale.
#[inline(always)]
fn three_bits(b: &[u8; 14], out: &mut [f32; 32], low: (&[f32; 8], f32), high: (&[f32; 8], f32)) {
    let (groups, _) = b.as_chunks::<3>();
    for (g, (codes, out)) in groups.iter().zip(out.as_chunks_mut::<8>().0).enumerate() {
        let (levels, d) = if g < 2 { low } else { high };
        let codes = little_endian_24(codes);
        for (j, out) in out.iter_mut().enumerate() {
            *out = levels[(codes >> (3 * j)) as usize & 7] * d;
        }
    }
}

/// 32 codes of 2 bits in the first 8 bytes; each half block has its levels and scale.
#[inline(always)]
fn two_bits(b: &[u8; 10], out: &mut [f32; 32], low: (&[f32; 4], f32), high: (&[f32; 4], f32)) {
    for (g, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let (levels, d) = if g < 4 { low } else { high };
        for (j, out) in out.iter_mut().enumerate() {
            *out = levels[usize::from(b[g] >> (2 * j) & 3)] * d;
        }
    }
}

#[inline(always)]
fn little_endian_24(bytes: &[u8; 3]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0])
}
