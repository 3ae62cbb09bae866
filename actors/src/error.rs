//! What can go wrong when an engine is built.

use luce_device::DeviceError;
use luce_model::ModelError;
use luce_storage::StorageError;

/// Why an engine could not be built or started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The configuration does not fit the model or the machine; the text names the key.
    #[error("{0}")]
    Config(String),
    /// A device refused.
    #[error("actor {actor}: {source}")]
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
