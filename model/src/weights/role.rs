//! Tensor roles: one per weight that the layer program uses (spec/model.md section 2), with its spellings and its shape.

use luce_core::DType;

use crate::{Family, ModelConfig};

/// What a tensor is stored as, which decides the types it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// A small vector or table of factors: F32, F16 or BF16 in the file, F32 on the device.
    Vector,
    /// A matrix that is multiplied, looked up by row, or a stack of such: any float type or any quantised weight type.
    Matrix,
    /// Expert ids by token: I32.
    Ids,
    /// An Engram table: as a matrix, or I8 with packed rows of w E4M3 codes and w / 32 E8M0 scales.
    Table,
}

/// What bytes are spent on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WeightClass {
    /// Token embedding.
    Embedding,
    /// Output head.
    Output,
    /// Query, latent and output projections, and sinks.
    Attention,
    /// Compressors and indexers.
    Compressor,
    /// Hyper-connections.
    Hyper,
    /// Router matrices, biases and expert tables.
    Router,
    /// Shared experts.
    SharedExpert,
    /// Routed experts.
    Experts,
    /// Engram projections and their factors.
    Engram,
    /// Engram tables, which are read row by row and never held whole.
    EngramTable,
    /// Norm weights.
    Norm,
}

macro_rules! roles {
    (
        global { $($global:ident $gnames:expr, $gclass:ident $gstorage:ident, $gdims:expr;)* }
        layer { $($layer:ident $lnames:expr, $lclass:ident $lstorage:ident, $ldims:expr;)* }
    ) => {
        /// A weight of the model; the number is the layer. The source has the table of names and shapes.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, reason = "named after the tensors")]
        pub enum Role { $($global,)* $($layer(u16),)* }

        impl Role {
            /// The layer, for a role of one.
            pub fn layer(self) -> Option<usize> {
                match self { $(Role::$global => None,)* $(Role::$layer(l) => Some(usize::from(l)),)* }
            }

            /// What its bytes are spent on.
            pub fn class(self) -> WeightClass {
                match self { $(Role::$global => WeightClass::$gclass,)* $(Role::$layer(_) => WeightClass::$lclass,)* }
            }

            /// What types it may have.
            pub fn storage(self) -> Storage {
                match self { $(Role::$global => Storage::$gstorage,)* $(Role::$layer(_) => Storage::$lstorage,)* }
            }

            /// Spellings without the `blk.N.` of a layer, the usual one first.
            fn leaves(self) -> &'static [&'static str] {
                match self { $(Role::$global => &$gnames,)* $(Role::$layer(_) => &$lnames,)* }
            }

            /// Dimensions, innermost first. Those of an Engram table are the decoded row's.
            pub fn dims(self, c: &ModelConfig) -> Vec<u64> {
                let shape = Shape(c);
                let dims: Vec<u64> = match self {
                    $(Role::$global => dims(&shape, $gdims),)*
                    $(Role::$layer(l) => layer_dims(&shape, usize::from(l), $ldims),)*
                };
                dims
            }
        }
    };
}

