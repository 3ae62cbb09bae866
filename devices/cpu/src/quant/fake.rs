//! Fake quantisation of the reference (spec/model.md section 3.9): values are rounded to what an FP8 or FP4 block could
//! hold and stay f32. Also the Walsh-Hadamard transform that V4 applies before it.
//!
//! All rounding is to nearest, ties to even. The block's scale comes from its largest magnitude times the f32 reciprocal,
//! and powers of two are taken on the exponent bits, so the result equals the reference bit for bit. A block that holds
//! NaN or an infinity becomes NaN.

use luce_core::QuantKind;

/// Rounds one block in place: `block` is the whole group that shares a scale (64, 32 or 16 values in the models).
pub fn fake_quant(kind: QuantKind, block: &mut [f32]) {
    let most = block.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7FFF_FFFF));
    let largest = f32::from_bits(most);
    if !largest.is_finite() {
        block.fill(f32::NAN);
        return;
    }
    match kind {
        QuantKind::Fp8 => {
            let scale = pow2_ceil(largest.max(1e-4) * (1.0 / 448.0));
            block.iter_mut().for_each(|x| *x = straight_through(*x, e4m3(*x / scale) * scale));
        }
        QuantKind::Fp4 => {
            let scale = pow2_ceil(largest.max(SMALLEST_FP4) * (1.0 / 6.0));
            block.iter_mut().for_each(|x| *x = straight_through(*x, e2m1(*x / scale) * scale));
        }
        QuantKind::Fp4Scaled => {
            let scale = e4m3((largest * (1.0 / 6.0)).clamp(1.0 / 512.0, 448.0));
            block.iter_mut().for_each(|x| *x = straight_through(*x, e2m1(*x / scale) * scale));
        }
    }
}

/// 6 * 2^-126: keeps the scale of a zero block a normal number.
const SMALLEST_FP4: f32 = 6.0 * f32::MIN_POSITIVE;

/// The reference adds the rounding error to the value, as its gradient passes straight through. The sum is the rounded
/// value again, except that -0 becomes +0 and that values far beyond the largest scale keep a rounding of their own.
#[inline(always)]
fn straight_through(value: f32, rounded: f32) -> f32 {
    value + (rounded - value)
}

/// Smallest power of two that is not below `value`, which is positive and normal.
#[inline]
fn pow2_ceil(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(((bits >> 23) + u32::from(bits & 0x7F_FFFF != 0)) << 23)
}

/// Nearest E4M3 value, saturating at 448.
#[inline(always)]
fn e4m3(value: f32) -> f32 {
    let a = value.abs().min(448.0);
    let bits = a.to_bits();
    // Normal codes keep three mantissa bits. Below 2^-6 the step is 2^-9: adding 1.5 * 2^14 rounds to it.
    let normal = f32::from_bits((bits + 0x7_FFFF + (bits >> 20 & 1)) & !0xF_FFFF);
    let subnormal = (a + 24_576.0) - 24_576.0;
    (if a < 1.0 / 64.0 { subnormal } else { normal }).copysign(value)
}

/// Nearest E2M1 value, saturating at 6. The step is 0.5 below 2, 1 below 4, 2 above; adding 1.5 * 2^23 steps rounds.
#[inline(always)]
fn e2m1(value: f32) -> f32 {
    let a = value.abs().min(6.0);
    let rounder = if a < 2.0 {
        6_291_456.0
    } else if a < 4.0 {
        12_582_912.0
    } else {
        25_165_824.0
    };
    ((a + rounder) - rounder).copysign(value)
}

/// Orthonormal Walsh-Hadamard transform in natural order, in place.
///
/// # Panics
/// When the length is not a power of two.
pub fn hadamard(x: &mut [f32]) {
    assert!(x.len().is_power_of_two(), "the Hadamard transform needs a power of two, got {}", x.len());
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        half *= 2;
    }
    let factor = (1.0 / (x.len() as f64).sqrt()) as f32;
    x.iter_mut().for_each(|x| *x *= factor);
}

#[cfg(test)]
mod tests {
    use super::super::codebook::{E2M1, E4M3};
    use super::*;

    /// Nearest of the non-negative values of a code table, ties to the even code, by trying all of them in f64.
    fn nearest(table: &[f32], value: f32) -> f32 {
        let a = f64::from(value.abs());
        let distance = |code: usize| (f64::from(table[code]) - a).abs();
        let mut best = 0;
        for code in 1..table.len() {
            if distance(code) < distance(best) || distance(code) == distance(best) && code % 2 == 0 {
                best = code;
            }
        }
        table[best].copysign(value)
    }

    /// Small deterministic generator (xorshift), so that the cases never change.
    fn noise(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }

