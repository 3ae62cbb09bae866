//! The memory of the CPU device: buffers under a budget, tensors inside them, and scratch.
//!
//! Every buffer is a [`HostBuffer`], so [`Memory::Device`] and [`Memory::Shared`] differ only in who may export them.
//! This module alone turns buffers into slices. The contract that makes it sound:
//!
//! - Slices are asked for only on the threads of the queue, while a submission executes; a queue executes in order.
//! - A submission names its buffers, and the caller of the device orders submissions of different queues, and what the
//!   host writes, with timelines (`Device::wait`, values of `launch` and `copy_*`). That is the contract of the trait.
//! - Within one step the parts write disjoint places and read none that another part writes: `dispatch` cuts outputs by
//!   rows or columns, and `check` refuses operands that overlap an operand that is written.
#![expect(unsafe_code, reason = "buffers shared by queues under timelines cannot be expressed as references")]

use std::marker::PhantomData;

use bytemuck::Pod;
use luce_core::{DType, HostBuffer};
use luce_device::{BandLayout, BufferId, DeviceError, Memory, RowFacts, Span, View};

/// All buffers of a device.
pub(crate) struct Buffers {
    device: String,
    budget: u64,
    used: u64,
    slots: Vec<Option<Buffer>>,
}

struct Buffer {
    host: HostBuffer,
    shared: bool,
    counted: u64,
}

impl Buffers {
    pub(crate) fn new(device: String, budget: u64) -> Buffers {
        Buffers { device, budget, used: 0, slots: Vec::new() }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.budget - self.used
    }

    fn add(&mut self, buffer: Buffer) -> Result<BufferId, DeviceError> {
        let id = u32::try_from(self.slots.len())
            .map_err(|_| DeviceError::Invalid("4294967296 buffers have been allocated; ids are not reused".into()))?;
        self.slots.push(Some(buffer));
        Ok(BufferId(id))
    }

    /// Zeroed memory under the budget that is not a buffer (scratch).
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<HostBuffer, DeviceError> {
        let short =
            || DeviceError::OutOfMemory { device: self.device.clone(), wanted: bytes, free: self.budget - self.used };
        if bytes > self.free_bytes() {
            return Err(short());
        }
        let host = usize::try_from(bytes).ok().and_then(HostBuffer::new).ok_or_else(short)?;
        self.used += bytes;
        Ok(host)
    }

    /// Gives memory of [`Buffers::reserve`] back to the budget.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// Counts memory again that [`Buffers::release`] has let go of.
    pub(crate) fn take_back(&mut self, bytes: u64) {
        self.used += bytes;
    }

    pub(crate) fn alloc(&mut self, bytes: u64, memory: Memory) -> Result<BufferId, DeviceError> {
        let host = self.reserve(bytes)?;
        self.add(Buffer { host, shared: memory == Memory::Shared, counted: bytes })
    }

    pub(crate) fn import(&mut self, host: &HostBuffer) -> Result<BufferId, DeviceError> {
        self.add(Buffer { host: host.clone(), shared: true, counted: 0 })
    }

    pub(crate) fn free(&mut self, id: BufferId) -> Result<(), DeviceError> {
        let buffer = self.slots.get_mut(id.0 as usize).and_then(Option::take).ok_or_else(|| unknown(id))?;
        self.used -= buffer.counted;
        Ok(())
    }

    pub(crate) fn get(&self, id: BufferId) -> Result<&HostBuffer, DeviceError> {
        self.slots.get(id.0 as usize).and_then(Option::as_ref).map(|b| &b.host).ok_or_else(|| unknown(id))
    }

    pub(crate) fn shared(&self, id: BufferId) -> Result<&HostBuffer, DeviceError> {
        match self.slots.get(id.0 as usize).and_then(Option::as_ref) {
            Some(buffer) if buffer.shared => Ok(&buffer.host),
            Some(_) => Err(DeviceError::Invalid(format!(
                "buffer {} is of kind Device; only Shared buffers can be exported or hold a band description",
                id.0
            ))),
            None => Err(unknown(id)),
        }
    }

    /// The memory and first byte of a span.
    pub(crate) fn span(&self, span: Span) -> Result<(HostBuffer, usize), DeviceError> {
        let host = self.get(span.buffer)?;
        Ok((host.clone(), range(host, span.offset, span.bytes, &format!("buffer {}", span.buffer.0))?))
    }