// Names: the usual one, then those of M and D files, then those of older transformers releases.
roles! {
    global {
        TokenEmbedding ["token_embd.weight"], Embedding Matrix, |s| vec![s.hidden(), s.vocab()];
        OutputNorm ["output_norm.weight"], Norm Vector, |s| vec![s.hidden()];
        Output ["output.weight"], Output Matrix, |s| vec![s.hidden(), s.vocab()];
        OutputHyperFn ["output_hc_fn.weight"], Hyper Matrix, |s| vec![s.all_streams(), s.streams()];
        OutputHyperBase ["output_hc_base.weight"], Hyper Vector, |s| vec![s.streams()];
        OutputHyperScale ["output_hc_scale.weight"], Hyper Vector, |_| vec![1];
    }
    layer {
        AttnNorm ["attn_norm.weight"], Norm Vector, |s, _| vec![s.hidden()];
        FfnNorm ["ffn_norm.weight"], Norm Vector, |s, _| vec![s.hidden()];
        QueryA ["attn_q_a.weight", "q_a_proj.weight"], Attention Matrix, |s, _| vec![s.hidden(), s.q_rank()];
        QueryNorm ["attn_q_a_norm.weight", "q_a_norm.weight"], Norm Vector, |s, _| vec![s.q_rank()];
        QueryB ["attn_q_b.weight", "q_b_proj.weight"], Attention Matrix, |s, _| vec![s.q_rank(), s.all_heads()];
        Latent ["attn_kv.weight", "kv_proj.weight"], Attention Matrix, |s, _| vec![s.hidden(), s.head()];
        LatentNorm ["attn_kv_a_norm.weight", "kv_norm.weight"], Norm Vector, |s, _| vec![s.head()];
        Sinks ["attn_sinks.weight", "sinks"], Attention Vector, |s, _| vec![s.heads()];
        OutputA ["attn_output_a.weight", "o_a_proj.weight"], Attention Matrix, |s, _| vec![s.all_heads() / s.groups(), s.group_outputs()];
        OutputB ["attn_output_b.weight", "o_b_proj.weight"], Attention Matrix, |s, _| vec![s.group_outputs(), s.hidden()];
        HyperAttnFn ["hc_attn_fn.weight"], Hyper Matrix, |s, _| vec![s.all_streams(), s.mixes()];
        HyperAttnBase ["hc_attn_base.weight"], Hyper Vector, |s, _| vec![s.mixes()];
        HyperAttnScale ["hc_attn_scale.weight"], Hyper Vector, |_, _| vec![3];
        HyperFfnFn ["hc_ffn_fn.weight"], Hyper Matrix, |s, _| vec![s.all_streams(), s.mixes()];
        HyperFfnBase ["hc_ffn_base.weight"], Hyper Vector, |s, _| vec![s.mixes()];
        HyperFfnScale ["hc_ffn_scale.weight"], Hyper Vector, |_, _| vec![3];
        CompressorValue ["attn_compressor_kv.weight", "compressor.kv_proj.weight"], Compressor Matrix, |s, l| vec![s.hidden(), s.pooled(l)];
        CompressorGate ["attn_compressor_gate.weight", "compressor.gate_proj.weight"], Compressor Matrix, |s, l| vec![s.hidden(), s.pooled(l)];
        CompressorApe ["attn_compressor_ape.weight", "compressor.position_bias"], Compressor Vector, |s, l| vec![s.pooled(l), s.ratio(l)];
        CompressorNorm ["attn_compressor_norm.weight", "compressor.kv_norm.weight"], Norm Vector, |s, _| vec![s.head()];
        IndexQuery ["indexer.attn_q_b.weight", "indexer.q_b_proj.weight"], Compressor Matrix, |s, _| vec![s.q_rank(), s.index_heads() * s.index_head()];
        IndexWeights ["indexer.proj.weight", "indexer.scorer.weights_proj.weight"], Compressor Matrix, |s, _| vec![s.hidden(), s.index_heads()];
        IndexKey ["indexer.attn_k.weight", "indexer_compressor_kv.weight"], Compressor Matrix, |s, _| vec![s.head(), s.index_head()];
        IndexKeyNorm ["indexer.k_norm.weight", "indexer_compressor_norm.weight"], Norm Vector, |s, _| vec![s.index_head()];
        IndexCompressorValue ["indexer_compressor_kv.weight", "indexer.kv_proj.weight"], Compressor Matrix, |s, l| vec![s.hidden(), s.index_pooled(l)];
        IndexCompressorGate ["indexer_compressor_gate.weight", "indexer.gate_proj.weight"], Compressor Matrix, |s, l| vec![s.hidden(), s.index_pooled(l)];
        IndexCompressorApe ["indexer_compressor_ape.weight", "indexer.position_bias"], Compressor Vector, |s, l| vec![s.index_pooled(l), s.ratio(l)];
        IndexCompressorNorm ["indexer_compressor_norm.weight", "indexer.kv_norm.weight"], Norm Vector, |s, _| vec![s.index_head()];
        Router ["ffn_gate_inp.weight"], Router Matrix, |s, _| vec![s.hidden(), s.experts()];
        RouterBias ["exp_probs_b.bias", "exp_probs_b"], Router Vector, |s, _| vec![s.experts()];
        RouterTable ["ffn_gate_tid2eid.weight"], Router Ids, |s, _| vec![s.experts_used(), s.vocab()];
        ExpertGate ["ffn_gate_exps.weight"], Experts Matrix, |s, _| vec![s.hidden(), s.expert(), s.experts()];
        ExpertUp ["ffn_up_exps.weight"], Experts Matrix, |s, _| vec![s.hidden(), s.expert(), s.experts()];
        ExpertDown ["ffn_down_exps.weight"], Experts Matrix, |s, _| vec![s.expert(), s.hidden(), s.experts()];
        SharedGate ["ffn_gate_shexp.weight"], SharedExpert Matrix, |s, _| vec![s.hidden(), s.expert()];
        SharedUp ["ffn_up_shexp.weight"], SharedExpert Matrix, |s, _| vec![s.hidden(), s.expert()];
        SharedDown ["ffn_down_shexp.weight"], SharedExpert Matrix, |s, _| vec![s.expert(), s.hidden()];
        EngramTable ["engram_embd.weight", "engram_embed.weight"], EngramTable Table, |s, l| vec![s.engram_width(), s.engram_rows(l)];
        EngramProjection ["engram_wkv.weight", "engram_kv.weight"], Engram Matrix, |s, _| vec![s.engram_inputs(), s.engram_outputs()];
        EngramQuery ["engram_q.weight", "engram_q_norm.weight"], Engram Vector, |s, _| vec![s.hidden(), s.streams()];
        EngramKey ["engram_k.weight", "engram_k_norm.weight"], Engram Vector, |s, _| vec![s.hidden(), s.streams()];
    }
}

