//! [`CpuDevice`]: the trait over buffers, segments and the queue.

use std::sync::Arc;

use luce_core::{HostBuffer, Op};
use luce_device::{
    BandLayout, BufferId, Device, DeviceError, DeviceInfo, Launch, Memory, QueueId, SegmentId, Span, Timeline, View,
};

use crate::config::CpuConfig;
use crate::dispatch::{Need, Segment};
use crate::memory::{self, Buffers, Scratch};
use crate::queue::{Command, Queue};
use crate::simd::Isa;

/// Names the bits that the kernels produce; changed whenever they change.
const KERNEL_SET: &str = "cpu-1";
/// More threads than any machine has cores; a typo otherwise.
const MAX_THREADS: usize = 1024;

/// CPU cores as a device with one queue. Dropping it ends its threads.
pub struct CpuDevice {
    info: DeviceInfo,
    threads: usize,
    queue: Queue,
    buffers: Buffers,
    segments: Vec<Option<Arc<Segment>>>,
    need: Need,
    scratch: HostBuffer,
}

impl CpuDevice {
    /// Starts the device's threads.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for settings that make no sense here, naming the key; [`DeviceError::Failed`] when the
    /// operating system starts no thread.
    pub fn new(config: &CpuConfig) -> Result<CpuDevice, DeviceError> {
        let invalid = |text: String| Err(DeviceError::Invalid(text));
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            n if n <= MAX_THREADS => n,
            n => return invalid(format!("threads = {n}; at most {MAX_THREADS}")),
        };
        if config.queue_depth == 0 {
            return invalid("queue_depth = 0; at least 1".into());
        }
        let memory = match config.memory {
            Some(bytes) => bytes,
            None => machine_memory()?,
        };
        let cores = if config.pin { cores(threads)? } else { Vec::new() };
        let name = format!("CPU, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, Isa::detect().name());
        let scratch = HostBuffer::new(0).ok_or_else(|| DeviceError::OutOfMemory {
            device: name.clone(),
            wanted: 0,
            free: memory,
        })?;
        Ok(CpuDevice {
            queue: Queue::start(threads, config, cores)?,
            buffers: Buffers::new(name.clone(), memory),
            info: DeviceInfo { name, backend: "cpu", queues: 1, memory, kernel_set: KERNEL_SET },
            threads,
            segments: Vec::new(),
            need: Need::default(),
            scratch,
        })
    }

    fn check_queue(&self, queue: QueueId) -> Result<(), DeviceError> {
        if queue.0 != 0 {
            return Err(DeviceError::Invalid(format!("queue {}; this device has queue 0 only", queue.0)));
        }
        Ok(())
    }

    /// Makes the scratch large enough for a segment. Launches that are under way keep what they have.
    fn grow_scratch(&mut self, need: Need) -> Result<(), DeviceError> {
        let need = self.need.max(need);
        let bytes = need.shared + self.threads * need.worker;
        if bytes > self.scratch.len() {
            let old = self.scratch.len() as u64;
            self.buffers.release(old);
            match self.buffers.reserve(bytes as u64) {
                Ok(host) => self.scratch = host,
                Err(error) => {
                    self.buffers.take_back(old);
                    return Err(error);
                }
            }
        }
        self.need = need;
        Ok(())
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_free(&self) -> u64 {
        self.buffers.free_bytes()
    }

    fn alloc(&mut self, bytes: u64, memory: Memory) -> Result<BufferId, DeviceError> {
        self.buffers.alloc(bytes, memory)
    }

    /// Also drops the segments that name the buffer: launching them is an error from then on.
    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.buffers.free(buffer)?;
        for segment in &mut self.segments {
            segment.take_if(|s| s.uses(buffer));
        }
        Ok(())
    }

    fn export(&mut self, buffer: BufferId) -> Result<HostBuffer, DeviceError> {
        self.buffers.shared(buffer).cloned()
    }

    fn import(&mut self, memory: &HostBuffer) -> Result<BufferId, DeviceError> {
        self.buffers.import(memory)
    }

