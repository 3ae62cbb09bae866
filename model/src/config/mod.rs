//! The hyper-parameters of a model, read from its metadata and checked, and the roles of its layers.
//!
//! `keys` knows the spellings, `read` turns metadata into a [`ModelConfig`], `check` refuses what no later code could
//! run, `engram` is the Engram part, `rope` the frequencies, `state` the sizes of what a sequence leaves behind.

mod check;
mod engram;
mod keys;
mod read;
mod rope;
mod state;

pub use engram::{EngramConfig, MAX_NGRAM};
pub use state::{LayerState, StateShape, StateSize};

/// The two architectures.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// DeepSeek V4 Flash, `deepseek4`.
    V4,
    /// DeepSeek V4.1 Flash, `deepseek41`.
    V41,
}

impl Family {
    /// The text of `general.architecture`.
    pub fn architecture(self) -> &'static str {
        match self {
            Family::V4 => "deepseek4",
            Family::V41 => "deepseek41",
        }
    }
}

/// Everything that the maths needs to know, from the metadata. [`ModelConfig::read`] has checked it: no width is 0, lists
/// have one entry per layer, sources exist and fit, and every product of two widths fits 32 bits.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelConfig {
    /// Architecture.
    pub family: Family,
    /// Layers of the backbone, draft blocks not counted.
    pub layers: u16,
    /// Values of one stream (D).
    pub hidden: u32,
    /// Longest context that the model was made for, in tokens.
    pub context: u32,
    /// Entries of the vocabulary.
    pub vocab: u32,
    /// Query heads (H).
    pub heads: u32,
    /// Width of a head and of the one latent that is both key and value (d).
    pub head_dim: u32,
    /// Rotated values at the end of a head (r): even, at most `head_dim` and `index.head_dim`.
    pub rope_dims: u32,
    /// Width between the two query projections (Q).
    pub q_rank: u32,
    /// Output rows of each group of the first output projection (R).
    pub o_rank: u32,
    /// Groups of the first output projection (G); divides `heads`.
    pub o_groups: u32,
    /// Raw rows that a query sees, itself included (W).
    pub window: u32,
    /// Epsilon of every RMS norm: 1e-6 in V4, 1e-20 in V4.1.
    pub rms_eps: f32,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Compress ratio of each layer: 0 (window only), 4 or 128 in V4; 0, 1 or 2 in V4.1.
    pub ratios: Vec<u32>,
    /// Layers that own compressed rows, ascending (V4: every layer with a ratio).
    pub kv_sources: Vec<u16>,
    /// Layers with an index query of their own, ascending (V4: every layer of ratio 4).
    pub index_sources: Vec<u16>,
    /// Indexer.
    pub index: IndexConfig,
    /// Candidate blocks (V4.1).
    pub candidates: Option<CandidateConfig>,
    /// Routed experts of a layer (E).
    pub experts: u32,
    /// Routed experts that a token uses.
    pub experts_used: u32,
    /// Inner width of a routed and of the shared expert (F).
    pub expert_width: u32,
    /// Factor of the expert weights.
    pub expert_scale: f32,
    /// Whether expert weights are divided by their sum.
    pub expert_normalise: bool,
    /// SwiGLU limit of the routed experts, per layer.
    pub swiglu_limits: Vec<f32>,
    /// SwiGLU limit of the shared expert, per layer.
    pub shared_swiglu_limits: Vec<f32>,
    /// The first so many layers look their experts up by token (V4).
    pub hash_layers: u16,
    /// Hyper-connection streams (S).
    pub streams: u32,
    /// Column steps of Sinkhorn.
    pub sinkhorn_iterations: u32,
    /// Epsilon of the hyper-connections.
    pub hyper_eps: f32,
    /// Engram (V4.1); `None` where the file lists no layer.
    pub engram: Option<EngramConfig>,
}

/// Rotary embedding: plain in layers of ratio 0, YaRN with another base in the others (spec/model.md 3.4).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RopeConfig {
    /// Base of plain layers.
    pub theta: f64,
    /// Base of layers with a ratio.
    pub compressed_theta: f64,
    /// YaRN: how much longer than the original context.
    pub factor: f64,
    /// YaRN: turns in the original context above which a frequency is kept.
    pub beta_fast: f64,
    /// YaRN: turns in the original context below which a frequency is divided by the factor.
    pub beta_slow: f64,
    /// YaRN: tokens of the original context.
    pub original_context: u32,
}

