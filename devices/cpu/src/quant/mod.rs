//! Number formats: what the bytes of a weight row, an activation row and an Engram row mean.
//!
//! Everything here is portable Rust on plain slices: no threads, no SIMD intrinsics, no allocation. Decoding is f32
//! arithmetic in the order in which the formulas are written, without fused multiply-add, so that each value is the same
//! bit for bit on every machine. The SIMD dot products read the same blocks directly and are tested against this module.
//!
//! - [`decode_row`]: a row of any weight type to f32; one file per family of types.
//! - [`quantize`]: a row of f32 to the block form that the dot product of a weight type wants ([`partner`]).
//! - [`checkpoint`]: the forms of the published safetensors files and of Engram rows.
//! - [`fake_quant`], [`hadamard`]: the rounding steps of the reference.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod activation;
pub mod checkpoint;
pub(crate) mod codebook;
pub mod decode;
pub mod fake;
mod float;
mod fp;
mod iq;
mod k;
mod plain;
mod rocmfp;

pub use activation::{ActFormat, act_bytes, partner, quantize};
pub use decode::{MixBook, QuantError, can_decode, decode_row};
pub use fake::{fake_quant, hadamard};
