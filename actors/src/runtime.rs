//! Builds the data plane of one box from a model file, devices and roles, and announces bands to it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flume::{Receiver, Sender};
use luce_core::{ActorId, BandSpec, Fence, HostBuffer, LaneId, NodeId};
use luce_device::{BandLayout, Device, Launch, QueueId, RowFacts, Timeline, Wait};
use luce_model::{EngramHasher, EngramHistory, ModelConfig, Program, ProgramOptions, ValueKind, WeightMap};
use luce_storage::Gguf;

use crate::plane::actor::DeviceActor;
use crate::plane::reader::{Reader, ReaderMessage};
use crate::plane::tap::{NodeTap, Tap};
use crate::plane::{Announced, BandEnd, Message, WaitPolicy};
use crate::worker::{Counters, Starter, Worker};
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
    actors: Vec<Sender<Message>>,
    reader: Option<Sender<ReaderMessage>>,
    band_memory: Vec<HostBuffer>,
    logits: LogitsReader,
    layout: BandLayout,
    classes: Vec<u32>,
    workers: Vec<Worker>,
}

/// Why a band has no logits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BandFailure {
    /// Only this band: rows that it needed could not be read, say. The next one may work.
    Band(String),
    /// A device has failed; every later band will too.
    Device(String),
}

impl BandFailure {
    /// What happened.
    pub fn why(&self) -> &str {
        match self {
            BandFailure::Band(why) | BandFailure::Device(why) => why,
        }
    }
}

/// Access to the logits of bands that have ended.
#[derive(Clone)]
pub(crate) struct LogitsReader {
    config: Arc<ModelConfig>,
    /// Per lane, [picks, vocabulary].
    buffers: Vec<HostBuffer>,
    timelines: Arc<Vec<Arc<Timeline>>>,
    spin: Duration,
}

/// How long a band may take from its last submission to its logits: hours of prompt are many bands, so this is a device
/// that hangs.
const BAND_DEADLINE: Duration = Duration::from_secs(60);

impl LogitsReader {
    /// Waits until the logits are there, at most a minute.
    ///
    /// # Errors
    /// Why they will not be.
    pub(crate) fn wait(&self, end: &BandEnd) -> Result<(), BandFailure> {
        let failed = self.timelines.iter().find_map(|t| t.failure().map(str::to_owned));
        if let Some(why) = failed {
            return Err(BandFailure::Device(why));
        }
        if let Some(why) = &end.failure {
            return Err(BandFailure::Band(why.clone()));
        }
        let Fence::Reached { timeline, value } = end.fence else {
            return Err(BandFailure::Band("an earlier stage of the band failed".into()));
        };
        let timeline = &self.timelines[timeline.index()];
        match timeline.wait(value, self.spin, BAND_DEADLINE) {
            Wait::Reached => Ok(()),
            Wait::Failed => Err(BandFailure::Device(timeline.failure().unwrap_or("the device failed").to_owned())),
            Wait::TimedOut => {
                Err(BandFailure::Device(format!("a band did not end within {} s", BAND_DEADLINE.as_secs())))
            }
        }
    }

    /// Logits of one pick, [vocabulary], after [`LogitsReader::wait`] and while no other band has the lane.
    pub(crate) fn row(&self, lane: LaneId, pick: usize, out: &mut Vec<f32>) {
        let vocabulary = self.config.vocab as usize;
        out.resize(vocabulary, 0.0);
        let at = pick * vocabulary * size_of::<f32>();
        exchange::read(&self.buffers[lane.index()], at, bytemuck::cast_slice_mut(out));
    }
}

/// A data plane whose threads have not been started.
pub(crate) struct Built {
    pub(crate) plane: Plane,
    pub(crate) ends: Receiver<BandEnd>,
    /// In the order of the configuration, then the reader of Engram rows, if there is one.
    pub(crate) starters: Vec<Starter>,
}

