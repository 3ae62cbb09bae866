//! Engram on the host: token ids in, table rows out (spec/model.md 3.8). Row addresses depend on token ids alone, so they
//! are known as soon as a token is, before any layer has run.

use std::sync::Arc;

use crate::{EngramConfig, MAX_NGRAM, ModelError};

/// Hashes n-grams of token ids to table rows. Holds no state of a sequence: see [`EngramHistory`].
#[derive(Clone, Debug)]
pub struct EngramHasher {
    layers: Vec<Layer>,
    token_map: Arc<[u32]>,
    max_ngram: usize,
    heads: usize,
    pad: u32,
}

#[derive(Clone, Debug)]
struct Layer {
    multipliers: Vec<u64>,
    /// Modulus and offset of each column.
    columns: Vec<(u64, u32)>,
}

/// The last raw token ids of one sequence: what the next tokens' n-grams reach back to. A new sequence has none, and pad
/// stands for those that are missing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngramHistory {
    /// Oldest first; the first `len` count.
    tokens: [u32; MAX_NGRAM - 1],
    len: u8,
}

impl EngramHistory {
    /// The history before a position of a sequence, from the tokens before it (all of them, or at least the last few).
    pub fn of(before: &[u32]) -> EngramHistory {
        let mut history = EngramHistory::default();
        history.push(before);
        history
    }

    /// Adds tokens that have become part of the sequence, oldest first.
    pub fn push(&mut self, tokens: &[u32]) {
        for &token in &tokens[tokens.len().saturating_sub(MAX_NGRAM - 1)..] {
            if usize::from(self.len) == MAX_NGRAM - 1 {
                self.tokens.rotate_left(1);
                self.len -= 1;
            }
            self.tokens[usize::from(self.len)] = token;
            self.len += 1;
        }
    }

    /// The tokens, oldest first.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..usize::from(self.len)]
    }
}

impl EngramHasher {
    /// A hasher with the constants of `config`.
    pub fn new(config: &EngramConfig) -> EngramHasher {
        let layers = (0..config.layers.len())
            .map(|e| Layer {
                multipliers: config.multipliers[e].clone(),
                columns: config.primes[e].iter().map(|&p| p.into()).zip(config.offsets[e].iter().copied()).collect(),
            })
            .collect();
        EngramHasher {
            layers,
            token_map: config.token_map.clone(),
            max_ngram: config.max_ngram as usize,
            heads: config.heads as usize,
            pad: config.pad,
        }
    }

    /// Number of Engram layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Table rows per token and Engram layer.
    pub fn columns(&self) -> usize {
        (self.max_ngram - 1) * self.heads
    }

    /// Table rows of Engram layer number `layer` for `tokens`, which follow `history`: `rows` is [tokens, columns].
    ///
    /// # Errors
    /// [`ModelError::TokenOutOfRange`] for an id beyond the vocabulary, in `tokens` or in the history.
    ///
    /// # Panics
    /// If `rows` does not hold exactly `tokens.len() * columns` entries, or there is no such layer.
    pub fn rows(
        &self,
        layer: usize,
        history: &EngramHistory,
        tokens: &[u32],
        rows: &mut [u32],
    ) -> Result<(), ModelError> {
        assert_eq!(rows.len(), tokens.len() * self.columns(), "rows hold one entry per token and column");
        let layer = &self.layers[layer];
        // Compressed ids of a token and its predecessors, nearest first.
        let mut ids = [self.pad; MAX_NGRAM];
        for &token in history.tokens() {
            push(&mut ids, self.compress(token)?);
        }
        for (&token, rows) in tokens.iter().zip(rows.chunks_exact_mut(self.columns())) {
            push(&mut ids, self.compress(token)?);
            self.hash(layer, &ids[..self.max_ngram], rows);
        }
        Ok(())
    }

    fn compress(&self, token: u32) -> Result<u32, ModelError> {
        let id = self.token_map.get(token as usize).copied();
        id.ok_or(ModelError::TokenOutOfRange { token, vocab: self.token_map.len() as u32 })
    }

    /// `ids` nearest first; one hash per n-gram length, reduced once per head.
    fn hash(&self, layer: &Layer, ids: &[u32], rows: &mut [u32]) {
        let mut hash = u64::from(ids[0]) * layer.multipliers[0];
        let lengths = ids[1..].iter().zip(&layer.multipliers[1..]);
        let columns = layer.columns.chunks_exact(self.heads).zip(rows.chunks_exact_mut(self.heads));
        for ((&id, &multiplier), (columns, rows)) in lengths.zip(columns) {
            hash ^= u64::from(id) * multiplier;
            for (&(prime, offset), row) in columns.iter().zip(rows) {
                // Fits: the sum of the primes of a layer is at most u32::MAX.
                *row = (hash % prime) as u32 + offset;
            }
        }
    }
}

