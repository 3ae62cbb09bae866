//! RMS norm and the one-hot mix.

/// `1 / sqrt(mean(x^2) + eps)` of one run of values, in f64: squares of f32 values are exact there, so the factor that
/// the whole run shares adds no error of its own. Eight running sums, added in a fixed order.
#[inline]
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f64 {
    let mut sums = [0.0f64; 8];
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for eight in chunks {
        for (sum, &x) in sums.iter_mut().zip(eight) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum += f64::from(x) * f64::from(x);
    }
    1.0 / (sums.iter().sum::<f64>() / x.len() as f64 + f64::from(eps)).sqrt()
}

/// One row of `Op::RmsNorm`: `out = weight * x / sqrt(mean(x^2) + eps)` over each run of `width` values of `x`
/// [runs * width], rounded to f32 once. `weight` is [width], applied to every run; without it the factor is 1.
pub(crate) fn rms_norm(x: &[f32], weight: Option<&[f32]>, width: usize, eps: f32, out: &mut [f32]) {
    out.copy_from_slice(x);
    rms_norm_in_place(out, weight, width, eps);
}

/// [`rms_norm`] where `x` and `out` are the same operand.
pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: Option<&[f32]>, width: usize, eps: f32) {
    for x in x.chunks_exact_mut(width) {
        let r = inverse_rms(x, eps);
        match weight {
            Some(weight) => {
                for (x, w) in x.iter_mut().zip(weight) {
                    *x = (f64::from(*x) * r * f64::from(*w)) as f32;
                }
            }
            None => {
                for x in x {
                    *x = (f64::from(*x) * r) as f32;
                }
            }
        }
    }
}

/// One row of `Op::OneHot`: (1, 0, 0, ...).
pub(crate) fn one_hot(out: &mut [f32]) {
    out.fill(0.0);
    if let Some(first) = out.first_mut() {
        *first = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, bits, noise, wide};
    use super::*;

    #[test]
    fn every_run_is_scaled_by_its_own_root_mean_square() {
        let (x, w) = (noise(3 * 100, 1), noise(100, 2));
        let want: Vec<f64> = wide(&x)
            .chunks(100)
            .flat_map(|run| {
                let rms = (run.iter().map(|v| v * v).sum::<f64>() / 100.0 + 1e-6).sqrt();
                run.iter().zip(&w).map(|(v, &w)| f64::from(w) * v / rms).collect::<Vec<_>>()
            })
            .collect();
        let mut out = vec![0.0; 300];
        rms_norm(&x, Some(&w), 100, 1e-6, &mut out);
        assert_close(&out, &want, 1e-6);
    }

    #[test]
    fn in_place_gives_the_same_bits() {
        let (x, w) = (noise(2 * 77, 3), noise(77, 4));
        for weight in [None, Some(&w[..])] {
            let (mut out, mut same) = (vec![0.0; x.len()], x.clone());
            rms_norm(&x, weight, 77, 1e-20, &mut out);
            rms_norm_in_place(&mut same, weight, 77, 1e-20);
            assert_eq!(bits(&out), bits(&same));
            assert_ne!(bits(&out), bits(&x));
        }
    }

    #[test]
    fn an_eps_of_1e_20_neither_vanishes_on_zeros_nor_matters_on_small_values() {
        let mut x = vec![0.0; 32];
        rms_norm_in_place(&mut x, None, 32, 1e-20);
        assert_eq!(x, vec![0.0; 32]);
        let mut x = vec![1e-6; 32];
        rms_norm_in_place(&mut x, None, 32, 1e-20);
        assert_close(&x, &[1.0 / (1.0f64 + 1e-8).sqrt(); 32], 1e-6);
    }

    #[test]
    fn one_hot_clears_what_was_there() {
        let mut out = [7.0; 4];
        one_hot(&mut out);
        assert_eq!(out, [1.0, 0.0, 0.0, 0.0]);
    }
}
