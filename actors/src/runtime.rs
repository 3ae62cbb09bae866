//! Builds the data plane of one box from a model file, devices and roles, and announces bands to it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Duration;

use flume::{Receiver, Sender};
use luce_core::{ActorId, BandSpec, Fence, HostBuffer, NodeId};
use luce_device::{BandLayout, Device, Launch, QueueId, RowFacts, Timeline, Wait};
use luce_model::{EngramHasher, EngramHistory, ModelConfig, Program, ProgramOptions, ValueKind, WeightMap};
use luce_storage::Gguf;

use crate::plane::actor::DeviceActor;
use crate::plane::reader::Reader;
use crate::plane::tap::{NodeTap, Tap};
use crate::plane::{Announced, BandEnd, Message, WaitPolicy};
use crate::{Fuse, Placement, RuntimeError, Wiring, exchange, memory};

/// A model file, understood but not loaded.
#[derive(Clone, Debug)]
pub struct Model {
    /// The file.
    pub gguf: Arc<Gguf>,
    /// Hyper-parameters.
    pub config: Arc<ModelConfig>,
    /// Where its tensors lie.
    pub weights: Arc<WeightMap>,
}

impl Model {
    /// Opens a file and checks that it is a whole model.
    ///
    /// # Errors
    /// What is wrong with it, by name.
    pub fn open(path: &Path) -> Result<Model, RuntimeError> {
        let gguf = Gguf::open(path)?;
        let config = ModelConfig::read(gguf.catalog())?;
        let weights = WeightMap::resolve(&config, gguf.catalog())?;
        Ok(Model { gguf: Arc::new(gguf), config: Arc::new(config), weights: Arc::new(weights) })
    }
}

/// Sizes and policies of a data plane.
#[derive(Clone, Debug)]
pub struct PlaneOptions {
    /// Bands that may be in flight.
    pub lanes: usize,
    /// How mailboxes and fences are watched.
    pub wait: WaitPolicy,
    /// Reads values back after each stage; stages are not fused then.
    pub tap: Option<Tap>,
}

/// The running data plane.
pub struct Plane {
    config: Arc<ModelConfig>,
    actors: Vec<Sender<Message>>,
    reader: Option<Sender<Announced>>,
    band_memory: Vec<HostBuffer>,
    logits: Vec<HostBuffer>,
    timelines: Arc<Vec<Arc<Timeline>>>,
    layout: BandLayout,
    classes: Vec<u32>,
    threads: Vec<JoinHandle<()>>,
    spin: Duration,
}

