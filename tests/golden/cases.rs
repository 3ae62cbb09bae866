//! The golden values of a model file, by mode and sequence.

use safetensors::SafeTensors;

use crate::rig::folder;

/// One sequence in one mode.
pub(crate) struct Case<'a> {
    golden: &'a SafeTensors<'a>,
    /// `MODE.SEQUENCE`.
    pub(crate) name: String,
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<usize>,
    pub(crate) logits: Vec<f32>,
}

pub(crate) fn bytes(model: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{model}.golden.safetensors"))).unwrap()
}

fn read<T>(golden: &SafeTensors, name: &str, of: fn([u8; 4]) -> T) -> Option<Vec<T>> {
    let tensor = golden.tensor(name).ok()?;
    Some(tensor.data().chunks_exact(4).map(|b| of(b.try_into().unwrap())).collect())
}

/// All sequences of a mode.
pub(crate) fn cases<'a>(golden: &'a SafeTensors<'a>, mode: &str) -> Vec<Case<'a>> {
    let mut names: Vec<String> = golden
        .names()
        .into_iter()
        .filter(|n| n.starts_with(mode))
        .filter_map(|n| n.strip_suffix(".positions").map(str::to_owned))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "there are cases of mode {mode}");
    names
        .into_iter()
        .map(|name| Case {
            tokens: read(golden, &format!("{name}.tokens"), u32::from_le_bytes).unwrap(),
            positions: read(golden, &format!("{name}.positions"), |b| u32::from_le_bytes(b) as usize).unwrap(),
            logits: read(golden, &format!("{name}.logits"), f32::from_le_bytes).unwrap(),
            golden,
            name,
        })
        .collect()
}

/// Prompt, continuation and gaps between the two best logits of the greedy run of a mode.
pub(crate) fn greedy(golden: &SafeTensors, mode: &str) -> Option<(Vec<u32>, Vec<u32>, Vec<f32>)> {
    let at = |what: &str| format!("{mode}greedy.{what}");
    Some((
        read(golden, &at("prompt"), u32::from_le_bytes)?,
        read(golden, &at("tokens"), u32::from_le_bytes)?,
        read(golden, &at("gaps"), f32::from_le_bytes)?,
    ))
}

impl Case<'_> {
    pub(crate) fn floats(&self, what: &str) -> Option<Vec<f32>> {
        read(self.golden, &format!("{}.{what}", self.name), f32::from_le_bytes)
    }

    pub(crate) fn ints(&self, what: &str) -> Option<Vec<i32>> {
        read(self.golden, &format!("{}.{what}", self.name), i32::from_le_bytes)
    }
}
