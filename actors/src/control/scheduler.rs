//! The scheduler actor: requests wait here, first come first served, until a slot is free.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::{Actor, Context, Handler, Message};
use flume::Sender;
use luce_core::{Event, Finish, RequestId, Timings, Usage};

use super::Shared;
use crate::leader::{LeaderMessage, Waiting};

/// How long the leader may take to make room in its mailbox; it never waits for anything longer than a step.
const LEADER_DEADLINE: Duration = Duration::from_secs(1);

/// The queue of waiting requests.
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
    leader: Sender<LeaderMessage>,
    queue: VecDeque<Waiting>,
    /// Slots that no sequence has.
    free: usize,
    /// Messages that may wait: one submission, one cancellation and one end for each request that there can be.
    mailbox: usize,
}

impl Scheduler {
    pub(crate) fn new(shared: Arc<Shared>, leader: Sender<LeaderMessage>, slots: u32, max_queue: u32) -> Scheduler {
        let mailbox = 4 * (slots as usize + max_queue as usize) + 16;
        Scheduler { shared, leader, queue: VecDeque::new(), free: slots as usize, mailbox }
    }

    fn tell(&self, message: LeaderMessage) {
        if self.leader.send_timeout(message, LEADER_DEADLINE).is_err() {
            tracing::error!("the leader does not take messages");
        }
    }

    fn admit(&mut self) {
        while self.free > 0
            && let Some(w) = self.queue.pop_front()
        {
            self.shared.queued.fetch_sub(1, Ordering::SeqCst);
            self.free -= 1;
            self.tell(LeaderMessage::Admit(Box::new(w)));
        }
    }

    /// Takes a request out of the queue and tells it why.
    fn refuse(&mut self, mut w: Waiting, event: Event) {
        self.shared.queued.fetch_sub(1, Ordering::SeqCst);
        // A sink that has closed wants to hear no more.
        let _ = w.sink.send(event);
    }
}

impl Actor for Scheduler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox);
    }
}

/// A request comes in; it has been counted as queued.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Submit(pub(crate) Waiting);

/// A request is no longer wanted.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Cancel(pub(crate) RequestId);

/// So many sequences have ended.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Freed(pub(crate) usize);

/// Nothing that waits will be served, for this reason.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Refuse(pub(crate) String);

impl Handler<Submit> for Scheduler {
    type Result = ();

    fn handle(&mut self, Submit(waiting): Submit, _: &mut Self::Context) {
        self.queue.push_back(waiting);
        self.admit();
    }
}

impl Handler<Cancel> for Scheduler {
    type Result = ();

    fn handle(&mut self, Cancel(id): Cancel, _: &mut Self::Context) {
        match self.queue.iter().position(|w| w.id == id) {
            Some(at) => {
                let w = self.queue.remove(at).expect("found");
                let usage = Usage { prompt: w.request.prompt.len() as u32, ..Usage::default() };
                self.refuse(w, Event::Finished { finish: Finish::Cancelled, usage, timings: Timings::default() });
            }
            None => self.tell(LeaderMessage::Cancel(id)),
        }
    }
}

impl Handler<Freed> for Scheduler {
    type Result = ();

    fn handle(&mut self, Freed(slots): Freed, _: &mut Self::Context) {
        self.free += slots;
        self.admit();
    }
}

impl Handler<Refuse> for Scheduler {
    type Result = ();

    fn handle(&mut self, Refuse(why): Refuse, _: &mut Self::Context) {
        while let Some(w) = self.queue.pop_front() {
            self.refuse(w, Event::Failed(why.clone()));
        }
    }
}
