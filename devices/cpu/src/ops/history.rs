//! Rows of one sequence by position, wherever they lie: those before the band in a state ring, those of the band in the
//! band's own matrix.

use luce_device::RowFacts;

/// What one sequence wrote so far, one row of `width` values per token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History<'a> {
    ring: &'a [f32],
    fresh: &'a [f32],
    width: usize,
    ring_len: usize,
    first_row: usize,
    first_position: usize,
}

impl<'a> History<'a> {
    /// `ring` is the plane of the sequence's slot, [len, width], holding position p at row p modulo len; `fresh` is
    /// the whole band, [rows, width]; `facts` are those of any row of the sequence in this band.
    pub(crate) fn new(ring: &'a [f32], fresh: &'a [f32], width: usize, facts: &RowFacts) -> Self {
        History {
            ring,
            fresh,
            width,
            ring_len: ring.len() / width,
            first_row: facts.first_row as usize,
            first_position: facts.first_position as usize,
        }
    }

    /// Values per row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The row of `position`, which must not lie behind the newest row of the band nor be older than the ring keeps.
    #[inline]
    pub(crate) fn row(&self, position: usize) -> &'a [f32] {
        if position < self.first_position {
            debug_assert!(position + self.ring_len >= self.first_position, "the ring has lost position {position}");
            let at = position % self.ring_len * self.width;
            &self.ring[at..at + self.width]
        } else {
            let at = (self.first_row + position - self.first_position) * self.width;
            &self.fresh[at..at + self.width]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Split, noise};

    #[test]
    fn a_position_finds_its_row_in_the_ring_or_in_the_band() {
        let rows = noise(20 * 3, 1);
        for first_position in 0..20 {
            let split = Split::new(&rows, 3, 7, first_position, 20);
            for position in first_position.saturating_sub(7)..20 {
                assert_eq!(split.history().row(position), &rows[position * 3..][..3], "{position} of {first_position}");
            }
        }
    }
}