impl Plane {
    /// Allocates, loads and starts everything. The returned receiver gets the end of each band.
    ///
    /// # Errors
    /// What does not fit or cannot be read.
    pub fn start(
        model: &Model,
        placement: &Placement,
        devices: Vec<Box<dyn Device>>,
        options: ProgramOptions,
        plane: PlaneOptions,
        progress: &mut dyn FnMut(f32),
    ) -> Result<(Plane, Receiver<BandEnd>), RuntimeError> {
        let Built { mut plane, ends, starters } = Plane::build(model, placement, devices, options, plane, progress)?;
        for starter in starters {
            let name = starter.name.clone();
            let ended = move |panic: Option<String>| {
                if let Some(why) = panic {
                    tracing::error!(thread = name, why, "a thread of the data plane has ended");
                }
            };
            plane.workers.push(Worker::start(starter, ended).map_err(RuntimeError::System)?);
        }
        Ok((plane, ends))
    }

    /// Allocates and loads everything; its threads are still to be started.
    ///
    /// # Errors
    /// What does not fit or cannot be read.
    pub(crate) fn build(
        model: &Model,
        placement: &Placement,
        mut devices: Vec<Box<dyn Device>>,
        options: ProgramOptions,
        plane: PlaneOptions,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Built, RuntimeError> {
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
        let capacity = (wiring.nodes.len() + 2) * lanes + 1;
        let (actors, mailboxes): (Vec<_>, Vec<_>) = devices.iter().map(|_| flume::bounded::<Message>(capacity)).unzip();
        let (reader, reader_starter) = match &model.config.engram {
            None => (None, None),
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
                let (sender, mailbox) = flume::bounded(lanes + 1);
                let counters = Counters::of(&sender);
                let (run, name) = (Box::new(move || reader.run(&mailbox)), "reader".into());
                // A bound above the lanes leaves room for this even when all lanes wait.
                let stop = sender.clone();
                let stop = Box::new(move || drop(stop.try_send(ReaderMessage::Stop)));
                (Some(sender), Some(Starter { name, run, stop, counters }))
            }
        };
        let mut starters = Vec::new();
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
            let counters = Counters::of(&actors[a]);
            let actor = DeviceActor {
                me,
                device,
                wiring: wiring.clone(),
                segments,
                timelines: timelines.clone(),
                peers: actors.clone(),
                heads: heads.clone(),
                wait,
                busy_us: counters.busy_us.clone(),
                tap: tap.as_ref().map(|t| NodeTap::new(t, &wiring, &program, &slots.host)),
            };
            let (run, name) = (Box::new(move || actor.run(&mailbox)), placement.names[a].clone());
            let stop = actors[a].clone();
            // The mailbox has room for a stop beside everything that the lanes can send.
            let stop = Box::new(move || drop(stop.try_send(Message::Stop)));
            starters.push(Starter { name, run, stop, counters });
        }
        let logits_id = program.lane("logits").expect("every program has logits");
        let logits = slots.host.iter().map(|lane| lane[&logits_id].clone()).collect();
        starters.extend(reader_starter);
        let config = model.config.clone();
        let plane = Plane {
            actors,
            reader,
            band_memory: slots.band_memory,
            logits: LogitsReader { config, buffers: logits, timelines, spin: wait.spin },
            layout,
            classes: program.classes.clone(),
            workers: Vec::new(),
        };
        Ok(Built { plane, ends, starters })
    }

    /// For the sampler.
    pub(crate) fn logits_reader(&self) -> LogitsReader {
        self.logits.clone()
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
            reader
                .send(ReaderMessage::Band(band))
                .map_err(|_| RuntimeError::System("the reader has stopped".into()))?;
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

    /// Logits of a band that has ended, [picks, vocabulary]. Waits for the fence, at most a minute.
    ///
    /// # Errors
    /// The reason why the band failed.
    pub fn logits(&self, end: &BandEnd, out: &mut Vec<f32>) -> Result<(), BandFailure> {
        self.logits.wait(end)?;
        out.resize(end.spec.picks() as usize * self.logits.config.vocab as usize, 0.0);
        exchange::read(&self.logits.buffers[end.spec.lane.index()], 0, bytemuck::cast_slice_mut(out));
        Ok(())
    }

    /// Ends every thread. One that does not end within ten seconds is left behind and named in the log.
    pub fn stop(mut self) {
        for worker in self.workers.drain(..) {
            if let Err(why) = worker.join(Duration::from_secs(10)) {
                tracing::error!(why);
            }
        }
    }
}
