//! Router (spec/model.md 3.10): which experts a row uses, and with which weights.

use super::num::softplus;
use super::top;

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
