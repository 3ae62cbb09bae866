//! Quantised dots: products of 8-bit codes in 8 lanes of four values each, 256 bits at a time.
//!
//! The multiply-add of bytes takes one unsigned factor. Signed weights give their magnitude, and their sign goes to the
//! activation; both steps are exact because activation codes are never -128 (see `quant::activation`). Sums of two
//! products stay within 16 bits: 2 * 128 * 127 < 32768.

use std::arch::x86_64::*;

use crate::quant::codebook::{KM, KV, ROCMFP4_LEVELS, UE4M3_HALF};
use crate::simd::layout::{E8M0_HALF, Head, Q4_LEVELS, Q8K_BYTES, Q8K_CODES, Q8K_SUMS, SUPER, UNIT, UnitActs};
use crate::simd::unpack::Unpacked;

/// Products of 32 unsigned and 32 signed bytes, four neighbours added.
pub(super) trait Dot4 {
    /// # Safety
    /// The processor has the instructions.
    unsafe fn dot4(unsigned: __m256i, signed: __m256i) -> __m256i;
}

/// In two steps of AVX2.
pub(super) enum Madd {}

impl Dot4 for Madd {
    #[inline(always)]
    unsafe fn dot4(unsigned: __m256i, signed: __m256i) -> __m256i {
        // SAFETY: as the trait demands.
        unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(unsigned, signed), _mm256_set1_epi16(1)) }
    }
}

/// In one step of AVX-512 VNNI.
pub(super) enum Vnni {}

impl Dot4 for Vnni {
    #[inline(always)]
    unsafe fn dot4(unsigned: __m256i, signed: __m256i) -> __m256i {
        // SAFETY: as the trait demands.
        unsafe { _mm256_dpbusd_epi32(_mm256_setzero_si256(), unsigned, signed) }
    }
}

/// The tree over 8 lanes: 4, 2 and 1 apart.
#[inline(always)]
unsafe fn reduce(v: __m256) -> f32 {
    // SAFETY: the caller's processor has AVX2.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }
}

/// Trees over the lanes of several sums.
#[inline(always)]
unsafe fn reduce_all<const N: usize>(lanes: [__m256; N]) -> [f32; N] {
    let mut sums = [0.0; N];
    for (sum, lanes) in sums.iter_mut().zip(lanes) {
        // SAFETY: the caller's processor has AVX2.
        *sum = unsafe { reduce(lanes) };
    }
    sums
}

/// Asks for the bytes `from..from + count` behind `base`. Rows are short beside what the memory's own prefetching needs
/// to get going, and a tile reads several of them at a time: while one tile is multiplied, the next one is fetched
/// from its beginning to its end. Addresses past the matrix are harmless.
#[inline(always)]
unsafe fn prefetch(base: *const u8, from: usize, count: usize) {
    let mut at = 0;
    while at < count {
        // SAFETY: prefetching reads nothing as far as the program can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(base.wrapping_add(from + at).cast()) };
        at += 64;
    }
}

/// The f16 at `p`, in every lane.
#[inline(always)]
unsafe fn half_lanes(p: *const u8) -> __m256 {
    // SAFETY: the caller has two bytes at `p` and F16C.
    unsafe { _mm256_cvtph_ps(_mm_set1_epi16(p.cast::<i16>().read_unaligned())) }
}

/// The f16 at `p`.
#[inline(always)]
unsafe fn half_at(p: *const u8) -> f32 {
    // SAFETY: the caller has two bytes at `p` and F16C.
    unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(p.cast::<u16>().read_unaligned())))) }
}

/// A type of 32-value blocks that is multiplied as it lies.
pub(super) trait Unit {
    /// Bytes of a block.
    const BYTES: usize;
    /// The block's codes in value order.
    ///
    /// # Safety
    /// A block lies at `p`; the processor has AVX2 and F16C (the same for the functions below).
    unsafe fn codes(p: *const u8) -> __m256i;
    /// The scale that goes with each lane.
    ///
    /// # Safety
    /// As for `codes`.
    unsafe fn scales(p: *const u8) -> __m256;
}

/// A [`Unit`] of 16 bytes of nibbles that select levels.
pub(super) trait Nibbles: Unit {
    /// Scales of the halves.
    ///
    /// # Safety
    /// As for [`Unit::codes`].
    unsafe fn halves(p: *const u8) -> [f32; 2];
}

