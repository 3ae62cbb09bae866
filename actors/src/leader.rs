//! The leader: a thread that composes bands of the live sequences and reports their tokens.
//!
//! Continuous batching: every live sequence with a chosen token has one row in the next decode band; prompts are read in
//! chunks that share prefill bands. A band takes a free lane; lane 0 is decode's.
//!
//! Message paths. The scheduler admits a request only where a slot is free, and hears when it is free again; the
//! supervisor brings the data plane and takes it away; the sampler answers each announced band.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use flume::{Receiver, Selector, Sender};
use luce_core::{
    BandId, BandKind, BandSpec, Chosen, Event, EventSink, Finish, GenerateRequest, LaneId, Lifecycle, RequestId,
    RowSpan, SequenceId, SlotId, SlotStatus, Timings, TokenId, TokenPos, Usage,
};
use luce_model::EngramHistory;

use crate::control::{Outlet, Shared};
use crate::runtime::BandFailure;
use crate::sampler::{Choice, Order, Sampled, SamplerState};
use crate::{EngineOptions, Plane};

/// How long an order to the sampler may wait for room. Its mailbox holds all that the slots can cause.
const ORDER_DEADLINE: Duration = Duration::from_secs(10);

/// A request on its way to a slot.
pub(crate) struct Waiting {
    pub(crate) id: RequestId,
    pub(crate) request: GenerateRequest,
    pub(crate) sink: Box<dyn EventSink>,
    pub(crate) since: Instant,
}

/// Message to the leader.
pub(crate) enum LeaderMessage {
    /// There is a slot for this request.
    Admit(Box<Waiting>),
    /// End it within a step.
    Cancel(RequestId),
    /// The data plane is loaded and its threads run.
    Plane(Box<Stage>),
    /// The data plane is lost, for this reason.
    Lost(String),
    /// End of the thread.
    Stop,
}

/// A running data plane with its sampler.
pub(crate) struct Stage {
    pub(crate) plane: Plane,
    pub(crate) orders: Sender<Order>,
    pub(crate) sampled: Receiver<Sampled>,
    /// Counts the planes since start.
    pub(crate) generation: u64,
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
    /// Until the sampler has it: a request that comes while the plane is being loaded again waits for its sampler.
    unopened: Option<Box<SamplerState>>,
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

/// The leader's state.
pub(crate) struct Leader {
    lanes: Vec<bool>,
    slots: Vec<SlotId>,
    chunk: usize,
    vocabulary: u32,
    shared: Arc<Shared>,
    /// To scheduler and supervisor.
    outlet: Outlet,
    live: BTreeMap<SequenceId, Sequence>,
    next_band: u64,
    stage: Option<Stage>,
    /// Prompt tokens read and tokens generated since start.
    totals: (u64, u64),
}

enum Woken {
    Message(Option<LeaderMessage>),
    Sampled(Option<Sampled>),
}

impl Leader {
    pub(crate) fn new(options: &EngineOptions, vocabulary: u32, shared: Arc<Shared>, outlet: Outlet) -> Leader {
        Leader {
            lanes: vec![false; options.lanes()],
            slots: (0..options.program.slots as u16).rev().map(SlotId).collect(),
            chunk: options.program.max_rows as usize,
            vocabulary,
            shared,
            outlet,
            live: BTreeMap::new(),
            next_band: 0,
            stage: None,
            totals: (0, 0),
        }
    }

    /// Runs until `Stop`, or until every sender is gone.
    pub(crate) fn run(mut self, mailbox: &Receiver<LeaderMessage>) {
        loop {
            let woken = match &self.stage {
                Some(stage) if self.lanes.contains(&true) => Selector::new()
                    .recv(&stage.sampled, |s| Woken::Sampled(s.ok()))
                    .recv(mailbox, |m| Woken::Message(m.ok()))
                    .wait(),
                _ => Woken::Message(mailbox.recv().ok()),
            };
            match woken {
                Woken::Message(None | Some(LeaderMessage::Stop)) => break,
                Woken::Message(Some(LeaderMessage::Admit(w))) => self.admit(*w),
                Woken::Message(Some(LeaderMessage::Cancel(id))) => self.cancel(id),
                Woken::Message(Some(LeaderMessage::Plane(stage))) => {
                    self.stage = Some(*stage);
                    self.open();
                }
                Woken::Message(Some(LeaderMessage::Lost(why))) => self.lost(&why),
                Woken::Sampled(Some(sampled)) => self.band_ended(sampled),
                // Its unit has told the supervisor, who says why the plane is lost.
                Woken::Sampled(None) => self.stage = None,
            }
            self.compose();
            self.publish();
        }
        self.lost("the engine has stopped");
    }

