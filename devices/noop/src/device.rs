//! [`NoopDevice`].

use std::sync::Arc;
use std::time::Duration;

use luce_core::{HostBuffer, Op};
use luce_device::{
    BandLayout, BufferId, Device, DeviceError, DeviceInfo, Launch, Memory, QueueId, SegmentId, Span, Timeline, View,
};

use crate::config::NoopConfig;
use crate::queue::Queue;

struct Buffer {
    bytes: u64,
    counted: u64,
    host: Option<HostBuffer>,
}

/// A device that accepts everything and computes nothing.
pub struct NoopDevice {
    info: DeviceInfo,
    queue: Queue,
    buffers: Vec<Option<Buffer>>,
    used: u64,
    segments: Vec<BandLayout>,
}

impl NoopDevice {
    /// Starts it.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] when the operating system starts no thread.
    pub fn new(config: &NoopConfig) -> Result<NoopDevice, DeviceError> {
        Ok(NoopDevice {
            info: DeviceInfo {
                name: "noop".into(),
                backend: "noop",
                queues: 1,
                memory: config.memory,
                kernel_set: "noop",
            },
            queue: Queue::start(Duration::from_millis(config.wait_limit_ms), config.queue_depth)?,
            buffers: Vec::new(),
            used: 0,
            segments: Vec::new(),
        })
    }

    fn add(&mut self, buffer: Buffer) -> Result<BufferId, DeviceError> {
        let id = u32::try_from(self.buffers.len())
            .map_err(|_| DeviceError::Invalid("4294967296 buffers have been allocated; ids are not reused".into()))?;
        self.used += buffer.counted;
        self.buffers.push(Some(buffer));
        Ok(BufferId(id))
    }

    fn get(&self, id: BufferId) -> Result<&Buffer, DeviceError> {
        self.buffers.get(id.0 as usize).and_then(Option::as_ref).ok_or_else(|| unknown(id))
    }

    fn shared(&self, id: BufferId) -> Result<&HostBuffer, DeviceError> {
        let host = self.get(id)?.host.as_ref();
        host.ok_or_else(|| DeviceError::Invalid(format!("buffer {} is of kind Device, not Shared", id.0)))
    }

    fn check_queue(queue: QueueId) -> Result<(), DeviceError> {
        if queue.0 != 0 {
            return Err(DeviceError::Invalid(format!("queue {}; this device has queue 0 only", queue.0)));
        }
        Ok(())
    }

    fn check_copy(&self, host: &HostBuffer, offset: u64, span: Span) -> Result<(), DeviceError> {
        let inside = |offset: u64, len: u64| offset.checked_add(span.bytes).is_some_and(|end| end <= len);
        if !inside(offset, host.len() as u64) || !inside(span.offset, self.get(span.buffer)?.bytes) {
            return Err(DeviceError::Invalid(format!("a copy of {} bytes leaves its buffer", span.bytes)));
        }
        Ok(())
    }
}

fn unknown(id: BufferId) -> DeviceError {
    DeviceError::Invalid(format!("buffer {} does not exist (never allocated, or freed)", id.0))
}

impl Device for NoopDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_free(&self) -> u64 {
        self.info.memory - self.used
    }

    fn alloc(&mut self, bytes: u64, memory: Memory) -> Result<BufferId, DeviceError> {
        let free = self.memory_free();
        let short = || DeviceError::OutOfMemory { device: "noop".into(), wanted: bytes, free };
        if bytes > free {
            return Err(short());
        }
        let host = match memory {
            Memory::Device => None,
            Memory::Shared => Some(usize::try_from(bytes).ok().and_then(HostBuffer::new).ok_or_else(short)?),
        };
        self.add(Buffer { bytes, counted: bytes, host })
    }

    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        let gone = self.buffers.get_mut(buffer.0 as usize).and_then(Option::take).ok_or_else(|| unknown(buffer))?;
        self.used -= gone.counted;
        Ok(())
    }

    fn export(&mut self, buffer: BufferId) -> Result<HostBuffer, DeviceError> {
        self.shared(buffer).cloned()
    }

    fn import(&mut self, memory: &HostBuffer) -> Result<BufferId, DeviceError> {
        self.add(Buffer { bytes: memory.len() as u64, counted: 0, host: Some(memory.clone()) })
    }

    fn copy_in(&mut self, queue: QueueId, src: &HostBuffer, offset: u64, dst: Span) -> Result<u64, DeviceError> {
        NoopDevice::check_queue(queue)?;
        self.check_copy(src, offset, dst)?;
        self.queue.submit()
    }

    fn copy_out(&mut self, queue: QueueId, src: Span, dst: &HostBuffer, offset: u64) -> Result<u64, DeviceError> {
        NoopDevice::check_queue(queue)?;
        self.check_copy(dst, offset, src)?;
        self.queue.submit()
    }

    fn prepare(&mut self, _ops: &[Op<View>], band: BufferId, layout: BandLayout) -> Result<SegmentId, DeviceError> {
        let len = self.shared(band)?.len();
        if layout.bytes() > len {
            let text = format!("a band description of {} bytes in a buffer of {len}", layout.bytes());
            return Err(DeviceError::Invalid(text));
        }
        let id = u32::try_from(self.segments.len())
            .map_err(|_| DeviceError::Invalid("4294967296 segments have been prepared".into()))?;
        self.segments.push(layout);
        Ok(SegmentId(id))
    }

    fn launch(&mut self, queue: QueueId, segment: SegmentId, launch: Launch) -> Result<u64, DeviceError> {
        NoopDevice::check_queue(queue)?;
        let Some(layout) = self.segments.get(segment.0 as usize) else {
            return Err(DeviceError::Invalid(format!("segment {} was never prepared", segment.0)));
        };
        let most = launch.groups.into_iter().fold(launch.rows.max(launch.picks), u32::max);
        if most > layout.max_rows {
            return Err(DeviceError::Invalid(format!("launch of {launch:?}; there is room for {}", layout.max_rows)));
        }
        self.queue.submit()
    }

    fn wait(&mut self, queue: QueueId, timeline: &Arc<Timeline>, value: u64) -> Result<(), DeviceError> {
        NoopDevice::check_queue(queue)?;
        self.queue.wait(timeline, value)
    }

    fn timeline(&self, _queue: QueueId) -> Arc<Timeline> {
        self.queue.timeline().clone()
    }
}