/// Makes `id` the nearest of `ids`.
fn push(ids: &mut [u32; MAX_NGRAM], id: u32) {
    ids.rotate_right(1);
    ids[0] = id;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vocab: u32, heads: usize, multipliers: &[[u64; 4]], primes: &[Vec<u32>]) -> EngramConfig {
        EngramConfig {
            layers: (0..primes.len() as u16).collect(),
            max_ngram: 4,
            heads: heads as u32,
            width: 256,
            multipliers: multipliers.iter().map(|m| m.to_vec()).collect(),
            offsets: primes.iter().map(|p| (0..p.len()).map(|i| p[..i].iter().sum()).collect()).collect(),
            rows: primes.iter().map(|p| p.iter().sum()).collect(),
            primes: primes.to_vec(),
            token_map: (0..vocab).collect(),
            compressed_vocab: vocab,
            pad: 2,
        }
    }

    fn released() -> EngramConfig {
        let base = 16_000_000;
        let first = [
            57, 79, 81, 97, 121, 129, 133, 183, 189, 207, 211, 253, 277, 289, 307, 321, 339, 381, 393, 399, 403, 409,
            447, 463,
        ];
        let second = [
            477, 487, 499, 507, 511, 573, 609, 627, 667, 669, 693, 697, 711, 729, 759, 769, 781, 799, 813, 819, 841,
            877, 879, 889,
        ];
        let config = config(
            99092,
            8,
            &[
                [76632096046245, 4839876093313, 35959672319349, 73987337458391],
                [67716810739261, 51510806800915, 30921347202721, 82619226485591],
            ],
            &[first.map(|p| base + p).to_vec(), second.map(|p| base + p).to_vec()],
        );
        assert_eq!(config.rows, [384006168, 384016682]);
        config
    }

    /// Rows of the last of some ids given nearest first.
    fn rows_of(hasher: &EngramHasher, layer: usize, nearest_first: [u32; 4]) -> Vec<u32> {
        let [token, before @ ..] = nearest_first;
        let history = EngramHistory::of(&before.into_iter().rev().collect::<Vec<_>>());
        let mut rows = vec![0; hasher.columns()];
        hasher.rows(layer, &history, &[token], &mut rows).unwrap();
        rows
    }

    #[test]
    fn released_constants_give_the_rows_of_the_specification() {
        let hasher = EngramHasher::new(&released());
        let vectors = [
            (
                [0, 2, 2, 2],
                [5702652, 121476532, 131476717, 247482304, 257520185, 380066193],
                [14361964, 120604547, 132225184, 252505246, 261362261, 372375971],
            ),
            (
                [12345, 678, 9, 0],
                [12168815, 113940121, 140005189, 249628864, 260764728, 379617543],
                [445919, 113402460, 136035072, 245875909, 264319484, 377694911],
            ),
            (
                [99091; 4],
                [12193612, 117454273, 132502226, 253024778, 260190704, 375130424],
                [11374428, 125397095, 139959227, 243385862, 266572408, 375878100],
            ),
        ];
        for (ids, first, second) in vectors {
            for (layer, expected) in [first, second].into_iter().enumerate() {
                let rows = rows_of(&hasher, layer, ids);
                assert_eq!([0, 7, 8, 15, 16, 23].map(|i: usize| rows[i]), expected, "{ids:?}");
            }
        }
    }

    #[test]
    fn multipliers_beyond_53_bits_are_not_rounded() {
        // Section 8 of spec/model.md.
        let hasher = EngramHasher::new(&config(
            300,
            2,
            &[
                [25312092204715445, 1598643339462077, 11877719498229879, 24438510811423417],
                [27171098617865603, 1664016290499501, 24328227015100263, 6260917600735559],
            ],
            &[vec![211, 223, 227, 229, 233, 239], vec![241, 251, 257, 263, 269, 271]],
        ));
        assert_eq!(rows_of(&hasher, 0, [7, 2, 2, 2]), [51, 220, 563, 682, 896, 1293]);
        assert_eq!(rows_of(&hasher, 1, [7, 2, 2, 2]), [107, 475, 625, 830, 1244, 1395]);
        assert_eq!(rows_of(&hasher, 0, [299, 0, 150, 2]), [116, 432, 484, 830, 1018, 1244]);
        assert_eq!(rows_of(&hasher, 1, [299, 0, 150, 2]), [114, 323, 544, 990, 1122, 1429]);
        // The start of a sequence reads pads: the same as id 2 three times.
        let mut rows = [0; 6];
        hasher.rows(0, &EngramHistory::default(), &[7], &mut rows).unwrap();
        assert_eq!(rows, [51, 220, 563, 682, 896, 1293]);
    }

    #[test]
    fn chunks_of_any_size_give_the_rows_of_the_whole() {
        let hasher = EngramHasher::new(&released());
        let tokens: Vec<u32> = (0..40).map(|i| i * 7919 % 99092).collect();
        let columns = hasher.columns();
        let mut whole = vec![0; tokens.len() * columns];
        hasher.rows(1, &EngramHistory::default(), &tokens, &mut whole).unwrap();
        for size in [1, 2, 3, 5, 16] {
            let mut history = EngramHistory::default();
            for (i, chunk) in tokens.chunks(size).enumerate() {
                let mut rows = vec![0; chunk.len() * columns];
                hasher.rows(1, &history, chunk, &mut rows).unwrap();
                assert_eq!(rows, whole[i * size * columns..][..rows.len()], "chunk {i} of {size}");
                history.push(chunk);
            }
            assert_eq!(history, EngramHistory::of(&tokens));
        }
    }

    #[test]
    fn an_unknown_token_is_an_error_and_not_a_panic() {
        let hasher = EngramHasher::new(&released());
        let mut rows = vec![0; 24];
        let error = hasher.rows(0, &EngramHistory::default(), &[99092], &mut rows).unwrap_err();
        assert_eq!(error, ModelError::TokenOutOfRange { token: 99092, vocab: 99092 });
        assert!(hasher.rows(0, &EngramHistory::of(&[u32::MAX]), &[1], &mut rows).is_err());
    }
}
