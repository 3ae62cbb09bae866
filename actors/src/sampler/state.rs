//! Chooses a token from logits: bias, penalties, constraint, temperature, top-k, top-p, min-p, and one draw keyed by
//! (seed, position). A NaN logit is never chosen; if every logit is NaN, nothing is.

use std::collections::{HashMap, HashSet};

use luce_core::{Constraint, GenerateRequest, Logprobs, Sampling, TokenId, TokenSet};

/// What the sampler remembers of one sequence.
#[derive(Debug)]
pub struct SamplerState {
    sampling: Sampling,
    seed: u64,
    prompt: HashSet<u32>,
    generated: HashMap<u32, u32>,
    count: u32,
    stop: Vec<TokenId>,
    logprobs: Option<u32>,
    constraint: Option<Box<dyn Constraint>>,
    allowed: TokenSet,
}

/// A chosen token and, where asked for, how probable it was.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The token.
    pub token: TokenId,
    /// Where the request asked for them.
    pub logprobs: Option<Box<Logprobs>>,
}

impl SamplerState {
    /// Takes what concerns sampling out of a request; `seed` is used where the request names none.
    pub fn new(request: &mut GenerateRequest, vocabulary: u32, seed: u64) -> SamplerState {
        let sampling = std::mem::take(&mut request.sampling);
        let penal = sampling.repetition_penalty != 1.0;
        SamplerState {
            seed: sampling.seed.unwrap_or(seed),
            prompt: request.prompt.iter().filter(|_| penal).map(|t| t.0).collect(),
            sampling,
            generated: HashMap::new(),
            count: 0,
            stop: request.stop_tokens.clone(),
            logprobs: request.logprobs,
            constraint: request.constraint.take(),
            allowed: TokenSet::full(vocabulary),
        }
    }

    /// The token for `position` from `logits` \[vocabulary\], which are changed.
    ///
    /// # Errors
    /// Why nothing can be chosen: every logit is NaN, or the constraint allows nothing.
    pub fn choose(&mut self, logits: &mut [f32], position: u32) -> Result<Choice, String> {
        let unchanged = self.logprobs.map(|top| (logits.to_vec(), top));
        for &(token, bias) in &self.sampling.logit_bias {
            if let Some(l) = logits.get_mut(token.index()) {
                *l += bias;
            }
        }
        self.penalise(logits);
        self.restrict(logits)?;
        let token = if self.sampling.temperature <= 0.0 { greedy(logits) } else { self.draw(logits, position) };
        let token = token.ok_or("no token can be chosen: every logit is NaN or forbidden")?;
        *self.generated.entry(token).or_default() += 1;
        self.count += 1;
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(TokenId(token))?;
        }
        let logprobs = unchanged.map(|(logits, top)| Box::new(log_softmax(&logits, token, top)));
        Ok(Choice { token: TokenId(token), logprobs })
    }

    /// Forbids what the constraint excludes, and stop tokens that come too early.
    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), String> {
        if self.count < self.sampling.min_tokens {
            for token in &self.stop {
                if let Some(l) = logits.get_mut(token.index()) {
                    *l = f32::NEG_INFINITY;
                }
            }
        }
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        self.allowed.fill();
        if constraint.restrict(&mut self.allowed)? {
            for (i, l) in (0u32..).zip(logits.iter_mut()) {
                if !self.allowed.contains(TokenId(i)) {
                    *l = f32::NEG_INFINITY;
                }
            }
        }
        Ok(())
    }

    fn penalise(&self, logits: &mut [f32]) {
        let s = &self.sampling;
        let mut repeat = |token: u32| {
            if let Some(l) = logits.get_mut(token as usize) {
                *l = if *l > 0.0 { *l / s.repetition_penalty } else { *l * s.repetition_penalty };
            }
        };
        if s.repetition_penalty != 1.0 {
            self.prompt.iter().filter(|t| !self.generated.contains_key(t)).for_each(|&t| repeat(t));
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
            .filter(|(_, l)| **l > f32::NEG_INFINITY)
            .map(|(i, &l)| (i, if l == best { 1.0 } else { libm::exp(f64::from(l - best) / f64::from(s.temperature)) }))
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
        if l > f32::NEG_INFINITY && best.is_none_or(|(_, b)| l > b) {
            best = Some((i, l));
        }
    }
    best.map(|b| b.0)
}