/// Levels of 32 nibbles: the low ones of 16 bytes, then the high ones.
#[inline(always)]
unsafe fn levels(p: *const u8, table: &[i8; 16]) -> __m256i {
    // SAFETY: the caller has 16 bytes at `p` and AVX2.
    unsafe {
        let both = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.cast()));
        let shifted = _mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4));
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        _mm256_shuffle_epi8(table, _mm256_and_si256(shifted, _mm256_set1_epi8(15)))
    }
}

/// Two scales over lanes 0-3 and 4-7.
#[inline(always)]
unsafe fn two_scales(low: f32, high: f32) -> __m256 {
    // SAFETY: the caller's processor has AVX2.
    unsafe { _mm256_setr_m128(_mm_set1_ps(low), _mm_set1_ps(high)) }
}

macro_rules! unit {
    ($name:ident, $bytes:literal, |$p:ident| codes $codes:expr, scales $scales:expr $(, halves $halves:expr)?) => {
        pub(super) enum $name {}

        impl Unit for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn codes($p: *const u8) -> __m256i {
                // SAFETY: as the trait demands.
                unsafe { $codes }
            }

            #[inline(always)]
            unsafe fn scales($p: *const u8) -> __m256 {
                // SAFETY: as the trait demands.
                unsafe { $scales }
            }
        }

        $(impl Nibbles for $name {
            #[inline(always)]
            unsafe fn halves($p: *const u8) -> [f32; 2] {
                // SAFETY: as the trait demands.
                unsafe { $halves }
            }
        })?
    };
}

#[inline(always)]
unsafe fn entry(table: &[f32; 256], p: *const u8) -> f32 {
    // SAFETY: the caller has a byte at `p`.
    table[usize::from(unsafe { p.read() })]
}

unit!(Q8_0, 34, |p| codes _mm256_loadu_si256(p.add(2).cast()), scales half_lanes(p));
unit!(Rocmfp8, 33, |p| codes _mm256_loadu_si256(p.cast()), scales _mm256_set1_ps(entry(&UE4M3_HALF, p.add(32))));
unit!(Q4_0, 18, |p| codes levels(p.add(2), &Q4_LEVELS), scales half_lanes(p), halves [half_at(p); 2]);
unit!(Iq4Nl, 18, |p| codes levels(p.add(2), &KV), scales half_lanes(p), halves [half_at(p); 2]);
unit!(Mxfp4, 17, |p| codes levels(p.add(1), &KM), scales _mm256_set1_ps(entry(&E8M0_HALF, p)),
    halves [entry(&E8M0_HALF, p); 2]);
unit!(Rocmfp4, 18, |p| codes levels(p, &ROCMFP4_LEVELS),
    scales two_scales(entry(&UE4M3_HALF, p.add(16)), entry(&UE4M3_HALF, p.add(17))),
    halves [entry(&UE4M3_HALF, p.add(16)), entry(&UE4M3_HALF, p.add(17))]);
unit!(Rocmfp4Fast, 17, |p| codes levels(p, &ROCMFP4_LEVELS), scales _mm256_set1_ps(entry(&UE4M3_HALF, p.add(16))),
    halves [entry(&UE4M3_HALF, p.add(16)); 2]);

/// `R` weight rows, `stride` bytes apart, times a Q8_0 row of `n` values.
///
/// # Safety
/// The rows are there; the processor has the instructions of `D`, AVX2, FMA and F16C.
#[inline(always)]
pub(super) unsafe fn rows<T: Unit, D: Dot4, const R: usize>(
    w: *const u8,
    stride: usize,
    act: *const u8,
    n: usize,
) -> [f32; R] {
    // SAFETY: blocks u < n / 32 of rows r < R.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); R];
        for u in 0..n / UNIT {
            let unit = act.add(u * UnitActs::Q8_0.stride);
            let a = _mm256_loadu_si256(unit.add(UnitActs::Q8_0.codes_at).cast());
            let d = half_lanes(unit);
            if R > 1 {
                prefetch(w.wrapping_add(R * stride), u * R * T::BYTES, R * T::BYTES);
            }
            for (r, acc) in acc.iter_mut().enumerate() {
                let block = w.add(r * stride + u * T::BYTES);
                let codes = T::codes(block);
                let sums = D::dot4(_mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes));
                *acc = _mm256_fmadd_ps(_mm256_mul_ps(T::scales(block), d), _mm256_cvtepi32_ps(sums), *acc);
            }
        }
        reduce_all(acc)
    }
}

