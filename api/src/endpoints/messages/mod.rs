//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages, streaming and not.

mod request;
mod shape;

use std::sync::Arc;

use actix_web::http::header::{HeaderName, HeaderValue, WARNING};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use luce_model::Family;
use serde_json::json;

use self::shape::{Events, Head};
use super::models;
use crate::answer::{self, Log, Writer};
use crate::ask::Ask;
use crate::error::ApiError;
use crate::parser::Deltas;
use crate::run::{Outcome, Run};
use crate::scores::Scores;
use crate::state::Shared;
use crate::whole::Whole;
use crate::{body, ids, sse};

/// Answers a request. `request_id` is for the log and for errors inside a stream.
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
    let engine = backend.clone();
    let (ask, show_thinking, ready) =
        read(bytes, shared, backend.codec.family(), move |ask, shared| ask.prepare(shared, &engine)).await?;
    let served = backend.generate.served();
    let (prompt, max_tokens) = (ready.request.prompt.len(), ready.request.max_tokens);
    let head = Head {
        id: format!("msg_{}", ids::unique()),
        model: models::resolve(shared, served, ask.options.model.as_deref())?,
        show_thinking,
        fills_context: prompt + max_tokens as usize == served.context as usize
            && ask.options.max_tokens != Some(max_tokens),
    };
    let log = Log::new("messages", request_id, prompt);
    let run = Run::submit(backend, place, ready)?;
    let mut response = if ask.options.stream {
        let (events, mut first) = (Events::new(head), String::new());
        events.start(u32::try_from(prompt).unwrap_or(u32::MAX), &mut first);
        let writer = Stream { events, request_id: request_id.to_owned() };
        answer::stream(run, log, &shared.config, first, writer)
    } else {
        let mut parts = Whole::default();
        let outcome = answer::collect(run, &log, |deltas, scores| parts.add(deltas, scores)).await?;
        HttpResponse::Ok().json(shape::whole(parts, &head, &outcome))
    };
    if ask.conversation.has_images() {
        let text = "299 - \"images cannot be seen by this model; words stand in their place\"";
        response.headers_mut().insert(WARNING, HeaderValue::from_static(text));
    }
    Ok(response)
}

/// The exact length of the prompt that `/v1/messages` would build. It does not wait for the engine.
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
    let encode = move |ask: &Ask, shared: &Shared| Ok(ask.encode(shared, &*codec).prompt.len());
    let (_, _, tokens) = read(bytes, shared, shared.known()?.codec.family(), encode).await?;
    Ok(HttpResponse::Ok().json(json!({"input_tokens": tokens})))
}

/// Parses and checks a body and does `then` with it. The boolean: whether reasoning is shown.
async fn read<T: Send + 'static>(
    bytes: Vec<u8>,
    shared: &Arc<Shared>,
    family: Family,
    then: impl FnOnce(&Ask, &Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<(Ask, bool, T), ApiError> {
    let shared = Arc::clone(shared);
    body::work(move || {
        let body = body::parse(&bytes)?;
        let ask = request::read(&body, family, shared.config.anthropic_thinking_default.is_on())?;
        let done = then(&ask, &shared)?;
        Ok((ask, request::show_thinking(&body)?, done))
    })
    .await
}

/// The events of a streamed answer.
struct Stream {
    events: Events,
    /// For errors.
    request_id: String,
}

impl Writer for Stream {
    fn silence(&mut self, out: &mut String) {
        Events::ping(out);
    }

    fn deltas(&mut self, deltas: Deltas, _: Scores, out: &mut String) {
        self.events.deltas(deltas, out);
    }

    fn end(&mut self, outcome: &Outcome, out: &mut String) {
        self.events.end(outcome, out);
    }

    fn fail(&mut self, error: &ApiError, out: &mut String) {
        sse::named(&error.anthropic_body(&self.request_id), out);
    }
}

/// The header that Anthropic's SDKs read a request's id from.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
