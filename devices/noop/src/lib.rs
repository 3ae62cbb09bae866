//! A device that accepts everything and computes nothing: what is left of a run on it is the engine's own cost.
//!
//! **Memory.** Buffers count against a budget. Only shared ones exist, zeroed; device memory is a number. Copies move
//! nothing.
//!
//! **Execution.** While nothing has to be waited for, a submission is complete when the call returns. A wait for a
//! timeline that is not there yet hands this and later submissions to a thread, until it has caught up.
//!
//! **Errors.** Counts, ids and ranges are checked as on any device, operands are not. A wait for a timeline that fails
//! fails this one.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod device;
mod queue;

pub use config::NoopConfig;
pub use device::NoopDevice;
