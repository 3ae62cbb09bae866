//! The engine: a leader thread that admits requests, composes bands, samples and reports, behind [`Generate`].
//!
//! Continuous batching: every live sequence with a chosen token has one row in the next decode band; prompts are read in
//! chunks that share prefill bands. A band takes a free lane; lane 0 is decode's. Requests wait in a bounded queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flume::{Receiver, Sender};
use luce_core::{
    BandId, BandKind, BandSpec, Chosen, Event, EventSink, Finish, Generate, GenerateRequest, LaneId, Lifecycle,
    Refusal, RequestId, RowSpan, SequenceId, Served, SlotId, SlotStatus, Status, Timings, TokenId, TokenPos, Usage,
};
use luce_device::Device;
use luce_model::{EngramHistory, ProgramOptions};

use crate::plane::{BandEnd, WaitPolicy};
use crate::{Model, Placement, Plane, PlaneOptions, RuntimeError, SamplerState};

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
}

enum Command {
    Submit(Box<Waiting>),
    Cancel(RequestId),
    Loaded(Box<(Plane, Receiver<BandEnd>)>),
    Drain,
    Stop,
}

struct Waiting {
    id: RequestId,
    request: GenerateRequest,
    sink: Box<dyn EventSink>,
    since: Instant,
}

/// An engine of one box. Dropping it ends its threads.
pub struct Engine {
    served: Served,
    max_queue: u32,
    lifecycle: Arc<Mutex<Lifecycle>>,
    queued: Arc<AtomicU64>,
    board: Arc<Mutex<Status>>,
    next: AtomicU64,
    commands: Sender<Command>,
    leader: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts an engine and loads the model in the background; see [`Generate::lifecycle`].
    ///
    /// # Errors
    /// [`RuntimeError::System`] when no thread can be started.
    pub fn start(
        model: Model,
        placement: Placement,
        devices: Vec<Box<dyn Device>>,
        options: EngineOptions,
    ) -> Result<Engine, RuntimeError> {
        let served =
            Served { name: options.name.clone(), context: options.program.context, vocabulary: model.config.vocab };
        let lifecycle = Arc::new(Mutex::new(Lifecycle::Loading(0.0)));
        let queued = Arc::new(AtomicU64::new(0));
        #[allow(clippy::disallowed_methods, reason = "to get a bound")]
        let (commands, mailbox) = flume::unbounded();
        let system = |e: std::io::Error| RuntimeError::System(format!("thread: {e}"));
        let max_queue = options.max_queue;
        let slots = options.program.slots;
        let board = Arc::new(Mutex::new(Status { slots, ..Status::default() }));
        let leader = Leader::new(&options, model.config.vocab, lifecycle.clone(), queued.clone(), board.clone());
        let handle =
            std::thread::Builder::new().name("leader".into()).spawn(move || leader.run(&mailbox)).map_err(system)?;
        let (state, loaded) = (lifecycle.clone(), commands.clone());
        let load = move || {
            let mut progress = |share| set(&state, Lifecycle::Loading(share));
            let plane = PlaneOptions { lanes: 1 + options.bands_in_flight as usize, wait: options.wait, tap: None };
            match Plane::start(&model, &placement, devices, options.program, plane, &mut progress) {
                Ok(plane) => drop(loaded.send(Command::Loaded(Box::new(plane)))),
                Err(e) => set(&state, Lifecycle::Broken(chain(&e))),
            }
        };
        std::thread::Builder::new().name("loader".into()).spawn(load).map_err(system)?;
        let next = AtomicU64::new(0);
        Ok(Engine { served, max_queue, lifecycle, queued, board, next, commands, leader: Some(handle) })
    }

    /// Takes no more requests; live ones finish.
    pub fn drain(&self) {
        set(&self.lifecycle, Lifecycle::Draining);
        let _ = self.commands.send(Command::Drain);
    }

