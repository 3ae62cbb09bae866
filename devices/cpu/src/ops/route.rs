//! Router (spec/model.md 3.10): which experts a row uses, and with which weights.

use super::top;
use crate::simd::softplus;

/// A routing table names an expert that the layer does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the routing table names expert {id}, but the layer has {experts}: the model file is damaged")]
pub(crate) struct NoSuchExpert {
    /// The id in the table.
    pub(crate) id: i32,
    /// Experts of the layer.
    pub(crate) experts: usize,
}

/// How the experts of a row are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// The largest s + bias, or s without a bias.
    Learned(Option<&'a [f32]>),
    /// The table's row for the token: `top` ids in any order. A repeated id counts once; its repetitions weigh 0.
    Fixed(&'a [i32]),
}

/// One row of `Op::Route` after its product. `logits` [experts] holds `gate @ x` on entry and s = sqrt(softplus) on
/// return. `ids` [top] gets the chosen experts ascending, `weights` [top] = s / (sum of s over the chosen, ascending, +
/// 1e-20) * scale, not divided unless `normalise`. `scratch` has 2 * experts words. A NaN score loses against every other.
///
/// # Errors
/// A fixed choice that is not an expert.
pub(crate) fn route(
    logits: &mut [f32],
    choice: Choice<'_>,
    scale: f32,
    normalise: bool,
    scratch: &mut [u32],
    ids: &mut [i32],
    weights: &mut [f32],
) -> Result<(), NoSuchExpert> {
    let s = logits;
    for s in s.iter_mut() {
        *s = softplus(*s).sqrt();
    }
    match choice {
        Choice::Learned(bias) => {
            assert!(ids.len() <= s.len(), "a row uses {} of {} experts", ids.len(), s.len());
            let (keys, scratch) = scratch.split_at_mut(s.len());
            for (e, key) in keys.iter_mut().enumerate() {
                *key = top::key(bias.map_or(s[e], |bias| s[e] + bias[e]));
            }
            let mut to = ids.iter_mut();
            top::largest(keys, weights.len(), scratch, |e| {
                if let Some(to) = to.next() {
                    *to = e as i32;
                }
            });
        }
        Choice::Fixed(row) => {
            if let Some(&id) = row.iter().find(|&&id| usize::try_from(id).map_or(true, |e| e >= s.len())) {
                return Err(NoSuchExpert { id, experts: s.len() });
            }
            ids.copy_from_slice(row);
            ids.sort_unstable();
        }
    }
    let mut sum = 0.0;
    for i in 0..ids.len() {
        weights[i] = if i > 0 && ids[i] == ids[i - 1] { 0.0 } else { s[ids[i] as usize] };
        sum += weights[i];
    }
    for w in weights {
        *w = if normalise { *w / (sum + 1e-20) } else { *w } * scale;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{assert_close, noise};
    use super::*;

    fn run(
        logits: &[f32],
        choice: Choice<'_>,
        top: usize,
        normalise: bool,
    ) -> Result<(Vec<i32>, Vec<f32>), NoSuchExpert> {
        let (mut s, mut scratch) = (logits.to_vec(), vec![0; 2 * logits.len()]);
        let (mut ids, mut weights) = (vec![-7; top], vec![f32::NAN; top]);
        route(&mut s, choice, 1.5, normalise, &mut scratch, &mut ids, &mut weights)?;
        Ok((ids, weights))
    }

    fn strength(logit: f32) -> f64 {
        f64::from(logit).exp().ln_1p().sqrt()
    }

    #[test]
    fn the_bias_chooses_but_does_not_weigh() {
        let logits = [0.0, 1.0, 2.0, -1.0];
        let bias = [3.0, 0.0, -2.0, 0.0];
        let (ids, weights) = run(&logits, Choice::Learned(Some(&bias)), 2, true).expect("valid");
        assert_eq!(ids, [0, 1]);
        let (a, b) = (strength(0.0), strength(1.0));
        assert_close(&weights, &[a / (a + b) * 1.5, b / (a + b) * 1.5], 1e-6);
        let (ids, weights) = run(&logits, Choice::Learned(None), 2, false).expect("valid");
        assert_eq!(ids, [1, 2]);
        assert_close(&weights, &[strength(1.0) * 1.5, strength(2.0) * 1.5], 1e-6);
    }

    #[test]
    fn equal_scores_go_to_the_lowest_ids() {
        assert_eq!(run(&[0.5; 8], Choice::Learned(None), 3, true).expect("valid").0, [0, 1, 2]);
        assert_eq!(run(&[0.5, 0.5, 2.0, 0.5], Choice::Learned(None), 2, true).expect("valid").0, [0, 2]);
    }

    #[test]
    fn a_table_chooses_in_any_order_and_its_weights_follow_the_ids() {
        let logits = noise(16, 1);
        let (ids, weights) = run(&logits, Choice::Fixed(&[11, 0, 5]), 3, true).expect("valid");
        assert_eq!(ids, [0, 5, 11]);
        let s: Vec<f64> = [0, 5, 11].iter().map(|&i| strength(logits[i])).collect();
        let sum: f64 = s.iter().sum();
        assert_close(&weights, &s.iter().map(|s| s / sum * 1.5).collect::<Vec<_>>(), 1e-6);
    }

    #[test]
    fn an_expert_that_a_table_repeats_counts_once() {
        let (ids, weights) = run(&[1.0, 2.0, 3.0], Choice::Fixed(&[2, 1, 2]), 3, true).expect("valid");
        assert_eq!(ids, [1, 2, 2]);
        let (a, b) = (strength(2.0), strength(3.0));
        assert_close(&weights, &[a / (a + b) * 1.5, b / (a + b) * 1.5, 0.0], 1e-6);
    }

    #[test]
    fn a_table_with_a_foreign_id_is_refused() {
        for id in [-1, 3, i32::MAX] {
            let error = run(&[1.0, 2.0, 3.0], Choice::Fixed(&[0, id]), 2, true).expect_err("not an expert");
            assert_eq!(error, NoSuchExpert { id, experts: 3 });
        }
    }

    #[test]
    fn nan_logits_lose_and_all_of_them_still_name_experts() {
        assert_eq!(run(&[f32::NAN, 1.0, f32::NAN, -9.0], Choice::Learned(None), 2, true).expect("valid").0, [1, 3]);
        assert_eq!(run(&[f32::NAN; 5], Choice::Learned(None), 2, true).expect("valid").0, [0, 1]);
    }

    #[test]
    fn extreme_logits_keep_finite_weights() {
        let (ids, weights) = run(&[-200.0, -300.0, 200.0, 90.0], Choice::Learned(None), 4, true).expect("valid");
        assert_eq!(ids, [0, 1, 2, 3]);
        let (a, b) = (200f64.sqrt(), 90f64.sqrt());
        assert_close(&weights, &[0.0, 0.0, a / (a + b) * 1.5, b / (a + b) * 1.5], 1e-6);
        let (_, weights) = run(&[-1e30, -1e30], Choice::Learned(None), 2, true).expect("valid");
        assert_eq!(weights, [0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn the_chosen_experts_are_the_first_of_a_stable_sort(
            logits in prop::collection::vec((-4i8..4).prop_map(f32::from), 6..40), top in 1usize..6
        ) {
            let (ids, weights) = run(&logits, Choice::Learned(None), top, true).expect("valid");
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
            let mut want: Vec<i32> = order[..top].iter().map(|&e| e as i32).collect();
            want.sort_unstable();
            prop_assert_eq!(ids, want);
            prop_assert!((weights.iter().sum::<f32>() - 1.5).abs() < 1e-5);
        }
    }
}
