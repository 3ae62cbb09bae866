//! One request in the engine: its events into deltas, its end into counts, its cancellation.
//!
//! Dropping a [`Run`] cancels the request, in every phase; this is how a client that goes away takes its work along.
//! Events cross from the engine's control thread through a queue that has room for everything the request can send, so
//! the engine never waits for a slow reader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use luce_core::{Chosen, Event, Finish, Generate, RequestId, SinkClosed, Timings, TokenId, Usage};
use luce_model::tokenizer::Utf8Stream;
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use crate::ask::Ready;
use crate::codec::{ChatCodec, Piece};
use crate::error::ApiError;
use crate::memory::Note;
use crate::metrics::Metrics;
use crate::parser::{Cause, Deltas, OutputParser, Reason, Symbol};
use crate::scores::{Score, Scores};
use crate::state::{Backend, Place};
use crate::whole::Whole;

/// How long the engine may take to confirm a cancellation before the answer goes out without its counts. It has to
/// end within a step, or a chunk of prefill, of at most a second.
const CONFIRM: Duration = Duration::from_secs(2);
/// Events besides tokens: admitted, and the end.
const OTHER_EVENTS: usize = 2;

/// A submitted request.
pub(crate) struct Run {
    events: mpsc::Receiver<Event>,
    request: Submitted,
    codec: Arc<dyn ChatCodec>,
    place: Place,
    parser: OutputParser,
    utf8: Utf8Stream,
    prompt_tokens: u32,
    sampled: u32,
    reasoning: u32,
    /// Log-probabilities to send with the next deltas.
    scores: Scores,
    /// Those of content that is held.
    held_scores: Vec<Score>,
    /// Of an answer that is to be remembered.
    record: Option<Record>,
    /// What happened after the deltas that were just told.
    failure: Option<ApiError>,
    /// When something was last sent to the client.
    quiet_since: tokio::time::Instant,
    /// Until when it has to leave the queue, while it has not.
    queued_until: Option<tokio::time::Instant>,
}

/// What happened next.
pub(crate) enum Step {
    /// There is something to send, and the log-probabilities of what it came from where they were asked for.
    Deltas(Deltas, Scores),
    /// There was nothing to send for a while.
    Silence,
    /// The answer is complete.
    Done(Box<Outcome>),
    /// The answer cannot be completed.
    Failed(ApiError),
}

/// An answer as it comes.
struct Record {
    note: Note,
    tokens: Vec<TokenId>,
    told: Whole,
}

/// How an answer ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was still held.
    pub(crate) last: Deltas,
    pub(crate) last_scores: Scores,
    pub(crate) reason: Reason,
    /// The stop string that ended the answer, if one did.
    pub(crate) stop_string: Option<String>,
    pub(crate) counts: Counts,
    pub(crate) timings: Timings,
}

/// Token counts as clients see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) prompt: u32,
    /// Of the prompt, tokens that were not computed again.
    pub(crate) cached: u32,
    /// Sampled tokens, less the one that ended the turn.
    pub(crate) completion: u32,
    /// Of these, tokens before `</think>`.
    pub(crate) reasoning: u32,
}

impl Run {
    /// Hands a request to the engine.
    ///
    /// # Errors
    /// What the engine's refusal means for the client.
    pub(crate) fn submit(backend: Backend, place: Place, ready: Ready) -> Result<Run, ApiError> {
        let Ready { request, parser, note } = ready;
        // The queue holds all that can come, so it never fills; blocks of it are allocated as they are used.
        let mut left = request.max_tokens as usize + OTHER_EVENTS;
        let (sender, events) = mpsc::channel(left);
        let prompt_tokens = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        // An engine that says more than it may has lost its way: closing the queue turns that into an error here.
        let mut sender = Some(sender);
        let mut clock = Clock::new(Arc::clone(place.metrics()));
        let sink = move |event| {
            clock.tick(&event);
            sender = sender.take().filter(|open| left > 0 && open.try_send(event).is_ok());
            left = left.saturating_sub(1);
            if sender.is_some() { Ok(()) } else { Err(SinkClosed) }
        };
        let id = backend.generate.submit(request, Box::new(sink)).map_err(|refusal| ApiError::of_refusal(&refusal))?;
        Ok(Run {
            events,
            request: Submitted { generate: backend.generate, id, ended: false, metrics: Arc::clone(place.metrics()) },
            codec: backend.codec,
            queued_until: Some(tokio::time::Instant::now() + Duration::from_secs(place.max_queue_wait())),
            place,
            parser,
            utf8: Utf8Stream::new(),
            prompt_tokens,
            sampled: 0,
            reasoning: 0,
            scores: Scores::default(),
            held_scores: Vec::new(),
            record: note.map(|note| Record { note, tokens: Vec::new(), told: Whole::default() }),
            failure: None,
            quiet_since: tokio::time::Instant::now(),
        })
    }

