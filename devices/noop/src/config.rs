//! What a configuration may say about the noop device.

use serde::{Deserialize, Serialize};

/// Settings of a [`crate::NoopDevice`]. Every key has a default; unknown keys are errors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NoopConfig {
    /// Bytes that it pretends to have. Default 1 TiB.
    pub memory: u64,
    /// Submissions that may wait behind one that waits for another timeline; one more is refused. At least 1. Default 1024.
    pub queue_depth: usize,
    /// How long a wait for another timeline may last before the queue fails, in milliseconds. Default 60,000.
    pub wait_limit_ms: u64,
}

impl Default for NoopConfig {
    fn default() -> NoopConfig {
        NoopConfig { memory: 1 << 40, queue_depth: 1024, wait_limit_ms: 60_000 }
    }
}