    /// Waits until the model is loaded or cannot be.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn wait_ready(&self, mut progress: impl FnMut(f32)) -> Result<(), String> {
        loop {
            match self.lifecycle() {
                Lifecycle::Loading(share) => progress(share),
                Lifecycle::Broken(why) => return Err(why),
                Lifecycle::Ready | Lifecycle::Draining => return Ok(()),
            }
            #[allow(clippy::disallowed_methods, reason = "to become a wait for the change itself")]
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn set(lifecycle: &Mutex<Lifecycle>, to: Lifecycle) {
    let mut state = lifecycle.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!((&*state, &to), (Lifecycle::Draining | Lifecycle::Broken(_), Lifecycle::Loading(_) | Lifecycle::Ready))
    {
        *state = to;
    }
}

fn chain(error: &dyn std::error::Error) -> String {
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
        self.lifecycle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn status(&self) -> Status {
        let mut status = self.board.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.queued = self.queued.load(Ordering::Relaxed) as u32;
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
        let queued = self.queued.fetch_add(1, Ordering::SeqCst) as u32;
        if queued >= self.max_queue {
            self.queued.fetch_sub(1, Ordering::SeqCst);
            return Err(Refusal::Busy { queued });
        }
        let id = RequestId(self.next.fetch_add(1, Ordering::SeqCst));
        let waiting = Waiting { id, request, sink, since: Instant::now() };
        self.commands
            .send(Command::Submit(Box::new(waiting)))
            .map_err(|_| Refusal::Broken("the leader has stopped".into()))?;
        Ok(id)
    }

    fn cancel(&self, id: RequestId) {
        let _ = self.commands.send(Command::Cancel(id));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        if let Some(leader) = self.leader.take() {
            let _ = leader.join();
        }
    }
}

/// A live sequence.
struct Sequence {
    id: RequestId,
    slot: SlotId,
    /// Prompt and generated tokens.
    tokens: Vec<TokenId>,
    prompt: usize,
    /// Tokens announced.
    sent: usize,
    /// Bands in flight that hold rows of it.
    bands: u32,
    sampler: SamplerState,
    stop: Vec<TokenId>,
    max_tokens: u32,
    sink: Box<dyn EventSink>,
    /// Why it ended; it is dropped when its last band has.
    ended: Option<Finish>,
    failed: Option<String>,
    queue_us: u64,
    admitted: Instant,
    first: Option<Instant>,
}

struct Leader {
    lanes: Vec<bool>,
    slots: Vec<SlotId>,
    chunk: usize,
    vocab: usize,
    lifecycle: Arc<Mutex<Lifecycle>>,
    queued: Arc<AtomicU64>,
    board: Arc<Mutex<Status>>,
    queue: VecDeque<Waiting>,
    live: BTreeMap<SequenceId, Sequence>,
    next_band: u64,
    plane: Option<(Plane, Receiver<BandEnd>)>,
    logits: Vec<f32>,
    /// Prompt tokens read and tokens generated since start.
    totals: (u64, u64),
}

impl Leader {
    fn new(
        options: &EngineOptions,
        vocab: u32,
        lifecycle: Arc<Mutex<Lifecycle>>,
        queued: Arc<AtomicU64>,
        board: Arc<Mutex<Status>>,
    ) -> Leader {
        Leader {
            lanes: vec![false; 1 + options.bands_in_flight as usize],
            slots: (0..options.program.slots as u16).rev().map(SlotId).collect(),
            chunk: options.program.max_rows as usize,
            vocab: vocab as usize,
            lifecycle,
            queued,
            board,
            queue: VecDeque::new(),
            live: BTreeMap::new(),
            next_band: 0,
            plane: None,
            logits: Vec::new(),
            totals: (0, 0),
        }
    }

    fn run(mut self, mailbox: &Receiver<Command>) {
        enum Woken {
            Command(Option<Command>),
            End(Option<BandEnd>),
        }
        loop {
            let woken = match &self.plane {
                Some((_, ends)) if self.lanes.contains(&true) => flume::Selector::new()
                    .recv(ends, |e| Woken::End(e.ok()))
                    .recv(mailbox, |c| Woken::Command(c.ok()))
                    .wait(),
                _ => Woken::Command(mailbox.recv().ok()),
            };
            match woken {
                Woken::Command(None | Some(Command::Stop)) => break,
                Woken::Command(Some(Command::Submit(w))) => self.queue.push_back(*w),
                Woken::Command(Some(Command::Cancel(id))) => self.cancel(id),
                Woken::Command(Some(Command::Drain)) => {}
                Woken::Command(Some(Command::Loaded(plane))) => {
                    self.plane = Some(*plane);
                    set(&self.lifecycle, Lifecycle::Ready);
                }
                Woken::End(Some(end)) => self.band_ended(&end),
                Woken::End(None) => {
                    self.broken("the data plane has stopped");
                    break;
                }
            }
            self.admit();
            self.compose();
            self.publish();
        }
        for w in self.queue.drain(..) {
            let mut sink = w.sink;
            let _ = sink.send(Event::Failed("the engine has stopped".into()));
        }
        for (_, mut s) in std::mem::take(&mut self.live) {
            let _ = s.sink.send(Event::Failed("the engine has stopped".into()));
        }
        if let Some((plane, _)) = self.plane.take() {
            plane.stop();
        }
    }

    /// Shows the live sequences to status pages; skipped while one is being read.
    fn publish(&self) {
        let Ok(mut board) = self.board.try_lock() else { return };
        board.live.clear();
        board.live.extend(self.live.values().map(|s| SlotStatus {
            slot: u32::from(s.slot.0),
            request: s.id,
            prompt: s.prompt as u32,
            read: s.sent.min(s.prompt) as u32,
            generated: (s.tokens.len() - s.prompt) as u32,
        }));
        (board.prompt_tokens, board.generated_tokens) = self.totals;
    }

    fn broken(&mut self, why: &str) {
        set(&self.lifecycle, Lifecycle::Broken(why.to_owned()));
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(at) = self.queue.iter().position(|w| w.id == id) {
            let mut w = self.queue.remove(at).expect("found");
            self.queued.fetch_sub(1, Ordering::SeqCst);
            let usage = Usage { prompt: w.request.prompt.len() as u32, ..Usage::default() };
            let finish = Finish::Cancelled;
            let _ = w.sink.send(Event::Finished { finish, usage, timings: Timings::default() });
        }
        if let Some(s) = self.live.values_mut().find(|s| s.id == id) {
            s.ended.get_or_insert(Finish::Cancelled);
        }
        self.drop_ended();
    }

    fn admit(&mut self) {
        while self.plane.is_some() && !self.slots.is_empty() {
            let Some(mut w) = self.queue.pop_front() else { return };
            self.queued.fetch_sub(1, Ordering::SeqCst);
            if w.sink.send(Event::Admitted).is_err() {
                continue;
            }
            let slot = self.slots.pop().expect("checked");
            // Chosen at admission where the request names none: other requests get other text.
            let seed = u64::from(std::process::id()) ^ w.since.elapsed().as_nanos() as u64 ^ (w.id.0 << 32);
            let sequence = Sequence {
                id: w.id,
                slot,
                prompt: w.request.prompt.len(),
                sampler: SamplerState::new(&mut w.request, self.vocab as u32, seed),
                tokens: w.request.prompt,
                sent: 0,
                bands: 0,
                stop: w.request.stop_tokens,
                max_tokens: w.request.max_tokens,
                sink: w.sink,
                ended: None,
                failed: None,
                queue_us: w.since.elapsed().as_micros() as u64,
                admitted: Instant::now(),
                first: None,
            };
            self.live.insert(SequenceId(w.id.0), sequence);
        }
    }

    fn compose(&mut self) {
        if !self.lanes[0] {
            let ready = |s: &Sequence| s.ended.is_none() && s.sent >= s.prompt && s.sent < s.tokens.len();
            let ids: Vec<SequenceId> = self.live.iter().filter(|(_, s)| ready(s)).map(|(&id, _)| id).collect();
            self.announce(0, BandKind::Decode, ids.into_iter().map(|id| (id, 1)).collect());
        }
        for lane in 1..self.lanes.len() {
            if self.lanes[lane] {
                continue;
            }
            let mut room = self.chunk;
            let mut spans = Vec::new();
            for (&id, s) in self.live.iter().filter(|(_, s)| s.ended.is_none() && s.sent < s.prompt) {
                let n = room.min(s.prompt - s.sent);
                if n > 0 {
                    spans.push((id, n));
                    room -= n;
                }
            }
            self.announce(lane, BandKind::Prefill, spans);
        }
    }

    fn announce(&mut self, lane: usize, kind: BandKind, rows: Vec<(SequenceId, usize)>) {
        let Some((plane, _)) = &self.plane else { return };
        if rows.is_empty() {
            return;
        }
        let mut histories = Vec::new();
        let mut spans = Vec::new();
        for (id, n) in rows {
            let s = self.live.get_mut(&id).expect("composed from live sequences");
            let before: Vec<u32> = s.tokens[s.sent.saturating_sub(8)..s.sent].iter().map(|t| t.0).collect();
            histories.push(EngramHistory::of(&before));
            spans.push(RowSpan {
                sequence: id,
                slot: s.slot,
                first: TokenPos(s.sent as u32),
                tokens: s.tokens[s.sent..s.sent + n].to_vec(),
                picks: u32::from(s.sent + n == s.tokens.len()),
            });
            s.sent += n;
            s.bands += 1;
        }
        let spec = BandSpec { id: BandId(self.next_band), lane: LaneId(lane as u16), kind, spans };
        self.next_band += 1;
        self.lanes[lane] = true;
        if let Err(e) = plane.announce(spec, histories) {
            let why = e.to_string();
            self.live.values_mut().for_each(|s| s.failed = Some(why.clone()));
            self.broken(&why);
        }
    }

    fn band_ended(&mut self, end: &BandEnd) {
        let mut logits = std::mem::take(&mut self.logits);
        let result = match &self.plane {
            Some((plane, _)) => plane.logits(end, &mut logits),
            None => Err("the data plane has stopped".into()),
        };
        self.lanes[end.spec.lane.index()] = false;
        if let Err(why) = &result {
            self.broken(why);
        }
        let mut picks = logits.chunks_exact_mut(self.vocab);
        for span in &end.spec.spans {
            let Some(s) = self.live.get_mut(&span.sequence) else { continue };
            s.bands -= 1;
            if end.spec.kind == BandKind::Prefill {
                self.totals.0 += span.tokens.len() as u64;
            }
            if let Err(why) = &result {
                s.failed.get_or_insert_with(|| why.clone());
            } else if span.picks > 0 {
                let row = picks.next().expect("one row of logits per pick");
                if s.ended.is_none() {
                    self.totals.1 += 1;
                    s.take(row);
                }
            }
        }
        self.logits = logits;
        self.drop_ended();
    }

    /// Reports and forgets sequences that have ended and have no band in flight.
    fn drop_ended(&mut self) {
        let over = |s: &Sequence| (s.ended.is_some() || s.failed.is_some()) && s.bands == 0;
        let ids: Vec<SequenceId> = self.live.iter().filter(|(_, s)| over(s)).map(|(&id, _)| id).collect();
        for id in ids {
            let mut s = self.live.remove(&id).expect("listed");
            self.slots.push(s.slot);
            let event = match (s.failed.take(), s.ended) {
                (Some(why), _) => Event::Failed(why),
                (None, finish) => Event::Finished {
                    finish: finish.unwrap_or(Finish::Cancelled),
                    usage: Usage { prompt: s.prompt as u32, cached: 0, generated: (s.tokens.len() - s.prompt) as u32 },
                    timings: s.timings(),
                },
            };
            let _ = s.sink.send(event);
        }
    }
}

impl Sequence {
    /// Chooses and reports the next token.
    fn take(&mut self, logits: &mut [f32]) {
        let choice = match self.sampler.choose(logits, self.tokens.len() as u32) {
            Ok(choice) => choice,
            Err(why) => {
                self.failed = Some(why);
                return;
            }
        };
        let token = choice.token;
        self.first.get_or_insert_with(Instant::now);
        self.tokens.push(token);
        let stop = self.stop.contains(&token);
        if self.sink.send(Event::Token(Chosen { token, stop, logprobs: choice.logprobs })).is_err() {
            self.ended = Some(Finish::Cancelled);
        } else if stop {
            self.ended = Some(Finish::Stop);
        } else if self.tokens.len() - self.prompt >= self.max_tokens as usize {
            self.ended = Some(Finish::Length);
        }
    }

    fn timings(&self) -> Timings {
        let first = self.first.unwrap_or_else(Instant::now);
        Timings {
            queue_us: self.queue_us,
            prefill_us: first.duration_since(self.admitted).as_micros() as u64,
            decode_us: first.elapsed().as_micros() as u64,
        }
    }
}
