//! Configurations of the released models (spec/model.md 1.1) and catalogs made by hand, for unit tests.

use crate::{CandidateConfig, Family, IndexConfig, ModelConfig, RopeConfig};

/// V4.1 Flash, without its Engram.
pub(crate) fn v41_flash() -> ModelConfig {
    ModelConfig {
        family: Family::V41,
        layers: 40,
        hidden: 5120,
        context: 1048576,
        vocab: 129280,
        heads: 64,
        head_dim: 512,
        rope_dims: 64,
        q_rank: 1280,
        o_rank: 1024,
        o_groups: 8,
        window: 128,
        rms_eps: 1e-20,
        rope: RopeConfig {
            theta: 10000.0,
            compressed_theta: 160000.0,
            factor: 16.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: 65536,
        },
        ratios: (0..40).map(|l| [0, 2, 1][usize::from(l >= 2) + usize::from(l >= 20)]).collect(),
        kv_sources: vec![2, 8, 14, 20],
        index_sources: vec![2, 8, 14, 20, 24, 28, 32, 36],
        index: IndexConfig { heads: 32, head_dim: 128, top: 512 },
        candidates: Some(CandidateConfig { source: 20, blocks: 2048, block_size: 8 }),
        experts: 384,
        experts_used: 6,
        expert_width: 2304,
        expert_scale: 1.5,
        expert_normalise: true,
        swiglu_limits: vec![10.0; 40],
        shared_swiglu_limits: vec![10.0; 40],
        hash_layers: 0,
        streams: 4,
        sinkhorn_iterations: 20,
        hyper_eps: 1e-6,
        engram: None,
    }
}

/// V4 Flash.
pub(crate) fn v4_flash() -> ModelConfig {
    let ratios: Vec<u32> = (0..43).map(|l| if l < 2 { 0 } else { [4, 128][l % 2] }).collect();
    let layers_of = |f: fn(u32) -> bool| (0..43u16).filter(|&l| f(ratios[usize::from(l)])).collect();
    ModelConfig {
        family: Family::V4,
        layers: 43,
        hidden: 4096,
        q_rank: 1024,
        rms_eps: 1e-6,
        kv_sources: layers_of(|r| r > 0),
        index_sources: layers_of(|r| r == 4),
        ratios,
        index: IndexConfig { heads: 64, head_dim: 128, top: 512 },
        candidates: None,
        experts: 256,
        expert_width: 2048,
        swiglu_limits: vec![10.0; 43],
        shared_swiglu_limits: vec![10.0; 43],
        hash_layers: 3,
        ..v41_flash()
    }
}
