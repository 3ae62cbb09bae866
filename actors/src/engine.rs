//! The engine of one box, behind [`Generate`]: a handle to the control plane and the numbers that it shows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use actix::dev::SendError;
use actix::{Actor, Addr, System};
use luce_core::{EventSink, Generate, GenerateRequest, Lifecycle, Refusal, RequestId, Served, Status};
use luce_device::Device;
use luce_model::ProgramOptions;

use crate::control::scheduler::{Cancel, Scheduler, Submit};
use crate::control::supervisor::{AdoptLeader, DrainAll, Shutdown, Supervisor};
use crate::control::unit::View;
use crate::control::{Outlet, Shared};
use crate::leader::{Leader, LeaderMessage, Waiting};
use crate::plane::WaitPolicy;
use crate::worker::{Counters, Starter};
use crate::{Model, Placement, RuntimeError};

/// Sizes and policies of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The program's options; `slots` is the number of live sequences, `max_rows` the chunk.
    pub program: ProgramOptions,
    /// Prefill bands in flight.
    pub bands_in_flight: u32,
    /// Requests that may wait.
    pub max_queue: u32,
    /// How mailboxes and fences are watched.
    pub wait: WaitPolicy,
    /// Name that clients see.
    pub name: String,
    /// What status pages say of the actors, in the order of the devices; may be shorter.
    pub actors: Vec<ActorInfo>,
}

impl EngineOptions {
    /// Bands in flight: one of decode, the others of prefill.
    pub fn lanes(&self) -> usize {
        1 + self.bands_in_flight as usize
    }
}

/// What status pages say of an actor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActorInfo {
    /// Its kind, such as `cpu`.
    pub kind: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// Bytes of its buffers.
    pub memory: u64,
    /// The most bytes that it may hold, where it has a budget.
    pub budget: Option<u64>,
}

impl ActorInfo {
    /// Of an actor that no configuration names.
    pub(crate) fn internal(kind: &str) -> ActorInfo {
        ActorInfo { kind: kind.to_owned(), roles: Vec::new(), memory: 0, budget: None }
    }
}

/// Makes the devices of a placement, in its order; called at the start and again after a device has failed.
///
/// # Errors
/// Why there is no such device.
pub type MakeDevices = Arc<dyn Fn() -> Result<Vec<Box<dyn Device>>, String> + Send + Sync>;

/// What a data plane is made of.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) model: Model,
    pub(crate) placement: Placement,
    pub(crate) devices: MakeDevices,
    pub(crate) options: EngineOptions,
}

/// How long the threads of an engine may take to end.
const END: Duration = Duration::from_secs(30);

/// An engine of one box. Dropping it ends its threads.
pub struct Engine {
    served: Served,
    max_queue: u32,
    shared: Arc<Shared>,
    next: AtomicU64,
    scheduler: Addr<Scheduler>,
    supervisor: Addr<Supervisor>,
    control: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts an engine and loads the model in the background; see [`Generate::lifecycle`].
    ///
    /// # Errors
    /// [`RuntimeError::System`] when no thread can be started.
    pub fn start(
        model: Model,
        placement: Placement,
        devices: MakeDevices,
        options: EngineOptions,
    ) -> Result<Engine, RuntimeError> {
        let served =
            Served { name: options.name.clone(), context: options.program.context, vocabulary: model.config.vocab };
        let (slots, max_queue) = (options.program.slots, options.max_queue);
        let shared = Arc::new(Shared::new(slots));
        let parts = Parts { model, placement, devices, options };
        let (ready, addresses) = flume::bounded(1);
        let state = shared.clone();
        let control = move || {
            let system = System::new();
            system.block_on(async {
                // An admission and two cancellations for each slot, and what the supervisor says.
                let (leader, mailbox) = flume::bounded(4 * slots as usize + 64);
                let scheduler = Scheduler::new(state.clone(), leader.clone(), slots, max_queue).start();
                let (vocabulary, options) = (parts.model.config.vocab, parts.options.clone());
                let supervisor = Supervisor::new(parts, state.clone(), leader.clone(), scheduler.clone()).start();
                let outlet = Outlet { scheduler: scheduler.clone(), supervisor: supervisor.clone() };
                let counters = Counters::of(&leader);
                let logic = Leader::new(&options, vocabulary, state, outlet);
                let stop = Box::new(move || drop(leader.try_send(LeaderMessage::Stop)));
                let run = Box::new(move || logic.run(&mailbox));
                let starter = Starter { name: "leader".into(), run, stop, counters };
                supervisor.try_send(AdoptLeader(starter)).expect("a new actor's mailbox has room");
                // The engine waits for them.
                let _ = ready.send((scheduler, supervisor));
            });
            if let Err(e) = system.run() {
                tracing::error!(%e, "the control plane");
            }
        };
        let system = |e: std::io::Error| RuntimeError::System(format!("thread control: {e}"));
        let control = std::thread::Builder::new().name("control".into()).spawn(control).map_err(system)?;
        let gone = |_| RuntimeError::System("the control plane did not start".into());
        let (scheduler, supervisor) = addresses.recv_timeout(END).map_err(gone)?;
        let next = AtomicU64::new(0);
        Ok(Engine { served, max_queue, shared, next, scheduler, supervisor, control: Some(control) })
    }

