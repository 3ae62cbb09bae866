//! The thread of a device actor: its mailbox, its device, and the [`Machine`] between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flume::{Receiver, Sender};
use luce_core::{ActorId, Fence, TimelineId, Token};
use luce_device::{Device, Launch, QueueId, SegmentId, Timeline};

use super::machine::{Effects, Machine};
use super::tap::NodeTap;
use super::{BandEnd, Message, WaitPolicy};
use crate::Wiring;

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
    /// Microseconds in which the thread had something to do.
    pub(crate) busy_us: Arc<AtomicU64>,
    /// Reads values back after each node, for comparisons with a reference.
    pub(crate) tap: Option<NodeTap>,
}

impl DeviceActor {
    /// Runs until `Stop`, or until every sender of the mailbox is gone.
    pub(crate) fn run(mut self, mailbox: &Receiver<Message>) {
        let mut machine = Machine::new(self.me, self.wiring.clone(), self.segments.len());
        while let Some(message) = self.wait.receive(mailbox, machine.busy()) {
            let began = Instant::now();
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Stop => return,
                    Message::Announce(band) => machine.on_announce(band),
                    Message::Token(token) => machine.on_token(&token),
                }
                next = mailbox.try_recv().ok();
            }
            machine.run(&mut self);
            self.busy_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
    }
}

impl Effects for DeviceActor {
    fn launch(
        &mut self,
        lane: usize,
        node: usize,
        waits: &[(TimelineId, u64)],
        launch: Launch,
    ) -> Result<Fence, String> {
        let name = &self.wiring.placement.names[self.me.index()];
        let fail = |e: luce_device::DeviceError| format!("actor {name}: {e}");
        for &(timeline, value) in waits {
            self.device.wait(QueueId(0), &self.timelines[timeline.index()], value).map_err(fail)?;
        }
        let segment = self.segments[lane][node].expect("prepared for every node of this actor");
        let value = self.device.launch(QueueId(0), segment, launch).map_err(fail)?;
        if let Some(tap) = &self.tap {
            tap.read(lane, node, launch, &self.timelines[self.me.index()], value)?;
        }
        Ok(Fence::Reached { timeline: TimelineId(self.me.0), value })
    }

    fn send(&mut self, to: ActorId, token: Token) {
        if self.peers[to.index()].send(Message::Token(token)).is_err() {
            tracing::error!(node = token.node.0, "an actor has stopped; its band cannot end");
        }
    }

    fn end(&mut self, end: BandEnd) {
        // The leader has gone when this fails: nobody is left to be told.
        let _ = self.heads.send(end);
    }
}
