//! CPU cores as a device: quantised kernels with run-time SIMD, an asynchronous queue and a thread pool.

mod ops;
pub mod quant;
pub mod simd;
