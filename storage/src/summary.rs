//! What a model's bytes are spent on: sizes by class of tensor and by type, for `luce-actors inspect`. Classes go by
//! name patterns (spec/model.md sections 2 and 4.1); an unknown name counts as [`TensorClass::Other`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use luce_core::DType;

use crate::Gguf;

/// What a tensor is for, judged by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TensorClass {
    /// Token embedding.
    Embedding,
    /// Attention projections and sinks.
    Attention,
    /// Indexer and key/value compressor.
    Indexer,
    /// Hyper-connection mixes, also the final one.
    HyperConnections,
    /// Router gates, biases and hash tables.
    Router,
    /// Stacks of routed experts.
    RoutedExperts,
    /// Shared experts.
    SharedExperts,
    /// Engram tables, read row by row.
    EngramTables,
    /// Engram projections and weights.
    EngramOther,
    /// Output head.
    Output,
    /// Norm weights.
    Norms,
    /// What only drafters have: feature projection, Markov and confidence heads, MTP blocks.
    Drafter,
    /// Anything else.
    Other,
}

impl TensorClass {
    /// The class of the tensor called `name`.
    pub fn of(name: &str) -> TensorClass {
        if name.starts_with("dflash.") || name.starts_with("mtp.") {
            return TensorClass::Drafter;
        }
        // Behind `blk.N.` stand the names of a layer.
        let leaf = match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((layer, leaf)) if layer.bytes().all(|b| b.is_ascii_digit()) => leaf,
            _ => name,
        };
        let stem = leaf.strip_suffix(".weight").or_else(|| leaf.strip_suffix(".bias")).unwrap_or(leaf);
        let begins = |prefixes: &[&str]| prefixes.iter().any(|p| stem.starts_with(p));
        if stem == "token_embd" {
            TensorClass::Embedding
        } else if stem == "output" {
            TensorClass::Output
        } else if matches!(stem, "engram_embd" | "engram_embed") {
            TensorClass::EngramTables
        } else if begins(&["engram"]) {
            TensorClass::EngramOther
        } else if stem.ends_with("_norm") {
            TensorClass::Norms
        } else if begins(&["hc_", "output_hc_"]) {
            TensorClass::HyperConnections
        } else if begins(&["indexer", "attn_compressor"]) {
            TensorClass::Indexer
        } else if begins(&["attn_"]) {
            TensorClass::Attention
        } else if begins(&["ffn_gate_inp", "ffn_gate_tid2eid", "exp_probs_b"]) {
            TensorClass::Router
        } else if begins(&["ffn_"]) && stem.ends_with("_exps") {
            TensorClass::RoutedExperts
        } else if begins(&["ffn_"]) && stem.ends_with("_shexp") {
            TensorClass::SharedExperts
        } else {
            TensorClass::Other
        }
    }

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            TensorClass::Embedding => "embedding",
            TensorClass::Attention => "attention",
            TensorClass::Indexer => "indexer/compressor",
            TensorClass::HyperConnections => "hyper-connections",
            TensorClass::Router => "router",
            TensorClass::RoutedExperts => "routed experts",
            TensorClass::SharedExperts => "shared experts",
            TensorClass::EngramTables => "engram tables",
            TensorClass::EngramOther => "engram other",
            TensorClass::Output => "output",
            TensorClass::Norms => "norms",
            TensorClass::Drafter => "drafter",
            TensorClass::Other => "other",
        }
    }
}

/// Tensors of one class and type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryLine {
    /// Class.
    pub class: TensorClass,
    /// Type.
    pub dtype: DType,
    /// Number of tensors.
    pub tensors: u64,
    /// Their values.
    pub values: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Sizes of a model. `Display` prints an aligned table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// `general.architecture`, where the model says it.
    pub architecture: Option<String>,
    /// Lines in the order of classes, then types.
    pub lines: Vec<SummaryLine>,
    /// Number of all tensors.
    pub tensors: u64,
    /// Values of all tensors.
    pub values: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Each file's path, length in bytes and number of tensors.
    pub shards: Vec<(PathBuf, u64, usize)>,
}