    /// Waits for the next thing to tell the client. Events that wait together come as one step. After `Done` and
    /// `Failed` it must not be called again.
    pub(crate) async fn next(&mut self, keep_alive: Duration) -> Step {
        let step = match self.failure.take() {
            Some(error) => Step::Failed(error),
            None => self.step(keep_alive).await,
        };
        let metrics = self.place.metrics();
        match &step {
            Step::Silence => {}
            Step::Deltas(deltas, _) => {
                if let Some(record) = &mut self.record {
                    record.told.add(deltas.clone(), Scores::default());
                }
            }
            Step::Done(outcome) => {
                metrics.finished(outcome.reason, outcome.counts, outcome.timings);
                let (calls, unreadable) = self.parser.called();
                metrics.tool_calls.add(calls as u64);
                metrics.unreadable_calls.add(unreadable.into());
                // What was cut, or says more than was told, is not what the client sends back.
                if outcome.reason != Reason::Length
                    && outcome.stop_string.is_none()
                    && !unreadable
                    && let Some(mut record) = self.record.take()
                {
                    record.told.add(outcome.last.clone(), Scores::default());
                    record.note.keep(record.tokens, record.told, &*self.codec);
                }
            }
            Step::Failed(_) => {
                metrics.failed();
                self.request.cancel();
            }
        }
        step
    }

    async fn step(&mut self, keep_alive: Duration) -> Step {
        loop {
            if self.parser.finished() {
                return self.end_early().await;
            }
            let queued_until = self.queued_until;
            let mut event = tokio::select! {
                biased;
                () = self.place.aborted() => return Step::Failed(ApiError::draining()),
                event = self.events.recv() => event,
                () = until(queued_until) => {
                    self.place.metrics().rejected("queue_wait");
                    return Step::Failed(ApiError::queue_wait(self.place.max_queue_wait()));
                }
                () = sleep_until(self.quiet_since + keep_alive) => {
                    self.quiet_since = tokio::time::Instant::now();
                    return Step::Silence;
                }
            };
            let mut deltas = Deltas::default();
            loop {
                match event {
                    None => {
                        return self.failed("the engine gave the request up without saying why".to_owned(), deltas);
                    }
                    Some(Event::Admitted) => self.queued_until = None,
                    Some(Event::Token(chosen)) => self.token(chosen, &mut deltas),
                    Some(Event::Finished { finish, usage, timings }) => {
                        return self.finished(finish, usage, timings, deltas);
                    }
                    Some(Event::Failed(why)) => return self.failed(why, deltas),
                }
                if self.parser.finished() {
                    break;
                }
                match self.events.try_recv() {
                    Ok(more) => event = Some(more),
                    // If the queue is closed the outer loop finds out.
                    Err(_) => break,
                }
            }
            if !deltas.is_empty() {
                self.quiet_since = tokio::time::Instant::now();
                return Step::Deltas(deltas, std::mem::take(&mut self.scores));
            }
        }
    }

    /// What was said before a failure is told first.
    fn failed(&mut self, why: String, deltas: Deltas) -> Step {
        self.request.ended = true;
        let error = ApiError::internal(why);
        if deltas.is_empty() {
            return Step::Failed(error);
        }
        self.failure = Some(error);
        Step::Deltas(deltas, std::mem::take(&mut self.scores))
    }

