//! The K types: 256 values in 16 groups of 16 or 8 groups of 32, each with its own scale (spec/formats.md section 2.2).

use super::decode::each_block;
use super::float::f16_at;

pub(super) fn q2_k(bytes: &[u8], out: &mut [f32]) {
    each_block::<84, 256>(bytes, out, |b, out| {
        let (d, dmin) = (f16_at(b, 80), f16_at(b, 82));
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (scale, min) = (d * f32::from(b[j] & 15), dmin * f32::from(b[j] >> 4));
            let (codes, shift) = two_bit_group(&b[16..80], j);
            for (out, code) in out.iter_mut().zip(codes) {
                *out = scale * f32::from(code >> shift & 3) - min;
            }
        }
    });
}

/// Bytes and shift of the 2-bit codes of group `j` of 16 values: four values 32 apart share a byte.
#[inline(always)]
fn two_bit_group(codes: &[u8], j: usize) -> (&[u8; 16], usize) {
    let (groups, _) = codes.as_chunks::<16>();
    (&groups[2 * (j / 8) + j % 2], 2 * (j % 8 / 2))
}

pub(super) fn q3_k(bytes: &[u8], out: &mut [f32]) {
    each_block::<110, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 108);
        let (high_masks, _) = b.as_chunks::<16>();
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let low = if j < 8 { b[96 + j] & 15 } else { b[88 + j] >> 4 };
            let high = b[104 + j % 4] >> (2 * (j / 4)) & 3;
            let scale = d * (i32::from(low | high << 4) - 32) as f32;
            let (codes, shift) = two_bit_group(&b[32..96], j);
            for ((out, code), mask) in out.iter_mut().zip(codes).zip(high_masks[j % 2]) {
                // The third bit is worth 4 and all values are lowered by 4.
                let q = i32::from(code >> shift & 3 | (mask >> (j / 2) & 1) << 2) - 4;
                *out = scale * q as f32;
            }
        }
    });
}

/// 6-bit scale and minimum of group `j` of 32 values, packed in 12 bytes.
#[inline(always)]
fn six_bit_pair(s: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4)
    }
}

/// Scale and minimum of each group of 32 in a Q4_K or Q5_K block.
#[inline(always)]
fn scales_and_minima(b: &[u8]) -> [(f32, f32); 8] {
    let (d, dmin) = (f16_at(b, 0), f16_at(b, 2));
    let packed = b[4..].first_chunk().expect("the block is longer than 16 bytes");
    std::array::from_fn(|j| {
        let (scale, min) = six_bit_pair(packed, j);
        (d * f32::from(scale), dmin * f32::from(min))
    })
}

pub(super) fn q4_k(bytes: &[u8], out: &mut [f32]) {
    each_block::<144, 256>(bytes, out, |b, out| {
        let pairs = scales_and_minima(b);
        let (codes, _) = b[16..].as_chunks::<32>();
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let ((scale, min), shift) = (pairs[j], 4 * (j % 2));
            for (out, code) in out.iter_mut().zip(&codes[j / 2]) {
                *out = scale * f32::from(code >> shift & 15) - min;
            }
        }
    });
}

pub(super) fn q5_k(bytes: &[u8], out: &mut [f32]) {
    each_block::<176, 256>(bytes, out, |b, out| {
        let pairs = scales_and_minima(b);
        let (chunks, _) = b[16..].as_chunks::<32>();
        let (high, codes) = chunks.split_first().expect("160 bytes are five chunks");
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let ((scale, min), shift) = (pairs[j], 4 * (j % 2));
            for ((out, code), high) in out.iter_mut().zip(&codes[j / 2]).zip(high) {
                *out = scale * f32::from(code >> shift & 15 | (high >> j & 1) << 4) - min;
            }
        }
    });
}

pub(super) fn q6_k(bytes: &[u8], out: &mut [f32]) {
    each_block::<210, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 208);
        let (chunks, _) = b.as_chunks::<16>();
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            // Group j: half h of the block, quarter g of the half, first or second 16 of the quarter.
            let (h, g, part) = (j / 8, j % 8 / 2, j % 2);
            let (low, low_shift) = (&chunks[4 * h + 2 * (g % 2) + part], 4 * (g / 2));
            let (high, high_shift) = (&chunks[8 + 2 * h + part], 2 * g);
            let scale = d * f32::from(b[192 + j] as i8);
            for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
                let q = i32::from(low >> low_shift & 15 | (high >> high_shift & 3) << 4) - 32;
                *out = scale * q as f32;
            }
        }
    });
}
