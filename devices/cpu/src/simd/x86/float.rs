//! Dots of f32, f16 and bf16 rows in 32 lanes: four registers of 256 bits or two of 512.

use std::arch::x86_64::*;

use crate::simd::plain::{Bf16, Element, F16, F32, finish_dot};

/// Loads of consecutive values as f32.
pub(super) trait Load: Element {
    /// Bytes of a value.
    const BYTES: usize;

    /// # Safety
    /// Eight values lie at `p`; the processor has AVX2 and F16C.
    unsafe fn load8(p: *const u8) -> __m256;

    /// # Safety
    /// Sixteen values lie at `p`; the processor has AVX-512F.
    unsafe fn load16(p: *const u8) -> __m512;
}

impl Load for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load8(p: *const u8) -> __m256 {
        // SAFETY: as the trait demands.
        unsafe { _mm256_loadu_ps(p.cast()) }
    }

    #[inline(always)]
    unsafe fn load16(p: *const u8) -> __m512 {
        // SAFETY: as the trait demands.
        unsafe { _mm512_loadu_ps(p.cast()) }
    }
}

impl Load for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load8(p: *const u8) -> __m256 {
        // SAFETY: as the trait demands.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load16(p: *const u8) -> __m512 {
        // SAFETY: as the trait demands.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
}

impl Load for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load8(p: *const u8) -> __m256 {
        // SAFETY: as the trait demands.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())), 16)) }
    }

    #[inline(always)]
    unsafe fn load16(p: *const u8) -> __m512 {
        // SAFETY: as the trait demands.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())), 16)) }
    }
}

/// # Safety
/// Both rows have `n` values; the processor has AVX2, FMA and F16C.
#[inline(always)]
pub(super) unsafe fn dot<A: Load, B: Load>(a: *const u8, b: *const u8, n: usize) -> f32 {
    let mut lanes = [0.0f32; 32];
    let whole = n / 32 * 32;
    // SAFETY: i + 32 <= n for every step.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); 4];
        let mut i = 0;
        while i < whole {
            for (j, acc) in acc.iter_mut().enumerate() {
                let at = i + 8 * j;
                *acc = _mm256_fmadd_ps(A::load8(a.add(at * A::BYTES)), B::load8(b.add(at * B::BYTES)), *acc);
            }
            i += 32;
        }
        for (j, acc) in acc.iter().enumerate() {
            _mm256_storeu_ps(lanes.as_mut_ptr().add(8 * j), *acc);
        }
        finish_dot::<A, B>(lanes, a, b, whole, n)
    }
}

/// # Safety
/// Both rows have `n` values; the processor has AVX-512F and FMA.
#[inline(always)]
pub(super) unsafe fn dot_512<A: Load, B: Load>(a: *const u8, b: *const u8, n: usize) -> f32 {
    let mut lanes = [0.0f32; 32];
    let whole = n / 32 * 32;
    // SAFETY: i + 32 <= n for every step.
    unsafe {
        let mut acc = [_mm512_setzero_ps(); 2];
        let mut i = 0;
        while i < whole {
            for (j, acc) in acc.iter_mut().enumerate() {
                let at = i + 16 * j;
                *acc = _mm512_fmadd_ps(A::load16(a.add(at * A::BYTES)), B::load16(b.add(at * B::BYTES)), *acc);
            }
            i += 32;
        }
        for (j, acc) in acc.iter().enumerate() {
            _mm512_storeu_ps(lanes.as_mut_ptr().add(16 * j), *acc);
        }
        finish_dot::<A, B>(lanes, a, b, whole, n)
    }
}
