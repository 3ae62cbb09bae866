//! The data plane: one thread with a flume mailbox per device actor, and the reader of Engram rows.
//!
//! Message paths. The leader announces a band to every actor and to the reader. A node without inputs fires at once; every
//! other fires when the tokens of all its inputs are there. Firing submits the node's segment and at once sends tokens
//! with the fence along its edges. The token of the last node goes to the owner of `heads`. Nobody waits for results
//! here: queues wait on fences. A failed band fires empty in the same order, with `Fence::Failed`.

use std::sync::Arc;
use std::time::Duration;

use flume::{Receiver, Sender};
use luce_core::{
    ActorId, BandId, BandKind, BandSpec, Fence, Handles, LaneId, LayerId, NodeId, PortId, Tag, TimelineId, Token,
};
use luce_device::{Device, Launch, QueueId, SegmentId, Timeline};
use luce_model::{EngramHasher, EngramHistory, Role, WeightMap};
use luce_storage::Gguf;

use crate::{RuntimeError, Wiring, exchange};

/// A band with what the devices need to know of it.
#[derive(Clone, Debug)]
pub(crate) struct Announced {
    /// Composition.
    pub spec: Arc<BandSpec>,
    /// Counts for the devices.
    pub launch: Launch,
    /// History of each span before its first row, for the Engram hashes.
    pub history: Arc<Vec<EngramHistory>>,
}

/// Message to a device actor.
#[allow(clippy::large_enum_variant, reason = "a token travels by value so that sending allocates nothing")]
pub(crate) enum Message {
    Announce(Announced),
    Token(Token),
    Stop,
}

/// The end of a band: its logits are there, or it failed with this reason.
#[derive(Clone, Debug)]
pub struct BandEnd {
    /// The band.
    pub spec: Arc<BandSpec>,
    /// When its logits are complete.
    pub fence: Fence,
    /// Why it failed.
    pub failure: Option<String>,
}

/// How actors wait; see `schedule.wait`.
#[derive(Clone, Copy, Debug)]
pub struct WaitPolicy {
    /// How long a mailbox or fence is watched before the thread parks.
    pub spin: Duration,
}

impl WaitPolicy {
    /// Next message: spins while `busy`, then parks. `None` when every sender is gone.
    fn receive<T>(self, from: &Receiver<T>, busy: bool) -> Option<T> {
        if busy {
            let start = std::time::Instant::now();
            loop {
                match from.try_recv() {
                    Ok(message) => return Some(message),
                    Err(flume::TryRecvError::Disconnected) => return None,
                    Err(flume::TryRecvError::Empty) if start.elapsed() < self.spin => std::hint::spin_loop(),
                    Err(flume::TryRecvError::Empty) => break,
                }
            }
        }
        from.recv().ok()
    }
}

/// The band in a lane, as one actor sees it.
struct LaneState {
    band: Option<Announced>,
    arrived: Vec<u8>,
    waits: Vec<Vec<(TimelineId, u64)>>,
    fired: Vec<bool>,
    left: usize,
    failure: Option<String>,
}

/// One device and the nodes placed on it.
pub(crate) struct DeviceActor {
    pub(crate) me: ActorId,
    pub(crate) device: Box<dyn Device>,
    pub(crate) wiring: Arc<Wiring>,
    /// [lane][node]
    pub(crate) segments: Vec<Vec<Option<SegmentId>>>,
    pub(crate) timelines: Arc<Vec<Arc<Timeline>>>,
    pub(crate) peers: Vec<Sender<Message>>,
    pub(crate) heads: Sender<BandEnd>,
    pub(crate) wait: WaitPolicy,
}

