//! A unit: the actix actor of one resource (a device, the reader of Engram rows, the sampler, the leader). It owns the
//! resource's thread, starts and stops it, keeps its state for status pages and tells the supervisor when it fails.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture};
use luce_core::ActorStatus;

use super::supervisor::{PlaneFailed, Supervisor};
use crate::ActorInfo;
use crate::worker::{Counters, Starter, Worker};

/// How long a thread may take to end.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// What status pages show of a unit.
#[derive(Clone)]
pub(crate) struct View {
    name: String,
    info: ActorInfo,
    state: Arc<Mutex<String>>,
    counters: Counters,
}

impl View {
    fn set(&self, state: impl Into<String>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state.into();
    }

    pub(crate) fn status(&self) -> ActorStatus {
        ActorStatus {
            name: self.name.clone(),
            kind: self.info.kind.clone(),
            roles: self.info.roles.clone(),
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            memory: self.info.memory,
            budget: self.info.budget,
            busy_us: self.counters.busy(),
            mailbox: (self.counters.mailbox)() as u32,
        }
    }
}

/// The actor of one resource.
pub(crate) struct Unit {
    view: View,
    starter: Option<Starter>,
    worker: Option<Worker>,
    supervisor: Addr<Supervisor>,
    /// Of the plane that it belongs to.
    generation: u64,
    stopping: bool,
}

impl Unit {
    /// Starts a unit and its thread.
    pub(crate) fn begin(
        starter: Starter,
        info: ActorInfo,
        supervisor: Addr<Supervisor>,
        generation: u64,
    ) -> (Addr<Unit>, View) {
        let state = Arc::new(Mutex::new("starting".to_owned()));
        let view = View { name: starter.name.clone(), info, state, counters: starter.counters.clone() };
        let (starter, worker) = (Some(starter), None);
        let unit = Unit { view: view.clone(), starter, worker, supervisor, generation, stopping: false };
        (unit.start(), view)
    }

    fn fail(&self, why: String) {
        self.view.set(format!("failed: {why}"));
        let why = format!("actor {}: {why}", self.view.name);
        if let Err(e) = self.supervisor.try_send(PlaneFailed { generation: self.generation, why }) {
            tracing::error!(unit = self.view.name, %e, "the supervisor did not hear of a failure");
        }
    }
}

impl Actor for Unit {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(starter) = self.starter.take() else { return };
        let me = ctx.address();
        // Where nobody listens any more the engine is going down anyway.
        let ended = move |why| drop(me.try_send(Ended(why)));
        match Worker::start(starter, ended) {
            Ok(worker) => {
                self.worker = Some(worker);
                self.view.set("running");
            }
            Err(why) => self.fail(why),
        }
    }
}

/// No new work will come.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Drain;

/// Stop the thread and answer when it has ended, or why it has not.
#[derive(Message)]
#[rtype(result = "Result<(), String>")]
pub(crate) struct Stop;

/// The thread has ended; with the text of its panic.
#[derive(Message)]
#[rtype(result = "()")]
struct Ended(Option<String>);

impl Handler<Drain> for Unit {
    type Result = ();

    fn handle(&mut self, _: Drain, _: &mut Self::Context) {
        if self.worker.is_some() && !self.stopping {
            self.view.set("draining");
        }
    }
}

impl Handler<Stop> for Unit {
    type Result = ResponseFuture<Result<(), String>>;

    fn handle(&mut self, _: Stop, _: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        let (worker, view) = (self.worker.take(), self.view.clone());
        Box::pin(async move {
            let Some(worker) = worker else { return Ok(()) };
            // Nothing is ever sent: the receiver is closed at the thread's end.
            match actix::clock::timeout(STOP_DEADLINE, worker.stop().recv_async()).await {
                Ok(_) => {
                    view.set("stopped");
                    Ok(())
                }
                Err(_) => {
                    let why = format!("did not end within {} s", STOP_DEADLINE.as_secs());
                    view.set(format!("failed: {why}"));
                    Err(format!("actor {} {why}", view.name))
                }
            }
        })
    }
}

impl Handler<Ended> for Unit {
    type Result = ();

    fn handle(&mut self, Ended(why): Ended, _: &mut Self::Context) {
        if !self.stopping {
            self.fail(why.unwrap_or_else(|| "its thread has ended".into()));
        }
    }
}
