//! What can go wrong when an engine is built.

use luce_core::Bytes;
use luce_device::DeviceError;
use luce_model::ModelError;
use luce_storage::StorageError;

use crate::Footprint;

/// What to do where memory is short.
const LOWER: &str = "lower model.context or schedule.decode.max_sequences (caches), or schedule.prefill.chunk or \
                     schedule.prefill.bands_in_flight (lanes); raise the actor's memory; or take a smaller model";

/// Why an engine could not be built or started. The text of an error leaves out that of its source: printing the chain
/// adds it.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The configuration does not fit the model or the machine; the text names the key.
    #[error("{0}")]
    Config(String),
    /// An actor's memory does not hold its part of the model.
    #[error("actor {actor} needs {need}: {} in all, but it has {free}; {LOWER}", need.total())]
    Memory {
        /// Name of the actor.
        actor: String,
        /// What it needs.
        need: Footprint,
        /// What its device has.
        free: Bytes,
    },
    /// A device refused.
    #[error("actor {actor}{}", way_out(source))]
    Device {
        /// Name of the actor.
        actor: String,
        /// Why.
        #[source]
        source: DeviceError,
    },
    /// The model file is not understood.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The operating system refused a thread or memory.
    #[error("{0}")]
    System(String),
}

/// What follows the actor's name, where there is something to do.
fn way_out(error: &DeviceError) -> String {
    match error {
        DeviceError::OutOfMemory { .. } => format!(" is short of memory; {LOWER}"),
        _ => String::new(),
    }
}