impl DeviceActor {
    /// Runs until `Stop`, or until every sender of the mailbox is gone.
    pub(crate) fn run(mut self, mailbox: &Receiver<Message>) {
        let nodes = self.wiring.nodes.len();
        let own = self.wiring.nodes.iter().filter(|n| n.actor == self.me).count();
        let mut lanes: Vec<LaneState> = (0..self.segments.len())
            .map(|_| LaneState {
                band: None,
                arrived: vec![0; nodes],
                waits: vec![Vec::with_capacity(Handles::MAX); nodes],
                fired: vec![false; nodes],
                left: 0,
                failure: None,
            })
            .collect();
        loop {
            let busy = lanes.iter().any(|l| l.band.is_some());
            let Some(message) = self.wait.receive(mailbox, busy) else { return };
            let mut next = Some(message);
            while let Some(message) = next {
                if matches!(message, Message::Stop) {
                    return;
                }
                self.take(message, &mut lanes, own);
                next = mailbox.try_recv().ok();
            }
            while let Some((lane, node)) = self.next_ready(&lanes) {
                self.fire(lane, node, &mut lanes);
            }
        }
    }

    fn take(&self, message: Message, lanes: &mut [LaneState], own: usize) {
        match message {
            Message::Stop => {}
            Message::Announce(band) => {
                let lane = &mut lanes[band.spec.lane.index()];
                lane.fired.fill(false);
                lane.left = own;
                lane.band = Some(band);
            }
            Message::Token(token) => {
                let lane = &mut lanes[token.lane.index()];
                lane.arrived[token.node.index()] += 1;
                for handle in token.handles.iter() {
                    match handle.fence {
                        Fence::Ready => {}
                        Fence::Reached { timeline, value } => {
                            lane.waits[token.node.index()].push((timeline, value));
                        }
                        Fence::Failed => {
                            lane.failure.get_or_insert_with(|| "an earlier stage of the band failed".into());
                        }
                    }
                }
            }
        }
    }

    /// The ready node with the highest priority: decode before prefill, older band first, earlier node first.
    fn next_ready(&self, lanes: &[LaneState]) -> Option<(usize, usize)> {
        let mut best: Option<((BandKind, BandId, usize), usize)> = None;
        for (l, lane) in lanes.iter().enumerate() {
            let Some(band) = &lane.band else { continue };
            for (n, node) in self.wiring.nodes.iter().enumerate() {
                let wanted = node.inputs.len() + usize::from(node.engram.is_some());
                if node.actor != self.me || lane.fired[n] || usize::from(lane.arrived[n]) < wanted {
                    continue;
                }
                if node.state && blocked(lanes, band, n) {
                    continue;
                }
                let key = (band.spec.kind, band.spec.id, n);
                if best.is_none_or(|(k, _)| key < k) {
                    best = Some((key, l));
                }
                break;
            }
        }
        best.map(|((_, _, n), l)| (l, n))
    }

    fn fire(&mut self, l: usize, n: usize, lanes: &mut [LaneState]) {
        let lane = &mut lanes[l];
        let band = lane.band.clone().expect("only live bands are ready");
        lane.fired[n] = true;
        lane.arrived[n] = 0;
        lane.left -= 1;
        let fence = match (&lane.failure, self.submit(l, n, &lane.waits[n], band.launch)) {
            (None, Ok(value)) => Fence::Reached { timeline: TimelineId(self.me.0), value },
            (None, Err(why)) => {
                lane.failure = Some(why);
                Fence::Failed
            }
            (Some(_), _) => Fence::Failed,
        };
        lane.waits[n].clear();
        let failure = lane.failure.clone();
        if lane.left == 0 {
            lane.band = None;
            lane.failure = None;
        }
        let (wiring, nodes) = (self.wiring.clone(), self.wiring.nodes.len());
        for &to in &wiring.nodes[n].outputs {
            let target = &wiring.nodes[to.index()];
            // On the same queue order is enough, unless the band failed.
            let fence = if target.actor == self.me && fence != Fence::Failed { Fence::Ready } else { fence };
            let token = token(to, target.layer, &band.spec, self.me, fence);
            if target.actor == self.me {
                self.take(Message::Token(token), lanes, 0);
            } else if self.peers[target.actor.index()].send(Message::Token(token)).is_err() {
                tracing::error!(node = to.0, "an actor has stopped; its band cannot end");
            }
        }
        if n + 1 == nodes {
            let _ = self.heads.send(BandEnd { spec: band.spec, fence, failure });
        }
    }

