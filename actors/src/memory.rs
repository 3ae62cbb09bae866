//! Gives every value of the program memory: weights and state on the actor that uses them, lane values once per lane, in
//! shared memory where two actors or the host meet; and loads the weights.

use std::collections::BTreeMap;

use luce_core::{ActorId, DType, HostBuffer};
use luce_device::{BandLayout, BufferId, Device, DeviceError, Memory, QueueId, Span, View, Wait};
use luce_model::{ModelConfig, Program, ValueId, ValueKind, WeightMap};
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

fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(64).max(64)
}

/// Allocates everything for `lanes` lanes. The host sees Engram rows, logits and the lane values named in `seen`.
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
        let view = |buffer, planes| View {
            buffer,
            offset: 0,
            dtype: value.dtype,
            width: value.width,
            rows: value.rows,
            planes,
        };
        let host_sees = match &value.kind {
            ValueKind::EngramRows(_) => true,
            ValueKind::Lane(name) => name == "logits" || seen.contains(name),
            _ => false,
        };
        match value.kind {
            ValueKind::Lane(_) | ValueKind::EngramRows(_) => {
                for lane in 0..lanes {
                    let shared = users.len() > 1 || host_sees;
                    let kind = if shared { Memory::Shared } else { Memory::Device };
                    let first = users[0];
                    let bytes = aligned(view(BufferId(0), value.planes).bytes());
                    let buffer = devices[first.index()].alloc(bytes, kind).map_err(|e| fail(first, e))?;
                    slots.views[lane].insert((first, id), view(buffer, value.planes));
                    if shared {
                        let memory = devices[first.index()].export(buffer).map_err(|e| fail(first, e))?;
                        for &actor in &users[1..] {
                            let buffer = devices[actor.index()].import(&memory).map_err(|e| fail(actor, e))?;
                            slots.views[lane].insert((actor, id), view(buffer, value.planes));
                        }
                        slots.host[lane].insert(id, memory);
                    }
                }
            }
            _ => {
                for &actor in users {
                    let planes = local_planes(wiring, config, actor, &value.kind).unwrap_or(value.planes);
                    let bytes = aligned(view(BufferId(0), planes).bytes());
                    let buffer = devices[actor.index()].alloc(bytes, Memory::Device).map_err(|e| fail(actor, e))?;
                    for lane in &mut slots.views {
                        lane.insert((actor, id), view(buffer, planes));
                    }
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
    let all: u64 = weights.iter().map(|(_, t)| t.bytes).sum();
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
