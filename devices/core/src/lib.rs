//! The [`Device`] trait: what the engine asks of anything that computes.
//!
//! | implementation | crate | for |
//! |---|---|---|
//! | CPU cores | `luce-device-cpu` | reference, test bed, and the engine's home where there is no accelerator |
//! | noop | `luce-device-noop` | accepts everything, computes nothing: measures the engine's own cost |
//! | echo | `examples/device_echo.rs` | a whole device in one file, to begin from |
//!
//! **I/O model.** A device has memory (buffers) and queues. Work is submitted to a queue and the call returns at once; a
//! queue executes in order. Each submission counts the queue's [`Timeline`] up by one when it is complete, and the
//! returned number says which. Nothing is ready because a call returned. Tensors are named by [`View`]s of device
//! buffers; host memory enters only as [`luce_core::HostBuffer`]s, for copies and for buffers of kind
//! [`Memory::Shared`].
//!
//! **Programs.** Operations are prepared once into segments ([`Device::prepare`]) and launched many times with only the
//! counts of a [`Launch`] changing; what changes per row lies in the band description ([`BandLayout`]) that the segment
//! names. So the steady state allocates nothing, and a GPU may record a segment as a graph.
//!
//! **Errors.** A bad argument is an `Err` from the call. A failure while executing marks the timeline failed
//! ([`Timeline::failure`]); later submissions to that queue fail at once with the same reason.

mod band;
pub mod conformance;
mod device;
mod timeline;

pub use band::{BandLayout, Launch, MAX_RATIO_CLASSES, RowFacts};
pub use device::{BufferId, Device, DeviceError, DeviceInfo, Memory, QueueId, SegmentId, Span, View};
pub use timeline::{Timeline, Wait};
