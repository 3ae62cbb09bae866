//! The small operations of a layer, each a pure function over slices that computes ONE row (or one (row, head), or one
//! compressed group): no threads, no allocation, no state. The device splits a launch into such calls; because a call
//! sees nothing but its own row and that row's sequence, no result can depend on the band it came in.
//!
//! Bits: every sum has one fixed order. Long sums go through `simd` (one lane layout for every instruction set); the
//! rest are plain elementwise f32 steps, which Rust neither contracts to fma nor reorders. Exponentials come from
//! `simd`, sines and cosines from the `libm` crate, never from the platform's C library. f32 division and square
//! root are exact by IEEE 754.
//!
//! | file | operations of `luce_core::Op` |
//! |---|---|
//! | `norm` | RmsNorm, OneHot |
//! | `rope` | Angles, Rope |
//! | `hyper` | HyperMix and HyperHead after their product, Collapse, Expand |
//! | `pool` | Pool |
//! | `select` | IndexSelect |
//! | `attention` | Attention |
//! | `route` | Route after its product |
//! | `engram` | EngramGate |
//! | `swiglu` | SwiGlu, and the activation of Experts |
//! | `argmax` | ArgMax |

pub(crate) mod argmax;
pub(crate) mod attention;
pub(crate) mod engram;
pub(crate) mod history;
pub(crate) mod hyper;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod rope;
pub(crate) mod route;
pub(crate) mod select;
pub(crate) mod swiglu;
#[cfg(test)]
mod testing;
mod top;
