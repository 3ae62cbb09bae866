//! `POST /v1/chat/completions`, streaming and not.

mod request;
mod shape;

use std::sync::Arc;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Map, Value};

use self::shape::Head;
pub(crate) use self::shape::{fingerprint, timings, usage};
use super::models;
use crate::answer::{self, Log, Writer};
use crate::ask::{Ask, Ready};
use crate::error::ApiError;
use crate::parser::Deltas;
use crate::run::{Outcome, Run};
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
    let log = Log::new("chat", request_id, ready.request.prompt.len());
    let run = Run::submit(backend, place, ready)?;
    if ask.options.stream {
        let mut first = String::new();
        sse::data(&head.role(), &mut first);
        let writer = Chunks { head, include_usage: ask.options.include_usage, scores: Scores::default() };
        return Ok(answer::stream(run, log, &shared.config, first, writer));
    }
    let mut parts = Whole::default();
    let outcome = answer::collect(run, &log, |deltas, scores| parts.add(deltas, scores)).await?;
    let (thinking, logprobs) = (ask.conversation.thinking.is_some(), ask.options.logprobs.is_some());
    Ok(HttpResponse::Ok().json(head.whole(parts, thinking, logprobs, &outcome)))
}

/// Parses, checks and encodes a body.
async fn prepare(bytes: Vec<u8>, shared: Arc<Shared>, backend: Backend) -> Result<(Ask, Ready), ApiError> {
    body::work(move || {
        let body: Map<String, Value> = body::parse(&bytes)?;
        let ask = request::read(&body, backend.codec.family())?;
        let ready = ask.prepare(&shared, &backend)?;
        Ok((ask, ready))
    })
    .await
}

/// The chunks of a streamed answer.
struct Chunks {
    head: Head,
    include_usage: bool,
    /// Log-probabilities that no chunk has taken yet.
    scores: Scores,
}

impl Writer for Chunks {
    fn deltas(&mut self, deltas: Deltas, scores: Scores, out: &mut String) {
        self.scores.append(scores);
        for delta in deltas {
            sse::data(&self.head.delta(delta, &mut self.scores), out);
        }
    }

    fn end(&mut self, outcome: &Outcome, out: &mut String) {
        for chunk in self.head.end(outcome, &self.scores, self.include_usage) {
            sse::data(&chunk, out);
        }
        out.push_str(sse::DONE);
    }

    fn fail(&mut self, error: &ApiError, out: &mut String) {
        sse::data(&error.body(), out);
        out.push_str(sse::DONE);
    }
}
