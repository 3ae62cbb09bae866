//! Engram rows of the golden sequences, in one piece, token by token and in chunks.

#![allow(clippy::unwrap_used)]

mod support;

use luce_model::{EngramHasher, EngramHistory, ModelConfig};
use safetensors::SafeTensors;
use support::{catalog, fixture};

fn ints(file: &SafeTensors<'_>, name: &str) -> Vec<i32> {
    let data = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    data.data().chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn rows_equal_the_golden_ones_however_the_sequence_is_cut() {
    for model in ["tiny-v41", "tiny-v41-q"] {
        let config = ModelConfig::read(&catalog(&format!("{model}.gguf"))).unwrap();
        let engram = config.engram.as_ref().unwrap();
        let hasher = EngramHasher::new(engram);
        let bytes = std::fs::read(fixture(&format!("{model}.golden.safetensors"))).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let mut compared = 0;
        for (e, l) in engram.layers.iter().enumerate() {
            let suffix = format!(".engram_rows.{l}");
            for name in golden.names().into_iter().filter(|n| n.ends_with(&suffix)) {
                let sequence = name.strip_suffix(&suffix).unwrap();
                let tokens: Vec<u32> = ints(&golden, &format!("{sequence}.tokens")).iter().map(|&t| t as u32).collect();
                let expected: Vec<u32> = ints(&golden, name).iter().map(|&r| r as u32).collect();
                for size in [tokens.len(), 1, 5] {
                    let mut history = EngramHistory::default();
                    let mut rows = vec![0; tokens.len() * hasher.columns()];
                    for (chunk, rows) in tokens.chunks(size).zip(rows.chunks_mut(size * hasher.columns())) {
                        hasher.rows(e, &history, chunk, rows).unwrap();
                        history.push(chunk);
                    }
                    assert_eq!(rows, expected, "{model} {name} in chunks of {size}");
                }
                compared += tokens.len();
            }
        }
        assert!(compared > 200, "{model}: only {compared} positions were compared");
    }
}
