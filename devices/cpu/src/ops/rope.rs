//! Rotary embedding (spec/model.md 3.4): angles once per row, rotation of interleaved pairs per head.

/// One row of `Op::Angles`: `out` [2 * k] = (cos, sin) pairs of `position * freqs[i]`. Angle, cosine and sine are f64
/// and rounded once to f32. The position of a compressed group is its first covered position.
pub(crate) fn angles(position: u32, freqs: &[f64], out: &mut [f32]) {
    for (f, out) in freqs.iter().zip(out.chunks_exact_mut(2)) {
        let (sin, cos) = libm::sincos(f64::from(position) * f);
        out[0] = cos as f32;
        out[1] = sin as f32;
    }
}

/// One row of `Op::Rope`: of each head of `width` values in `x` [heads * width] rotates the last `angles.len()` values,
/// pair (a, b) becoming (a cos - b sin, a sin + b cos), rounded once; `inverse` negates the angle.
pub(crate) fn rotate(x: &mut [f32], width: usize, angles: &[f32], inverse: bool) {
    let sign = if inverse { -1.0 } else { 1.0 };
    for head in x.chunks_exact_mut(width) {
        for (pair, angle) in head[width - angles.len()..].chunks_exact_mut(2).zip(angles.chunks_exact(2)) {
            let [a, b, cos, sin] = [pair[0], pair[1], angle[0], angle[1] * sign].map(f64::from);
            pair[0] = (a * cos - b * sin) as f32;
            pair[1] = (a * sin + b * cos) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, bits, noise, wide};
    use super::*;

    /// Frequencies of the released models (spec/model.md 3.4): theta 160000 with YaRN, or theta 10000 without.
    fn freqs(compressed: bool) -> Vec<f64> {
        let theta: f64 = if compressed { 160_000.0 } else { 10_000.0 };
        let edge = |beta: f64| 64.0 * (65536.0 / (beta * 2.0 * std::f64::consts::PI)).ln() / (2.0 * theta.ln());
        let (lo, hi) = (edge(32.0).floor(), edge(1.0).ceil());
        (0..32)
            .map(|k| {
                let f = theta.powf(-2.0 * f64::from(k) / 64.0);
                let ramp = ((f64::from(k) - lo) / (hi - lo)).clamp(0.0, 1.0);
                if compressed { f / 16.0 * ramp + f * (1.0 - ramp) } else { f }
            })
            .collect()
    }

    #[test]
    fn the_frequencies_used_here_are_those_printed_in_the_specification() {
        let (yarn, plain) = (freqs(true), freqs(false));
        for (k, want) in [
            (0, 1.0),
            (1, 0.687656),
            (15, 0.00363554),
            (16, 0.00226562),
            (20, 2.96978e-4),
            (24, 1.953125e-5),
            (25, 5.37231e-6),
            (31, 5.68053e-7),
        ] {
            assert!((yarn[k] / want - 1.0).abs() < 3e-6, "yarn {k}: {}", yarn[k]);
        }
        for (k, want) in [(1, 0.749894), (16, 0.01), (31, 1.33352e-4)] {
            assert!((plain[k] / want - 1.0).abs() < 3e-6, "plain {k}: {}", plain[k]);
        }
    }

    #[test]
    fn angles_keep_f32_precision_at_the_end_of_the_context() {
        let f = freqs(false);
        for position in [0, 1, 4095, 131_071, 1_048_575] {
            let mut out = vec![0.0; 64];
            angles(position, &f, &mut out);
            let want: Vec<f64> = f.iter().map(|f| f64::from(position) * f).flat_map(|a| [a.cos(), a.sin()]).collect();
            assert_close(&out, &want, 6e-8);
        }
    }

    #[test]
    fn only_the_last_values_of_each_head_turn_and_neighbours_form_a_pair() {
        let (x, f) = (noise(2 * 10, 1), [1.0, 0.25]);
        let mut a = [0.0; 4];
        angles(7, &f, &mut a);
        let mut got = x.clone();
        rotate(&mut got, 10, &a, false);
        for head in 0..2 {
            let (x, got) = (&x[head * 10..][..10], &got[head * 10..][..10]);
            assert_eq!(bits(&x[..6]), bits(&got[..6]));
            for k in 0..2 {
                let (re, im) = (f64::from(x[6 + 2 * k]), f64::from(x[7 + 2 * k]));
                let (sin, cos) = (7.0 * f[k]).sin_cos();
                assert_close(&got[6 + 2 * k..][..2], &[re * cos - im * sin, re * sin + im * cos], 1e-6);
            }
        }
    }

    #[test]
    fn the_inverse_undoes_the_rotation() {
        let x = noise(3 * 96, 2);
        let mut a = vec![0.0; 64];
        angles(12345, &freqs(true), &mut a);
        let mut y = x.clone();
        rotate(&mut y, 96, &a, false);
        assert_ne!(x, y);
        rotate(&mut y, 96, &a, true);
        assert_close(&y, &wide(&x), 1e-6);
    }
}
