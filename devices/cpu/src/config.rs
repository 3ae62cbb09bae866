//! What a configuration may say about the CPU device. It is apart from the device, so that it can be parsed, checked and
//! printed on any machine.

use serde::{Deserialize, Serialize};

/// Settings of a [`crate::CpuDevice`]. Every key has a default; unknown keys are errors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuConfig {
    /// Threads that compute. The first is the queue's own thread. 0 (the default): one per core that this process may
    /// use.
    pub threads: usize,
    /// Bytes that buffers and scratch may take together. Default: the machine's memory.
    pub memory: Option<u64>,
    /// Binds thread `i` to the `i`-th core that this process may use. Off by default: several CPU devices of one process
    /// would otherwise stand on the same cores.
    pub pin: bool,
    /// Submissions that may wait in the queue, at least 1; one more is refused with an error. Default 1024.
    pub queue_depth: usize,
    /// How long the idle queue thread (and a wait for another timeline) spins before it parks, in microseconds. A parked
    /// thread costs its next submitter about 10 us. Default 50.
    pub spin_us: u64,
    /// How long a wait for another timeline may last before the queue fails, in milliseconds. Default 60,000.
    pub wait_limit_ms: u64,
}

impl Default for CpuConfig {
    fn default() -> CpuConfig {
        CpuConfig { threads: 0, memory: None, pin: false, queue_depth: 1024, spin_us: 50, wait_limit_ms: 60_000 }
    }
}