fn dims<'a>(shape: &Shape<'a>, f: impl Fn(&Shape<'a>) -> Vec<u64>) -> Vec<u64> {
    f(shape)
}

fn layer_dims<'a>(shape: &Shape<'a>, l: usize, f: impl Fn(&Shape<'a>, usize) -> Vec<u64>) -> Vec<u64> {
    f(shape, l)
}

/// The widths that shapes are made of.
struct Shape<'a>(&'a ModelConfig);

impl Shape<'_> {
    fn hidden(&self) -> u64 {
        self.0.hidden.into()
    }
    fn vocab(&self) -> u64 {
        self.0.vocab.into()
    }
    fn streams(&self) -> u64 {
        self.0.streams.into()
    }
    fn all_streams(&self) -> u64 {
        self.streams() * self.hidden()
    }
    /// pre, post and C of one sub-layer.
    fn mixes(&self) -> u64 {
        2 * self.streams() + self.streams() * self.streams()
    }
    fn heads(&self) -> u64 {
        self.0.heads.into()
    }
    fn head(&self) -> u64 {
        self.0.head_dim.into()
    }
    fn all_heads(&self) -> u64 {
        self.heads() * self.head()
    }
    fn groups(&self) -> u64 {
        self.0.o_groups.into()
    }
    fn group_outputs(&self) -> u64 {
        self.groups() * u64::from(self.0.o_rank)
    }
    fn q_rank(&self) -> u64 {
        self.0.q_rank.into()
    }
    fn ratio(&self, l: usize) -> u64 {
        self.0.ratio(l).into()
    }
    fn pooled(&self, l: usize) -> u64 {
        u64::from(self.0.compressor_halves(l)) * self.head()
    }
    fn index_heads(&self) -> u64 {
        self.0.index.heads.into()
    }
    fn index_head(&self) -> u64 {
        self.0.index.head_dim.into()
    }
    fn index_pooled(&self, l: usize) -> u64 {
        u64::from(self.0.compressor_halves(l)) * self.index_head()
    }
    fn experts(&self) -> u64 {
        self.0.experts.into()
    }
    fn experts_used(&self) -> u64 {
        self.0.experts_used.into()
    }
    fn expert(&self) -> u64 {
        self.0.expert_width.into()
    }
    fn engram_width(&self) -> u64 {
        self.0.engram.as_ref().map_or(0, |e| e.width.into())
    }
    fn engram_rows(&self, l: usize) -> u64 {
        let rows = self.0.engram_index(l).and_then(|i| self.0.engram.as_ref()?.rows.get(i));
        rows.map_or(0, |&r| r.into())
    }
    fn engram_inputs(&self) -> u64 {
        self.engram_width() * self.0.engram.as_ref().map_or(0, |e| u64::from(e.columns()))
    }
    fn engram_outputs(&self) -> u64 {
        (self.streams() + 1) * self.hidden()
    }
}