/// Adds up the tensors of a model.
pub fn summarize(model: &Gguf) -> Summary {
    let mut sums: BTreeMap<(TensorClass, DType), SummaryLine> = BTreeMap::new();
    for t in model.catalog().tensors.values() {
        let (class, dtype) = (TensorClass::of(&t.name), t.dtype);
        let line = sums.entry((class, dtype)).or_insert(SummaryLine { class, dtype, tensors: 0, values: 0, bytes: 0 });
        line.tensors += 1;
        // Sparse files can claim more than any disk holds.
        line.values = line.values.saturating_add(t.values());
        line.bytes = line.bytes.saturating_add(t.bytes);
    }
    let lines: Vec<SummaryLine> = sums.into_values().collect();
    let total = |field: fn(&SummaryLine) -> u64| lines.iter().map(field).fold(0, u64::saturating_add);
    Summary {
        architecture: model.catalog().get("general.architecture").and_then(|v| v.as_str()).map(str::to_owned),
        tensors: total(|l| l.tensors),
        values: total(|l| l.values),
        bytes: total(|l| l.bytes),
        shards: model.files().iter().map(|f| (f.path.clone(), f.bytes, f.tensors)).collect(),
        lines,
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, bytes, tensors) in &self.shards {
            writeln!(f, "{}: {}, {tensors} tensors", path.display(), size(*bytes))?;
        }
        if let Some(architecture) = &self.architecture {
            writeln!(f, "architecture: {}", architecture.escape_debug())?;
        }
        writeln!(f)?;
        let share = |bytes: u64| format!("{:.1}%", 100.0 * bytes as f64 / self.bytes.max(1) as f64);
        let mut rows = vec![["class", "type", "tensors", "values", "size", "share"].map(str::to_owned)];
        rows.extend(self.lines.iter().map(|l| {
            let (class, dtype) = (l.class.name().to_owned(), l.dtype.to_string());
            [class, dtype, l.tensors.to_string(), count(l.values), size(l.bytes), share(l.bytes)]
        }));
        let (tensors, values) = (self.tensors.to_string(), count(self.values));
        rows.push(["total".to_owned(), String::new(), tensors, values, size(self.bytes), share(self.bytes)]);
        let widths: [usize; 6] = std::array::from_fn(|i| rows.iter().map(|r| r[i].len()).max().unwrap_or(0));
        for row in &rows {
            let [class, dtype, numbers @ ..] = row;
            write!(f, "{class:<0$}  {dtype:<1$}", widths[0], widths[1])?;
            for (number, width) in numbers.iter().zip(&widths[2..]) {
                write!(f, "  {number:>width$}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Bytes with a binary unit and three or four digits.
fn size(bytes: u64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// A count with a decimal unit.
fn count(n: u64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T", "P"]).trim_end().to_owned()
}

fn scaled(n: u64, step: f64, units: &[&str]) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 { format!("{n} {}", units[0]) } else { format!("{value:.2} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_specification_has_its_class() {
        use TensorClass as C;
        for (class, names) in [
            (C::Embedding, &["token_embd.weight"][..]),
            (C::Output, &["output.weight"]),
            (
                C::Attention,
                &["attn_q_a.weight", "attn_q_b.weight", "attn_kv.weight", "attn_sinks.weight", "attn_output_b.weight"],
            ),
            (
                C::Indexer,
                &[
                    "attn_compressor_kv.weight",
                    "attn_compressor_ape.weight",
                    "indexer.attn_q_b.weight",
                    "indexer.proj.weight",
                    "indexer_compressor_gate.weight",
                ],
            ),
            (C::HyperConnections, &["hc_attn_fn.weight", "hc_ffn_scale.weight"]),
            (C::Router, &["ffn_gate_inp.weight", "exp_probs_b.bias", "exp_probs_b_vl.bias", "ffn_gate_tid2eid.weight"]),
            (C::RoutedExperts, &["ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"]),
            (C::SharedExperts, &["ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"]),
            (C::EngramTables, &["engram_embd.weight", "engram_embed.weight"]),
            (C::EngramOther, &["engram_wkv.weight", "engram_kv.weight", "engram_q.weight", "engram_q_norm.weight"]),
            (
                C::Norms,
                &[
                    "attn_norm.weight",
                    "ffn_norm.weight",
                    "attn_q_a_norm.weight",
                    "indexer.k_norm.weight",
                    "attn_compressor_norm.weight",
                ],
            ),
            (C::Other, &["vision.patch.weight"]),
        ] {
            for name in names {
                assert_eq!(C::of(&format!("blk.17.{name}")), class, "{name}");
            }
        }
        for (name, class) in [
            ("output_hc_fn.weight", C::HyperConnections),
            ("output_norm.weight", C::Norms),
            ("dflash.hidden_norm.weight", C::Drafter),
            ("dflash.dspark.markov.w1", C::Drafter),
            ("mtp.0.attn_q_a.weight", C::Drafter),
            ("blk.x.attn_q_a.weight", C::Other),
        ] {
            assert_eq!(C::of(name), class, "{name}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(3 << 29), "1.50 GiB");
        assert_eq!(count(999), "999");
        assert_eq!(count(284_000_000_000), "284.00 G");
    }
}