/// The log-probabilities of a token and of the `top` best.
fn log_softmax(logits: &[f32], token: u32, top: u32) -> Logprobs {
    let best = logits.iter().copied().filter(|l| !l.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().filter(|l| !l.is_nan()).map(|&l| libm::exp(f64::from(l - best))).sum();
    let log_sum = f64::from(best) + libm::log(sum);
    let all: Vec<f32> = logits.iter().map(|&l| (f64::from(l) - log_sum) as f32).collect();
    let mut order: Vec<u32> = (0..all.len() as u32).filter(|&i| !all[i as usize].is_nan()).collect();
    let better = |a: &u32, b: &u32| all[*b as usize].total_cmp(&all[*a as usize]).then(a.cmp(b));
    let top = (top as usize).min(order.len());
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by(top - 1, better);
    }
    order.truncate(top);
    order.sort_unstable_by(better);
    let top = order.into_iter().map(|i| (TokenId(i), all[i as usize])).collect();
    Logprobs { chosen: all[token as usize], top }
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

    fn state(sampling: Sampling, change: impl FnOnce(&mut GenerateRequest)) -> SamplerState {
        let mut request = GenerateRequest::greedy(vec![TokenId(0)], 1, vec![]);
        request.sampling = sampling;
        change(&mut request);
        SamplerState::new(&mut request, 4, 7)
    }

    fn pick(s: Sampling, logits: &[f32], position: u32) -> Option<u32> {
        state(s, |_| ()).choose(&mut logits.to_vec(), position).ok().map(|c| c.token.0)
    }

    #[test]
    fn greedy_takes_the_lowest_id_of_equal_logits_and_never_nan() {
        assert_eq!(pick(Sampling::default(), &[f32::NAN, 1.0, 2.0, 2.0], 0), Some(2));
        assert_eq!(pick(Sampling::default(), &[f32::NAN], 0), None);
    }

    #[test]
    fn bias_and_min_tokens_forbid_what_they_name() {
        let logits = [0.0, 1.0, 2.0, 3.0];
        let bias = vec![(TokenId(3), f32::NEG_INFINITY), (TokenId(0), 5.0), (TokenId(99), 1.0)];
        assert_eq!(pick(Sampling { logit_bias: bias, ..Sampling::default() }, &logits, 0), Some(0));
        let sampling = Sampling { min_tokens: 1, ..Sampling::default() };
        let mut early = state(sampling, |r| r.stop_tokens = vec![TokenId(3)]);
        assert_eq!(early.choose(&mut logits.to_vec(), 0).unwrap().token, TokenId(2));
        assert_eq!(early.choose(&mut logits.to_vec(), 1).unwrap().token, TokenId(3));
    }

    /// Allows 1 and then nothing.
    #[derive(Debug)]
    struct OnlyOne(bool);

    impl Constraint for OnlyOne {
        fn restrict(&mut self, allowed: &mut TokenSet) -> Result<bool, String> {
            allowed.clear();
            allowed.insert(TokenId(1));
            if self.0 { Err("the grammar is complete".into()) } else { Ok(true) }
        }

        fn accept(&mut self, token: TokenId) -> Result<(), String> {
            self.0 = token == TokenId(1);
            Ok(())
        }
    }

    #[test]
    fn a_constraint_limits_the_choice_sees_it_and_may_end_it() {
        let mut s = state(Sampling::default(), |r| r.constraint = Some(Box::new(OnlyOne(false))));
        assert_eq!(s.choose(&mut [0.0, 1.0, 2.0, 3.0], 0).unwrap().token, TokenId(1));
        assert_eq!(s.choose(&mut [0.0, 1.0, 2.0, 3.0], 1), Err("the grammar is complete".into()));
    }

    #[test]
    fn log_probabilities_are_of_the_unchanged_logits_best_first() {
        let bias = vec![(TokenId(0), 100.0)];
        let mut s = state(Sampling { logit_bias: bias, ..Sampling::default() }, |r| r.logprobs = Some(2));
        let choice = s.choose(&mut [0.0, 3f32.ln(), f32::NEG_INFINITY, f32::NEG_INFINITY], 0).unwrap();
        let got = choice.logprobs.unwrap();
        let near = |a: f32, b: f32| (a - b.ln()).abs() < 1e-6;
        assert!(choice.token == TokenId(0) && near(got.chosen, 0.25), "{got:?}");
        assert!(got.top[0].0 == TokenId(1) && near(got.top[0].1, 0.75) && got.top[1].0 == TokenId(0), "{got:?}");
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
