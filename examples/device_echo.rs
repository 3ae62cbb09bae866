//! A whole device in one file, as a crate outside this workspace would write it: it keeps buffers, works through its queue
//! on a thread of its own, and gives back the bytes that were copied in. It has no operations, and says so when one is
//! prepared. `cargo run --release --example device_echo` holds it to the part of the suite that needs no arithmetic.
//!
//! **Memory.** Every buffer is zeroed host memory, counted against a budget; imported ones are not counted.
//! **Errors.** Wrong ids, ranges and counts are refused by the call. A wait that fails or takes too long fails the queue.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use luce_core::{HostBuffer, Op};
use luce_device::{BandLayout, BufferId, Device, DeviceError, DeviceInfo, Launch, Memory, QueueId, SegmentId, Span};
use luce_device::{Timeline, View, Wait, conformance};

/// Submissions that may wait in the queue; one more is refused.
const DEPTH: usize = 1024;

/// What the queue's thread does, in order.
enum Work {
    Wait(Arc<Timeline>, u64),
    Copy { from: (HostBuffer, usize), to: (HostBuffer, usize), bytes: usize },
    Nothing,
}

struct EchoDevice {
    info: DeviceInfo,
    /// Memory, kind, and how many bytes count.
    buffers: Vec<Option<(HostBuffer, Memory, u64)>>,
    segments: Vec<BandLayout>,
    timeline: Arc<Timeline>,
    queue: SyncSender<Work>,
    submitted: u64,
}

/// The queue's thread. It ends when the device is gone and the queue is empty.
fn serve(queue: &Receiver<Work>, timeline: &Timeline) {
    for work in queue.iter().take_while(|_| timeline.failure().is_none()) {
        match work {
            Work::Wait(other, value) => match other.wait(value, Duration::ZERO, Duration::from_secs(60)) {
                Wait::Reached => continue,
                Wait::Failed => return timeline.fail(other.failure().unwrap_or("the other queue failed")),
                Wait::TimedOut => return timeline.fail("waited 60 s for another queue"),
            },
            // The suite's accessors. A device has its own: those of `HostBuffer`, in an unsafe block.
            Work::Copy { from, to, bytes } => {
                conformance::write(&to.0, to.1, &conformance::read(&from.0, from.1, bytes));
            }
            Work::Nothing => {}
        }
        timeline.signal(timeline.reached() + 1);
    }
}

impl EchoDevice {
    fn new(memory: u64) -> std::io::Result<EchoDevice> {
        let (queue, work) = sync_channel(DEPTH);
        let timeline = Arc::new(Timeline::new());
        let thread = timeline.clone();
        std::thread::Builder::new().name("echo".into()).spawn(move || serve(&work, &thread))?;
        let info = DeviceInfo { name: "echo".into(), backend: "echo", queues: 1, memory, kernel_set: "echo" };
        Ok(EchoDevice { info, buffers: Vec::new(), segments: Vec::new(), timeline, queue, submitted: 0 })
    }

    fn get(&self, id: BufferId) -> Result<&(HostBuffer, Memory, u64), DeviceError> {
        let buffer = self.buffers.get(id.0 as usize).and_then(Option::as_ref);
        buffer.ok_or_else(|| DeviceError::Invalid(format!("there is no buffer {}", id.0)))
    }