    /// A view as a tensor. `check` has seen that it lies inside its buffer.
    pub(crate) fn tensor(&self, view: &View) -> Result<Tensor, DeviceError> {
        Ok(Tensor {
            host: self.get(view.buffer)?.clone(),
            offset: view.offset as usize,
            dtype: view.dtype,
            width: view.width as usize,
            rows: view.rows as usize,
            planes: view.planes as usize,
            row_bytes: view.row_bytes() as usize,
        })
    }
}

fn unknown(id: BufferId) -> DeviceError {
    DeviceError::Invalid(format!("buffer {} does not exist (never allocated, or freed)", id.0))
}

/// First byte of a range of a block, checked.
pub(crate) fn range(host: &HostBuffer, offset: u64, bytes: u64, what: &str) -> Result<usize, DeviceError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= host.len() as u64 => Ok(offset as usize),
        _ => Err(DeviceError::Invalid(format!("bytes {offset}..+{bytes} lie outside {what} of {} bytes", host.len()))),
    }
}

/// Copies bytes between two blocks, which may be the same one.
pub(crate) fn copy(src: &HostBuffer, src_at: usize, dst: &HostBuffer, dst_at: usize, bytes: usize) {
    assert!(src_at + bytes <= src.len() && dst_at + bytes <= dst.len(), "the range was checked at submission");
    // SAFETY: both ranges lie inside their blocks (asserted); `copy` allows them to overlap; nobody else touches them
    // while the submission executes (contract above).
    unsafe { std::ptr::copy(src.base().as_ptr().add(src_at), dst.base().as_ptr().add(dst_at), bytes) }
}

/// A tensor [planes, rows, width] in memory. Rows are counted through all planes.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    host: HostBuffer,
    offset: usize,
    pub(crate) dtype: DType,
    pub(crate) width: usize,
    pub(crate) rows: usize,
    pub(crate) planes: usize,
    pub(crate) row_bytes: usize,
}

impl Tensor {
    /// Bytes of `rows` rows from row `first`.
    pub(crate) fn bytes(&self, first: usize, rows: usize) -> &[u8] {
        self.inside(first, rows);
        // SAFETY: nobody writes these rows meanwhile (contract above).
        unsafe { self.host.bytes(self.offset + first * self.row_bytes, rows * self.row_bytes) }
    }

    /// The same for writing.
    #[allow(clippy::mut_from_ref, reason = "parts write disjoint places: contract above")]
    pub(crate) fn bytes_mut(&self, first: usize, rows: usize) -> &mut [u8] {
        self.inside(first, rows);
        // SAFETY: nobody else touches these rows meanwhile (contract above).
        unsafe { self.host.bytes_mut(self.offset + first * self.row_bytes, rows * self.row_bytes) }
    }

    fn inside(&self, first: usize, rows: usize) {
        let all = self.rows * self.planes;
        assert!(first + rows <= all, "rows {first}..+{rows} of a tensor of {all}");
    }

    /// Values of `rows` rows from row `first`.
    pub(crate) fn read<T: Pod>(&self, first: usize, rows: usize) -> &[T] {
        bytemuck::cast_slice(self.bytes(first, rows))
    }

    /// The same for writing.
    #[allow(clippy::mut_from_ref, reason = "parts write disjoint places: contract above")]
    pub(crate) fn write<T: Pod>(&self, first: usize, rows: usize) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut(first, rows))
    }

    /// Some columns of one row, for writing.
    #[allow(clippy::mut_from_ref, reason = "parts write disjoint places: contract above")]
    pub(crate) fn columns<T: Pod>(&self, row: usize, columns: std::ops::Range<usize>) -> &mut [T] {
        self.inside(row, 1);
        assert!(columns.end * size_of::<T>() <= self.row_bytes, "columns {columns:?} of a row of {}", self.width);
        let at = self.offset + row * self.row_bytes + columns.start * size_of::<T>();
        // SAFETY: nobody else touches these columns meanwhile (contract above).
        bytemuck::cast_slice_mut(unsafe { self.host.bytes_mut(at, columns.len() * size_of::<T>()) })
    }

    /// The first `rows` rows as a matrix to write.
    pub(crate) fn grid(&self, rows: usize) -> Grid<'_> {
        let values: &mut [f32] = self.write(0, rows);
        Grid { base: values.as_mut_ptr(), rows, width: self.width, memory: PhantomData }
    }

    /// All values.
    pub(crate) fn all<T: Pod>(&self) -> &[T] {
        self.read(0, self.rows * self.planes)
    }

    /// True when both are the same place.
    pub(crate) fn same(&self, other: &Tensor) -> bool {
        self.host.same(&other.host) && self.offset == other.offset
    }
}

