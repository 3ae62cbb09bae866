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