    fn token(&mut self, chosen: Chosen, all: &mut Deltas) {
        if chosen.stop {
            return;
        }
        self.sampled += 1;
        if let Some(record) = &mut self.record {
            record.tokens.push(chosen.token);
        }
        let (reasoning, content) = (self.parser.in_reasoning(), self.parser.in_content());
        let mut deltas = Deltas::default();
        let mut text = String::new();
        let symbol = match self.codec.piece(chosen.token) {
            Piece::Text(bytes) => {
                self.utf8.push(&bytes, &mut text);
                None
            }
            Piece::ThinkOpen => Some(Symbol::ThinkOpen),
            Piece::ThinkClose => Some(Symbol::ThinkClose),
            Piece::Dsml => Some(Symbol::Dsml),
            Piece::Hidden => None,
        };
        if symbol.is_some() {
            self.utf8.break_off(&mut text);
        }
        self.parser.push(Symbol::Text(&text), &mut deltas);
        if let Some(symbol) = symbol {
            self.parser.push(symbol, &mut deltas);
        }
        self.reasoning += u32::from(reasoning && self.parser.in_reasoning());
        if let Some(logprobs) = chosen.logprobs {
            let of = |token| self.codec.spelling(token).into_owned();
            let score = || Score::new(of(chosen.token), &logprobs, of);
            if reasoning && self.parser.in_reasoning() {
                self.scores.reasoning.push(score());
            } else if content && (self.parser.in_content() || self.parser.finished()) {
                self.held_scores.push(score());
            }
        }
        self.show_scores(&deltas);
        if !self.parser.in_content() {
            // What was held belongs to a tool call or a stop string.
            self.held_scores.clear();
        }
        deltas.into_iter().for_each(|delta| all.push(delta));
    }

    /// Scores of content wait for its text, which may turn out not to be shown.
    fn show_scores(&mut self, deltas: &Deltas) {
        if deltas.has_content() {
            self.scores.content.append(&mut self.held_scores);
        }
    }

    fn finished(&mut self, finish: Finish, usage: Usage, timings: Timings, mut last: Deltas) -> Step {
        self.request.ended = true;
        let cause = match finish {
            Finish::Stop => Cause::Stop,
            Finish::Length => Cause::Length,
            Finish::Cancelled if self.parser.finished() => Cause::Stop,
            Finish::Cancelled => return Step::Failed(ApiError::draining()),
        };
        let mut end = Deltas::default();
        let reason = self.parser.end(cause, &mut end);
        self.show_scores(&end);
        end.into_iter().for_each(|delta| last.push(delta));
        let counts =
            Counts { prompt: usage.prompt, cached: usage.cached, completion: self.sampled, reasoning: self.reasoning };
        let last_scores = std::mem::take(&mut self.scores);
        let stop_string = self.parser.stopped_by();
        Step::Done(Box::new(Outcome { last, last_scores, reason, stop_string, counts, timings }))
    }

    /// The parser has all it wants: ends the request and waits for the engine's counts.
    async fn end_early(&mut self) -> Step {
        self.request.cancel();
        let begun = Instant::now();
        loop {
            match timeout(CONFIRM.saturating_sub(begun.elapsed()), self.events.recv()).await {
                Ok(Some(Event::Finished { finish, usage, timings })) => {
                    return self.finished(finish, usage, timings, Deltas::default());
                }
                // Tokens on their way; they belong to nothing.
                Ok(Some(Event::Admitted | Event::Token(_))) => {}
                Ok(Some(Event::Failed(_)) | None) | Err(_) => {
                    // The answer is complete all the same; only the engine's own numbers are missing.
                    let usage = Usage { prompt: self.prompt_tokens, ..Usage::default() };
                    return self.finished(Finish::Cancelled, usage, Timings::default(), Deltas::default());
                }
            }
        }
    }
}

/// Waits for a time, or for ever.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Measures when events come, on the engine's thread: a slow reader must not change the numbers.
struct Clock {
    metrics: Arc<Metrics>,
    /// The submission, then each token.
    since: Instant,
    first: bool,
}

impl Clock {
    fn new(metrics: Arc<Metrics>) -> Clock {
        Clock { metrics, since: Instant::now(), first: true }
    }

    fn tick(&mut self, event: &Event) {
        match event {
            Event::Admitted => self.metrics.admitted(self.since.elapsed()),
            Event::Token(_) => {
                let now = Instant::now();
                self.metrics.token(self.first, now - self.since);
                (self.since, self.first) = (now, false);
            }
            Event::Finished { .. } | Event::Failed(_) => {}
        }
    }
}

/// A request that the engine took: cancelled when dropped, unless it has ended.
struct Submitted {
    generate: Arc<dyn Generate>,
    id: RequestId,
    ended: bool,
    metrics: Arc<Metrics>,
}

impl Submitted {
    fn cancel(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.generate.cancel(self.id);
        }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if !self.ended {
            tracing::info!(request = self.id.0, "cancelled: the client has gone away");
            self.metrics.disconnects.add(1);
            self.cancel();
        }
    }
}
