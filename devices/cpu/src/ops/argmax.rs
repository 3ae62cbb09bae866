//! Index of the largest value.

/// Values that are compared side by side.
const LANES: usize = 16;

/// One row of `Op::ArgMax`: index of the largest of `values`, the lowest on ties (-0 equals +0), never that of a NaN;
/// -1 where every value is NaN.
pub(crate) fn argmax(values: &[f32]) -> i32 {
    // First the maximum, in any order since a maximum has no rounding, then where it first stands.
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut best = [f32::NEG_INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let tail = chunks.remainder();
    for chunk in chunks {
        for (best, &v) in best.iter_mut().zip(chunk) {
            *best = larger(*best, v);
        }
    }
    let best = best.iter().chain(tail).fold(f32::NEG_INFINITY, |a, &v| larger(a, v));
    values.iter().position(|&v| v == best).map_or(-1, |i| i as i32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::argmax;

    #[test]
    fn ties_go_to_the_lowest_index_and_zeros_of_either_sign_are_equal() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[-1.0, -0.0, 0.0]), 1);
        assert_eq!(argmax(&[f32::NEG_INFINITY; 40]), 0);
    }

    #[test]
    fn nan_never_wins_and_only_nan_gives_minus_one() {
        assert_eq!(argmax(&[f32::NAN, -5.0, f32::NAN]), 1);
        assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY]), 1);
        assert_eq!(argmax(&[f32::NAN; 33]), -1);
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_a_plain_walk(values in prop::collection::vec(
            prop_oneof![(-3i8..3).prop_map(f32::from), Just(-0.0), Just(f32::NAN), Just(f32::INFINITY)], 0..100)
        ) {
            let mut best: Option<usize> = None;
            for i in 0..values.len() {
                if !values[i].is_nan() && best.is_none_or(|b| values[i] > values[b]) {
                    best = Some(i);
                }
            }
            prop_assert_eq!(argmax(&values), best.map_or(-1, |b| b as i32));
        }
    }
}
