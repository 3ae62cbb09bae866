//! `POST /v1/responses` and `/v1/responses/input_tokens`: the Responses API, streaming and not. Nothing is stored.

mod events;
mod input;
mod object;
mod request;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value, json};

use self::events::Events;
use self::object::Object;
use self::request::Wishes;
use super::chat::Log;
use super::models;
use crate::ask::{Ask, Ready};
use crate::error::ApiError;
use crate::run::{Run, Step};
use crate::state::{Backend, Shared, unix_seconds};
use crate::{body, ids, sse};

/// Silent spells after which an event is sent instead of a comment: clients' idle timers do not count comments.
const COMMENTS: u32 = 2;

/// Answers a request. `request_id` is for the log.
///
/// # Errors
/// Everything that goes wrong before the first byte of an answer. A stream says in its events that a prompt is too long,
/// since some clients look for it there.
pub(crate) async fn answer(
    http: &HttpRequest,
    payload: Payload,
    shared: &Arc<Shared>,
    request_id: &str,
) -> Result<HttpResponse, ApiError> {
    let (place, backend) = shared.admit()?;
    let bytes = body::read(http.headers(), payload, &shared.config).await?;
    let read = read(bytes, shared, backend.clone()).await?;
    let stream = read.ask.options.stream;
    let mut events = Events::new(read.object, read.wishes);
    let ready = match read.ready {
        Ok(ready) => ready,
        Err(error) if stream && error.is_overflow() => {
            tracing::info!(request = request_id, %error, "refused");
            let mut text = String::new();
            events.start();
            events.fail(&error);
            write(&mut events, &mut text);
            return Ok(sse::response(stream::once(std::future::ready(Ok(Bytes::from(text))))));
        }
        Err(error) => return Err(error),
    };
    let prompt = ready.request.prompt.len();
    let log = Log { endpoint: "responses", request_id: request_id.to_owned(), prompt, begun: Instant::now() };
    let run = Run::submit(backend, place, ready)?;
    if stream {
        let keep_alive = Duration::from_secs(shared.config.keep_alive);
        return Ok(sse::response(Answer { run, events, log, keep_alive, silent: 0 }.events()));
    }
    whole(run, events, &log).await
}

/// The exact length of the prompt that `/v1/responses` would build. It does not wait for the engine.
///
/// # Errors
/// 400 for a body that makes no conversation, 503 while no model is known.
pub(crate) async fn count(
    http: &HttpRequest,
    payload: Payload,
    shared: &Arc<Shared>,
) -> Result<HttpResponse, ApiError> {
    let codec = Arc::clone(&shared.known()?.codec);
    let bytes = body::read(http.headers(), payload, &shared.config).await?;
    let shared = Arc::clone(shared);
    let work = move || {
        let (ask, _) = request::read(&body::parse(&bytes)?, codec.family())?;
        Ok(ask.encode(&shared, &*codec).prompt.len())
    };
    let tokens = web::block(work).await.unwrap_or_else(|_| Err(unread()))?;
    Ok(HttpResponse::Ok().json(json!({"object": "response.input_tokens", "input_tokens": tokens})))
}

fn unread() -> ApiError {
    ApiError::internal("the request could not be read: a thread failed")
}

/// A request that makes a response, if only a failed one.
struct Read {
    ask: Ask,
    wishes: Wishes,
    object: Object,
    ready: Result<Ready, ApiError>,
}

/// Parses, checks and encodes a body, on a thread that may block: a long conversation takes many milliseconds.
async fn read(bytes: Vec<u8>, shared: &Arc<Shared>, backend: Backend) -> Result<Read, ApiError> {
    let shared = Arc::clone(shared);
    let work = move || {
        let body: Map<String, Value> = body::parse(&bytes)?;
        let (ask, mut wishes) = request::read(&body, backend.codec.family())?;
        wishes.summary &= shared.config.reasoning_summaries;
        let model = models::resolve(&shared, backend.generate.served(), ask.options.model.as_deref())?;
        let sampling = ask.sampling(&shared, &backend)?;
        let id = format!("resp_{}", ids::unique());
        let object = Object::new(&body, &ask.conversation, &sampling, &model, &id, unix_seconds());
        let ready = ask.prepare(&shared, &backend);
        Ok(Read { ask, wishes, object, ready })
    };
    web::block(work).await.unwrap_or_else(|_| Err(unread()))
}

async fn whole(mut run: Run, mut events: Events, log: &Log) -> Result<HttpResponse, ApiError> {
    loop {
        match run.next(Duration::from_secs(3600)).await {
            Step::Deltas(deltas, scores) => events.deltas(deltas, scores),
            // Nothing can be sent before the answer is whole.
            Step::Silence => {}
            Step::Failed(error) => {
                log.failed(&error);
                return Err(error);
            }
            Step::Done(mut outcome) => {
                events.deltas(std::mem::take(&mut outcome.last), std::mem::take(&mut outcome.last_scores));
                log.done(&outcome);
                return Ok(HttpResponse::Ok().json(events.end(&outcome, unix_seconds())));
            }
        }
        // Only the items count.
        events.take();
    }
}

fn write(events: &mut Events, text: &mut String) {
    for event in events.take() {
        sse::named(&event, text);
    }
}

/// A streamed answer.
struct Answer {
    run: Run,
    events: Events,
    log: Log,
    keep_alive: Duration,
    /// Silent spells since the last event.
    silent: u32,
}

impl Answer {
    /// Its events. The first come at once, before the prompt is computed; dropping the stream cancels the request.
    fn events(mut self) -> impl Stream<Item = Result<Bytes, actix_web::Error>> + 'static {
        let mut first = String::new();
        self.events.start();
        write(&mut self.events, &mut first);
        let rest = stream::unfold(Some(self), |answer| async {
            let mut answer = answer?;
            let (text, goes_on) = answer.next().await;
            Some((Ok(Bytes::from(text)), goes_on.then_some(answer)))
        });
        stream::once(std::future::ready(Ok(Bytes::from(first)))).chain(rest)
    }

    /// The next events, and whether more follow.
    async fn next(&mut self) -> (String, bool) {
        let mut goes_on = true;
        let step = self.run.next(self.keep_alive).await;
        self.silent = if matches!(step, Step::Silence) { self.silent + 1 } else { 0 };
        match step {
            Step::Silence if self.silent <= COMMENTS => return (sse::KEEP_ALIVE.to_owned(), true),
            Step::Silence => {
                self.silent = 0;
                self.events.in_progress();
            }
            Step::Deltas(deltas, scores) => self.events.deltas(deltas, scores),
            Step::Done(mut outcome) => {
                self.events.deltas(std::mem::take(&mut outcome.last), std::mem::take(&mut outcome.last_scores));
                self.events.end(&outcome, unix_seconds());
                self.log.done(&outcome);
                goes_on = false;
            }
            Step::Failed(error) => {
                self.events.fail(&error);
                self.log.failed(&error);
                goes_on = false;
            }
        }
        let mut text = String::new();
        write(&mut self.events, &mut text);
        (text, goes_on)
    }
}