/// Codes and scales of a row of nibbles.
///
/// # Safety
/// The processor has AVX2 and F16C.
#[inline(always)]
pub(super) unsafe fn unpack_nibbles<T: Nibbles>(row: &[u8], out: &mut Unpacked<'_>) {
    let codes = out.codes.as_chunks_mut::<UNIT>().0;
    for ((block, codes), scales) in row.chunks_exact(T::BYTES).zip(codes).zip(&mut *out.scales) {
        // SAFETY: a whole block; 32 codes.
        unsafe {
            _mm256_storeu_si256(codes.as_mut_ptr().cast(), T::codes(block.as_ptr()));
            *scales = T::halves(block.as_ptr());
        }
    }
}

/// An unpacked row of units times `B` activation rows.
///
/// # Safety
/// As for the plain form; the processor has the instructions of `D`, AVX2, FMA and F16C.
#[inline(always)]
pub(super) unsafe fn units<D: Dot4, const B: usize>(
    codes: *const i8,
    scales: *const [f32; 2],
    units: usize,
    acts: [*const u8; B],
    at: UnitActs,
) -> [f32; B] {
    // SAFETY: units u < units.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); B];
        for u in 0..units {
            let codes = _mm256_loadu_si256(codes.add(u * UNIT).cast());
            let magnitudes = _mm256_abs_epi8(codes);
            let [low, high] = scales.add(u).read();
            let scales = two_scales(low, high);
            for (acc, act) in acc.iter_mut().zip(acts) {
                let unit = act.add(u * at.stride);
                let a = _mm256_loadu_si256(unit.add(at.codes_at).cast());
                let sums = D::dot4(magnitudes, _mm256_sign_epi8(a, codes));
                *acc = _mm256_fmadd_ps(_mm256_mul_ps(scales, half_lanes(unit)), _mm256_cvtepi32_ps(sums), *acc);
            }
        }
        reduce_all(acc)
    }
}

/// The 16 scales of a block as they meet its 8 units: scale 2j over the lower and 2j + 1 over the upper half.
#[inline(always)]
unsafe fn unit_scales(scales: __m256i, unit: usize) -> __m256i {
    // SAFETY: the caller's processor has AVX2.
    unsafe {
        // Scales 0-7 serve units 0-3: the quarter that holds them goes to both halves.
        let quarter = if unit < 4 {
            _mm256_permute2x128_si256(scales, scales, 0x00)
        } else {
            _mm256_permute2x128_si256(scales, scales, 0x11)
        };
        let low = (4 * (unit % 4)) as i16;
        // Bytes 2k and 2k + 1 of scale k.
        let pick = |byte: i16| byte | (byte + 1) << 8;
        let (l, h) = (pick(low), pick(low + 2));
        _mm256_shuffle_epi8(quarter, _mm256_setr_epi16(l, l, l, l, l, l, l, l, h, h, h, h, h, h, h, h))
    }
}

/// Minimums times sums of 16: lanes of two groups each.
#[inline(always)]
unsafe fn min_lanes(block: *const u8, mins: __m256i) -> __m256 {
    // SAFETY: the caller has a Q8_K block and AVX2.
    unsafe { _mm256_cvtepi32_ps(_mm256_madd_epi16(mins, _mm256_loadu_si256(block.add(Q8K_SUMS).cast()))) }
}

/// An unpacked row of 256-value blocks times `B` activation rows.
///
/// # Safety
/// As for the plain form; the processor has AVX2 and FMA.
#[inline(always)]
pub(super) unsafe fn supers<const B: usize, const MINS: bool>(
    codes: *const i8,
    heads: *const Head,
    blocks: usize,
    acts: [*const u8; B],
) -> [f32; B] {
    // SAFETY: blocks k < blocks, units below 8 inside them.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); B];
        for k in 0..blocks {
            let head = &*heads.add(k);
            let scales = _mm256_loadu_si256(head.scales.as_ptr().cast());
            let mut sums = [_mm256_setzero_si256(); B];
            for unit in 0..SUPER / UNIT {
                let codes = _mm256_loadu_si256(codes.add(k * SUPER + unit * UNIT).cast());
                let magnitudes = _mm256_abs_epi8(codes);
                let scale = unit_scales(scales, unit);
                for (sum, act) in sums.iter_mut().zip(acts) {
                    let a = _mm256_loadu_si256(act.add(k * Q8K_BYTES + Q8K_CODES + unit * UNIT).cast());
                    let pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(a, codes));
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, scale));
                }
            }
            for ((acc, sum), act) in acc.iter_mut().zip(sums).zip(acts) {
                let block = act.add(k * Q8K_BYTES);
                let d = block.cast::<f32>().read_unaligned();
                *acc = _mm256_fmadd_ps(_mm256_set1_ps(head.d * d), _mm256_cvtepi32_ps(sum), *acc);
                if MINS {
                    let mins = min_lanes(block, _mm256_loadu_si256(head.mins.as_ptr().cast()));
                    *acc = _mm256_fnmadd_ps(_mm256_set1_ps(head.dmin * d), mins, *acc);
                }
            }
        }
        reduce_all(acc)
    }
}