    #[test]
    fn e4m3_rounds_to_the_nearest_code_with_ties_to_even_everywhere() {
        let table = &E4M3[..127];
        let mut values: Vec<f32> = table.to_vec();
        values.extend(table.windows(2).map(|w| (w[0] + w[1]) / 2.0));
        let neighbours: Vec<f32> = values.iter().flat_map(|v| [v.next_up(), v.next_down()]).collect();
        values.extend(neighbours);
        let mut random = noise(7);
        values.extend((0..4000).map(|_| f32::from_bits((random() as u32) >> 1) % 500.0));
        values.extend([448.1, 1e30, 1e-40]);
        for v in values.into_iter().filter(|v| v.is_finite()) {
            for v in [v, -v] {
                assert_eq!(e4m3(v).to_bits(), nearest(table, v).to_bits(), "{v:e}");
            }
        }
    }

    #[test]
    fn e2m1_rounds_to_the_nearest_code_with_ties_to_even_everywhere() {
        let ties = [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)];
        for (value, want) in ties {
            assert_eq!(e2m1(value), want);
        }
        for step in -7000..=7000 {
            let v = step as f32 / 1000.0;
            assert_eq!(e2m1(v).to_bits(), nearest(&E2M1[..8], v).to_bits(), "{v}");
        }
    }

    #[test]
    fn blocks_equal_a_slow_computation_in_double_precision() {
        let mut random = noise(99);
        for kind in [QuantKind::Fp8, QuantKind::Fp4, QuantKind::Fp4Scaled] {
            for case in 0..500 {
                let magnitude = (2.0f64).powi(case % 60 - 40);
                let x: [f32; 32] = std::array::from_fn(|_| {
                    ((random() >> 11) as f64 / (1u64 << 52) as f64 - 1.0) as f32 * magnitude as f32
                });
                let largest = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let power = |least: f32, most: f32| {
                    let target = f64::from(largest.max(least) * (1.0 / most));
                    let mut scale = (2.0f64).powi(-126);
                    while scale < target {
                        scale *= 2.0;
                    }
                    scale as f32
                };
                let (scale, table) = match kind {
                    QuantKind::Fp8 => (power(1e-4, 448.0), &E4M3[..127]),
                    QuantKind::Fp4 => (power(6.0 * f32::MIN_POSITIVE, 6.0), &E2M1[..8]),
                    QuantKind::Fp4Scaled => {
                        let target = (largest * (1.0 / 6.0)).clamp(0.001_953_125, 448.0);
                        (nearest(&E4M3[..127], target), &E2M1[..8])
                    }
                };
                let mut got = x;
                fake_quant(kind, &mut got);
                for (got, x) in got.iter().zip(x) {
                    let want = nearest(table, x / scale) * scale;
                    // Values past 2688 saturate the e4m3 scale; there the reference's sum rounds once more.
                    let tolerance = if largest > 2688.0 { largest * f32::EPSILON } else { 0.0 };
                    assert!((got - want).abs() <= tolerance, "{kind:?}: {x:e} became {got:e} instead of {want:e}");
                }
            }
        }
    }

    #[test]
    fn hand_computed_blocks_come_out() {
        // Largest 448 gives scale 1; 449.0 needs scale 2.
        let mut block = [448.0, 17.0, 1.0 / 1024.0, 3.0 / 1024.0, -0.001];
        fake_quant(QuantKind::Fp8, &mut block);
        assert_eq!(block, [448.0, 16.0, 0.0, 1.0 / 256.0, -1.0 / 512.0]);
        let mut block = [449.0, 17.0, -19.0];
        fake_quant(QuantKind::Fp8, &mut block);
        assert_eq!(block, [448.0, 16.0, -20.0]);
        // Largest 12: scale 2.
        let mut block = [12.0, 5.0, -1.0, 0.5, 7.0];
        fake_quant(QuantKind::Fp4, &mut block);
        assert_eq!(block, [12.0, 4.0, -1.0, 0.0, 8.0]);
        // Largest 6.6 / 6 = 1.1 becomes the E4M3 scale 1.125.
        let mut block = [6.6, 1.0, -0.2];
        fake_quant(QuantKind::Fp4Scaled, &mut block);
        assert_eq!(block, [6.75, 1.125, 0.0]);
        let mut block = [0.0; 16];
        for kind in [QuantKind::Fp8, QuantKind::Fp4, QuantKind::Fp4Scaled] {
            fake_quant(kind, &mut block);
            assert_eq!(block, [0.0; 16]);
        }
    }

    #[test]
    fn a_poisoned_block_becomes_nan_as_a_whole() {
        for kind in [QuantKind::Fp8, QuantKind::Fp4, QuantKind::Fp4Scaled] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut block = [1.0, bad, 2.0];
                fake_quant(kind, &mut block);
                assert!(block.iter().all(|x| x.is_nan()));
            }
        }
    }

    #[test]
    fn hadamard_equals_its_definition_and_undoes_itself() {
        let x: [f32; 16] = std::array::from_fn(|i| (i * i % 7) as f32 - 3.0);
        let mut y = x;
        hadamard(&mut y);
        for (i, y) in y.iter().enumerate() {
            let sum: f32 = (0..16).map(|j| if (i & j).count_ones() % 2 == 0 { x[j] } else { -x[j] }).sum();
            assert_eq!(*y, sum / 4.0, "coefficient {i}");
        }
        hadamard(&mut y);
        assert_eq!(y, x);
    }
}