    /// Takes no more requests; live ones finish.
    pub fn drain(&self) {
        self.shared.set(Lifecycle::Draining);
        if let Err(e) = self.supervisor.try_send(DrainAll) {
            tracing::warn!(%e, "the supervisor did not hear that the engine drains");
        }
    }

    /// Waits until the model is loaded or cannot be; `progress` gets the share that is done, 0 to 1.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn wait_ready(&self, mut progress: impl FnMut(f32)) -> Result<(), String> {
        let mut state = self.lifecycle();
        loop {
            match &state {
                Lifecycle::Loading(share) => progress(*share),
                Lifecycle::Broken(why) => return Err(why.clone()),
                Lifecycle::Ready | Lifecycle::Draining => return Ok(()),
            }
            state = self.shared.wait_change(&state, Duration::from_millis(100));
        }
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl Generate for Engine {
    fn served(&self) -> &Served {
        &self.served
    }

    fn lifecycle(&self) -> Lifecycle {
        self.shared.lifecycle()
    }

    fn status(&self) -> Status {
        let mut status = self.shared.board.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.queued = self.shared.queued.load(Ordering::Relaxed) as u32;
        let units = self.shared.units.lock().unwrap_or_else(PoisonError::into_inner);
        status.actors = units.iter().map(View::status).collect();
        status
    }

    fn submit(&self, request: GenerateRequest, sink: Box<dyn EventSink>) -> Result<RequestId, Refusal> {
        match self.lifecycle() {
            Lifecycle::Loading(_) => return Err(Refusal::Loading),
            Lifecycle::Draining => return Err(Refusal::Draining),
            Lifecycle::Broken(why) => return Err(Refusal::Broken(why)),
            Lifecycle::Ready => {}
        }
        let (prompt, max_tokens, context) = (request.prompt.len() as u32, request.max_tokens, self.served.context);
        if prompt == 0 || max_tokens == 0 {
            return Err(Refusal::Invalid("a request needs a prompt and at least one token to generate".into()));
        }
        if let Some(bad) = request.prompt.iter().find(|t| t.0 >= self.served.vocabulary) {
            return Err(Refusal::Invalid(format!(
                "token {bad} is not in the vocabulary of {}",
                self.served.vocabulary
            )));
        }
        if prompt.saturating_add(max_tokens) > context {
            return Err(Refusal::TooLong { prompt, max_tokens, context });
        }
        let queued = self.shared.queued.fetch_add(1, Ordering::SeqCst) as u32;
        let busy = || {
            self.shared.queued.fetch_sub(1, Ordering::SeqCst);
            Refusal::Busy { queued }
        };
        if queued >= self.max_queue {
            return Err(busy());
        }
        let id = RequestId(self.next.fetch_add(1, Ordering::SeqCst));
        match self.scheduler.try_send(Submit(Waiting { id, request, sink, since: Instant::now() })) {
            Ok(()) => Ok(id),
            Err(SendError::Full(_)) => Err(busy()),
            Err(SendError::Closed(_)) => Err(Refusal::Broken("the scheduler has stopped".into())),
        }
    }

    fn cancel(&self, id: RequestId) {
        if let Err(e) = self.scheduler.try_send(Cancel(id)) {
            tracing::error!(request = id.0, %e, "the scheduler did not hear of a cancellation");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(e) = self.supervisor.try_send(Shutdown) {
            tracing::error!(%e, "the supervisor did not hear of the end");
            return;
        }
        if let Some(control) = self.control.take() {
            // It ends when every unit has stopped or its deadline is over.
            let _ = control.join();
        }
    }
}
