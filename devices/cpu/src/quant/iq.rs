//! The IQ types of 256 values: codebook entries of 8 or 4 magnitudes with separate signs (spec/formats.md section 2.3).
//! Every codebook index is masked by its width, so no byte pattern can reach past a table.

use super::codebook::{IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KV, ksigns};
use super::decode::each_block;
use super::float::{f16_at, f16_to_f32, u16_at, u32_at};

/// `out` = d * magnitudes, negated where `signs` has a bit set; the first value uses bit `first`.
#[inline(always)]
fn signed<const N: usize>(out: &mut [f32; N], d: f32, magnitudes: &[u8; N], signs: u8, first: usize) {
    for j in 0..N {
        let sign = u32::from(signs >> (first + j) & 1) << 31;
        out[j] = f32::from_bits((d * f32::from(magnitudes[j])).to_bits() ^ sign);
    }
}

#[inline(always)]
fn nibble(byte: u8, high: bool) -> u8 {
    if high { byte >> 4 } else { byte & 15 }
}

pub(super) fn iq2_xxs(bytes: &[u8], out: &mut [f32]) {
    each_block::<66, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for (k, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let c = u32_at(b, 6 + 8 * k);
            let scale = d * (0.5 + (c >> 28) as f32) * 0.25;
            for (l, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let entry = &IQ2XXS_GRID[usize::from(b[2 + 8 * k + l])];
                signed(out, scale, entry, ksigns(c >> (7 * l)), 0);
            }
        }
    });
}

pub(super) fn iq2_xs(bytes: &[u8], out: &mut [f32]) {
    each_block::<74, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let w = u16_at(b, 2 + 2 * e);
            let ls = nibble(b[66 + e / 4], e / 2 % 2 == 1);
            let scale = d * (0.5 + f32::from(ls)) * 0.25;
            signed(out, scale, &IQ2XS_GRID[usize::from(w & 511)], ksigns(u32::from(w >> 9)), 0);
        }
    });
}

pub(super) fn iq2_s(bytes: &[u8], out: &mut [f32]) {
    each_block::<82, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let index = usize::from(b[2 + e]) | usize::from(b[66 + e / 4] >> (2 * (e % 4)) & 3) << 8;
            let ls = nibble(b[74 + e / 4], e / 2 % 2 == 1);
            let scale = d * (0.5 + f32::from(ls)) * 0.25;
            signed(out, scale, &IQ2S_GRID[index], b[34 + e], 0);
        }
    });
}

pub(super) fn iq3_xxs(bytes: &[u8], out: &mut [f32]) {
    each_block::<98, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let c = u32_at(b, 66 + 4 * (e / 4));
            let scale = d * (0.5 + (c >> 28) as f32) * 0.5;
            let signs = ksigns(c >> (7 * (e % 4)));
            for (half, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                signed(out, scale, &IQ3XXS_GRID[usize::from(b[2 + 2 * e + half])], signs, 4 * half);
            }
        }
    });
}

pub(super) fn iq3_s(bytes: &[u8], out: &mut [f32]) {
    each_block::<110, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let ls = nibble(b[106 + e / 8], e / 4 % 2 == 1);
            let scale = d * (1.0 + 2.0 * f32::from(ls));
            for (half, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let q = 2 * e + half;
                let index = usize::from(b[2 + q]) | usize::from(b[66 + q / 8] >> (q % 8) & 1) << 8;
                signed(out, scale, &IQ3S_GRID[index], b[74 + e], 4 * half);
            }
        }
    });
}

/// Shift of the ternary grid of IQ1_S and IQ1_M.
const DELTA: f32 = 0.125;

#[inline(always)]
fn shifted(out: &mut [f32; 8], d: f32, entry: &[i8; 8], delta: f32) {
    for (out, &value) in out.iter_mut().zip(entry) {
        *out = d * (f32::from(value) + delta);
    }
}

pub(super) fn iq1_s(bytes: &[u8], out: &mut [f32]) {
    each_block::<50, 256>(bytes, out, |b, out| {
        let d = f16_at(b, 0);
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let h = u16_at(b, 34 + 2 * (e / 4));
            let index = usize::from(b[2 + e]) | usize::from(h >> (3 * (e % 4)) & 7) << 8;
            let scale = d * f32::from(2 * (h >> 12 & 7) + 1);
            shifted(out, scale, &IQ1S_GRID[index], if h & 0x8000 == 0 { DELTA } else { -DELTA });
        }
    });
}

pub(super) fn iq1_m(bytes: &[u8], out: &mut [f32]) {
    each_block::<56, 256>(bytes, out, |b, out| {
        let s: [u16; 4] = std::array::from_fn(|k| u16_at(b, 48 + 2 * k));
        // The half scale is spread over the top nibbles.
        let d = f16_to_f32(s[0] >> 12 | s[1] >> 12 << 4 | s[2] >> 12 << 8 | s[3] >> 12 << 12);
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let n = nibble(b[32 + e / 2], e % 2 == 1);
            let index = usize::from(b[e]) | usize::from(n & 7) << 8;
            let scale = d * f32::from(2 * (s[e / 8] >> (3 * (e / 2 % 4)) & 7) + 1);
            shifted(out, scale, &IQ1S_GRID[index], if n & 8 == 0 { DELTA } else { -DELTA });
        }
    });
}

pub(super) fn iq4_xs(bytes: &[u8], out: &mut [f32]) {
    each_block::<136, 256>(bytes, out, |b, out| {
        let (d, high) = (f16_at(b, 0), u16_at(b, 2));
        let (codes, _) = b[8..].as_chunks::<16>();
        for (k, (codes, out)) in codes.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
            let ls = i32::from(nibble(b[4 + k / 2], k % 2 == 1)) | i32::from(high >> (2 * k) & 3) << 4;
            let scale = d * (ls - 32) as f32;
            for j in 0..16 {
                out[j] = scale * f32::from(KV[usize::from(codes[j] & 15)]);
                out[j + 16] = scale * f32::from(KV[usize::from(codes[j] >> 4)]);
            }
        }
    });
}
