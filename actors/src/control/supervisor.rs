//! The supervisor actor: loads the data plane, starts its units in order, stops them in reverse, and after a failure does
//! so again with new devices.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, ResponseActFuture, System, WrapFuture,
};
use flume::Sender;
use luce_core::Lifecycle;

use super::Shared;
use super::scheduler::{Refuse, Scheduler};
use super::unit::{self, Unit, View};
use crate::engine::{Parts, chain};
use crate::leader::{LeaderMessage, Stage};
use crate::runtime::Built;
use crate::sampler::{Order, Sampler};
use crate::worker::{Counters, Starter};
use crate::{ActorInfo, Plane, PlaneOptions};

/// Failures within [`WINDOW`] that are answered with a new plane.
pub(crate) const RESTARTS: usize = 3;
/// See [`RESTARTS`].
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Messages that may wait: each unit and the leader can fail once per generation.
const MAILBOX: usize = 256;
/// The leader never waits for longer than a step.
const LEADER_DEADLINE: Duration = Duration::from_secs(1);

/// Owner of the units.
pub(crate) struct Supervisor {
    parts: Parts,
    shared: Arc<Shared>,
    leader: Sender<LeaderMessage>,
    scheduler: Addr<Scheduler>,
    /// Units of the plane, in the order of their start.
    units: Vec<Addr<Unit>>,
    /// The unit of the leader, which outlives planes.
    leader_unit: Option<(Addr<Unit>, View)>,
    failures: Vec<Instant>,
    generation: u64,
    stopping: bool,
}

impl Supervisor {
    pub(crate) fn new(
        parts: Parts,
        shared: Arc<Shared>,
        leader: Sender<LeaderMessage>,
        scheduler: Addr<Scheduler>,
    ) -> Supervisor {
        Supervisor {
            parts,
            shared,
            leader,
            scheduler,
            units: Vec::new(),
            leader_unit: None,
            failures: Vec::new(),
            generation: 0,
            stopping: false,
        }
    }

    /// Loads a plane on a thread of its own.
    fn load(&mut self, ctx: &mut Context<Supervisor>) {
        let (parts, shared, me, generation) = (self.parts.clone(), self.shared.clone(), ctx.address(), self.generation);
        let load = move || {
            let mut progress = |share| shared.set(Lifecycle::Loading(share));
            let options = PlaneOptions { lanes: parts.options.lanes(), wait: parts.options.wait, tap: None };
            let result = (parts.devices)().and_then(|devices| {
                let program = parts.options.program;
                let built = Plane::build(&parts.model, &parts.placement, devices, program, options, &mut progress);
                built.map(Box::new).map_err(|e| chain(&e))
            });
            // Nobody listens where the engine was stopped meanwhile.
            drop(me.try_send(Loaded { generation, result }));
        };
        if let Err(e) = std::thread::Builder::new().name("loader".into()).spawn(load) {
            self.give_up(&format!("thread loader: {e}"));
        }
    }

    /// The engine is broken; whoever waits for it says so.
    fn give_up(&mut self, why: &str) {
        self.shared.set(Lifecycle::Broken(why.to_owned()));
        self.tell(LeaderMessage::Lost(why.to_owned()));
        if let Err(e) = self.scheduler.try_send(Refuse(why.to_owned())) {
            tracing::error!(%e, "the scheduler did not hear that the engine is broken");
        }
    }

    fn tell(&self, message: LeaderMessage) {
        if self.leader.send_timeout(message, LEADER_DEADLINE).is_err() {
            tracing::error!("the leader does not take messages");
        }
    }

    /// Units for the threads of a plane and its sampler, started in order; then the leader gets the plane.
    fn start(&mut self, built: Built, ctx: &mut Context<Supervisor>) {
        let Built { plane, ends, mut starters } = built;
        let slots = self.parts.options.program.slots as usize;
        let (orders, mailbox) = flume::bounded(4 * slots + 16);
        let (answers, sampled) = flume::bounded(self.parts.options.lanes() + 1);
        let counters = Counters::of(&orders);
        let sampler = Sampler {
            orders: mailbox,
            ends,
            sampled: answers,
            logits: plane.logits_reader(),
            wait: self.parts.options.wait,
            busy_us: counters.busy_us.clone(),
        };
        let stop = orders.clone();
        let stop = Box::new(move || drop(stop.try_send(Order::Stop)));
        starters.push(Starter { name: "sampler".into(), run: Box::new(move || sampler.run()), stop, counters });
        let mut views = Vec::new();
        for (i, starter) in starters.into_iter().enumerate() {
            let info = self.parts.options.actors.get(i).cloned();
            let info = info.unwrap_or_else(|| ActorInfo::internal(&starter.name));
            let (unit, view) = Unit::begin(starter, info, ctx.address(), self.generation);
            self.units.push(unit);
            views.push(view);
        }
        views.extend(self.leader_unit.as_ref().map(|(_, view)| view.clone()));
        *self.shared.units.lock().unwrap_or_else(PoisonError::into_inner) = views;
        let stage = Stage { plane, orders, sampled, generation: self.generation };
        self.tell(LeaderMessage::Plane(Box::new(stage)));
        self.shared.set(Lifecycle::Ready);
    }

