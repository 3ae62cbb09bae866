//! Products with f32 activations, summed in f64: the mode that is compared with a reference, and the small float
//! matrices of a model.
//!
//! A product of two f32 values is exact in f64, so fused and separate multiplication give the same bits; with sixteen
//! running sums and a fixed tree every form of this loop, and any number of rows, agrees.
#![expect(unsafe_code, reason = "calls a form compiled for AVX2 after asking the processor")]

/// Sum of `weights[i] * acts[i]`, rounded to f32 once. `acts` are little-endian f32 values.
///
/// # Panics
/// If the lengths differ.
pub(super) fn dot(weights: &[f32], acts: &[[u8; 4]]) -> f32 {
    assert_eq!(weights.len(), acts.len(), "lengths of a dot product");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that the form asks for.
        return unsafe { dot_avx2(weights, acts) };
    }
    lanes(weights, acts)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(weights: &[f32], acts: &[[u8; 4]]) -> f32 {
    lanes(weights, acts)
}

const LANES: usize = 16;

#[inline(always)]
fn lanes(weights: &[f32], acts: &[[u8; 4]]) -> f32 {
    let mut sums = [0.0f64; LANES];
    let (w, w_rest) = weights.as_chunks::<LANES>();
    let (x, x_rest) = acts.as_chunks::<LANES>();
    for (w, x) in w.iter().zip(x) {
        for i in 0..LANES {
            sums[i] += f64::from(w[i]) * f64::from(f32::from_le_bytes(x[i]));
        }
    }
    for ((sum, w), x) in sums.iter_mut().zip(w_rest).zip(x_rest) {
        *sum += f64::from(*w) * f64::from(f32::from_le_bytes(*x));
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0] as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_gives_the_bits_of_the_plain_loop_and_cancellation_keeps_its_digits() {
        for n in [0, 1, 15, 16, 17, 100, 1024] {
            let w: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
            let x: Vec<[u8; 4]> = (0..n).map(|i| (i as f32 * 0.11).cos().to_le_bytes()).collect();
            assert_eq!(dot(&w, &x).to_bits(), lanes(&w, &x).to_bits(), "{n} values");
        }
        let (w, x) = ([1e8f32, 1.0, -1e8], [1.0f32, 0.25, 1.0].map(f32::to_le_bytes));
        assert_eq!(dot(&w, &x), 0.25);
    }
}