impl Plane {
    /// Allocates, loads and starts everything. The returned receiver gets the end of each band.
    ///
    /// # Errors
    /// What does not fit or cannot be read.
    pub fn start(
        model: &Model,
        placement: &Placement,
        mut devices: Vec<Box<dyn Device>>,
        options: ProgramOptions,
        plane: PlaneOptions,
        progress: &mut dyn FnMut(f32),
    ) -> Result<(Plane, Receiver<BandEnd>), RuntimeError> {
        let PlaneOptions { lanes, wait, tap } = plane;
        let program = Program::build(&model.config, &model.weights, options);
        let fuse = if tap.is_some() { Fuse::Off } else { Fuse::Neighbours };
        let wiring = Arc::new(Wiring::compile(&program, placement, fuse));
        let layout = BandLayout { max_rows: options.max_rows };
        let seen = tap.as_ref().map_or(&[][..], |t| &t.values);
        let slots = memory::allocate(&mut devices, &wiring, &program, &model.config, lanes, layout, seen)?;
        memory::load(&mut devices, &wiring, &program, &model.config, &model.weights, &model.gguf, &slots, progress)?;
        let mut timelines: Vec<Arc<Timeline>> = devices.iter().map(|d| d.timeline(QueueId(0))).collect();
        let reader_timeline = Arc::new(Timeline::new());
        timelines.push(reader_timeline.clone());
        let timelines = Arc::new(timelines);

        let (heads, ends) = flume::bounded(lanes + 1);
        let capacity = (wiring.nodes.len() + 2) * lanes;
        let (actors, mailboxes): (Vec<_>, Vec<_>) = devices.iter().map(|_| flume::bounded::<Message>(capacity)).unzip();
        let busy_us: Vec<Arc<AtomicU64>> = devices.iter().map(|_| Arc::default()).collect();
        let mut threads = Vec::new();
        let mut spawn = |name: String, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.clone()).spawn(run);
            thread.map(|t| threads.push(t)).map_err(|e| RuntimeError::System(format!("thread {name}: {e}")))
        };
        let reader = match &model.config.engram {
            None => None,
            Some(engram) => {
                let node = |e: u16| wiring.nodes.iter().position(|n| n.engram == Some(e)).unwrap_or(0);
                let tables = (0u16..).zip(&engram.layers).map(|(e, &layer)| (layer, NodeId(node(e) as u32))).collect();
                let buffers = slots
                    .host
                    .iter()
                    .map(|lane| {
                        (0..engram.layers.len() as u16)
                            .filter_map(|e| lane.get(&program.find(&ValueKind::EngramRows(e))?).cloned())
                            .collect()
                    })
                    .collect();
                let reader = Reader {
                    me: ActorId(devices.len() as u16),
                    gguf: model.gguf.clone(),
                    weights: model.weights.clone(),
                    hasher: EngramHasher::new(engram),
                    tables,
                    buffers,
                    timeline: reader_timeline,
                    dense: actors[placement.dense.index()].clone(),
                    tap: tap.clone(),
                };
                let (sender, mailbox) = flume::bounded(lanes);
                spawn("reader".into(), Box::new(move || reader.run(&mailbox)))?;
                Some(sender)
            }
        };
        for (a, (mut device, mailbox)) in devices.into_iter().zip(mailboxes).enumerate() {
            let me = ActorId(a as u16);
            let mut segments = Vec::new();
            for lane in 0..lanes {
                let mut of_lane = Vec::new();
                for node in &wiring.nodes {
                    if node.actor != me {
                        of_lane.push(None);
                        continue;
                    }
                    let mut ops = Vec::new();
                    for op in node.stages.iter().flat_map(|&s| &program.stages[s].ops) {
                        let op = op.try_map(|v, _| slots.views[lane].get(&(me, *v)).copied().ok_or(()));
                        ops.push(op.expect("the wiring gave memory to every value that a node uses"));
                    }
                    let segment = device
                        .prepare(&ops, slots.bands[lane][a], layout)
                        .map_err(|source| RuntimeError::Device { actor: placement.names[a].clone(), source })?;
                    of_lane.push(Some(segment));
                }
                segments.push(of_lane);
            }
            let actor = DeviceActor {
                me,
                device,
                wiring: wiring.clone(),
                segments,
                timelines: timelines.clone(),
                peers: actors.clone(),
                heads: heads.clone(),
                wait,
                busy_us: busy_us[a].clone(),
                tap: tap.as_ref().map(|t| NodeTap::new(t, &wiring, &program, &slots.host)),
            };
            spawn(placement.names[a].clone(), Box::new(move || actor.run(&mailbox)))?;
        }
        let logits_id = program.lane("logits").expect("every program has logits");
        let logits = slots.host.iter().map(|lane| lane[&logits_id].clone()).collect();
        let plane = Plane {
            config: model.config.clone(),
            actors,
            reader,
            band_memory: slots.band_memory,
            logits,
            timelines,
            layout,
            classes: program.classes.clone(),
            threads,
            spin: wait.spin,
        };
        Ok((plane, ends))
    }

    /// Starts a band in its lane, which must be free. `history` holds, per span, the tokens before its first row (at
    /// least the last three).
    ///
    /// # Errors
    /// [`RuntimeError::System`] when an actor has stopped.
    pub fn announce(&self, spec: BandSpec, history: Vec<EngramHistory>) -> Result<(), RuntimeError> {
        let launch = self.describe(&spec);
        let band = Announced { spec: Arc::new(spec), launch, history: Arc::new(history) };
        let gone = |_| RuntimeError::System("an actor has stopped".into());
        for actor in &self.actors {
            actor.send(Message::Announce(band.clone())).map_err(gone)?;
        }
        if let Some(reader) = &self.reader {
            reader.send(band).map_err(|_| RuntimeError::System("the reader has stopped".into()))?;
        }
        Ok(())
    }

    /// Writes the band description and counts it.
    fn describe(&self, spec: &BandSpec) -> Launch {
        let memory = &self.band_memory[spec.lane.index()];
        let mut launch = Launch::default();
        let word = |at: usize, i: u32, value: u32| exchange::write(memory, at + i as usize * 4, &value.to_le_bytes());
        for span in &spec.spans {
            let (first_row, n) = (launch.rows, span.tokens.len() as u32);
            for (i, token) in (0u32..).zip(&span.tokens) {
                let row = first_row + i;
                let facts = RowFacts {
                    token: token.0,
                    position: span.first.0 + i,
                    slot: u32::from(span.slot.0),
                    first_row,
                    first_position: span.first.0,
                    end_row: first_row + n,
                    reserved: [0; 2],
                };
                let at = self.layout.rows_at() + row as usize * size_of::<RowFacts>();
                exchange::write(memory, at, bytemuck::bytes_of(&facts));
                for (class, ratio) in self.classes.iter().enumerate() {
                    if (facts.position + 1).is_multiple_of(*ratio) {
                        word(self.layout.groups_at(class as u8), launch.groups[class], row);
                        launch.groups[class] += 1;
                    }
                }
                if i + span.picks >= n {
                    word(self.layout.picks_at(), launch.picks, row);
                    launch.picks += 1;
                }
            }
            launch.rows += n;
        }
        launch
    }

    /// Logits of a band that has ended, [picks, vocabulary]. Waits for the fence, at most 60 s.
    ///
    /// # Errors
    /// The reason why the band failed.
    pub fn logits(&self, end: &BandEnd, out: &mut Vec<f32>) -> Result<(), String> {
        if let Some(why) = &end.failure {
            return Err(why.clone());
        }
        let Fence::Reached { timeline, value } = end.fence else { return Err("the band failed".into()) };
        let timeline = &self.timelines[timeline.index()];
        match timeline.wait(value, self.spin, Duration::from_secs(60)) {
            Wait::Reached => {}
            Wait::Failed => return Err(timeline.failure().unwrap_or("the device failed").to_owned()),
            Wait::TimedOut => return Err("a band did not end within 60 s".into()),
        }
        out.resize(end.spec.picks() as usize * self.config.vocab as usize, 0.0);
        exchange::read(&self.logits[end.spec.lane.index()], 0, bytemuck::cast_slice_mut(out));
        Ok(())
    }

    /// Ends every thread.
    pub fn stop(mut self) {
        for actor in &self.actors {
            let _ = actor.send(Message::Stop);
        }
        self.reader = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
