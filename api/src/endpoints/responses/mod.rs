//! `POST /v1/responses` and `/v1/responses/input_tokens`: the Responses API, streaming and not. Nothing is stored.

mod events;
mod input;
mod object;
mod request;

use std::sync::Arc;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Map, Value, json};

use self::events::Events;
use self::object::Object;
use self::request::Wishes;
use super::models;
use crate::answer::{self, Log, Writer};
use crate::ask::{Ask, Ready};
use crate::error::ApiError;
use crate::parser::Deltas;
use crate::run::{Outcome, Run};
use crate::scores::Scores;
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
    let log = Log::new("responses", request_id, ready.request.prompt.len());
    let run = Run::submit(backend, place, ready)?;
    if stream {
        let mut first = String::new();
        events.start();
        write(&mut events, &mut first);
        return Ok(answer::stream(run, log, &shared.config, first, Stream { events, silent: 0 }));
    }
    let add = |deltas, scores| {
        events.deltas(deltas, scores);
        // Only the items count.
        events.take();
    };
    let outcome = answer::collect(run, &log, add).await?;
    Ok(HttpResponse::Ok().json(events.end(&outcome, unix_seconds())))
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
    let encode = move || {
        let (ask, _) = request::read(&body::parse(&bytes)?, codec.family())?;
        Ok(ask.encode(&shared, &*codec).prompt.len())
    };
    let tokens = body::work(encode).await?;
    Ok(HttpResponse::Ok().json(json!({"object": "response.input_tokens", "input_tokens": tokens})))
}

/// A request that makes a response, if only a failed one.
struct Read {
    ask: Ask,
    wishes: Wishes,
    object: Object,
    ready: Result<Ready, ApiError>,
}

/// Parses, checks and encodes a body.
async fn read(bytes: Vec<u8>, shared: &Arc<Shared>, backend: Backend) -> Result<Read, ApiError> {
    let shared = Arc::clone(shared);
    body::work(move || {
        let body: Map<String, Value> = body::parse(&bytes)?;
        let (ask, mut wishes) = request::read(&body, backend.codec.family())?;
        wishes.summary &= shared.config.reasoning_summaries;
        let model = models::resolve(&shared, backend.generate.served(), ask.options.model.as_deref())?;
        let sampling = ask.sampling(&shared, &backend)?;
        let id = format!("resp_{}", ids::unique());
        let object = Object::new(&body, &ask.conversation, &sampling, &model, &id, unix_seconds());
        let ready = ask.prepare(&shared, &backend);
        Ok(Read { ask, wishes, object, ready })
    })
    .await
}

fn write(events: &mut Events, text: &mut String) {
    for event in events.take() {
        sse::named(&event, text);
    }
}

/// The events of a streamed answer.
struct Stream {
    events: Events,
    /// Silent spells since the last event.
    silent: u32,
}

impl Writer for Stream {
    fn silence(&mut self, out: &mut String) {
        self.silent += 1;
        if self.silent <= COMMENTS {
            out.push_str(sse::KEEP_ALIVE);
            return;
        }
        self.silent = 0;
        self.events.in_progress();
        write(&mut self.events, out);
    }

    fn deltas(&mut self, deltas: Deltas, scores: Scores, out: &mut String) {
        self.silent = 0;
        self.events.deltas(deltas, scores);
        write(&mut self.events, out);
    }

    fn end(&mut self, outcome: &Outcome, out: &mut String) {
        self.events.end(outcome, unix_seconds());
        write(&mut self.events, out);
    }

    fn fail(&mut self, error: &ApiError, out: &mut String) {
        self.events.fail(error);
        write(&mut self.events, out);
    }
}