impl Role {
    /// Every role of a model, global ones first, then layer by layer.
    pub fn all(c: &ModelConfig) -> Vec<Role> {
        let mut roles = vec![Role::TokenEmbedding, Role::OutputNorm, Role::Output];
        if c.family == Family::V4 {
            roles.extend([Role::OutputHyperFn, Role::OutputHyperBase, Role::OutputHyperScale]);
        }
        for l in 0..c.layers {
            roles.extend(EVERY_LAYER.iter().map(|role| role(l)));
            add_compressor(c, l, &mut roles);
            let hash = c.hash_routed(l.into());
            roles.push(if hash { Role::RouterTable(l) } else { Role::RouterBias(l) });
            if c.engram_index(l.into()).is_some() {
                roles.extend(
                    [Role::EngramTable, Role::EngramProjection, Role::EngramQuery, Role::EngramKey].map(|r| r(l)),
                );
            }
        }
        roles
    }

    /// Names that a file may use, the usual one first.
    pub fn names(self) -> Vec<String> {
        let prefix = self.layer().map_or(String::new(), |l| format!("blk.{l}."));
        self.leaves().iter().map(|leaf| format!("{prefix}{leaf}")).collect()
    }

    /// The type in which a device wants this tensor when the file has it as `dtype`: small vectors become F32, everything
    /// else stays as it is.
    pub fn stored_as(self, dtype: DType) -> DType {
        match self.storage() {
            Storage::Vector => DType::F32,
            Storage::Matrix | Storage::Ids | Storage::Table => dtype,
        }
    }
}

const EVERY_LAYER: &[fn(u16) -> Role] = &[
    Role::AttnNorm,
    Role::FfnNorm,
    Role::QueryA,
    Role::QueryNorm,
    Role::QueryB,
    Role::Latent,
    Role::LatentNorm,
    Role::Sinks,
    Role::OutputA,
    Role::OutputB,
    Role::HyperAttnFn,
    Role::HyperAttnBase,
    Role::HyperAttnScale,
    Role::HyperFfnFn,
    Role::HyperFfnBase,
    Role::HyperFfnScale,
    Role::Router,
    Role::ExpertGate,
    Role::ExpertUp,
    Role::ExpertDown,
    Role::SharedGate,
    Role::SharedUp,
    Role::SharedDown,
];

/// Compressor and indexer of layer `l`: what it owns of them (spec/model.md 2.3).
fn add_compressor(c: &ModelConfig, l: u16, roles: &mut Vec<Role>) {
    let layer = usize::from(l);
    if c.is_kv_source(layer) {
        roles.extend([Role::CompressorValue(l), Role::CompressorNorm(l)]);
    }
    if c.has_compressor_gate(layer) {
        roles.push(Role::CompressorGate(l));
        if c.family == Family::V4 {
            roles.push(Role::CompressorApe(l));
        }
    }
    if c.is_index_source(layer) {
        roles.extend([Role::IndexQuery(l), Role::IndexWeights(l)]);
    }
    if c.has_index_keys(layer) {
        match c.family {
            Family::V4 => roles.extend(
                [
                    Role::IndexCompressorValue,
                    Role::IndexCompressorGate,
                    Role::IndexCompressorApe,
                    Role::IndexCompressorNorm,
                ]
                .map(|r| r(l)),
            ),
            Family::V41 => roles.extend([Role::IndexKey(l), Role::IndexKeyNorm(l)]),
        }
    }
}