    fn copy_in(&mut self, queue: QueueId, src: &HostBuffer, offset: u64, dst: Span) -> Result<u64, DeviceError> {
        self.check_queue(queue)?;
        let src_at = memory::range(src, offset, dst.bytes, "the source")?;
        let (to, dst_at) = self.buffers.span(dst)?;
        self.queue.push(Command::Copy { src: src.clone(), src_at, dst: to, dst_at, bytes: dst.bytes as usize })
    }

    fn copy_out(&mut self, queue: QueueId, src: Span, dst: &HostBuffer, offset: u64) -> Result<u64, DeviceError> {
        self.check_queue(queue)?;
        let dst_at = memory::range(dst, offset, src.bytes, "the destination")?;
        let (from, src_at) = self.buffers.span(src)?;
        self.queue.push(Command::Copy { src: from, src_at, dst: dst.clone(), dst_at, bytes: src.bytes as usize })
    }

    fn prepare(&mut self, ops: &[Op<View>], band: BufferId, layout: BandLayout) -> Result<SegmentId, DeviceError> {
        let id = u32::try_from(self.segments.len())
            .map_err(|_| DeviceError::Invalid("4294967296 segments have been prepared; ids are not reused".into()))?;
        let segment = Segment::new(ops, band, layout, &self.buffers, self.threads)?;
        self.grow_scratch(segment.need())?;
        self.segments.push(Some(Arc::new(segment)));
        Ok(SegmentId(id))
    }

    fn launch(&mut self, queue: QueueId, segment: SegmentId, launch: Launch) -> Result<u64, DeviceError> {
        self.check_queue(queue)?;
        let Some(segment) = self.segments.get(segment.0 as usize).and_then(Option::as_ref) else {
            return Err(DeviceError::Invalid(format!(
                "segment {} does not exist (never prepared, or a buffer that it names was freed)",
                segment.0
            )));
        };
        segment.check_counts(&launch)?;
        let scratch = Scratch::new(self.scratch.clone(), self.need.shared, self.need.worker);
        self.queue.push(Command::Launch { segment: segment.clone(), launch, scratch })
    }

    fn wait(&mut self, queue: QueueId, timeline: &Arc<Timeline>, value: u64) -> Result<(), DeviceError> {
        self.check_queue(queue)?;
        if Arc::ptr_eq(timeline, self.queue.timeline()) && value > self.queue.submitted() {
            return Err(DeviceError::Invalid(format!(
                "the queue would wait for its own value {value}, but stands at {}",
                self.queue.submitted()
            )));
        }
        self.queue.push(Command::Wait { timeline: timeline.clone(), value }).map(|_| ())
    }

    fn timeline(&self, _queue: QueueId) -> Arc<Timeline> {
        self.queue.timeline().clone()
    }
}

/// Bytes of the machine's memory.
#[cfg(target_os = "linux")]
fn machine_memory() -> Result<u64, DeviceError> {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .map(|kib| kib * 1024)
        .ok_or_else(|| DeviceError::Invalid("the size of the memory is not in /proc/meminfo; set memory".into()))
}

#[cfg(not(target_os = "linux"))]
fn machine_memory() -> Result<u64, DeviceError> {
    Err(DeviceError::Invalid("the size of the memory is known on Linux only; set memory".into()))
}

/// The cores that threads are bound to.
#[cfg(target_os = "linux")]
fn cores(threads: usize) -> Result<Vec<usize>, DeviceError> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|e| DeviceError::Failed(format!("cannot read the cores of this process: {e}")))?;
    let cores: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).take(threads).collect();
    if cores.len() < threads {
        return Err(DeviceError::Invalid(format!(
            "pin with threads = {threads}, but this process may use {} cores; lower threads or set pin = false",
            cores.len()
        )));
    }
    Ok(cores)
}

#[cfg(not(target_os = "linux"))]
fn cores(_threads: usize) -> Result<Vec<usize>, DeviceError> {
    Err(DeviceError::Invalid("threads can be bound to cores on Linux only; set pin = false".into()))
}
