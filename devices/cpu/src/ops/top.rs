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
