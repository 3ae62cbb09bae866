//! Bands: the batches of rows that the leader composes.

use crate::{BandId, LaneId, SequenceId, SlotId, TokenId, TokenPos};

/// What a band is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BandKind {
    /// One row per live sequence (later: the rows of drafts to verify).
    Decode,
    /// A slice of one or more prompts.
    Prefill,
}

/// Consecutive rows of one sequence inside a band.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowSpan {
    /// The sequence.
    pub sequence: SequenceId,
    /// Where its state lies.
    pub slot: SlotId,
    /// Position of the first row.
    pub first: TokenPos,
    /// One token per row.
    pub tokens: Vec<TokenId>,
    /// How many of the span's last rows need logits: 0 inside a prompt, 1 for its end and for decode.
    pub picks: u32,
}

/// A band as announced: every actor sees the same composition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BandSpec {
    /// Number since start.
    pub id: BandId,
    /// The lane that it occupies.
    pub lane: LaneId,
    /// Decode or prefill.
    pub kind: BandKind,
    /// Its rows; a sequence appears at most once.
    pub spans: Vec<RowSpan>,
}

impl BandSpec {
    /// Number of rows.
    pub fn rows(&self) -> u32 {
        self.spans.iter().map(|s| s.tokens.len() as u32).sum()
    }

    /// Number of rows that need logits.
    pub fn picks(&self) -> u32 {
        self.spans.iter().map(|s| s.picks).sum()
    }
}
