//! Gives every value of the program memory: weights and state on the actor that uses them, lane values once per lane, in
//! shared memory where two actors or the host meet; and loads the weights. [`Footprint`] says beforehand how much that is.

use std::collections::BTreeMap;

use luce_core::{ActorId, Bytes, DType, HostBuffer};
use luce_device::{BandLayout, BufferId, Device, DeviceError, Memory, QueueId, Span, View, Wait};
use luce_model::{ModelConfig, Program, Value, ValueId, ValueKind, WeightMap};
use luce_storage::Gguf;

use crate::{RuntimeError, Wiring, exchange};

/// Views of all values, per lane and actor, and the buffers that the host reaches.
pub(crate) struct Slots {
    /// [lane][(actor, value)]
    pub(crate) views: Vec<BTreeMap<(ActorId, ValueId), View>>,
    /// [lane][actor]: the band description.
    pub(crate) bands: Vec<Vec<BufferId>>,
    /// [lane]: the same memory as the host sees it.
    pub(crate) band_memory: Vec<HostBuffer>,
    /// [lane][value]: shared lane values as the host sees them.
    pub(crate) host: Vec<BTreeMap<ValueId, HostBuffer>>,
}

/// Bytes that one actor allocates; a device's scratch comes on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Weights and constants.
    pub weights: Bytes,
    /// State of all sequences; grows with the context.
    pub caches: Bytes,
    /// Activations and band descriptions of all lanes; grow with the rows of a band.
    pub lanes: Bytes,
}

impl Footprint {
    /// What each actor of the wiring's placement needs for `lanes` lanes. Nothing is allocated.
    pub fn of(
        wiring: &Wiring,
        program: &Program,
        config: &ModelConfig,
        lanes: usize,
        layout: BandLayout,
    ) -> Vec<Footprint> {
        let mut all = vec![Footprint::default(); wiring.placement.names.len()];
        let add = |sum: &mut Bytes, bytes: u64| sum.0 = sum.0.saturating_add(bytes);
        let every_lane = |bytes: u64| bytes.saturating_mul(lanes as u64);
        add(&mut all[wiring.placement.dense.index()].lanes, every_lane(layout.bytes() as u64));
        for (value, users) in program.values.iter().zip(&wiring.users) {
            if is_lane(&value.kind) {
                add(&mut all[users[0].index()].lanes, every_lane(size(wiring, config, value, users[0])));
                continue;
            }
            for &actor in users {
                let of = &mut all[actor.index()];
                let sum = if matches!(value.kind, ValueKind::State(_)) { &mut of.caches } else { &mut of.weights };
                add(sum, size(wiring, config, value, actor));
            }
        }
        all
    }

    /// The sum; `u64::MAX` where it is more than 64 bits count, as in each part.
    pub fn total(&self) -> Bytes {
        Bytes(self.weights.0.saturating_add(self.caches.0).saturating_add(self.lanes.0))
    }
}

impl std::fmt::Display for Footprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "weights {}, caches {}, lanes {}", self.weights, self.caches, self.lanes)
    }
}

fn is_lane(kind: &ValueKind) -> bool {
    matches!(kind, ValueKind::Lane(_) | ValueKind::EngramRows(_))
}

/// The view of a value that fills a buffer of an actor.
fn view(wiring: &Wiring, config: &ModelConfig, value: &Value, actor: ActorId, buffer: BufferId) -> View {
    let planes = local_planes(wiring, config, actor, &value.kind).unwrap_or(value.planes);
    View { buffer, offset: 0, dtype: value.dtype, width: value.width, rows: value.rows, planes }
}

/// Bytes of a value on an actor: whole cache lines.
fn size(wiring: &Wiring, config: &ModelConfig, value: &Value, actor: ActorId) -> u64 {
    let view = view(wiring, config, value, actor, BufferId(0));
    let bytes = u128::from(view.row_bytes()) * u128::from(view.rows) * u128::from(view.planes);
    u64::try_from(bytes.next_multiple_of(64).max(64)).unwrap_or(u64::MAX)
}

