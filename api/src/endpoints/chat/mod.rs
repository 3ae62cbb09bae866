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
use luce_core::GenerateRequest;
use serde_json::{Map, Value};

use self::request::ChatRequest;
use self::shape::{Head, Whole};
use super::models;
use crate::codec::{ChatCodec, Encoded};
use crate::error::ApiError;
use crate::parser::OutputParser;
use crate::run::{Outcome, Run, Step};
use crate::state::{Backend, Shared, unix_seconds};
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
    let (request, encoded) = prepare(bytes, Arc::clone(&backend.codec)).await?;
    let served = backend.generate.served();
    let head = Head {
        id: format!("chatcmpl-{}", ids::unique()),
        created: unix_seconds(),
        model: models::resolve(shared, served, request.model.as_deref())?,
        fingerprint: shape::fingerprint(served),
    };
    let generate = generate_request(shared, &backend, &request, &encoded)?;
    let parser = OutputParser::new(encoded.opening, request.tools, Arc::clone(&request.schemas), request.stops.clone());
    let log = Log { request_id: request_id.to_owned(), prompt: generate.prompt.len(), begun: Instant::now() };
    let run = Run::submit(backend, place, generate, parser)?;
    let keep_alive = Duration::from_secs(shared.config.keep_alive);
    if request.stream {
        let answer = Answer { run, head, log, include_usage: request.include_usage, keep_alive };
        return Ok(sse::response(answer.events()));
    }
    whole(run, &head, &log, request.conversation.thinking.is_some()).await
}

/// Parses, checks and encodes a body, on a thread that may block: a long conversation takes many milliseconds.
async fn prepare(bytes: Vec<u8>, codec: Arc<dyn ChatCodec>) -> Result<(ChatRequest, Encoded), ApiError> {
    let work = move || {
        let body: Map<String, Value> = body::parse(&bytes)?;
        let request = ChatRequest::new(&body, codec.family())?;
        let encoded = codec.encode(&request.conversation);
        Ok((request, encoded))
    };
    web::block(work).await.unwrap_or_else(|_| Err(ApiError::internal("the request could not be read: a thread failed")))
}

fn generate_request(
    shared: &Shared,
    backend: &Backend,
    request: &ChatRequest,
    encoded: &Encoded,
) -> Result<GenerateRequest, ApiError> {
    let served = backend.generate.served();
    let unknown = request.stop_tokens.iter().find(|token| token.0 >= served.vocabulary);
    if let Some(token) = unknown {
        let message = format!("`stop_token_ids` has {token}, but the vocabulary ends at {}", served.vocabulary);
        return Err(ApiError::field("stop_token_ids", message));
    }
    let turn_ends = if request.ignore_eos { &[] } else { backend.codec.stop_tokens() };
    Ok(GenerateRequest {
        prompt: encoded.prompt.clone(),
        max_tokens: request.limit(encoded, served.context)?,
        stop_tokens: turn_ends.iter().chain(&request.stop_tokens).copied().collect(),
        sampling: request.sampling(shared.config.sampling, &*backend.codec),
        logprobs: None,
        constraint: None,
    })
}

async fn whole(mut run: Run, head: &Head, log: &Log, thinking: bool) -> Result<HttpResponse, ApiError> {
    let mut parts = Whole::default();
    loop {
        match run.next(Duration::from_secs(3600)).await {
            Step::Deltas(deltas) => parts.add(deltas),
            // Nothing can be sent before the answer is whole.
            Step::Silence => {}
            Step::Failed(error) => {
                log.failed(&error);
                return Err(error);
            }
            Step::Done(mut outcome) => {
                parts.add(std::mem::take(&mut outcome.last));
                log.done(&outcome);
                return Ok(HttpResponse::Ok().json(head.whole(parts, thinking, &outcome)));
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
            Step::Deltas(deltas) => {
                for delta in deltas {
                    sse::data(&self.head.delta(delta), &mut text);
                }
            }
            Step::Done(mut outcome) => {
                for delta in std::mem::take(&mut outcome.last) {
                    sse::data(&self.head.delta(delta), &mut text);
                }
                for chunk in self.head.end(&outcome, self.include_usage) {
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
}

/// What the log says about an answer; never any of its text.
struct Log {
    request_id: String,
    prompt: usize,
    begun: Instant,
}

impl Log {
    fn done(&self, outcome: &Outcome) {
        tracing::info!(
            request = self.request_id,
            finish = outcome.reason.name(),
            prompt = outcome.counts.prompt,
            cached = outcome.counts.cached,
            generated = outcome.counts.completion,
            queue_ms = outcome.timings.queue_us / 1000,
            prefill_ms = outcome.timings.prefill_us / 1000,
            decode_ms = outcome.timings.decode_us / 1000,
            total_ms = self.begun.elapsed().as_millis(),
            "chat completion"
        );
    }

    fn failed(&self, error: &ApiError) {
        tracing::warn!(
            request = self.request_id,
            prompt = self.prompt,
            status = error.status().as_u16(),
            error = %error,
            "chat completion failed"
        );
    }
}