    fn admit(&mut self, mut w: Waiting) {
        if w.sink.send(Event::Admitted).is_err() {
            self.outlet.freed(1);
            return;
        }
        let slot = self.slots.pop().expect("the scheduler admits only where a slot is free");
        // Chosen at admission where the request names none: other requests get other text.
        let seed = u64::from(std::process::id()) ^ w.since.elapsed().as_nanos() as u64 ^ (w.id.0 << 32);
        let id = SequenceId(w.id.0);
        let sampler = SamplerState::new(&mut w.request, self.vocabulary, seed);
        let sequence = Sequence {
            id: w.id,
            slot,
            prompt: w.request.prompt.len(),
            tokens: w.request.prompt,
            sent: 0,
            bands: 0,
            unopened: Some(Box::new(sampler)),
            stop: w.request.stop_tokens,
            max_tokens: w.request.max_tokens,
            sink: w.sink,
            ended: None,
            failed: None,
            queue_us: w.since.elapsed().as_micros() as u64,
            admitted: Instant::now(),
            first: None,
        };
        self.live.insert(id, sequence);
        self.open();
    }

    /// Gives the sampler what it does not know yet.
    fn open(&mut self) {
        let Some(stage) = &self.stage else { return };
        for (&id, s) in &mut self.live {
            if let Some(sampler) = s.unopened.take()
                && stage.orders.send_timeout(Order::Open(id, sampler), ORDER_DEADLINE).is_err()
            {
                s.failed = Some("the sampler does not take orders".into());
            }
        }
        self.drop_ended();
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(s) = self.live.get_mut(&SequenceId(id.0)) {
            s.ended.get_or_insert(Finish::Cancelled);
        }
        self.drop_ended();
    }

    /// Fails every live sequence: no band in flight will end.
    fn lost(&mut self, why: &str) {
        self.stage = None;
        self.lanes.fill(false);
        for s in self.live.values_mut() {
            s.failed.get_or_insert_with(|| why.to_owned());
            s.bands = 0;
        }
        self.drop_ended();
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
        let Some(stage) = &self.stage else { return };
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
        if stage.plane.announce(spec, histories).is_err() {
            // As where the sampler is gone: the unit of the thread that has ended tells the supervisor.
            self.stage = None;
        }
    }

    fn band_ended(&mut self, sampled: Sampled) {
        let spec = sampled.spec;
        self.lanes[spec.lane.index()] = false;
        for span in &spec.spans {
            let Some(s) = self.live.get_mut(&span.sequence) else { continue };
            s.bands -= 1;
            if spec.kind == BandKind::Prefill {
                self.totals.0 += span.tokens.len() as u64;
            }
            if let Err(failure) = &sampled.choices {
                s.failed.get_or_insert_with(|| failure.why().to_owned());
            }
        }
        match sampled.choices {
            Ok(choices) => {
                for (id, choice) in choices {
                    if let Some(s) = self.live.get_mut(&id).filter(|s| s.ended.is_none() && s.failed.is_none()) {
                        self.totals.1 += 1;
                        s.take(choice);
                    }
                }
            }
            Err(BandFailure::Device(why)) => {
                if let Some(stage) = &self.stage {
                    // Before any client hears of it: who asks again at once must not get the broken plane.
                    self.shared.set(Lifecycle::Loading(0.0));
                    self.outlet.plane_failed(stage.generation, why);
                }
            }
            Err(BandFailure::Band(_)) => {}
        }
        self.drop_ended();
    }

    /// Reports and forgets sequences that have ended and have no band in flight.
    fn drop_ended(&mut self) {
        let over = |s: &Sequence| (s.ended.is_some() || s.failed.is_some()) && s.bands == 0;
        let ids: Vec<SequenceId> = self.live.iter().filter(|(_, s)| over(s)).map(|(&id, _)| id).collect();
        let ended: Vec<(SequenceId, Sequence)> = ids.into_iter().filter_map(|id| self.live.remove_entry(&id)).collect();
        if !ended.is_empty() {
            // Before their clients know: who looks next does not find them.
            self.publish();
        }
        for (id, mut s) in ended {
            if let Some(stage) = &self.stage {
                // A sampler that is gone needs no order.
                let _ = stage.orders.send_timeout(Order::Close(id), ORDER_DEADLINE);
            }
            self.slots.push(s.slot);
            self.outlet.freed(1);
            let event = match (s.failed.take(), s.ended) {
                (Some(why), _) => Event::Failed(why),
                (None, finish) => Event::Finished {
                    finish: finish.unwrap_or(Finish::Cancelled),
                    usage: Usage { prompt: s.prompt as u32, cached: 0, generated: (s.tokens.len() - s.prompt) as u32 },
                    timings: s.timings(),
                },
            };
            // A sink that has closed wants to hear no more.
            let _ = s.sink.send(event);
        }
    }

    /// Shows the live sequences to status pages; skipped while one is being read.
    fn publish(&self) {
        let mut board = match self.shared.board.try_lock() {
            Ok(board) => board,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(std::sync::TryLockError::WouldBlock) => return,
        };
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
}

impl Sequence {
    /// Reports the next token.
    fn take(&mut self, choice: Result<Choice, String>) {
        let choice = match choice {
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