/// Allocates everything for `lanes` lanes, after checking that it fits. The host sees Engram rows, logits and the lane
/// values named in `seen`.
pub(crate) fn allocate(
    devices: &mut [Box<dyn Device>],
    wiring: &Wiring,
    program: &Program,
    config: &ModelConfig,
    lanes: usize,
    layout: BandLayout,
    seen: &[String],
) -> Result<Slots, RuntimeError> {
    let fail = |actor: ActorId, source: DeviceError| RuntimeError::Device {
        actor: wiring.placement.names[actor.index()].clone(),
        source,
    };
    for ((need, device), name) in
        Footprint::of(wiring, program, config, lanes, layout).into_iter().zip(&*devices).zip(&wiring.placement.names)
    {
        let free = Bytes(device.memory_free());
        if need.total() > free {
            return Err(RuntimeError::Memory { actor: name.clone(), need, free });
        }
    }
    let mut slots = Slots {
        views: vec![BTreeMap::new(); lanes],
        bands: Vec::new(),
        band_memory: Vec::new(),
        host: vec![BTreeMap::new(); lanes],
    };
    let dense = wiring.placement.dense;
    for _ in 0..lanes {
        let own = devices[dense.index()].alloc(layout.bytes() as u64, Memory::Shared).map_err(|e| fail(dense, e))?;
        let memory = devices[dense.index()].export(own).map_err(|e| fail(dense, e))?;
        let mut row = Vec::new();
        for (a, device) in devices.iter_mut().enumerate() {
            let actor = ActorId(a as u16);
            row.push(if actor == dense { own } else { device.import(&memory).map_err(|e| fail(actor, e))? });
        }
        slots.bands.push(row);
        slots.band_memory.push(memory);
    }
    for (i, value) in program.values.iter().enumerate() {
        let id = ValueId(i as u32);
        let users = &wiring.users[i];
        let view = |actor, buffer| view(wiring, config, value, actor, buffer);
        let size = |actor| size(wiring, config, value, actor);
        let host_sees = match &value.kind {
            ValueKind::EngramRows(_) => true,
            ValueKind::Lane(name) => name == "logits" || seen.contains(name),
            _ => false,
        };
        if is_lane(&value.kind) {
            for lane in 0..lanes {
                let shared = users.len() > 1 || host_sees;
                let kind = if shared { Memory::Shared } else { Memory::Device };
                let first = users[0];
                let buffer = devices[first.index()].alloc(size(first), kind).map_err(|e| fail(first, e))?;
                slots.views[lane].insert((first, id), view(first, buffer));
                if shared {
                    let memory = devices[first.index()].export(buffer).map_err(|e| fail(first, e))?;
                    for &actor in &users[1..] {
                        let buffer = devices[actor.index()].import(&memory).map_err(|e| fail(actor, e))?;
                        slots.views[lane].insert((actor, id), view(actor, buffer));
                    }
                    slots.host[lane].insert(id, memory);
                }
            }
        } else {
            for &actor in users {
                let buffer = devices[actor.index()].alloc(size(actor), Memory::Device).map_err(|e| fail(actor, e))?;
                for lane in &mut slots.views {
                    lane.insert((actor, id), view(actor, buffer));
                }
            }
        }
    }
    Ok(slots)
}

fn is_expert(kind: &ValueKind) -> bool {
    use luce_model::Role::{ExpertDown, ExpertGate, ExpertUp};
    matches!(kind, ValueKind::Weight(ExpertGate(_) | ExpertUp(_) | ExpertDown(_)))
}

fn owned(wiring: &Wiring, config: &ModelConfig, actor: ActorId) -> Option<std::ops::Range<u32>> {
    let owners = &wiring.placement.experts;
    let owner = owners.iter().position(|&a| a == actor)?;
    Some(Program::owned_experts(config, owner as u8, owners.len() as u8))
}

/// Experts in the stacks of an actor.
fn local_planes(wiring: &Wiring, config: &ModelConfig, actor: ActorId, kind: &ValueKind) -> Option<u32> {
    if is_expert(kind) { owned(wiring, config, actor).map(|r| r.len() as u32) } else { None }
}