/// The indexer: which compressed rows a query attends to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexConfig {
    /// Index heads.
    pub heads: u32,
    /// Width of an index head and of an index key (w).
    pub head_dim: u32,
    /// Rows that are chosen.
    pub top: u32,
}

/// Candidate blocks: where later index sources may look (spec/model.md 3.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CandidateConfig {
    /// The layer whose scores choose the blocks.
    pub source: u16,
    /// Blocks that are kept.
    pub blocks: u32,
    /// Rows of a block.
    pub block_size: u32,
}

impl ModelConfig {
    /// Compress ratio of layer `l`, 0 for a layer with a window only.
    ///
    /// # Panics
    /// If there is no layer `l`, as the other functions that ask about a layer.
    pub fn ratio(&self, l: usize) -> u32 {
        self.ratios[l]
    }

    /// The layer that owns the compressed rows that layer `l` attends to; `None` where the ratio is 0.
    pub fn kv_source(&self, l: usize) -> Option<usize> {
        if self.ratio(l) == 0 { None } else { latest(&self.kv_sources, l) }
    }

    /// The layer whose index query chooses the compressed rows of layer `l`; `None` where every visible row is attended
    /// to (ratio 128) or there are none (ratio 0).
    pub fn index_source(&self, l: usize) -> Option<usize> {
        match (self.family, self.ratio(l)) {
            (_, 0) | (Family::V4, 128) => None,
            _ => latest(&self.index_sources, l),
        }
    }

    /// Whether layer `l` owns compressed rows.
    pub fn is_kv_source(&self, l: usize) -> bool {
        self.kv_source(l) == Some(l)
    }

    /// Whether layer `l` has an index query of its own.
    pub fn is_index_source(&self, l: usize) -> bool {
        self.index_source(l) == Some(l)
    }

    /// Whether layer `l` owns index keys: it owns rows and chooses among them.
    pub fn has_index_keys(&self, l: usize) -> bool {
        self.is_kv_source(l) && self.is_index_source(l)
    }

    /// Whether the scores of layer `l` choose the candidate blocks.
    pub fn is_candidate_source(&self, l: usize) -> bool {
        self.candidates.is_some_and(|c| usize::from(c.source) == l)
    }

    /// Whether the index query of layer `l` looks only inside the candidate blocks.
    pub fn uses_candidates(&self, l: usize) -> bool {
        self.candidates.is_some_and(|c| {
            let source = usize::from(c.source);
            l > source && self.is_index_source(l) && self.kv_source(l) == Some(source)
        })
    }

    /// Whether layer `l` looks its experts up by token id.
    pub fn hash_routed(&self, l: usize) -> bool {
        l < usize::from(self.hash_layers)
    }

    /// Which Engram layer layer `l` is, counted from 0.
    pub fn engram_index(&self, l: usize) -> Option<usize> {
        self.engram.as_ref()?.layers.iter().position(|&e| usize::from(e) == l)
    }

    /// Halves that the compressor of layer `l` makes per token: 2 where groups overlap (V4's ratio 4), else 1.
    pub fn compressor_halves(&self, l: usize) -> u32 {
        if self.overlaps(l) { 2 } else { 1 }
    }

    /// Whether a compressed row of layer `l` also pools the group before (V4's ratio 4).
    pub fn overlaps(&self, l: usize) -> bool {
        self.family == Family::V4 && self.ratio(l) == 4
    }

    /// Whether the compressor of layer `l` weighs the tokens of a group: not where a group is one token.
    pub fn has_compressor_gate(&self, l: usize) -> bool {
        self.is_kv_source(l) && self.ratio(l) > 1
    }
}

/// The largest of `sources` (ascending) that is at most `l`.
fn latest(sources: &[u16], l: usize) -> Option<usize> {
    sources.iter().rev().map(|&s| usize::from(s)).find(|&s| s <= l)
}
