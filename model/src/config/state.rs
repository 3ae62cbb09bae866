//! How much memory the state of sequences takes: windows, compressed rows, index keys, open groups; all f32.

use luce_core::Bytes;

use super::ModelConfig;

/// What the state must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateShape {
    /// Sequences that have a place.
    pub slots: u32,
    /// Positions of the longest sequence.
    pub context: u32,
    /// Rows of each layer's raw ring; at least the model's window.
    pub window_rows: u32,
}

/// State of one layer, in f32 values of one sequence.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LayerState {
    /// Raw ring: [window_rows, d].
    pub window: u64,
    /// Compressed rows: [ceil(context / ratio), d] where the layer owns rows.
    pub compressed: u64,
    /// Index keys: [ceil(context / ratio), w] where the layer owns keys.
    pub index_keys: u64,
    /// Values and scores of the tokens that a later group still needs, twice [ring, coff * d], and in V4's ratio-4 layers
    /// twice [ring, coff * w] for the index keys. ring = ratio, twice that where groups overlap; none for ratio 1.
    pub pool_rings: u64,
}

/// Bytes of the state of all sequences.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StateSize {
    /// Raw rings of all layers.
    pub windows: Bytes,
    /// Compressed rows of all sources.
    pub compressed: Bytes,
    /// Index keys of all sources.
    pub index_keys: Bytes,
    /// Open groups of all compressors.
    pub pool_rings: Bytes,
}

impl StateSize {
    /// Everything; `u64::MAX` where that is more than 64 bits count, as in each part.
    pub fn total(&self) -> Bytes {
        let parts = [self.windows, self.compressed, self.index_keys, self.pool_rings];
        Bytes(parts.iter().fold(0, |sum, part| sum.saturating_add(part.0)))
    }
}

impl ModelConfig {
    /// Rows of a raw ring that keeps what a band of `band_rows` rows of one sequence may overwrite and still need.
    pub fn window_rows(&self, band_rows: u32) -> u32 {
        self.window.saturating_add(band_rows)
    }

    /// Compressed rows of layer `l` for a sequence of `context` tokens; 0 where it owns none.
    pub fn compressed_rows(&self, l: usize, context: u32) -> u32 {
        if self.is_kv_source(l) { context.div_ceil(self.ratio(l)) } else { 0 }
    }

    /// Tokens that the pool rings of layer `l` keep: two groups where they overlap, one otherwise, none for ratio 0 and 1.
    pub fn pool_ring(&self, l: usize) -> u32 {
        match self.ratio(l) {
            ratio if self.has_compressor_gate(l) => ratio * self.compressor_halves(l),
            _ => 0,
        }
    }

    /// State of layer `l` for one sequence.
    pub fn layer_state(&self, l: usize, shape: StateShape) -> LayerState {
        let (d, w) = (u64::from(self.head_dim), u64::from(self.index.head_dim));
        let rows = u64::from(self.compressed_rows(l, shape.context));
        let keys = if self.has_index_keys(l) { rows } else { 0 };
        // Only V4 pools its index keys; V4.1 makes them from the latent.
        let pooled = if self.overlaps(l) { d + w } else { d };
        LayerState {
            window: u64::from(shape.window_rows) * d,
            compressed: rows * d,
            index_keys: keys * w,
            pool_rings: 2 * u64::from(self.pool_ring(l) * self.compressor_halves(l)) * pooled,
        }
    }

    /// State of all layers and sequences, in bytes.
    pub fn state_size(&self, shape: StateShape) -> StateSize {
        let sum = |part: fn(LayerState) -> u64| {
            let values: u64 = (0..usize::from(self.layers)).map(|l| part(self.layer_state(l, shape))).sum();
            Bytes(values.saturating_mul(4 * u64::from(shape.slots)))
        };
        StateSize {
            windows: sum(|s| s.window),
            compressed: sum(|s| s.compressed),
            index_keys: sum(|s| s.index_keys),
            pool_rings: sum(|s| s.pool_rings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn sizes_are_those_of_the_specification() {
        // Section 5 counts f16 rows; this state is f32, twice as much.
        let shape = StateShape { slots: 1, context: 131072, window_rows: 128 };
        let v41 = testing::v41_flash().state_size(shape);
        assert_eq!(v41.windows, Bytes(2 * 5_242_880));
        assert_eq!(v41.compressed.0 + v41.index_keys.0, 2 * 3200 * 131072);
        assert_eq!(v41.pool_rings, Bytes(24_576));
        let v4 = testing::v4_flash().state_size(shape);
        assert_eq!(v4.windows, Bytes(2 * 5_636_096));
        assert_eq!(v4.compressed.0 + v4.index_keys.0, 2 * 6880 * 131072);
        assert_eq!(v4.pool_rings, Bytes(12_206_080));
    }

    #[test]
    fn a_started_group_has_room_for_its_row_and_slots_multiply() {
        let cfg = testing::v41_flash();
        assert_eq!(cfg.compressed_rows(2, 7), 4);
        assert_eq!(cfg.compressed_rows(3, 7), 0);
        let one = cfg.state_size(StateShape { slots: 1, context: 7, window_rows: 160 });
        let five = cfg.state_size(StateShape { slots: 5, context: 7, window_rows: 160 });
        assert_eq!(five.total().0, 5 * one.total().0);
    }
}
