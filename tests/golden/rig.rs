//! A model on CPU devices behind the real wiring and actors, fed band by band.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use luce_core::{
    ActorId, BandId, BandKind, BandSpec, LaneId, Precision, Reduce, RowSpan, SequenceId, SlotId, TokenId, TokenPos,
};
use luce_device::Device;
use luce_device_cpu::{CpuConfig, CpuDevice};
use luce_model::{EngramHistory, ModelConfig, ProgramOptions, StageKind};
use luce_runtime::{BandEnd, Model, Placement, Plane, PlaneOptions, Tap, Tapped, WaitPolicy};

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models")
}

/// Values read after every stage.
const TAPPED: [&str; 6] = ["streams", "hidden", "ffn.ids", "ffn.weights", "selected", "candidates"];

pub(crate) struct Rig {
    plane: Plane,
    ends: flume::Receiver<BandEnd>,
    taps: flume::Receiver<Tapped>,
    pub(crate) config: ModelConfig,
    next: Cell<u64>,
}

/// How to run a model.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) devices: usize,
    pub(crate) precision: Precision,
    pub(crate) qat: bool,
    pub(crate) tap: bool,
}

impl Setup {
    pub(crate) fn f32() -> Setup {
        Setup { devices: 1, precision: Precision::F32, qat: false, tap: false }
    }
}

/// What a stage wrote, for all rows that were fed: f32 or i32 by the value.
#[derive(Default)]
pub(crate) struct Values(BTreeMap<(String, u16, StageKind), (u32, Vec<u8>)>);

impl Values {
    fn add(&mut self, t: Tapped) {
        let entry = self.0.entry((t.value, t.layer, t.stage)).or_default();
        entry.0 = t.width;
        entry.1.extend(t.bytes);
    }

    /// Row width and values of `name` as `stage` of `layer` left it.
    pub(crate) fn get<T>(&self, name: &str, layer: u16, stage: StageKind, of: fn([u8; 4]) -> T) -> (usize, Vec<T>) {
        let (width, bytes) = &self.0[&(name.to_owned(), layer, stage)];
        (*width as usize, bytes.chunks_exact(4).map(|b| of(b.try_into().unwrap())).collect())
    }
}

impl Rig {
    pub(crate) fn new(model: &str, setup: Setup) -> Rig {
        let model = Model::open(&folder().join(format!("{model}.gguf"))).unwrap();
        let devices = setup.devices;
        let names = (0..devices).map(|i| format!("cpu{i}")).collect();
        let experts = if devices == 1 { vec![ActorId(0)] } else { (1..devices as u16).map(ActorId).collect() };
        let placement = Placement { names, dense: ActorId(0), experts };
        let made = (0..devices)
            .map(|_| {
                let config = CpuConfig { threads: 1, ..CpuConfig::default() };
                Box::new(CpuDevice::new(&config).unwrap()) as Box<dyn Device>
            })
            .collect();
        let options = ProgramOptions {
            precision: setup.precision,
            reduce: Reduce::Exact,
            qat: setup.qat,
            owners: placement.experts.len() as u8,
            max_rows: 300,
            max_picks: 300,
            slots: 2,
            context: 512,
        };
        // A run's values wait here until the run is over.
        let (records, taps) = flume::bounded(1 << 16);
        let tap = setup.tap.then(|| Tap { values: TAPPED.map(str::to_owned).into(), records });
        let wait = WaitPolicy { spin: Duration::from_micros(50) };
        let plane = PlaneOptions { lanes: 2, wait, tap };
        let (plane, ends) = Plane::start(&model, &placement, made, options, plane, &mut |_| ()).unwrap();
        Rig { plane, ends, taps, config: (*model.config).clone(), next: Cell::new(0) }
    }

    pub(crate) fn vocab(&self) -> usize {
        self.config.vocab as usize
    }

    /// Logits of every position, [T, vocabulary], with the tokens given in chunks.
    pub(crate) fn logits(&self, tokens: &[u32], chunk: usize) -> Vec<f32> {
        let mut all = Vec::new();
        for first in (0..tokens.len()).step_by(chunk) {
            let part = &tokens[first..tokens.len().min(first + chunk)];
            all.extend(self.band(&tokens[..first], part, part.len()));
        }
        all
    }

    /// As [`Rig::logits`], with what every stage wrote.
    pub(crate) fn tapped(&self, tokens: &[u32], chunk: usize) -> (Vec<f32>, Values) {
        let logits = self.logits(tokens, chunk);
        let mut values = Values::default();
        self.taps.drain().for_each(|t| values.add(t));
        (logits, values)
    }

    /// Greedy continuation of a prompt, one row a band after it.
    pub(crate) fn greedy(&self, prompt: &[u32], n: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        let mut fed = 0;
        for _ in 0..n {
            let row = self.band(&tokens[..fed], &tokens[fed..], 1);
            fed = tokens.len();
            tokens.push(best(&row) as u32);
        }
        tokens.split_off(prompt.len())
    }

    fn band(&self, before: &[u32], part: &[u32], picks: usize) -> Vec<f32> {
        let id = self.next.replace(self.next.get() + 1);
        let span = RowSpan {
            sequence: SequenceId(0),
            slot: SlotId(0),
            first: TokenPos(before.len() as u32),
            tokens: part.iter().map(|&t| TokenId(t)).collect(),
            picks: picks as u32,
        };
        let spec =
            BandSpec { id: BandId(id), lane: LaneId((id % 2) as u16), kind: BandKind::Prefill, spans: vec![span] };
        self.plane.announce(spec, vec![EngramHistory::of(before)]).unwrap();
        let end = self.ends.recv_timeout(Duration::from_secs(60)).unwrap();
        let mut out = Vec::new();
        self.plane.logits(&end, &mut out).unwrap();
        out
    }

    pub(crate) fn stop(self) {
        self.plane.stop();
    }
}

/// Index of the largest logit, lowest index on ties.
pub(crate) fn best(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a))).unwrap()
}