/// A type of 256-value blocks that is multiplied as it lies.
pub(super) trait Super {
    /// Bytes of a block.
    const BYTES: usize;
    /// True where codes are never negative.
    const UNSIGNED: bool;
    /// True where groups have minimums.
    const MINS: bool;
    /// The codes of unit `unit`.
    ///
    /// # Safety
    /// A block lies at `p`; the processor has AVX2 and F16C (the same for the functions below).
    unsafe fn codes(p: *const u8, unit: usize) -> __m256i;
    /// The 16 scales and the 16 minimums (0 where there are none), as 16-bit integers.
    ///
    /// # Safety
    /// As for `codes`.
    unsafe fn scales(p: *const u8) -> (__m256i, __m256i);
    /// The factors of scales and minimums.
    ///
    /// # Safety
    /// As for `codes`.
    unsafe fn factors(p: *const u8) -> (f32, f32);
}

pub(super) enum Q2K {}
pub(super) enum Q4K {}
pub(super) enum Q5K {}
pub(super) enum Q6K {}

/// The 6-bit scales and minimums of Q4_K and Q5_K at `p`, each doubled to two groups of 16.
#[inline(always)]
unsafe fn six_bit_scales(p: *const u8) -> (__m256i, __m256i) {
    // SAFETY: the caller has 12 bytes at `p` and AVX2.
    unsafe {
        let word = |i: usize| u32::from_le(p.cast::<u32>().add(i).read_unaligned());
        let (a, b, c) = (word(0), word(1), word(2));
        let scales = u64::from(a & 0x3f3f_3f3f) | u64::from((c & 0x0f0f_0f0f) | ((a >> 6) & 0x0303_0303) << 4) << 32;
        let mins =
            u64::from(b & 0x3f3f_3f3f) | u64::from(((c >> 4) & 0x0f0f_0f0f) | ((b >> 6) & 0x0303_0303) << 4) << 32;
        let twice = |bytes: u64| {
            let v = _mm_cvtsi64_si128(bytes as i64);
            _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(v, v))
        };
        (twice(scales), twice(mins))
    }
}

/// Nibbles of 32 bytes: low ones for even, high ones for odd units.
#[inline(always)]
unsafe fn unit_nibbles(p: *const u8, high: bool) -> __m256i {
    // SAFETY: the caller has 32 bytes at `p` and AVX2.
    unsafe {
        let bytes = _mm256_loadu_si256(p.cast());
        let bytes = if high { _mm256_srli_epi16(bytes, 4) } else { bytes };
        _mm256_and_si256(bytes, _mm256_set1_epi8(15))
    }
}

/// Bits `from` and up of each of 32 bytes, under `mask`.
#[inline(always)]
unsafe fn unit_bits(p: *const u8, from: usize, mask: i8) -> __m256i {
    // SAFETY: the caller has 32 bytes at `p` and AVX2.
    unsafe {
        let bytes = _mm256_srl_epi16(_mm256_loadu_si256(p.cast()), _mm_cvtsi32_si128(from as i32));
        _mm256_and_si256(bytes, _mm256_set1_epi8(mask))
    }
}

impl Super for Q2K {
    const BYTES: usize = 84;
    const UNSIGNED: bool = true;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn codes(p: *const u8, unit: usize) -> __m256i {
        // SAFETY: as the trait demands.
        unsafe { unit_bits(p.add(16 + 32 * (unit / 4)), 2 * (unit % 4), 3) }
    }

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> (__m256i, __m256i) {
        // SAFETY: as the trait demands.
        unsafe {
            let bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(p.cast()));
            (_mm256_and_si256(bytes, _mm256_set1_epi16(15)), _mm256_srli_epi16(bytes, 4))
        }
    }

    #[inline(always)]
    unsafe fn factors(p: *const u8) -> (f32, f32) {
        // SAFETY: as the trait demands.
        unsafe { (half_at(p.add(80)), half_at(p.add(82))) }
    }
}