/// A matrix of f32 that several workers write, each its own elements.
#[derive(Clone, Copy)]
pub(crate) struct Grid<'a> {
    base: *mut f32,
    rows: usize,
    width: usize,
    memory: PhantomData<&'a HostBuffer>,
}

impl Grid<'_> {
    /// Writes one element.
    #[inline]
    pub(crate) fn put(&self, row: usize, column: usize, value: f32) {
        assert!(row < self.rows && column < self.width, "element ({row}, {column}) of [{}, {}]", self.rows, self.width);
        // SAFETY: the element lies inside the matrix (asserted), which lies inside its buffer (checked where the grid
        // was made); nobody else touches it meanwhile (contract above).
        unsafe { self.base.add(row * self.width + column).write(value) }
    }
}

/// The band description of a launch.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) host: HostBuffer,
    pub(crate) layout: BandLayout,
}

impl Band {
    /// Facts of the first `rows` rows.
    pub(crate) fn rows(&self, rows: usize) -> &[RowFacts] {
        self.words(self.layout.rows_at(), rows)
    }

    /// Band rows that need logits.
    pub(crate) fn picks(&self, picks: usize) -> &[u32] {
        self.words(self.layout.picks_at(), picks)
    }

    /// Band rows that complete a group of a class.
    pub(crate) fn groups(&self, class: u8, groups: usize) -> &[u32] {
        self.words(self.layout.groups_at(class), groups)
    }

    fn words<T: Pod>(&self, at: usize, count: usize) -> &[T] {
        // SAFETY: the host leaves the description alone until the launch has ended (contract of `Device::prepare`).
        bytemuck::cast_slice(unsafe { self.host.bytes(at, count * size_of::<T>()) })
    }
}

/// Scratch of the running operation: one area that all workers share, and one area per worker.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    host: HostBuffer,
    shared: usize,
    worker: usize,
}

impl Scratch {
    pub(crate) fn new(host: HostBuffer, shared: usize, worker: usize) -> Scratch {
        Scratch { host, shared, worker }
    }

    /// `len` values of the shared area from byte `at`, for reading.
    pub(crate) fn shared<T: Pod>(&self, at: usize, len: usize) -> &[T] {
        assert!(at + len * size_of::<T>() <= self.shared, "scratch was sized at prepare");
        // SAFETY: no part of this step writes these bytes (contract above).
        bytemuck::cast_slice(unsafe { self.host.bytes(at, len * size_of::<T>()) })
    }

    /// The same for writing.
    #[allow(clippy::mut_from_ref, reason = "parts write disjoint places: contract above")]
    pub(crate) fn shared_mut<T: Pod>(&self, at: usize, len: usize) -> &mut [T] {
        assert!(at + len * size_of::<T>() <= self.shared, "scratch was sized at prepare");
        // SAFETY: nobody else touches these bytes meanwhile (contract above).
        bytemuck::cast_slice_mut(unsafe { self.host.bytes_mut(at, len * size_of::<T>()) })
    }

    /// [rows, width] f32 of the shared area from byte `at`, as a matrix to write.
    pub(crate) fn grid(&self, at: usize, rows: usize, width: usize) -> Grid<'_> {
        let values: &mut [f32] = self.shared_mut(at, rows * width);
        Grid { base: values.as_mut_ptr(), rows, width, memory: PhantomData }
    }

    /// `len` values of the worker's own area from byte `at`.
    #[allow(clippy::mut_from_ref, reason = "one worker runs one part at a time")]
    pub(crate) fn own<T: Pod>(&self, worker: usize, at: usize, len: usize) -> &mut [T] {
        assert!(at + len * size_of::<T>() <= self.worker, "scratch was sized at prepare");
        let base = self.shared + worker * self.worker;
        // SAFETY: the area belongs to this worker, which runs one part at a time and asks for disjoint places in it.
        bytemuck::cast_slice_mut(unsafe { self.host.bytes_mut(base + at, len * size_of::<T>()) })
    }
}
