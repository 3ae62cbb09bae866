//! Logits, chunking and placement of the tiny models against the golden references, through the real wiring, actors and
//! CPU devices (tests/fixtures/models/README.md has the tolerances).
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use luce_core::{
    ActorId, BandId, BandKind, BandSpec, LaneId, Precision, Reduce, RowSpan, SequenceId, SlotId, TokenId, TokenPos,
};
use luce_device::Device;
use luce_device_cpu::{CpuConfig, CpuDevice};
use luce_model::{EngramHistory, ProgramOptions};
use luce_runtime::{Model, Placement, Plane, WaitPolicy};
use safetensors::SafeTensors;

const MODELS: [&str; 5] = ["tiny-v4", "tiny-v41", "tiny-v4-q", "tiny-v41-q", "tiny-v4-k"];

fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models")
}

struct Rig {
    plane: Plane,
    ends: flume::Receiver<luce_runtime::BandEnd>,
    vocab: usize,
    next: std::cell::Cell<u64>,
}

impl Rig {
    fn new(model: &str, devices: usize, precision: Precision, qat: bool) -> Rig {
        let model = Model::open(&folder().join(format!("{model}.gguf"))).unwrap();
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
            precision,
            reduce: Reduce::Exact,
            qat,
            owners: placement.experts.len() as u8,
            max_rows: 300,
            max_picks: 300,
            slots: 2,
            context: 512,
        };
        let wait = WaitPolicy { spin: Duration::from_micros(50) };
        let (plane, ends) = Plane::start(&model, &placement, made, options, 2, wait, &mut |_| ()).unwrap();
        Rig { plane, ends, vocab: model.config.vocab as usize, next: std::cell::Cell::new(0) }
    }

    /// Logits of every position, [T, vocabulary], with the tokens given in chunks.
    fn logits(&self, tokens: &[u32], chunk: usize) -> Vec<f32> {
        let mut all = Vec::new();
        for first in (0..tokens.len()).step_by(chunk) {
            let part = &tokens[first..tokens.len().min(first + chunk)];
            all.extend(self.band(tokens, first, part));
        }
        all
    }

    fn band(&self, tokens: &[u32], first: usize, part: &[u32]) -> Vec<f32> {
        let id = self.next.replace(self.next.get() + 1);
        let span = RowSpan {
            sequence: SequenceId(0),
            slot: SlotId(0),
            first: TokenPos(first as u32),
            tokens: part.iter().map(|&t| TokenId(t)).collect(),
            picks: part.len() as u32,
        };
        let spec =
            BandSpec { id: BandId(id), lane: LaneId((id % 2) as u16), kind: BandKind::Prefill, spans: vec![span] };
        self.plane.announce(spec, vec![EngramHistory::of(&tokens[..first])]).unwrap();
        let end = self.ends.recv_timeout(Duration::from_secs(60)).unwrap();
        let mut out = Vec::new();
        self.plane.logits(&end, &mut out).unwrap();
        out
    }
}

fn values<T, const N: usize>(golden: &SafeTensors, name: &str, of: fn([u8; N]) -> T) -> Vec<T> {
    golden.tensor(name).unwrap().data().chunks_exact(N).map(|b| of(b.try_into().unwrap())).collect()
}

struct Case {
    name: String,
    tokens: Vec<u32>,
    positions: Vec<usize>,
    logits: Vec<f32>,
}

fn cases(bytes: &[u8], mode: &str) -> Vec<Case> {
    let golden = SafeTensors::deserialize(bytes).unwrap();
    let mut names: Vec<String> = golden
        .names()
        .into_iter()
        .filter(|n| n.starts_with(mode))
        .filter_map(|n| n.strip_suffix(".logits").filter(|n| !n.contains("draft")).map(str::to_owned))
        .filter(|n| golden.tensor(&format!("{n}.positions")).is_ok())
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| Case {
            tokens: values(&golden, &format!("{name}.tokens"), |b| i32::from_le_bytes(b) as u32),
            positions: values(&golden, &format!("{name}.positions"), |b| i32::from_le_bytes(b) as usize),
            logits: values(&golden, &format!("{name}.logits"), f32::from_le_bytes),
            name,
        })
        .collect()
}

