//! The k best of n scores without sorting them: ties go to the lowest index, -0 equals +0, NaN counts as -inf.
//!
//! Scores become unsigned keys of the same order, so that maxima, thresholds and ties are integer comparisons.

/// Lies below the key of every score: "no score here", never chosen.
pub(super) const NONE: u32 = 0;
/// Lies above the key of every score: "always chosen".
pub(super) const ALWAYS: u32 = u32::MAX;

/// Key of a score: larger scores have larger keys, -0 and +0 the same one, NaN that of -inf.
#[inline]
pub(super) fn key(score: f32) -> u32 {
    // Adding +0 turns -0 into +0 and leaves every other value alone.
    let bits = if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 }.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// Calls `chosen` with the places of the `k` largest of `keys`, ascending; among equal keys the lowest places win and
/// [`NONE`] is never chosen. `scratch` has the length of `keys`. O(n), also in the worst case.
pub(super) fn largest(keys: &[u32], k: usize, scratch: &mut [u32], mut chosen: impl FnMut(usize)) {
    let (threshold, mut ties) = if k >= keys.len() {
        (NONE, 0)
    } else if k == 0 {
        return;
    } else {
        let scratch = &mut scratch[..keys.len()];
        scratch.copy_from_slice(keys);
        let (_, &mut threshold, above) = scratch.select_nth_unstable(keys.len() - k);
        // The k - 1 keys behind the threshold's place are not smaller; those that equal it compete by place.
        (threshold, k - above.iter().filter(|&&v| v > threshold).count())
    };
    for (i, &v) in keys.iter().enumerate() {
        if v > threshold {
            chosen(i);
        } else if v == threshold && v != NONE && ties > 0 {
            ties -= 1;
            chosen(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn largest_of(scores: &[f32], k: usize) -> Vec<usize> {
        let keys: Vec<u32> = scores.iter().map(|&s| key(s)).collect();
        let (mut scratch, mut chosen) = (vec![0; keys.len()], Vec::new());
        largest(&keys, k, &mut scratch, |i| chosen.push(i));
        chosen
    }

    #[test]
    fn equal_scores_of_the_fixture_index_go_to_the_lowest_places() {
        assert_eq!(largest_of(&[0.0, 1.0, 0.0, -1.0, 0.0, 2.0], 4), [0, 1, 2, 5]);
        assert_eq!(largest_of(&[-0.0, 0.0, -0.0, 0.0], 2), [0, 1]);
        assert_eq!(largest_of(&[3.0, 3.0, 3.0], 1), [0]);
    }

    #[test]
    fn none_is_never_chosen_and_always_is_chosen_first() {
        let mut chosen = Vec::new();
        largest(&[NONE, key(f32::INFINITY), ALWAYS, NONE, NONE], 4, &mut [0; 5], |i| chosen.push(i));
        assert_eq!(chosen, [1, 2]);
        chosen.clear();
        largest(&[NONE, key(f32::INFINITY), ALWAYS], 1, &mut [0; 3], |i| chosen.push(i));
        assert_eq!(chosen, [2]);
        chosen.clear();
        largest(&[NONE, key(1.0), NONE], 5, &mut [0; 3], |i| chosen.push(i));
        assert_eq!(chosen, [1]);
    }

    #[test]
    fn keys_keep_the_order_of_scores() {
        let ascending = [f32::NEG_INFINITY, f32::MIN, -1.0, -1e-45, 0.0, 1e-45, 1.0, f32::MAX, f32::INFINITY];
        assert!(ascending.windows(2).all(|w| key(w[0]) < key(w[1])));
        assert!(NONE < key(f32::NEG_INFINITY) && key(f32::INFINITY) < ALWAYS);
        assert_eq!(key(-0.0), key(0.0));
        assert_eq!(key(f32::NAN), key(f32::NEG_INFINITY));
        assert_eq!(key(-f32::NAN), key(f32::NEG_INFINITY));
    }

    proptest! {
        #[test]
        fn the_choice_is_the_front_of_a_stable_sort(scores in prop::collection::vec(
            prop_oneof![
                4 => (-3i8..3).prop_map(f32::from), 4 => any::<f32>(), 1 => Just(-0.0),
                1 => Just(f32::NAN), 1 => Just(f32::NEG_INFINITY),
            ], 0..200), k in 0usize..210
        ) {
            let mut order: Vec<usize> = (0..scores.len()).collect();
            let value = |i: usize| if scores[i].is_nan() { f32::NEG_INFINITY } else { scores[i] };
            order.sort_by(|&a, &b| value(b).partial_cmp(&value(a)).expect("no NaN left"));
            order.truncate(k);
            order.sort_unstable();
            prop_assert_eq!(largest_of(&scores, k), order);
        }
    }
}