/// Loads weights and constants; calls `progress` with the share done.
pub(crate) fn load(
    devices: &mut [Box<dyn Device>],
    wiring: &Wiring,
    program: &Program,
    config: &ModelConfig,
    weights: &WeightMap,
    gguf: &Gguf,
    slots: &Slots,
    progress: &mut dyn FnMut(f32),
) -> Result<(), RuntimeError> {
    const CHUNK: usize = 4 << 20;
    let staging = HostBuffer::new(CHUNK).ok_or_else(|| RuntimeError::System("no memory for staging".into()))?;
    let mut bytes = vec![0u8; CHUNK];
    let loaded = program.values.iter().filter_map(|value| match value.kind {
        ValueKind::Weight(role) => weights.get(role),
        _ => None,
    });
    let all: u64 = loaded.map(|tensor| tensor.bytes).sum();
    let mut done = 0u64;
    let put = |devices: &mut [Box<dyn Device>], actor: ActorId, view: &View, at: u64, data: &[u8]| {
        let device = &mut devices[actor.index()];
        exchange::write(&staging, 0, data);
        let dst = Span { buffer: view.buffer, offset: view.offset + at, bytes: data.len() as u64 };
        let name = wiring.placement.names[actor.index()].clone();
        let value = device
            .copy_in(QueueId(0), &staging, 0, dst)
            .map_err(|source| RuntimeError::Device { actor: name.clone(), source })?;
        let timeline = device.timeline(QueueId(0));
        match timeline.wait(value, std::time::Duration::from_micros(50), std::time::Duration::from_secs(60)) {
            Wait::Reached => Ok(()),
            _ => Err(RuntimeError::System(format!("actor {name}: a weight did not arrive within 60 s"))),
        }
    };
    for (i, value) in program.values.iter().enumerate() {
        let id = ValueId(i as u32);
        for &actor in &wiring.users[i] {
            let Some(view) = slots.views[0].get(&(actor, id)).copied() else { continue };
            match &value.kind {
                ValueKind::Frequencies(compressed) => {
                    let data: Vec<u8> = config.rope_freqs(*compressed).iter().flat_map(|f| f.to_le_bytes()).collect();
                    put(devices, actor, &view, 0, &data)?;
                }
                ValueKind::Owned(_) => {
                    let own = owned(wiring, config, actor).unwrap_or(0..0);
                    let data: Vec<u8> = (0..config.experts)
                        .map(|e| if own.contains(&e) { (e - own.start) as i32 } else { -1 })
                        .flat_map(i32::to_le_bytes)
                        .collect();
                    put(devices, actor, &view, 0, &data)?;
                }
                ValueKind::Weight(role) => {
                    let tensor = weights.get(*role).expect("the program was built from this map");
                    let (mut from, mut len) = (0, tensor.bytes);
                    if is_expert(&value.kind) {
                        let own = owned(wiring, config, actor).unwrap_or(0..0);
                        let stride = tensor.bytes / u64::from(config.experts);
                        (from, len) = (u64::from(own.start) * stride, own.len() as u64 * stride);
                    }
                    let widen = tensor.dtype != value.dtype;
                    let step = if widen { CHUNK / 4 } else { CHUNK } as u64;
                    let mut at = 0;
                    while at < len {
                        let n = step.min(len - at) as usize;
                        gguf.read_tensor(tensor, from + at, &mut bytes[..n])?;
                        if widen {
                            put(devices, actor, &view, at * 2, &to_f32(tensor.dtype, &bytes[..n]))?;
                        } else {
                            put(devices, actor, &view, at, &bytes[..n])?;
                        }
                        at += n as u64;
                        done += n as u64;
                        progress((done as f32 / all.max(1) as f32).min(1.0));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// F16 or BF16 values as f32 bytes; small vectors only ([`luce_model::Role::stored_as`]).
fn to_f32(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let pairs = bytes.chunks_exact(2).map(|p| [p[0], p[1]]);
    match dtype {
        DType::F16 => pairs.flat_map(|p| half::f16::from_le_bytes(p).to_f32().to_le_bytes()).collect(),
        DType::Bf16 => pairs.flat_map(|p| half::bf16::from_le_bytes(p).to_f32().to_le_bytes()).collect(),
        other => unreachable!("{other} is not a vector type; the weight map refuses it"),
    }
}