    fn submit(&mut self, lane: usize, node: usize, waits: &[(TimelineId, u64)], launch: Launch) -> Result<u64, String> {
        let name = &self.wiring.placement.names[self.me.index()];
        let fail = |e: luce_device::DeviceError| format!("actor {name}: {e}");
        for &(timeline, value) in waits {
            self.device.wait(QueueId(0), &self.timelines[timeline.index()], value).map_err(fail)?;
        }
        let segment = self.segments[lane][node].expect("prepared for every node of this actor");
        self.device.launch(QueueId(0), segment, launch).map_err(fail)
    }
}

/// Whether an earlier band that shares a sequence has still to fire this node.
fn blocked(lanes: &[LaneState], band: &Announced, node: usize) -> bool {
    lanes.iter().any(|other| {
        other.band.as_ref().is_some_and(|b| {
            b.spec.id < band.spec.id
                && !other.fired[node]
                && b.spec.spans.iter().any(|s| band.spec.spans.iter().any(|t| t.sequence == s.sequence))
        })
    })
}

fn token(node: NodeId, layer: u16, spec: &BandSpec, owner: ActorId, fence: Fence) -> Token {
    let shape = [spec.rows(), 0];
    let handle = luce_core::Handle { owner, slot: u32::from(spec.lane.0), dtype: luce_core::DType::F32, shape, fence };
    Token {
        node,
        port: PortId(0),
        tag: Tag { band: spec.id, layer: LayerId(layer) },
        lane: LaneId(spec.lane.0),
        handles: std::iter::once(handle).collect(),
    }
}

/// Reads Engram rows for announced bands, by range, into the lanes' shared buffers.
pub(crate) struct Reader {
    pub(crate) me: ActorId,
    pub(crate) gguf: Arc<Gguf>,
    pub(crate) weights: Arc<WeightMap>,
    pub(crate) hasher: EngramHasher,
    /// Model layer and node of each table.
    pub(crate) tables: Vec<(u16, NodeId)>,
    /// [lane][table]
    pub(crate) buffers: Vec<Vec<luce_core::HostBuffer>>,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) dense: Sender<Message>,
}

impl Reader {
    /// Runs until every sender is gone.
    pub(crate) fn run(self, mailbox: &Receiver<Announced>) {
        let mut value = 0;
        while let Ok(band) = mailbox.recv() {
            for (t, &(layer, node)) in self.tables.iter().enumerate() {
                let fence = match self.read(t, layer, &band) {
                    Ok(()) => {
                        value += 1;
                        self.timeline.signal(value);
                        Fence::Reached { timeline: TimelineId(self.me.0), value }
                    }
                    Err(why) => {
                        tracing::error!(layer, %why, "Engram rows cannot be read");
                        Fence::Failed
                    }
                };
                let _ = self.dense.send(Message::Token(token(node, layer, &band.spec, self.me, fence)));
            }
        }
    }

    fn read(&self, table: usize, layer: u16, band: &Announced) -> Result<(), RuntimeError> {
        let tensor = self.weights.get(Role::EngramTable(layer)).expect("an Engram layer has a table");
        let row_bytes = tensor.dtype.row_bytes(tensor.dim(0)).expect("checked by the weight map") as usize;
        let columns = self.hasher.columns();
        let mut bytes = vec![0u8; row_bytes];
        let mut at = 0;
        for (span, history) in band.spec.spans.iter().zip(band.history.iter()) {
            let tokens: Vec<u32> = span.tokens.iter().map(|t| t.0).collect();
            let mut rows = vec![0u32; tokens.len() * columns];
            self.hasher.rows(table, history, &tokens, &mut rows)?;
            for &row in &rows {
                self.gguf.read_tensor(tensor, u64::from(row) * row_bytes as u64, &mut bytes)?;
                exchange::write(&self.buffers[band.spec.lane.index()][table], at, &bytes);
                at += row_bytes;
            }
        }
        Ok(())
    }
}