    fn add(&mut self, host: HostBuffer, memory: Memory, counted: u64) -> BufferId {
        self.buffers.push(Some((host, memory, counted)));
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Puts work into the queue and returns at once, with the timeline's value at its end.
    fn submit(&mut self, queue: QueueId, work: Work) -> Result<u64, DeviceError> {
        if queue != QueueId(0) {
            return Err(DeviceError::Invalid(format!("queue {}; there is queue 0 only", queue.0)));
        }
        let counted = u64::from(!matches!(work, Work::Wait(..)));
        let sent = self.queue.try_send(work);
        if let Some(why) = self.timeline.failure() {
            return Err(DeviceError::Failed(why.to_owned()));
        }
        sent.map_err(|_| DeviceError::Failed(format!("{DEPTH} submissions are waiting")))?;
        self.submitted += counted;
        Ok(self.submitted)
    }

    fn copy(&mut self, q: QueueId, span: Span, host: &HostBuffer, at: u64, into: bool) -> Result<u64, DeviceError> {
        let own = self.get(span.buffer)?.0.clone();
        let inside = |at: u64, len: usize| at.checked_add(span.bytes).is_some_and(|end| end <= len as u64);
        if !inside(span.offset, own.len()) || !inside(at, host.len()) {
            return Err(DeviceError::Invalid(format!("{} bytes leave a buffer", span.bytes)));
        }
        let (here, there) = ((own, span.offset as usize), (host.clone(), at as usize));
        let (from, to) = if into { (there, here) } else { (here, there) };
        self.submit(q, Work::Copy { from, to, bytes: span.bytes as usize })
    }
}

impl Device for EchoDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_free(&self) -> u64 {
        self.info.memory - self.buffers.iter().flatten().map(|(_, _, counted)| counted).sum::<u64>()
    }

    fn alloc(&mut self, bytes: u64, memory: Memory) -> Result<BufferId, DeviceError> {
        let free = self.memory_free();
        let host = if bytes <= free { HostBuffer::new(bytes as usize) } else { None };
        let host = host.ok_or(DeviceError::OutOfMemory { device: "echo".into(), wanted: bytes, free })?;
        Ok(self.add(host, memory, bytes))
    }

    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.get(buffer)?;
        self.buffers[buffer.0 as usize] = None;
        Ok(())
    }

    fn export(&mut self, buffer: BufferId) -> Result<HostBuffer, DeviceError> {
        match self.get(buffer)? {
            (host, Memory::Shared, _) => Ok(host.clone()),
            _ => Err(DeviceError::Invalid(format!("buffer {} is not shared", buffer.0))),
        }
    }

    fn import(&mut self, memory: &HostBuffer) -> Result<BufferId, DeviceError> {
        Ok(self.add(memory.clone(), Memory::Shared, 0))
    }

    fn copy_in(&mut self, queue: QueueId, src: &HostBuffer, offset: u64, dst: Span) -> Result<u64, DeviceError> {
        self.copy(queue, dst, src, offset, true)
    }

    fn copy_out(&mut self, queue: QueueId, src: Span, dst: &HostBuffer, offset: u64) -> Result<u64, DeviceError> {
        self.copy(queue, src, dst, offset, false)
    }

    fn prepare(&mut self, ops: &[Op<View>], band: BufferId, layout: BandLayout) -> Result<SegmentId, DeviceError> {
        if let Some(op) = ops.first() {
            return Err(DeviceError::Unsupported(format!("{}: echo computes nothing", op.name())));
        }
        if self.export(band)?.len() < layout.bytes() {
            return Err(DeviceError::Invalid(format!("a band description takes {} bytes", layout.bytes())));
        }
        self.segments.push(layout);
        Ok(SegmentId(self.segments.len() as u32 - 1))
    }

    fn launch(&mut self, queue: QueueId, segment: SegmentId, launch: Launch) -> Result<u64, DeviceError> {
        let most = launch.groups.into_iter().fold(launch.rows.max(launch.picks), u32::max);
        match self.segments.get(segment.0 as usize) {
            Some(layout) if most <= layout.max_rows => self.submit(queue, Work::Nothing),
            Some(layout) => Err(DeviceError::Invalid(format!("{launch:?} in a band of {} rows", layout.max_rows))),
            None => Err(DeviceError::Invalid(format!("segment {} was never prepared", segment.0))),
        }
    }

    fn wait(&mut self, queue: QueueId, timeline: &Arc<Timeline>, value: u64) -> Result<(), DeviceError> {
        self.submit(queue, Work::Wait(timeline.clone(), value)).map(drop)
    }

    fn timeline(&self, _: QueueId) -> Arc<Timeline> {
        self.timeline.clone()
    }
}

fn main() {
    let mut make = || Box::new(EchoDevice::new(1 << 28).expect("a thread can be started")) as Box<dyn Device>;
    conformance::run_structure(&mut make);
    conformance::run_copies(&mut make);
    println!("the suite holds, as far as it needs no arithmetic");
}

#[test]
fn the_suite_holds() {
    main();
}
