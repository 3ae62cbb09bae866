//! An answer on its way to the client, whole or as a stream of events, in whichever protocol.

use std::time::{Duration, Instant};

use actix_web::HttpResponse;
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::config::ApiConfig;
use crate::error::ApiError;
use crate::parser::Deltas;
use crate::run::{Outcome, Run, Step};
use crate::scores::Scores;
use crate::sse;

/// How often a silent engine wakes up who waits for a whole answer, which has nothing to send before it is complete.
const SILENCE: Duration = Duration::from_secs(3600);

/// Waits for the end of an answer; `add` gets what comes.
///
/// # Errors
/// Why it cannot be completed.
pub(crate) async fn collect(
    mut run: Run,
    log: &Log,
    mut add: impl FnMut(Deltas, Scores),
) -> Result<Box<Outcome>, ApiError> {
    loop {
        match run.next(SILENCE).await {
            Step::Deltas(deltas, scores) => add(deltas, scores),
            Step::Silence => {}
            Step::Failed(error) => {
                log.failed(&error);
                return Err(error);
            }
            Step::Done(mut outcome) => {
                add(std::mem::take(&mut outcome.last), std::mem::take(&mut outcome.last_scores));
                log.done(&outcome);
                return Ok(outcome);
            }
        }
    }
}

/// Writes the events of one protocol's streams.
pub(crate) trait Writer: 'static {
    /// What fills silence.
    fn silence(&mut self, out: &mut String) {
        out.push_str(sse::KEEP_ALIVE);
    }

    /// What came. It may be nothing, at the end.
    fn deltas(&mut self, deltas: Deltas, scores: Scores, out: &mut String);

    /// The events that end a complete answer.
    fn end(&mut self, outcome: &Outcome, out: &mut String);

    /// The events that end an answer that cannot be completed.
    fn fail(&mut self, error: &ApiError, out: &mut String);
}

/// Streams an answer. `first` goes out at once, before the prompt is computed; dropping the stream cancels the request.
pub(crate) fn stream<W: Writer>(run: Run, log: Log, config: &ApiConfig, first: String, writer: W) -> HttpResponse {
    let answer = Streamed { run, log, keep_alive: Duration::from_secs(config.keep_alive), writer };
    let rest = stream::unfold(Some(answer), |answer| async {
        let mut answer = answer?;
        let (text, goes_on) = answer.next().await;
        Some((Ok(Bytes::from(text)), goes_on.then_some(answer)))
    });
    sse::response(stream::once(std::future::ready(Ok(Bytes::from(first)))).chain(rest))
}

/// A streamed answer.
struct Streamed<W> {
    run: Run,
    log: Log,
    keep_alive: Duration,
    writer: W,
}

impl<W: Writer> Streamed<W> {
    /// The next events, and whether more follow.
    async fn next(&mut self) -> (String, bool) {
        let mut text = String::new();
        match self.run.next(self.keep_alive).await {
            Step::Silence => self.writer.silence(&mut text),
            Step::Deltas(deltas, scores) => self.writer.deltas(deltas, scores, &mut text),
            Step::Done(mut outcome) => {
                let scores = std::mem::take(&mut outcome.last_scores);
                self.writer.deltas(std::mem::take(&mut outcome.last), scores, &mut text);
                self.writer.end(&outcome, &mut text);
                self.log.done(&outcome);
                return (text, false);
            }
            Step::Failed(error) => {
                self.writer.fail(&error, &mut text);
                self.log.failed(&error);
                return (text, false);
            }
        }
        (text, true)
    }
}

/// What the log says about an answer; never any of its text.
pub(crate) struct Log {
    endpoint: &'static str,
    request_id: String,
    /// Tokens.
    prompt: usize,
    begun: Instant,
}

impl Log {
    /// Of an answer that begins now, to a prompt of so many tokens.
    pub(crate) fn new(endpoint: &'static str, request_id: &str, prompt: usize) -> Log {
        Log { endpoint, request_id: request_id.to_owned(), prompt, begun: Instant::now() }
    }

    fn done(&self, outcome: &Outcome) {
        tracing::info!(
            endpoint = self.endpoint,
            request = self.request_id,
            finish = outcome.reason.name(),
            prompt = outcome.counts.prompt,
            cached = outcome.counts.cached,
            generated = outcome.counts.completion,
            queue_ms = outcome.timings.queue_us / 1000,
            prefill_ms = outcome.timings.prefill_us / 1000,
            decode_ms = outcome.timings.decode_us / 1000,
            total_ms = self.begun.elapsed().as_millis(),
            "answered"
        );
    }

    fn failed(&self, error: &ApiError) {
        tracing::warn!(
            endpoint = self.endpoint,
            request = self.request_id,
            prompt = self.prompt,
            error = %error,
            "failed"
        );
    }
}