impl Super for Q4K {
    const BYTES: usize = 144;
    const UNSIGNED: bool = true;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn codes(p: *const u8, unit: usize) -> __m256i {
        // SAFETY: as the trait demands.
        unsafe { unit_nibbles(p.add(16 + 32 * (unit / 2)), unit % 2 == 1) }
    }

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> (__m256i, __m256i) {
        // SAFETY: as the trait demands.
        unsafe { six_bit_scales(p.add(4)) }
    }

    #[inline(always)]
    unsafe fn factors(p: *const u8) -> (f32, f32) {
        // SAFETY: as the trait demands.
        unsafe { (half_at(p), half_at(p.add(2))) }
    }
}

impl Super for Q5K {
    const BYTES: usize = 176;
    const UNSIGNED: bool = true;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn codes(p: *const u8, unit: usize) -> __m256i {
        // SAFETY: as the trait demands.
        unsafe {
            let low = unit_nibbles(p.add(48 + 32 * (unit / 2)), unit % 2 == 1);
            let high = unit_bits(p.add(16), unit, 1);
            _mm256_or_si256(low, _mm256_slli_epi16(high, 4))
        }
    }

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> (__m256i, __m256i) {
        // SAFETY: as the trait demands.
        unsafe { six_bit_scales(p.add(4)) }
    }

    #[inline(always)]
    unsafe fn factors(p: *const u8) -> (f32, f32) {
        // SAFETY: as the trait demands.
        unsafe { (half_at(p), half_at(p.add(2))) }
    }
}

impl Super for Q6K {
    const BYTES: usize = 210;
    const UNSIGNED: bool = false;
    const MINS: bool = false;

    #[inline(always)]
    unsafe fn codes(p: *const u8, unit: usize) -> __m256i {
        let (h, g) = (unit / 4, unit % 4);
        // SAFETY: as the trait demands.
        unsafe {
            let low = unit_nibbles(p.add(64 * h + 32 * (g % 2)), g >= 2);
            let high = unit_bits(p.add(128 + 32 * h), 2 * g, 3);
            _mm256_sub_epi8(_mm256_or_si256(low, _mm256_slli_epi16(high, 4)), _mm256_set1_epi8(32))
        }
    }

    #[inline(always)]
    unsafe fn scales(p: *const u8) -> (__m256i, __m256i) {
        // SAFETY: as the trait demands.
        unsafe { (_mm256_cvtepi8_epi16(_mm_loadu_si128(p.add(192).cast())), _mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn factors(p: *const u8) -> (f32, f32) {
        // SAFETY: as the trait demands.
        unsafe { (half_at(p.add(208)), 0.0) }
    }
}

/// `R` weight rows, `stride` bytes apart, times a Q8_K row of `n` values.
///
/// # Safety
/// The rows are there; the processor has AVX2, FMA and F16C.
#[inline(always)]
pub(super) unsafe fn super_rows<T: Super, const R: usize>(
    w: *const u8,
    stride: usize,
    act: *const u8,
    n: usize,
) -> [f32; R] {
    // SAFETY: blocks k < n / 256 of rows r < R, units below 8 inside them.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); R];
        for k in 0..n / SUPER {
            let block = act.add(k * Q8K_BYTES);
            let d = block.cast::<f32>().read_unaligned();
            if R > 1 {
                prefetch(w.wrapping_add(R * stride), k * R * T::BYTES, R * T::BYTES);
            }
            for (r, acc) in acc.iter_mut().enumerate() {
                let p = w.add(r * stride + k * T::BYTES);
                let (scales, mins) = T::scales(p);
                let mut sum = _mm256_setzero_si256();
                for unit in 0..SUPER / UNIT {
                    let codes = T::codes(p, unit);
                    let a = _mm256_loadu_si256(block.add(Q8K_CODES + unit * UNIT).cast());
                    let pairs = if T::UNSIGNED {
                        _mm256_maddubs_epi16(codes, a)
                    } else {
                        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes))
                    };
                    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, unit_scales(scales, unit)));
                }
                let (factor, min_factor) = T::factors(p);
                *acc = _mm256_fmadd_ps(_mm256_set1_ps(factor * d), _mm256_cvtepi32_ps(sum), *acc);
                if T::MINS {
                    *acc = _mm256_fnmadd_ps(_mm256_set1_ps(min_factor * d), min_lanes(block, mins), *acc);
                }
            }
        }
        reduce_all(acc)
    }
}
