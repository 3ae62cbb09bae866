//! Chooses a token from logits: penalties, temperature, top-k, top-p, min-p, and one draw keyed by (seed, position).
//! A NaN logit is never chosen; if every logit is NaN, nothing is.

use std::collections::HashMap;

use luce_core::{Sampling, TokenId};

/// What the sampler remembers of one sequence.
#[derive(Clone, Debug)]
pub struct SamplerState {
    sampling: Sampling,
    seed: u64,
    prompt: HashMap<u32, ()>,
    generated: HashMap<u32, u32>,
}

impl SamplerState {
    /// For a request; `seed` is used where the request names none.
    pub fn new(sampling: &Sampling, prompt: &[TokenId], seed: u64) -> SamplerState {
        let penal = sampling.repetition_penalty != 1.0;
        SamplerState {
            seed: sampling.seed.unwrap_or(seed),
            sampling: sampling.clone(),
            prompt: prompt.iter().filter(|_| penal).map(|t| (t.0, ())).collect(),
            generated: HashMap::new(),
        }
    }

    /// The token for `position` from `logits`, which are changed. `None` if every logit is NaN.
    pub fn choose(&mut self, logits: &mut [f32], position: u32) -> Option<TokenId> {
        self.penalise(logits);
        let token = if self.sampling.temperature <= 0.0 { greedy(logits) } else { self.draw(logits, position) }?;
        *self.generated.entry(token).or_default() += 1;
        Some(TokenId(token))
    }

    fn penalise(&self, logits: &mut [f32]) {
        let s = &self.sampling;
        let mut repeat = |token: u32| {
            if let Some(l) = logits.get_mut(token as usize) {
                *l = if *l > 0.0 { *l / s.repetition_penalty } else { *l * s.repetition_penalty };
            }
        };
        if s.repetition_penalty != 1.0 {
            self.prompt.keys().filter(|t| !self.generated.contains_key(t)).for_each(|&t| repeat(t));
            self.generated.keys().for_each(|&t| repeat(t));
        }
        for (&token, &count) in &self.generated {
            if let Some(l) = logits.get_mut(token as usize) {
                *l -= s.presence_penalty + s.frequency_penalty * count as f32;
            }
        }
    }

    fn draw(&self, logits: &[f32], position: u32) -> Option<u32> {
        let s = &self.sampling;
        let best = logits[greedy(logits)? as usize];
        // Largest first, lowest id on ties; weights relative to the largest.
        let mut order: Vec<(u32, f64)> = (0u32..)
            .zip(logits)
            .filter(|(_, l)| !l.is_nan())
            .map(|(i, &l)| (i, if l == best { 1.0 } else { (f64::from(l - best) / f64::from(s.temperature)).exp() }))
            .collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if s.top_k > 0 {
            order.truncate(s.top_k as usize);
        }
        let all: f64 = order.iter().map(|o| o.1).sum();
        if s.top_p < 1.0 {
            let mut sum = 0.0;
            let keep = order.iter().position(|o| {
                sum += o.1 / all;
                sum >= f64::from(s.top_p)
            });
            order.truncate(keep.map_or(order.len(), |k| k + 1).max(1));
        }
        order.retain(|o| o.1 >= f64::from(s.min_p));
        let total: f64 = order.iter().map(|o| o.1).sum();
        let mut left = uniform(self.seed, position) * total;
        for &(token, weight) in &order {
            left -= weight;
            if left < 0.0 {
                return Some(token);
            }
        }
        order.last().map(|o| o.0)
    }
}

fn greedy(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (i, &l) in (0u32..).zip(logits) {
        if !l.is_nan() && best.is_none_or(|(_, b)| l > b) {
            best = Some((i, l));
        }
    }
    best.map(|b| b.0)
}

/// A number in [0, 1) from 53 bits of a splitmix64 finaliser over seed and position.
fn uniform(seed: u64, position: u32) -> f64 {
    let mut z = seed ^ u64::from(position).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for _ in 0..2 {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
    }
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(s: Sampling, logits: &[f32], position: u32) -> Option<u32> {
        SamplerState::new(&s, &[], 7).choose(&mut logits.to_vec(), position).map(|t| t.0)
    }

    #[test]
    fn greedy_takes_the_lowest_id_of_equal_logits_and_never_nan() {
        assert_eq!(pick(Sampling::default(), &[f32::NAN, 1.0, 2.0, 2.0], 0), Some(2));
        assert_eq!(pick(Sampling::default(), &[f32::NAN], 0), None);
    }

    #[test]
    fn draws_follow_the_distribution_and_repeat_with_the_seed() {
        let s = Sampling { temperature: 1.0, seed: Some(3), ..Sampling::default() };
        let logits = [0.0, 3f32.ln()];
        let ones = (0..4000).filter(|&p| pick(s.clone(), &logits, p) == Some(1)).count();
        assert!((2900..3100).contains(&ones), "{ones} of 4000 where 3000 are expected");
        assert_eq!(pick(s.clone(), &logits, 5), pick(s, &logits, 5));
    }

    #[test]
    fn top_k_top_p_and_min_p_each_cut_the_tail() {
        let logits = [0.0, 1.0, 5.0];
        let base = Sampling { temperature: 1.0, ..Sampling::default() };
        for s in [
            Sampling { top_k: 1, ..base.clone() },
            Sampling { top_p: 0.5, ..base.clone() },
            Sampling { min_p: 0.5, ..base },
        ] {
            assert!((0..200).all(|p| pick(s.clone(), &logits, p) == Some(2)), "{s:?}");
        }
    }
}
