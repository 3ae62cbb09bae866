//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages, streaming and not.

mod request;
mod shape;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header::{HeaderName, HeaderValue, WARNING};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use luce_model::Family;
use serde_json::json;

use self::shape::{Events, Head};
use super::chat::Log;
use super::models;
use crate::ask::Ask;
use crate::error::ApiError;
use crate::run::{Run, Step};
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
    let log = Log { endpoint: "messages", request_id: request_id.to_owned(), prompt, begun: Instant::now() };
    let run = Run::submit(backend, place, ready)?;
    let mut response = if ask.options.stream {
        let keep_alive = Duration::from_secs(shared.config.keep_alive);
        let prompt = u32::try_from(prompt).unwrap_or(u32::MAX);
        sse::response(Answer { run, events: Events::new(head), log, keep_alive }.events(prompt))
    } else {
        whole(run, &head, &log).await?
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

/// Parses and checks a body and does `then` with it, on a thread that may block: a long conversation takes many
/// milliseconds. The boolean: whether reasoning is shown.
async fn read<T: Send + 'static>(
    bytes: Vec<u8>,
    shared: &Arc<Shared>,
    family: Family,
    then: impl FnOnce(&Ask, &Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<(Ask, bool, T), ApiError> {
    let shared = Arc::clone(shared);
    let work = move || {
        let body = body::parse(&bytes)?;
        let ask = request::read(&body, family, shared.config.anthropic_thinking_default.is_on())?;
        let done = then(&ask, &shared)?;
        Ok((ask, request::show_thinking(&body)?, done))
    };
    web::block(work).await.unwrap_or_else(|_| Err(ApiError::internal("the request could not be read: a thread failed")))
}

async fn whole(mut run: Run, head: &Head, log: &Log) -> Result<HttpResponse, ApiError> {
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
                return Ok(HttpResponse::Ok().json(shape::whole(parts, head, &outcome)));
            }
        }
    }
}

/// A streamed answer.
struct Answer {
    run: Run,
    events: Events,
    log: Log,
    keep_alive: Duration,
}

impl Answer {
    /// Its events. The first comes at once, before the prompt is computed; dropping the stream cancels the request.
    fn events(self, prompt: u32) -> impl Stream<Item = Result<Bytes, actix_web::Error>> + 'static {
        let mut first = String::new();
        self.events.start(prompt, &mut first);
        let rest = stream::unfold(Some(self), |answer| async {
            let mut answer = answer?;
            let (text, goes_on) = answer.next().await;
            Some((Ok(Bytes::from(text)), goes_on.then_some(answer)))
        });
        stream::once(std::future::ready(Ok(Bytes::from(first)))).chain(rest)
    }

    /// The next events, and whether more follow.
    async fn next(&mut self) -> (String, bool) {
        let mut text = String::new();
        let goes_on = match self.run.next(self.keep_alive).await {
            Step::Silence => {
                Events::ping(&mut text);
                true
            }
            Step::Deltas(deltas, _) => {
                self.events.deltas(deltas, &mut text);
                true
            }
            Step::Done(mut outcome) => {
                self.events.deltas(std::mem::take(&mut outcome.last), &mut text);
                self.events.end(&outcome, &mut text);
                self.log.done(&outcome);
                false
            }
            Step::Failed(error) => {
                sse::named(&error.anthropic_body(&self.log.request_id), &mut text);
                self.log.failed(&error);
                false
            }
        };
        (text, goes_on)
    }
}

/// The header that Anthropic's SDKs read a request's id from.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
