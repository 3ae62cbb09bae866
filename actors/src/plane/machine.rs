//! What a device actor does with messages, as a state machine: arrivals are kept until every input of a (node, band) is
//! there, ready nodes fire by priority, and what firing causes goes out through [`Effects`].

use std::sync::Arc;

use luce_core::{ActorId, BandId, BandKind, Fence, Handles, TimelineId, Token};
use luce_device::Launch;

use super::{Announced, BandEnd, token};
use crate::Wiring;

/// What firing a node causes.
pub(crate) trait Effects {
    /// Queues the segment of a node behind these timeline values and says when it will be complete.
    ///
    /// # Errors
    /// Why the device refused; the band has then failed.
    fn launch(
        &mut self,
        lane: usize,
        node: usize,
        waits: &[(TimelineId, u64)],
        launch: Launch,
    ) -> Result<Fence, String>;

    /// Sends a token to another actor.
    fn send(&mut self, to: ActorId, token: Token);

    /// The band's last node has fired.
    fn end(&mut self, end: BandEnd);
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

/// The nodes placed on one actor, and what has arrived for them.
pub(crate) struct Machine {
    me: ActorId,
    wiring: Arc<Wiring>,
    lanes: Vec<LaneState>,
    /// Nodes of this actor.
    own: usize,
}

impl Machine {
    /// For `lanes` lanes, all free.
    pub(crate) fn new(me: ActorId, wiring: Arc<Wiring>, lanes: usize) -> Machine {
        let nodes = wiring.nodes.len();
        let lane = || LaneState {
            band: None,
            arrived: vec![0; nodes],
            waits: vec![Vec::with_capacity(Handles::MAX); nodes],
            fired: vec![false; nodes],
            left: 0,
            failure: None,
        };
        let own = wiring.nodes.iter().filter(|n| n.actor == me).count();
        Machine { me, lanes: (0..lanes).map(|_| lane()).collect(), own, wiring }
    }

    /// Whether a band is in flight here.
    pub(crate) fn busy(&self) -> bool {
        self.lanes.iter().any(|l| l.band.is_some())
    }

    /// Takes a band: its lane must be free here.
    pub(crate) fn on_announce(&mut self, band: Announced) {
        let lane = &mut self.lanes[band.spec.lane.index()];
        assert!(lane.band.is_none(), "a lane is announced only when it is free");
        lane.fired.fill(false);
        lane.left = self.own;
        lane.band = (self.own > 0).then_some(band);
    }

    /// Takes note of an arrival.
    pub(crate) fn on_token(&mut self, token: &Token) {
        let lane = &mut self.lanes[token.lane.index()];
        lane.arrived[token.node.index()] += 1;
        for handle in token.handles.iter() {
            match handle.fence {
                Fence::Ready => {}
                Fence::Reached { timeline, value } => lane.waits[token.node.index()].push((timeline, value)),
                Fence::Failed => {
                    lane.failure.get_or_insert_with(|| "an earlier stage of the band failed".into());
                }
            }
        }
    }

    /// Fires every node that is ready.
    pub(crate) fn run(&mut self, effects: &mut dyn Effects) {
        while let Some((lane, node)) = self.next_ready() {
            self.fire(lane, node, effects);
        }
    }

    /// The ready node with the highest priority: decode before prefill, older band first, earlier node first.
    fn next_ready(&self) -> Option<(usize, usize)> {
        let mut best: Option<((BandKind, BandId, usize), usize)> = None;
        for (l, lane) in self.lanes.iter().enumerate() {
            let Some(band) = &lane.band else { continue };
            for (n, node) in self.wiring.nodes.iter().enumerate() {
                let wanted = node.inputs.len() + usize::from(node.engram.is_some());
                if node.actor != self.me || lane.fired[n] || usize::from(lane.arrived[n]) < wanted {
                    continue;
                }
                if node.state && self.blocked(band, n) {
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

    /// Whether an earlier band that shares a sequence has still to fire this node.
    fn blocked(&self, band: &Announced, node: usize) -> bool {
        self.lanes.iter().any(|other| {
            other.band.as_ref().is_some_and(|b| {
                b.spec.id < band.spec.id
                    && !other.fired[node]
                    && b.spec.spans.iter().any(|s| band.spec.spans.iter().any(|t| t.sequence == s.sequence))
            })
        })
    }

    fn fire(&mut self, l: usize, n: usize, effects: &mut dyn Effects) {
        let lane = &mut self.lanes[l];
        let band = lane.band.clone().expect("only live bands are ready");
        lane.fired[n] = true;
        lane.arrived[n] = 0;
        lane.left -= 1;
        let fence = if lane.failure.is_some() {
            Fence::Failed
        } else {
            effects.launch(l, n, &lane.waits[n], band.launch).unwrap_or_else(|why| {
                lane.failure = Some(why);
                Fence::Failed
            })
        };
        lane.waits[n].clear();
        let failure = lane.failure.clone();
        if lane.left == 0 {
            lane.band = None;
            lane.failure = None;
        }
        let wiring = self.wiring.clone();
        for &to in &wiring.nodes[n].outputs {
            let target = &wiring.nodes[to.index()];
            // On the same queue order is enough, unless the band failed.
            let fence = if target.actor == self.me && fence != Fence::Failed { Fence::Ready } else { fence };
            let token = token(to, target.layer, &band.spec, self.me, fence);
            if target.actor == self.me {
                self.on_token(&token);
            } else {
                effects.send(target.actor, token);
            }
        }
        if n + 1 == wiring.nodes.len() {
            effects.end(BandEnd { spec: band.spec, fence, failure });
        }
    }
}
