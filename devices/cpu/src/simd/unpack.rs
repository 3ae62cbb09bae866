//! Weight blocks as 8-bit codes with scales: what the quantised dots multiply when a row meets many activation rows, or
//! when its type has no kernel of its own. Integer forms of spec/formats.md sections 2 and 3.2.
#![allow(clippy::needless_range_loop, reason = "several arrays are indexed by the numbers of the formulas")]

use luce_core::DType;

use super::layout::{E8M0_HALF, Head, NVFP4_SCALE, Q4_LEVELS, ROCMFP2_SCALE, SUPER, UNIT, half};
use crate::quant::codebook::{
    IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KM, KV, ROCMFP3_LEVELS, ROCMFP4_LEVELS,
    ROCMFP6_LEVELS, UE4M3_HALF, ksigns,
};

/// One weight row, unpacked. For 32-value units `scales` (both halves of each unit) and, for Q4_1 and Q5_1, `mins` are
/// filled; for 256-value blocks `heads`.
pub(super) struct Unpacked<'a> {
    pub(super) codes: &'a mut [i8],
    pub(super) scales: &'a mut [[f32; 2]],
    pub(super) mins: &'a mut [f32],
    pub(super) heads: &'a mut [Head],
}

impl<'a> Unpacked<'a> {
    /// Room for a row of `width` values (whole units, or whole blocks for types of 256) in scratch of as many f32: a
    /// value takes one byte, scales and heads less than half a byte more.
    pub(super) fn carve(scratch: &'a mut [f32], width: usize) -> Unpacked<'a> {
        let (codes, rest) = scratch[..width].split_at_mut(width / 4);
        let (scales, rest) = rest.split_at_mut(width / UNIT * 2);
        let (mins, rest) = rest.split_at_mut(width / UNIT);
        let heads = width / SUPER * (size_of::<Head>() / 4);
        Unpacked {
            codes: bytemuck::cast_slice_mut(codes),
            scales: bytemuck::cast_slice_mut(scales),
            mins,
            heads: bytemuck::cast_slice_mut(&mut rest[..heads]),
        }
    }
}

#[inline(always)]
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

#[inline(always)]
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline(always)]
fn f16_at(b: &[u8], at: usize) -> f32 {
    half(u16_at(b, at))
}

/// 16 bytes of nibbles, low ones first, through a table of 16 levels.
#[inline(always)]
fn nibbles(b: &[u8], levels: &[i8; 16], codes: &mut [i8; UNIT]) {
    for (j, &byte) in b[..16].iter().enumerate() {
        codes[j] = levels[usize::from(byte & 15)];
        codes[j + 16] = levels[usize::from(byte >> 4)];
    }
}

