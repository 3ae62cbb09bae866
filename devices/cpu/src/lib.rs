//! CPU cores as a device: quantised kernels with run-time SIMD, an asynchronous queue and a thread pool.
//!
//! **Memory.** Buffers are page-aligned host memory under a budget; `Device` and `Shared` memory are the same thing, and
//! importing a buffer maps nothing. Scratch is sized when a segment is prepared, so a launch allocates nothing.
//!
//! **Execution.** One queue. Its thread executes submissions in order and shares the parts of large operations with
//! helper threads; small operations stay on it. Results do not depend on the number of threads. Idle threads are parked.
//!
//! **Errors.** Wrong arguments are refused by the call. What goes wrong while executing (an operation that fails or
//! panics, a wait for a failed timeline or beyond its limit) fails the queue's timeline with a reason, for good.

#![cfg_attr(test, allow(clippy::unwrap_used))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "references in f64, compared with a tolerance"))]

mod check;
mod config;
mod device;
mod dispatch;
mod memory;
mod ops;
mod pool;
pub mod quant;
mod queue;
pub mod simd;

pub use config::CpuConfig;
pub use device::CpuDevice;
