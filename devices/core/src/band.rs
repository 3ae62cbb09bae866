//! The band description: what a segment reads about each row, laid out as plain words in a shared buffer.
//!
//! ```text
//! rows   [max_rows] RowFacts (8 words each)
//! picks  [max_rows] u32       band rows that need logits
//! groups [MAX_RATIO_CLASSES][max_rows] u32   band row that completes each compressed group of the class
//! ```

use bytemuck::{Pod, Zeroable};

/// Classes of compress ratios that one model may have (V4: 4 and 128; V4.1: 2 and 1).
pub const MAX_RATIO_CLASSES: usize = 3;

/// What operations know about one row of a band.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
pub struct RowFacts {
    /// Token id.
    pub token: u32,
    /// Position in the sequence.
    pub position: u32,
    /// Slot of the sequence's state.
    pub slot: u32,
    /// Band row of the sequence's first row in this band.
    pub first_row: u32,
    /// Position of that row.
    pub first_position: u32,
    /// Band row behind the sequence's last row in this band.
    pub end_row: u32,
    /// Zero.
    pub reserved: [u32; 2],
}

/// Capacity of a band description, which fixes where its parts lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BandLayout {
    /// The most rows of a band.
    pub max_rows: u32,
}

impl BandLayout {
    /// Bytes of the whole description.
    pub fn bytes(self) -> usize {
        let words = size_of::<RowFacts>() / 4 + 1 + MAX_RATIO_CLASSES;
        self.max_rows as usize * words * 4
    }

    /// Byte offset of the rows.
    pub fn rows_at(self) -> usize {
        0
    }

    /// Byte offset of the picks.
    pub fn picks_at(self) -> usize {
        self.max_rows as usize * size_of::<RowFacts>()
    }

    /// Byte offset of the groups of a ratio class.
    pub fn groups_at(self, class: u8) -> usize {
        self.picks_at() + (1 + class as usize) * self.max_rows as usize * 4
    }
}

/// Counts of one launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Launch {
    /// Rows of the band.
    pub rows: u32,
    /// Rows that need logits.
    pub picks: u32,
    /// Completed groups per ratio class.
    pub groups: [u32; MAX_RATIO_CLASSES],
}