/// Unpacks a row of whole blocks.
#[inline(always)]
pub(super) fn unpack_steps(dtype: DType, row: &[u8], out: &mut Unpacked<'_>) {
    match dtype {
        DType::Q4_0 => units::<18>(row, out, |b, codes, scales, _| {
            nibbles(&b[2..], &Q4_LEVELS, codes);
            *scales = [f16_at(b, 0); 2];
        }),
        DType::Q4_1 => units::<20>(row, out, |b, codes, scales, min| {
            const RAW: [i8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
            nibbles(&b[4..], &RAW, codes);
            *scales = [f16_at(b, 0); 2];
            *min = f16_at(b, 2);
        }),
        DType::Q5_0 => units::<22>(row, out, |b, codes, scales, _| {
            fives(&b[6..], u32_at(b, 2), 16, codes);
            *scales = [f16_at(b, 0); 2];
        }),
        DType::Q5_1 => units::<24>(row, out, |b, codes, scales, min| {
            fives(&b[8..], u32_at(b, 4), 0, codes);
            *scales = [f16_at(b, 0); 2];
            *min = f16_at(b, 2);
        }),
        DType::Q8_0 => units::<34>(row, out, |b, codes, scales, _| {
            *codes = std::array::from_fn(|i| b[2 + i] as i8);
            *scales = [f16_at(b, 0); 2];
        }),
        DType::Iq4Nl => units::<18>(row, out, |b, codes, scales, _| {
            nibbles(&b[2..], &KV, codes);
            *scales = [f16_at(b, 0); 2];
        }),
        DType::Mxfp4 => units::<17>(row, out, |b, codes, scales, _| {
            nibbles(&b[1..], &KM, codes);
            *scales = [E8M0_HALF[usize::from(b[0])]; 2];
        }),
        DType::Nvfp4 => nvfp4(row, out),
        DType::Rocmfp4 => units::<18>(row, out, |b, codes, scales, _| {
            nibbles(b, &ROCMFP4_LEVELS, codes);
            *scales = [UE4M3_HALF[usize::from(b[16])], UE4M3_HALF[usize::from(b[17])]];
        }),
        DType::Rocmfp4Fast => units::<17>(row, out, |b, codes, scales, _| {
            nibbles(b, &ROCMFP4_LEVELS, codes);
            *scales = [UE4M3_HALF[usize::from(b[16])]; 2];
        }),
        DType::Rocmfp6 => units::<26>(row, out, |b, codes, scales, _| {
            // Four 6-bit codes in three bytes.
            for (c, three) in codes.chunks_exact_mut(4).zip(b.chunks_exact(3)) {
                let bits = u32::from(three[0]) | u32::from(three[1]) << 8 | u32::from(three[2]) << 16;
                for (j, c) in c.iter_mut().enumerate() {
                    *c = ROCMFP6_LEVELS[(bits >> (6 * j)) as usize & 63];
                }
            }
            *scales = [UE4M3_HALF[usize::from(b[24])], UE4M3_HALF[usize::from(b[25])]];
        }),
        DType::Rocmfp8 => units::<33>(row, out, |b, codes, scales, _| {
            *codes = std::array::from_fn(|i| b[i] as i8);
            *scales = [UE4M3_HALF[usize::from(b[32])]; 2];
        }),
        DType::Rocmfp3 => units::<14>(row, out, |b, codes, scales, _| {
            // Eight 3-bit codes in three bytes.
            for (c, three) in codes.chunks_exact_mut(8).zip(b.chunks_exact(3)) {
                let bits = u32::from(three[0]) | u32::from(three[1]) << 8 | u32::from(three[2]) << 16;
                for (j, c) in c.iter_mut().enumerate() {
                    *c = ROCMFP3_LEVELS[(bits >> (3 * j)) as usize & 7];
                }
            }
            *scales = [UE4M3_HALF[usize::from(b[12])], UE4M3_HALF[usize::from(b[13])]];
        }),
        DType::Rocmfp2 => units::<10>(row, out, |b, codes, scales, _| {
            for (i, c) in codes.iter_mut().enumerate() {
                *c = ((b[i / 4] >> (2 * (i % 4))) & 3) as i8 - 1;
            }
            *scales = [ROCMFP2_SCALE[usize::from(b[8])], ROCMFP2_SCALE[usize::from(b[9])]];
        }),
        DType::Q2K => supers::<84>(row, out, |b, codes, head| {
            by_unit(codes, |unit, l| two_bits(&b[16..], unit, l) as i8);
            for j in 0..16 {
                head.scales[j] = i16::from(b[j] & 15);
                head.mins[j] = i16::from(b[j] >> 4);
            }
            (head.d, head.dmin) = (f16_at(b, 80), f16_at(b, 82));
        }),
        DType::Q3K => supers::<110>(row, out, |b, codes, head| {
            by_unit(codes, |unit, l| (two_bits(&b[32..], unit, l) | ((b[l] >> unit) & 1) << 2) as i8 - 4);
            for j in 0..16 {
                let low = (b[96 + j % 8] >> (4 * (j / 8))) & 15;
                let high = (b[104 + j % 4] >> (2 * (j / 4))) & 3;
                head.scales[j] = i16::from(low | high << 4) - 32;
            }
            head.d = f16_at(b, 108);
        }),
        DType::Q4K => supers::<144>(row, out, |b, codes, head| {
            by_unit(codes, |unit, l| ((b[16 + 32 * (unit / 2) + l] >> (4 * (unit % 2))) & 15) as i8);
            six_bit_scales(&b[4..16], head);
            (head.d, head.dmin) = (f16_at(b, 0), f16_at(b, 2));
        }),
        DType::Q5K => supers::<176>(row, out, |b, codes, head| {
            by_unit(codes, |unit, l| {
                let low = (b[48 + 32 * (unit / 2) + l] >> (4 * (unit % 2))) & 15;
                (low | ((b[16 + l] >> unit) & 1) << 4) as i8
            });
            six_bit_scales(&b[4..16], head);
            (head.d, head.dmin) = (f16_at(b, 0), f16_at(b, 2));
        }),
        DType::Q6K => supers::<210>(row, out, |b, codes, head| {
            by_unit(codes, |unit, l| {
                let (h, g) = (unit / 4, unit % 4);
                let low = (b[64 * h + 32 * (g % 2) + l] >> (4 * (g / 2))) & 15;
                (low | ((b[128 + 32 * h + l] >> (2 * g)) & 3) << 4) as i8 - 32
            });
            for j in 0..16 {
                head.scales[j] = i16::from(b[192 + j] as i8);
            }
            head.d = f16_at(b, 208);
        }),
        DType::Iq4Xs => supers::<136>(row, out, |b, codes, head| {
            for (k, codes) in codes.as_chunks_mut::<UNIT>().0.iter_mut().enumerate() {
                nibbles(&b[8 + 16 * k..], &KV, codes);
                let low = (b[4 + k / 2] >> (4 * (k % 2))) & 15;
                let high = (u16_at(b, 2) >> (2 * k)) & 3;
                let scale = (i16::from(low) | (high << 4) as i16) - 32;
                head.scales[2 * k..2 * k + 2].fill(scale);
            }
            head.d = f16_at(b, 0);
        }),
        DType::Iq2Xxs => supers::<66>(row, out, |b, codes, head| {
            let grid = &IQ2XXS_GRID;
            for k in 0..8 {
                let c = u32_at(b, 6 + 8 * k);
                for l in 0..4 {
                    let entry = &grid[usize::from(b[2 + 8 * k + l])];
                    eight(entry, ksigns((c >> (7 * l)) & 127), &mut codes[32 * k + 8 * l..]);
                }
                head.scales[2 * k..2 * k + 2].fill(odd(c >> 28));
            }
            head.d = f16_at(b, 0) * 0.125;
        }),
        DType::Iq2Xs => supers::<74>(row, out, |b, codes, head| {
            let grid = &IQ2XS_GRID;
            for j in 0..32 {
                let w = u16_at(b, 2 + 2 * j);
                eight(&grid[usize::from(w & 511)], ksigns(u32::from(w >> 9)), &mut codes[8 * j..]);
            }
            for j in 0..16 {
                head.scales[j] = odd(u32::from((b[66 + j / 2] >> (4 * (j % 2))) & 15));
            }
            head.d = f16_at(b, 0) * 0.125;
        }),
        DType::Iq2S => supers::<82>(row, out, |b, codes, head| {
            let grid = &IQ2S_GRID;
            for j in 0..32 {
                let high = usize::from((b[66 + j / 4] >> (2 * (j % 4))) & 3);
                eight(&grid[usize::from(b[2 + j]) | high << 8], b[34 + j], &mut codes[8 * j..]);
            }
            for j in 0..16 {
                head.scales[j] = odd(u32::from((b[74 + j / 2] >> (4 * (j % 2))) & 15));
            }
            head.d = f16_at(b, 0) * 0.125;
        }),
        DType::Iq3Xxs => supers::<98>(row, out, |b, codes, head| {
            let grid = &IQ3XXS_GRID;
            for k in 0..8 {
                let c = u32_at(b, 66 + 4 * k);
                for l in 0..4 {
                    let at = 2 + 8 * k + 2 * l;
                    let entry = pair(&grid[usize::from(b[at])], &grid[usize::from(b[at + 1])]);
                    eight(&entry, ksigns((c >> (7 * l)) & 127), &mut codes[32 * k + 8 * l..]);
                }
                head.scales[2 * k..2 * k + 2].fill(odd(c >> 28));
            }
            head.d = f16_at(b, 0) * 0.25;
        }),
        DType::Iq3S => supers::<110>(row, out, |b, codes, head| {
            let grid = &IQ3S_GRID;
            for j in 0..32 {
                let index = |at: usize| usize::from(b[2 + at]) | usize::from((b[66 + at / 8] >> (at % 8)) & 1) << 8;
                let entry = pair(&grid[index(2 * j)], &grid[index(2 * j + 1)]);
                eight(&entry, b[74 + j], &mut codes[8 * j..]);
            }
            for k in 0..8 {
                let scale = odd(u32::from((b[106 + k / 2] >> (4 * (k % 2))) & 15));
                head.scales[2 * k..2 * k + 2].fill(scale);
            }
            head.d = f16_at(b, 0);
        }),
        // The two 1-bit types add +-1/8 to each level: eight times the level and 1 are integers.
        DType::Iq1S => supers::<50>(row, out, |b, codes, head| {
            let grid = &IQ1S_GRID;
            for k in 0..8 {
                let h = u16_at(b, 34 + 2 * k);
                let delta = if h & 0x8000 != 0 { -1 } else { 1 };
                for l in 0..4 {
                    let entry = &grid[usize::from(b[2 + 4 * k + l]) | usize::from((h >> (3 * l)) & 7) << 8];
                    for (c, g) in codes[32 * k + 8 * l..][..8].iter_mut().zip(entry) {
                        *c = 8 * *g + delta;
                    }
                }
                head.scales[2 * k..2 * k + 2].fill(odd(u32::from((h >> 12) & 7)));
            }
            head.d = f16_at(b, 0) * 0.125;
        }),
        DType::Iq1M => supers::<56>(row, out, |b, codes, head| {
            let grid = &IQ1S_GRID;
            let mut d = 0;
            for k in 0..4 {
                d |= (u16_at(b, 48 + 2 * k) >> 12) << (4 * k);
            }
            for j in 0..32 {
                let n = (b[32 + j / 2] >> (4 * (j % 2))) & 15;
                let delta = if n & 8 != 0 { -1 } else { 1 };
                let entry = &grid[usize::from(b[j]) | usize::from(n & 7) << 8];
                for (c, g) in codes[8 * j..][..8].iter_mut().zip(entry) {
                    *c = 8 * *g + delta;
                }
            }
            for j in 0..16 {
                head.scales[j] = odd(u32::from((u16_at(b, 48 + 2 * (j / 4)) >> (3 * (j % 4))) & 7));
            }
            head.d = half(d) * 0.125;
        }),
        _ => unreachable!("{dtype} has no integer form: its partner is not of 8-bit codes"),
    }
}

/// Calls `f` with each block of `BYTES`, its codes, its two scales and its minimum.
#[inline(always)]
fn units<const BYTES: usize>(
    row: &[u8],
    out: &mut Unpacked<'_>,
    f: impl Fn(&[u8; BYTES], &mut [i8; UNIT], &mut [f32; 2], &mut f32),
) {
    let codes = out.codes.as_chunks_mut::<UNIT>().0;
    for (((b, codes), scales), min) in
        row.as_chunks::<BYTES>().0.iter().zip(codes).zip(&mut *out.scales).zip(&mut *out.mins)
    {
        f(b, codes, scales, min);
    }
}

/// Calls `f` with each block of `BYTES`, its codes and its head.
#[inline(always)]
fn supers<const BYTES: usize>(
    row: &[u8],
    out: &mut Unpacked<'_>,
    f: impl Fn(&[u8; BYTES], &mut [i8; SUPER], &mut Head),
) {
    let codes = out.codes.as_chunks_mut::<SUPER>().0;
    for ((b, codes), head) in row.as_chunks::<BYTES>().0.iter().zip(codes).zip(&mut *out.heads) {
        f(b, codes, head);
    }
}

/// NVFP4: a block of 64 values is two units; 16-groups of 8 bytes each, so its nibble order is its own.
#[inline(always)]
fn nvfp4(row: &[u8], out: &mut Unpacked<'_>) {
    let codes = out.codes.as_chunks_mut::<64>().0;
    let scales = out.scales.as_chunks_mut::<2>().0;
    for ((b, codes), scales) in row.as_chunks::<36>().0.iter().zip(codes).zip(scales) {
        for s in 0..4 {
            for j in 0..8 {
                let byte = b[4 + 8 * s + j];
                codes[16 * s + j] = KM[usize::from(byte & 15)];
                codes[16 * s + 8 + j] = KM[usize::from(byte >> 4)];
            }
            scales[s / 2][s % 2] = NVFP4_SCALE[usize::from(b[s])];
        }
    }
}

#[inline(always)]
fn fives(low: &[u8], high: u32, offset: i8, codes: &mut [i8; UNIT]) {
    for j in 0..16 {
        codes[j] = ((low[j] & 15) | (((high >> j) & 1) << 4) as u8) as i8 - offset;
        codes[j + 16] = ((low[j] >> 4) | (((high >> (j + 16)) & 1) << 4) as u8) as i8 - offset;
    }
}

/// Fills the codes of the eight units of a block: `f(unit, place in the unit)`. Shifts then depend on the unit only,
/// which lets the compiler use vectors.
#[inline(always)]
fn by_unit(codes: &mut [i8; SUPER], f: impl Fn(usize, usize) -> i8) {
    for (unit, codes) in codes.as_chunks_mut::<UNIT>().0.iter_mut().enumerate() {
        for (l, c) in codes.iter_mut().enumerate() {
            *c = f(unit, l);
        }
    }
}

#[inline(always)]
fn two_bits(b: &[u8], unit: usize, l: usize) -> u8 {
    (b[32 * (unit / 4) + l] >> (2 * (unit % 4))) & 3
}

/// The 6-bit scales and minimums of Q4_K and Q5_K, one per 32 values.
#[inline(always)]
fn six_bit_scales(s: &[u8], head: &mut Head) {
    for j in 0..8 {
        let (scale, min) = if j < 4 {
            (s[j] & 63, s[j + 4] & 63)
        } else {
            ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4)
        };
        head.scales[2 * j..2 * j + 2].fill(i16::from(scale));
        head.mins[2 * j..2 * j + 2].fill(i16::from(min));
    }
}

/// 2 s + 1.
#[inline(always)]
fn odd(s: u32) -> i16 {
    (2 * s + 1) as i16
}

#[inline(always)]
fn pair(a: &[u8; 4], b: &[u8; 4]) -> [u8; 8] {
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
}

/// Byte k is 0xFF where bit k of the index is set.
static SIGN_MASKS: [u64; 256] = {
    let mut masks = [0; 256];
    let mut signs = 0;
    while signs < 256 {
        let mut k = 0;
        while k < 8 {
            if signs >> k & 1 == 1 {
                masks[signs] |= 0xff << (8 * k);
            }
            k += 1;
        }
        signs += 1;
    }
    masks
};

/// Eight magnitudes (1 to 127) with their signs: complement and add 1, in all bytes at once. No carry leaves a byte.
#[inline(always)]
fn eight(magnitudes: &[u8; 8], signs: u8, codes: &mut [i8]) {
    let mask = SIGN_MASKS[usize::from(signs)];
    let signed = (u64::from_le_bytes(*magnitudes) ^ mask) + (mask & 0x0101_0101_0101_0101);
    codes[..8].copy_from_slice(&signed.to_le_bytes().map(|b| b as i8));
}