    /// Stops the units, last one first.
    fn stop_units(&mut self) -> impl Future<Output = Result<(), String>> + use<> {
        let units = std::mem::take(&mut self.units);
        async move {
            let mut result = Ok(());
            for unit in units.into_iter().rev() {
                let answer = unit.send(unit::Stop).await.unwrap_or_else(|e| Err(e.to_string()));
                result = result.and(answer);
            }
            result
        }
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.load(ctx);
    }
}

/// The leader's thread is to be supervised too.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct AdoptLeader(pub(crate) Starter);

/// A plane is loaded, or cannot be.
#[derive(Message)]
#[rtype(result = "()")]
struct Loaded {
    generation: u64,
    result: Result<Box<Built>, String>,
}

/// A device or thread of a plane can serve no more.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct PlaneFailed {
    pub(crate) generation: u64,
    pub(crate) why: String,
}

/// Live requests finish; no new ones come.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct DrainAll;

/// Stop everything, and the control thread at last.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Shutdown;

impl Handler<AdoptLeader> for Supervisor {
    type Result = ();

    fn handle(&mut self, AdoptLeader(starter): AdoptLeader, ctx: &mut Self::Context) {
        // The leader belongs to every plane: its end is a failure of the one that is there, whichever it is.
        self.leader_unit = Some(Unit::begin(starter, ActorInfo::internal("leader"), ctx.address(), u64::MAX));
    }
}

impl Handler<Loaded> for Supervisor {
    type Result = ();

    fn handle(&mut self, Loaded { generation, result }: Loaded, ctx: &mut Self::Context) {
        if self.stopping || generation != self.generation {
            return;
        }
        match result {
            Ok(built) => self.start(*built, ctx),
            Err(why) => self.give_up(&why),
        }
    }
}

impl Handler<PlaneFailed> for Supervisor {
    type Result = ();

    fn handle(&mut self, PlaneFailed { generation, why }: PlaneFailed, ctx: &mut Self::Context) {
        if self.stopping {
            return;
        }
        if generation == u64::MAX {
            tracing::error!(why, "the leader has failed; the engine is broken");
            self.give_up(&why);
            return;
        }
        if generation != self.generation {
            return;
        }
        self.generation += 1;
        self.shared.set(Lifecycle::Loading(0.0));
        self.tell(LeaderMessage::Lost(why.clone()));
        let now = Instant::now();
        self.failures.retain(|at| now.duration_since(*at) < WINDOW);
        self.failures.push(now);
        let stopped = self.stop_units();
        if self.failures.len() > RESTARTS {
            tracing::error!(why, "the data plane has failed too often; the engine is broken");
            ctx.spawn(stopped.into_actor(self).map(|_, _, _| ()));
            self.give_up(&format!("{why}; it is failure {} within a minute", self.failures.len()));
            return;
        }
        tracing::warn!(why, "the data plane has failed; loading it again");
        ctx.spawn(stopped.into_actor(self).map(move |stopped, act: &mut Supervisor, ctx| match stopped {
            Ok(()) if !act.stopping => act.load(ctx),
            Ok(()) => {}
            Err(hangs) => {
                tracing::error!(why, hangs, "the data plane does not end; the engine is broken");
                act.give_up(&format!("{why}; {hangs}"));
            }
        }));
    }
}

impl Handler<DrainAll> for Supervisor {
    type Result = ();

    fn handle(&mut self, _: DrainAll, _: &mut Self::Context) {
        for unit in &self.units {
            if let Err(e) = unit.try_send(unit::Drain) {
                tracing::warn!(%e, "a unit did not hear that it drains");
            }
        }
    }
}

impl Handler<Shutdown> for Supervisor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Shutdown, _: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        if let Err(e) = self.scheduler.try_send(Refuse("the engine has stopped".into())) {
            tracing::warn!(%e, "the scheduler did not hear of the end");
        }
        let leader = self.leader_unit.take();
        let units = self.stop_units();
        let stop = async move {
            if let Some((leader, _)) = leader {
                let _ = leader.send(unit::Stop).await;
            }
            if let Err(why) = units.await {
                tracing::error!(why, "left behind");
            }
        };
        Box::pin(stop.into_actor(self).map(|(), _, _| System::current().stop()))
    }
}
