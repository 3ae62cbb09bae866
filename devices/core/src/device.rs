//! The trait itself and the types of its signatures.

use std::sync::Arc;

use luce_core::{DType, HostBuffer, Op};

use crate::{BandLayout, Launch, Timeline};

/// A buffer of one device's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId(pub u32);

/// A queue of one device, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueId(pub u8);

/// A prepared list of operations of one device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u32);

/// Bytes of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A tensor in a buffer: [planes, rows, width], contiguous, rows of whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte; a multiple of 64.
    pub offset: u64,
    /// Element type.
    pub dtype: DType,
    /// Values in a row.
    pub width: u32,
    /// Rows in a plane: rows of a matrix, capacity of an activation, length of a ring.
    pub rows: u32,
    /// Planes: experts of a stack, sequence slots of a state; 1 otherwise.
    pub planes: u32,
}

impl View {
    /// Bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.width) / self.dtype.block_values() as u64 * self.dtype.block_bytes() as u64
    }

    /// Bytes of all planes.
    pub fn bytes(&self) -> u64 {
        self.row_bytes() * u64::from(self.rows) * u64::from(self.planes)
    }

    /// The same as bytes of the buffer.
    pub fn span(&self) -> Span {
        Span { buffer: self.buffer, offset: self.offset, bytes: self.bytes() }
    }
}

/// Where a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Memory {
    /// The device's own memory.
    Device,
    /// Host memory that this device, other devices and the host can all reach while work runs (pinned and coherent on
    /// a GPU): exchange slots and band descriptions. See [`Device::export`].
    Shared,
}

/// What a device says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// For people: `CPU, 2 threads, AVX2`.
    pub name: String,
    /// Backend: `cpu`, `hip`, `cuda`, `noop`.
    pub backend: &'static str,
    /// Number of queues.
    pub queues: u8,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Identifies the bits that the kernels produce: devices with equal names here give equal results.
    pub kernel_set: &'static str,
}

/// Why a device refused or failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceError {
    /// Not enough memory.
    #[error("{device}: {wanted} bytes do not fit ({free} are free)")]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes left.
        free: u64,
    },
    /// The device does not compute this; the text names the operation, operand and reason.
    #[error("{0}")]
    Unsupported(String),
    /// An argument is wrong: a caller's mistake.
    #[error("{0}")]
    Invalid(String),
    /// The device failed while executing; every later call says the same.
    #[error("device failed: {0}")]
    Failed(String),
}

/// Anything that computes. One actor's thread owns it; calls return without waiting for the work.
pub trait Device: Send {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Bytes that can still be allocated.
    fn memory_free(&self) -> u64;

    /// Allocates `bytes`, zeroed.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn alloc(&mut self, bytes: u64, memory: Memory) -> Result<BufferId, DeviceError>;

    /// Gives a buffer back. The caller has seen all work on it complete.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for an unknown id.
    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError>;

    /// The host memory behind a [`Memory::Shared`] buffer.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for other buffers.
    fn export(&mut self, buffer: BufferId) -> Result<HostBuffer, DeviceError>;

    /// Makes host memory that another device exported (or the host made) usable here.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where it cannot be mapped.
    fn import(&mut self, memory: &HostBuffer) -> Result<BufferId, DeviceError>;

    /// Queues a copy of `dst.bytes` bytes at `offset` of `src` to `dst`; returns the timeline value at its end. `src`
    /// must not be written before that.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for ranges outside the buffers, [`DeviceError::Failed`] after a failure.
    fn copy_in(&mut self, queue: QueueId, src: &HostBuffer, offset: u64, dst: Span) -> Result<u64, DeviceError>;

    /// Queues a copy of `src` to `dst` at `offset`; returns the timeline value at its end.
    ///
    /// # Errors
    /// As [`Device::copy_in`].
    fn copy_out(&mut self, queue: QueueId, src: Span, dst: &HostBuffer, offset: u64) -> Result<u64, DeviceError>;

    /// Checks operations and makes them ready to launch. `band` is the buffer, of kind [`Memory::Shared`], that holds
    /// the band description with this layout; the host writes it before a launch and leaves it alone until the end.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] or [`DeviceError::Invalid`], naming operation and operand: dtypes that the device
    /// does not multiply, shapes that do not fit each other, views outside their buffers.
    fn prepare(&mut self, ops: &[Op<View>], band: BufferId, layout: BandLayout) -> Result<SegmentId, DeviceError>;

    /// Queues a segment; returns the timeline value at its end. Allocates nothing.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for counts above the layout's capacity, [`DeviceError::Failed`] after a failure.
    fn launch(&mut self, queue: QueueId, segment: SegmentId, launch: Launch) -> Result<u64, DeviceError>;

    /// Makes the queue wait until `timeline` (of any device, or of the host) has reached `value` before what is
    /// submitted next. Fails the queue if that timeline fails.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] after a failure.
    fn wait(&mut self, queue: QueueId, timeline: &Arc<Timeline>, value: u64) -> Result<(), DeviceError>;

    /// The completion counter of a queue.
    fn timeline(&self, queue: QueueId) -> Arc<Timeline>;
}