/// Largest difference at each stored position, and whether the argmax agrees.
fn compare(case: &Case, got: &[f32], vocab: usize) -> Vec<(f32, bool)> {
    let best = |row: &[f32]| (0..vocab).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a))).unwrap();
    case.positions
        .iter()
        .zip(case.logits.chunks_exact(vocab))
        .map(|(&p, want)| {
            let got = &got[p * vocab..(p + 1) * vocab];
            let d = got.iter().zip(want).map(|(a, b)| if a.is_nan() { f32::MAX } else { (a - b).abs() });
            (d.fold(0.0, f32::max), best(got) == best(want))
        })
        .collect()
}

fn golden(model: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{model}.golden.safetensors"))).unwrap()
}

#[test]
fn f32_logits_are_within_1e_4_of_the_reference_in_every_chunking_and_on_two_devices() {
    println!("model mode statistic bound");
    for model in MODELS {
        let bytes = golden(model);
        let mut bits: Vec<Vec<f32>> = Vec::new();
        for devices in [1, 2, 3] {
            let rig = Rig::new(model, devices, Precision::F32, false);
            for (i, case) in cases(&bytes, "exact.").iter().enumerate() {
                let whole = rig.logits(&case.tokens, usize::MAX >> 1);
                let worst = compare(case, &whole, rig.vocab).iter().fold(0.0, |m: f32, d| m.max(d.0));
                println!("{model} {} devices={devices} max={worst:.1e} 1e-4", case.name);
                assert!(worst <= 1e-4, "{model} {}: {worst}", case.name);
                for chunk in [5, 1] {
                    assert!(rig.logits(&case.tokens, chunk) == whole, "{model} {} in chunks of {chunk}", case.name);
                }
                if devices == 1 {
                    bits.push(whole);
                } else {
                    assert!(bits[i] == whole, "{model} {} on {devices} devices", case.name);
                }
            }
            rig.plane.stop();
        }
        assert!(!bits.is_empty(), "{model} has cases");
    }
}

#[test]
fn qat_logits_follow_the_reference_at_nearly_every_position() {
    for model in ["tiny-v4", "tiny-v4-q", "tiny-v41-q", "tiny-v4-k"] {
        let bytes = golden(model);
        let rig = Rig::new(model, 1, Precision::F32, true);
        let mut pool = Vec::new();
        for case in cases(&bytes, "qat.") {
            pool.extend(compare(&case, &rig.logits(&case.tokens, 64), rig.vocab));
        }
        rig.plane.stop();
        let good = pool.iter().filter(|d| d.0 <= 1e-2).count();
        println!("{model} qat within 1e-2: {good} of {} (bound: 18 of 20)", pool.len());
        assert!(pool.len() >= 20 && good * 20 >= pool.len() * 18, "{model}: {good} of {}", pool.len());
    }
}

#[test]
fn int8_logits_keep_the_median_and_the_argmax_of_the_reference() {
    for model in ["tiny-v41", "tiny-v4-q", "tiny-v41-q", "tiny-v4-k"] {
        let bytes = golden(model);
        let rig = Rig::new(model, 1, Precision::Partner, false);
        let mut pool = Vec::new();
        for case in cases(&bytes, "exact.") {
            pool.extend(compare(&case, &rig.logits(&case.tokens, 64), rig.vocab));
        }
        rig.plane.stop();
        let mut d: Vec<f32> = pool.iter().map(|p| p.0).collect();
        d.sort_by(f32::total_cmp);
        let (median, same) = (d[d.len() / 2], pool.iter().filter(|p| p.1).count());
        let bound = if model == "tiny-v4-k" { 0.5 } else { 0.2 };
        println!("{model} int8 median={median:.3} ({bound}) argmax {same}/{} (80%)", d.len());
        assert!(median <= bound && same * 10 >= d.len() * 8, "{model}: median {median}, {same} of {}", d.len());
    }
}
