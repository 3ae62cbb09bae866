//! Rotary frequencies (spec/model.md 3.4). There is no magnitude factor: cosine and sine are used as they are.

use std::f64::consts::PI;

use super::ModelConfig;

impl ModelConfig {
    /// Angle per position of each of the `rope_dims / 2` interleaved pairs, in radians.
    ///
    /// `compressed` is for layers with a ratio above 0: another base, and YaRN, which keeps frequencies that turn more
    /// than `beta_fast` times in the original context, divides those below `beta_slow` by the factor, and blends linearly
    /// between.
    pub fn rope_freqs(&self, compressed: bool) -> Vec<f64> {
        let width = f64::from(self.rope_dims);
        let theta = if compressed { self.rope.compressed_theta } else { self.rope.theta };
        let plain = (0..self.rope_dims / 2).map(|k| libm::pow(theta, -2.0 * f64::from(k) / width));
        if !compressed {
            return plain.collect();
        }
        // The pair that makes `turns` turns in the original context, as a fraction.
        let context = f64::from(self.rope.original_context);
        let pair = |turns: f64| width * libm::log(context / (turns * 2.0 * PI)) / (2.0 * libm::log(theta));
        let low = pair(self.rope.beta_fast).floor().clamp(0.0, width - 1.0);
        let high = pair(self.rope.beta_slow).ceil().clamp(0.0, width - 1.0);
        plain
            .enumerate()
            .map(|(k, f)| {
                let ramp = ((k as f64 - low) / (high - low).max(1e-3)).clamp(0.0, 1.0);
                f / self.rope.factor * ramp + f * (1.0 - ramp)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= b * 3e-6, "{a} is not {b}");
    }

    #[test]
    fn released_frequencies_are_those_of_the_specification() {
        for cfg in [testing::v41_flash(), testing::v4_flash()] {
            let f = cfg.rope_freqs(true);
            assert_eq!(f.len(), 32);
            let expected = [
                (0, 1.0),
                (1, 0.687656),
                (15, 0.00363554),
                (16, 0.00226562),
                (20, 2.96978e-4),
                (24, 1.953125e-5),
                (25, 5.37231e-6),
                (31, 5.68053e-7),
            ];
            expected.iter().for_each(|&(k, v)| close(f[k], v));
            let f = cfg.rope_freqs(false);
            [(0, 1.0), (1, 0.749894), (16, 0.01), (31, 1.33352e-4)].iter().for_each(|&(k, v)| close(f[k], v));
        }
    }

    #[test]
    fn a_short_original_context_clamps_the_ramp_to_the_first_pair() {
        // tiny-v41: the ramp runs over pairs 0 to 4 of 16 (spec/model.md section 8).
        let mut cfg = testing::v41_flash();
        cfg.rope_dims = 32;
        cfg.rope.factor = 4.0;
        cfg.rope.original_context = 64;
        let (f, theta) = (cfg.rope_freqs(true), cfg.rope.compressed_theta);
        let base = |k: f64| libm::pow(theta, -k / 16.0);
        close(f[0], 1.0);
        close(f[1], base(1.0) * (0.75 + 0.25 / 4.0));
        close(f[3], base(3.0) * (0.25 + 0.75 / 4.0));
        close(f[4], base(4.0) / 4.0);
        close(f[15], base(15.0) / 4.0);
    }
}
