//! The data plane: one thread with a flume mailbox per device actor, and the reader of Engram rows.
//!
//! Message paths. The leader announces a band to every actor and to the reader. A node without inputs fires at once; every
//! other fires when the tokens of all its inputs are there. Firing submits the node's segment and at once sends tokens
//! with the fence along its edges. The token of the last node goes to the owner of `heads`. Nobody waits for results
//! here: queues wait on fences. A failed band fires empty in the same order, with `Fence::Failed`.
//!
//! What an actor does with a message is a state machine without threads, clock or device ([`machine`]); the thread
//! ([`actor`]) drives it in production, the simulator of the tests in virtual time.

pub(crate) mod actor;
pub(crate) mod machine;
pub(crate) mod reader;
#[cfg(test)]
mod sim;
pub(crate) mod tap;

use std::sync::Arc;
use std::time::{Duration, Instant};

use flume::Receiver;
use luce_core::{ActorId, BandSpec, DType, Fence, Handle, LaneId, LayerId, NodeId, PortId, Tag, Token};
use luce_device::Launch;
use luce_model::EngramHistory;

/// A band with what the devices need to know of it.
#[derive(Clone, Debug)]
pub(crate) struct Announced {
    /// Composition.
    pub(crate) spec: Arc<BandSpec>,
    /// Counts for the devices.
    pub(crate) launch: Launch,
    /// History of each span before its first row, for the Engram hashes.
    pub(crate) history: Arc<Vec<EngramHistory>>,
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
    /// Watches for what `poll` may give, for the time of the policy.
    pub(crate) fn watch<T>(self, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
        let start = Instant::now();
        loop {
            match poll() {
                None if start.elapsed() < self.spin => std::hint::spin_loop(),
                found => return found,
            }
        }
    }

    /// Next message: spins while `busy`, then parks. `None` when every sender is gone.
    pub(crate) fn receive<T>(self, from: &Receiver<T>, busy: bool) -> Option<T> {
        if busy && let Some(message) = self.watch(|| settled(from)) {
            return message;
        }
        from.recv().ok()
    }
}

/// What a mailbox gives at once: a message, that every sender is gone (`Some(None)`), or nothing.
pub(crate) fn settled<T>(from: &Receiver<T>) -> Option<Option<T>> {
    match from.try_recv() {
        Ok(message) => Some(Some(message)),
        Err(flume::TryRecvError::Disconnected) => Some(None),
        Err(flume::TryRecvError::Empty) => None,
    }
}

/// The token that an edge carries from `owner` to `node`: one handle that stands for all tensors of the edge, which share
/// one fence since one segment writes them; the slots themselves are fixed by (node, lane).
pub(crate) fn token(node: NodeId, layer: u16, spec: &BandSpec, owner: ActorId, fence: Fence) -> Token {
    let shape = [spec.rows(), 0];
    let handle = Handle { owner, slot: u32::from(spec.lane.0), dtype: DType::F32, shape, fence };
    Token {
        node,
        port: PortId(0),
        tag: Tag { band: spec.id, layer: LayerId(layer) },
        lane: LaneId(spec.lane.0),
        handles: std::iter::once(handle).collect(),
    }
}
