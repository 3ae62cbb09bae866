//! The control plane: actix actors on one thread beside the data plane. No message of a step passes through it.
//!
//! Who owns whom: the supervisor owns one [`Unit`] for each thread of the data plane and starts, drains and stops them; the
//! scheduler owns the queue of waiting requests. Message paths: HTTP handlers -> scheduler (submit, cancel) -> leader;
//! leader -> scheduler (a slot is free), leader and units -> supervisor (the plane has failed). A plane that fails takes
//! the live requests with it; the supervisor stops what is left, loads a new one and the queue goes on. After
//! [`supervisor::RESTARTS`] failures within [`supervisor::WINDOW`] it gives up and the engine is broken.
//!
//! [`Unit`]: unit::Unit

pub(crate) mod scheduler;
pub(crate) mod supervisor;
pub(crate) mod unit;

use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use actix::Addr;
use luce_core::{Lifecycle, Status};

use scheduler::{Freed, Scheduler};
use supervisor::{PlaneFailed, Supervisor};
use unit::View;

/// What HTTP threads read without asking anyone.
pub(crate) struct Shared {
    lifecycle: Mutex<Lifecycle>,
    changed: Condvar,
    /// Requests that wait.
    pub(crate) queued: AtomicU64,
    /// Live sequences and totals, written by the leader.
    pub(crate) board: Mutex<Status>,
    /// The units, in the order of the configuration.
    pub(crate) units: Mutex<Vec<View>>,
}

impl Shared {
    pub(crate) fn new(slots: u32) -> Shared {
        Shared {
            lifecycle: Mutex::new(Lifecycle::Loading(0.0)),
            changed: Condvar::new(),
            queued: AtomicU64::new(0),
            board: Mutex::new(Status { slots, ..Status::default() }),
            units: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Draining and broken engines stay so.
    pub(crate) fn set(&self, to: Lifecycle) {
        let mut state = self.lifecycle.lock().unwrap_or_else(PoisonError::into_inner);
        let over = matches!(*state, Lifecycle::Draining | Lifecycle::Broken(_));
        if !over || matches!((&*state, &to), (Lifecycle::Draining, Lifecycle::Broken(_))) {
            *state = to;
            self.changed.notify_all();
        }
    }

    /// Waits until the lifecycle is another one, or for so long, and returns it.
    pub(crate) fn wait_change(&self, from: &Lifecycle, at_most: Duration) -> Lifecycle {
        let state = self.lifecycle.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, at_most, |state| state == from);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// What the leader tells the control plane.
pub(crate) struct Outlet {
    pub(crate) scheduler: Addr<Scheduler>,
    pub(crate) supervisor: Addr<Supervisor>,
}

impl Outlet {
    /// So many slots are free again. The scheduler's mailbox has room for all slots at once.
    pub(crate) fn freed(&self, slots: usize) {
        if let Err(e) = self.scheduler.try_send(Freed(slots)) {
            tracing::error!(%e, "the scheduler did not hear of a free slot");
        }
    }

    /// The plane can serve no more.
    pub(crate) fn plane_failed(&self, generation: u64, why: String) {
        if let Err(e) = self.supervisor.try_send(PlaneFailed { generation, why }) {
            tracing::error!(%e, "the supervisor did not hear of a failure");
        }
    }
}
