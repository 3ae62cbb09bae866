//! Plain floats and the 32-value types with one half scale (spec/formats.md section 2.1).
//!
//! In the 4-bit and 5-bit types code byte j holds values j (low nibble) and j + 16 (high nibble).

use super::codebook::KV;
use super::decode::each_block;
use super::float::{bf16_to_f32, f16_at, f16_to_f32, u32_at};

pub(super) fn f32(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.as_chunks::<4>().0.iter().zip(out) {
        *out = f32::from_le_bytes(*bytes);
    }
}

pub(super) fn f16(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.as_chunks::<2>().0.iter().zip(out) {
        *out = f16_to_f32(u16::from_le_bytes(*bytes));
    }
}

pub(super) fn bf16(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.as_chunks::<2>().0.iter().zip(out) {
        *out = bf16_to_f32(u16::from_le_bytes(*bytes));
    }
}

pub(super) fn q4_0(bytes: &[u8], out: &mut [f32]) {
    each_block::<18, 32>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for j in 0..16 {
            out[j] = d * (i32::from(b[2 + j] & 15) - 8) as f32;
            out[j + 16] = d * (i32::from(b[2 + j] >> 4) - 8) as f32;
        }
    });
}

pub(super) fn q4_1(bytes: &[u8], out: &mut [f32]) {
    each_block::<20, 32>(bytes, out, |b, out| {
        let (d, m) = (f16_at(b, 0), f16_at(b, 2));
        for j in 0..16 {
            out[j] = d * f32::from(b[4 + j] & 15) + m;
            out[j + 16] = d * f32::from(b[4 + j] >> 4) + m;
        }
    });
}

/// 5-bit codes: nibbles at `codes` and the fifth bits of all values in `high`.
#[inline(always)]
fn five_bits(codes: &[u8; 16], high: u32) -> [i32; 32] {
    let mut q = [0; 32];
    for j in 0..16 {
        q[j] = i32::from(codes[j] & 15) | ((high >> j & 1) << 4) as i32;
        q[j + 16] = i32::from(codes[j] >> 4) | ((high >> (j + 16) & 1) << 4) as i32;
    }
    q
}

pub(super) fn q5_0(bytes: &[u8], out: &mut [f32]) {
    each_block::<22, 32>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        let (_, codes) = b.split_last_chunk::<16>().expect("a block of 22 bytes ends in 16");
        for (out, q) in out.iter_mut().zip(five_bits(codes, u32_at(b, 2))) {
            *out = d * (q - 16) as f32;
        }
    });
}

pub(super) fn q5_1(bytes: &[u8], out: &mut [f32]) {
    each_block::<24, 32>(bytes, out, |b, out| {
        let (d, m) = (f16_at(b, 0), f16_at(b, 2));
        let (_, codes) = b.split_last_chunk::<16>().expect("a block of 24 bytes ends in 16");
        for (out, q) in out.iter_mut().zip(five_bits(codes, u32_at(b, 4))) {
            *out = d * q as f32 + m;
        }
    });
}

pub(super) fn q8_0(bytes: &[u8], out: &mut [f32]) {
    each_block::<34, 32>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for (out, &q) in out.iter_mut().zip(&b[2..]) {
            *out = d * f32::from(q as i8);
        }
    });
}

pub(super) fn iq4_nl(bytes: &[u8], out: &mut [f32]) {
    each_block::<18, 32>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for j in 0..16 {
            out[j] = d * f32::from(KV[usize::from(b[2 + j] & 15)]);
            out[j + 16] = d * f32::from(KV[usize::from(b[2 + j] >> 4)]);
        }
    });
}
