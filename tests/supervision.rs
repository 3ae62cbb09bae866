//! A device that fails or panics: live requests hear of it, the supervisor loads the model again and the engine answers as
//! before; after too many failures it says that it is broken instead of trying for ever.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use luce_core::{Event, Generate, GenerateRequest, HostBuffer, Lifecycle, Op, Precision, Reduce, SinkClosed, TokenId};
use luce_device::{
    BandLayout, BufferId, Device, DeviceError, DeviceInfo, Launch, Memory, QueueId, SegmentId, Span, Timeline, View,
};
use luce_device_cpu::{CpuConfig, CpuDevice};
use luce_model::ProgramOptions;
use luce_runtime::{Engine, EngineOptions, MakeDevices, Model, Placement, WaitPolicy};

const PATIENCE: Duration = Duration::from_secs(60);

/// How the device breaks.
#[derive(Clone, Copy)]
enum Fault {
    Panic,
    Error,
}

/// A CPU device that breaks at a launch: when the count, which is shared by all that are made, reaches zero.
struct Breaking {
    inner: CpuDevice,
    left: Arc<AtomicI64>,
    fault: Fault,
}

impl Device for Breaking {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn memory_free(&self) -> u64 {
        self.inner.memory_free()
    }
    fn alloc(&mut self, bytes: u64, memory: Memory) -> Result<BufferId, DeviceError> {
        self.inner.alloc(bytes, memory)
    }
    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.inner.free(buffer)
    }
    fn export(&mut self, buffer: BufferId) -> Result<HostBuffer, DeviceError> {
        self.inner.export(buffer)
    }
    fn import(&mut self, memory: &HostBuffer) -> Result<BufferId, DeviceError> {
        self.inner.import(memory)
    }
    fn copy_in(&mut self, queue: QueueId, src: &HostBuffer, offset: u64, dst: Span) -> Result<u64, DeviceError> {
        self.inner.copy_in(queue, src, offset, dst)
    }
    fn copy_out(&mut self, queue: QueueId, src: Span, dst: &HostBuffer, offset: u64) -> Result<u64, DeviceError> {
        self.inner.copy_out(queue, src, dst, offset)
    }
    fn prepare(&mut self, ops: &[Op<View>], band: BufferId, layout: BandLayout) -> Result<SegmentId, DeviceError> {
        self.inner.prepare(ops, band, layout)
    }
    fn launch(&mut self, queue: QueueId, segment: SegmentId, launch: Launch) -> Result<u64, DeviceError> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            match self.fault {
                Fault::Panic => panic!("the driver is gone"),
                Fault::Error => {
                    let why = "the bus fell off".to_owned();
                    self.inner.timeline(queue).fail(&why);
                    return Err(DeviceError::Failed(why));
                }
            }
        }
        self.inner.launch(queue, segment, launch)
    }
    fn wait(&mut self, queue: QueueId, timeline: &Arc<Timeline>, value: u64) -> Result<(), DeviceError> {
        self.inner.wait(queue, timeline, value)
    }
    fn timeline(&self, queue: QueueId) -> Arc<Timeline> {
        self.inner.timeline(queue)
    }
}

struct Rig {
    engine: Engine,
    left: Arc<AtomicI64>,
}

impl Rig {
    fn new(fault: Fault) -> Rig {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/tiny-v41.gguf");
        let left = Arc::new(AtomicI64::new(-1));
        let counter = left.clone();
        let devices: MakeDevices = Arc::new(move || {
            let inner = CpuDevice::new(&CpuConfig { threads: 1, ..CpuConfig::default() }).map_err(|e| e.to_string())?;
            Ok(vec![Box::new(Breaking { inner, left: counter.clone(), fault }) as Box<dyn Device>])
        });
        let program = ProgramOptions {
            precision: Precision::Partner,
            reduce: Reduce::Exact,
            qat: false,
            owners: 1,
            max_rows: 32,
            max_picks: 2,
            slots: 2,
            context: 256,
        };
        let options = EngineOptions {
            program,
            bands_in_flight: 2,
            max_queue: 8,
            wait: WaitPolicy { spin: Duration::from_micros(50) },
            name: "tiny".into(),
            actors: Vec::new(),
        };
        let placement = Placement::single("cpu");
        let engine = Engine::start(Model::open(&file).unwrap(), placement, devices, options).unwrap();
        engine.wait_ready(|_| ()).unwrap();
        Rig { engine, left }
    }

    /// The tokens of an answer, or why it failed.
    fn ask(&self) -> Result<Vec<TokenId>, String> {
        let (send, events) = std::sync::mpsc::sync_channel(64);
        let prompt = (5..20).map(TokenId).collect();
        let request = GenerateRequest::greedy(prompt, 10, Vec::new());
        let sink = move |event| send.try_send(event).map_err(|_| SinkClosed);
        self.engine.submit(request, Box::new(sink)).map_err(|e| e.to_string())?;
        let mut tokens = Vec::new();
        loop {
            match events.recv_timeout(PATIENCE).expect("an answer ends") {
                Event::Admitted => {}
                Event::Token(chosen) => tokens.push(chosen.token),
                Event::Finished { .. } => return Ok(tokens),
                Event::Failed(why) => return Err(why),
            }
        }
    }

    fn break_after(&self, launches: i64) {
        self.left.store(launches, Ordering::SeqCst);
    }
}

#[test]
fn a_device_that_fails_or_panics_costs_its_requests_and_is_replaced_with_equal_answers() {
    for (fault, word) in [(Fault::Panic, "the driver is gone"), (Fault::Error, "the bus fell off")] {
        let rig = Rig::new(fault);
        let right = rig.ask().unwrap();
        assert_eq!(right.len(), 10);
        rig.break_after(17);
        let why = rig.ask().unwrap_err();
        assert!(why.contains(word), "{why}");
        rig.engine.wait_ready(|_| ()).unwrap();
        assert_eq!(rig.ask().unwrap(), right);
        let status = rig.engine.status();
        assert!(status.live.is_empty() && status.queued == 0, "{status:?}");
        assert!(status.actors.iter().any(|a| a.name == "cpu" && a.state == "running"), "{status:?}");
    }
}

#[test]
fn a_device_that_keeps_failing_ends_as_broken_with_the_reason() {
    let rig = Rig::new(Fault::Error);
    let mut failures = 0;
    while !matches!(rig.engine.lifecycle(), Lifecycle::Broken(_)) {
        assert!(failures < 10, "it is never given up");
        rig.break_after(3);
        rig.ask().unwrap_err();
        failures += 1;
        // Ready again or broken for good.
        let _ = rig.engine.wait_ready(|_| ());
    }
    let Lifecycle::Broken(why) = rig.engine.lifecycle() else { unreachable!() };
    assert!(failures > 1 && why.contains("the bus fell off"), "{failures} failures: {why}");
    assert!(rig.ask().unwrap_err().contains("the bus fell off"));
}
