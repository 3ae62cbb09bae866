//! `POST /v1/chat/completions`, streaming and not.

mod request;
mod shape;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use serde_json::{Map, Value};

use self::shape::Head;
pub(crate) use self::shape::{fingerprint, timings, usage};
use super::models;
use crate::ask::{Ask, Ready};
use crate::error::ApiError;
use crate::parser::Deltas;
use crate::run::{Outcome, Run, Step};
use crate::scores::Scores;
use crate::state::{Backend, Shared, unix_seconds};
use crate::whole::Whole;
use crate::{body, ids, sse};

/// Answers a request. `request_id` is for the log.
///
/// # Errors
/// Everything that goes wrong before the first byte of an answer.
pub(crate) async fn answer(
    http: &HttpRequest,
    payload: Payload,
    shared: &Arc<Shared>,
    request_id: &str,
) -> Result<HttpResponse, ApiError> {
    let (place, backend) = shared.admit()?;
    let bytes = body::read(http.headers(), payload, &shared.config).await?;
    let (ask, ready) = prepare(bytes, Arc::clone(shared), backend.clone()).await?;
    let served = backend.generate.served();
    let head = Head {
        id: format!("chatcmpl-{}", ids::unique()),
        created: unix_seconds(),
        model: models::resolve(shared, served, ask.options.model.as_deref())?,
        fingerprint: fingerprint(served),
    };
    let prompt = ready.request.prompt.len();
    let log = Log { endpoint: "chat", request_id: request_id.to_owned(), prompt, begun: Instant::now() };
    let run = Run::submit(backend, place, ready)?;
    let keep_alive = Duration::from_secs(shared.config.keep_alive);
    if ask.options.stream {
        let include_usage = ask.options.include_usage;
        let answer = Answer { run, head, log, include_usage, keep_alive, scores: Scores::default() };
        return Ok(sse::response(answer.events()));
    }
    whole(run, &head, &log, &ask).await
}

/// Parses, checks and encodes a body, on a thread that may block: a long conversation takes many milliseconds.
async fn prepare(bytes: Vec<u8>, shared: Arc<Shared>, backend: Backend) -> Result<(Ask, Ready), ApiError> {
    let work = move || {
        let body: Map<String, Value> = body::parse(&bytes)?;
        let ask = request::read(&body, backend.codec.family())?;
        let ready = ask.prepare(&shared, &backend)?;
        Ok((ask, ready))
    };
    web::block(work).await.unwrap_or_else(|_| Err(ApiError::internal("the request could not be read: a thread failed")))
}

async fn whole(mut run: Run, head: &Head, log: &Log, ask: &Ask) -> Result<HttpResponse, ApiError> {
    let mut parts = Whole::default();
    loop {
        match run.next(Duration::from_secs(3600)).await {
            Step::Deltas(deltas, scores) => parts.add(deltas, scores),
            // Nothing can be sent before the answer is whole.
            Step::Silence => {}
            Step::Failed(error) => {
                log.failed(&error);
                return Err(error);
            }
            Step::Done(mut outcome) => {
                parts.add(std::mem::take(&mut outcome.last), std::mem::take(&mut outcome.last_scores));
                log.done(&outcome);
                let (thinking, logprobs) = (ask.conversation.thinking.is_some(), ask.options.logprobs.is_some());
                return Ok(HttpResponse::Ok().json(head.whole(parts, thinking, logprobs, &outcome)));
            }
        }
    }
}

/// A streamed answer.
struct Answer {
    run: Run,
    head: Head,
    log: Log,
    include_usage: bool,
    keep_alive: Duration,
    /// Log-probabilities that no chunk has taken yet.
    scores: Scores,
}

impl Answer {
    /// Its events. The first comes at once, before the prompt is computed; dropping the stream cancels the request.
    fn events(self) -> impl Stream<Item = Result<Bytes, actix_web::Error>> + 'static {
        let mut first = String::new();
        sse::data(&self.head.role(), &mut first);
        let rest = stream::unfold(Some(self), |answer| async {
            let mut answer = answer?;
            let (text, goes_on) = answer.next().await;
            Some((Ok(Bytes::from(text)), goes_on.then_some(answer)))
        });
        futures_util::StreamExt::chain(stream::once(std::future::ready(Ok(Bytes::from(first)))), rest)
    }

    /// The next events, and whether more follow.
    async fn next(&mut self) -> (String, bool) {
        let mut text = String::new();
        match self.run.next(self.keep_alive).await {
            Step::Silence => text.push_str(sse::KEEP_ALIVE),
            Step::Deltas(deltas, scores) => self.deltas(deltas, scores, &mut text),
            Step::Done(mut outcome) => {
                let scores = std::mem::take(&mut outcome.last_scores);
                self.deltas(std::mem::take(&mut outcome.last), scores, &mut text);
                for chunk in self.head.end(&outcome, &self.scores, self.include_usage) {
                    sse::data(&chunk, &mut text);
                }
                text.push_str(sse::DONE);
                self.log.done(&outcome);
                return (text, false);
            }
            Step::Failed(error) => {
                sse::data(&error.body(), &mut text);
                text.push_str(sse::DONE);
                self.log.failed(&error);
                return (text, false);
            }
        }
        (text, true)
    }

    fn deltas(&mut self, deltas: Deltas, scores: Scores, text: &mut String) {
        self.scores.append(scores);
        for delta in deltas {
            sse::data(&self.head.delta(delta, &mut self.scores), text);
        }
    }
}

/// What the log says about an answer; never any of its text.
pub(crate) struct Log {
    pub(crate) endpoint: &'static str,
    pub(crate) request_id: String,
    /// Tokens.
    pub(crate) prompt: usize,
    pub(crate) begun: Instant,
}

impl Log {
    pub(crate) fn done(&self, outcome: &Outcome) {
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

    pub(crate) fn failed(&self, error: &ApiError) {
        tracing::warn!(
            endpoint = self.endpoint,
            request = self.request_id,
            prompt = self.prompt,
            error = %error,
            "failed"
        );
    }
}
