//! `POST /v1/completions`: raw text in, raw text out, without the chat format.

mod request;
mod shape;

use std::sync::Arc;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};

use self::request::Completion;
use self::shape::Head;
use super::chat::fingerprint;
use super::models;
use crate::answer::{self, Log, Writer};
use crate::error::ApiError;
use crate::parser::Deltas;
use crate::run::{Outcome, Run};
use crate::scores::Scores;
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
    let Completion { options, echo, ready } = prepare(bytes, Arc::clone(shared), backend.clone()).await?;
    let served = backend.generate.served();
    let mut head = Head {
        id: format!("cmpl-{}", ids::unique()),
        created: unix_seconds(),
        model: models::resolve(shared, served, options.model.as_deref())?,
        fingerprint: fingerprint(served),
        logprobs: options.logprobs.is_some(),
        offset: 0,
    };
    let log = Log::new("completions", request_id, ready.request.prompt.len());
    let run = Run::submit(backend, place, ready)?;
    if options.stream {
        let mut first = String::new();
        sse::data(&head.piece(&echo, &Scores::default(), None), &mut first);
        let writer = Chunks { head, include_usage: options.include_usage };
        return Ok(answer::stream(run, log, &shared.config, first, writer));
    }
    let (mut text, mut all) = (echo, Scores::default());
    let add = |deltas, scores| {
        text.push_str(&shape::text(deltas));
        all.append(scores);
    };
    let outcome = answer::collect(run, &log, add).await?;
    Ok(HttpResponse::Ok().json(head.whole(&text, &all, &outcome)))
}

/// Parses, checks and encodes a body.
async fn prepare(bytes: Vec<u8>, shared: Arc<Shared>, backend: Backend) -> Result<Completion, ApiError> {
    body::work(move || request::read(&body::parse(&bytes)?, &shared, &backend)).await
}

/// The chunks of a streamed answer.
struct Chunks {
    head: Head,
    include_usage: bool,
}

impl Writer for Chunks {
    fn deltas(&mut self, deltas: Deltas, scores: Scores, out: &mut String) {
        let text = shape::text(deltas);
        if !text.is_empty() {
            sse::data(&self.head.piece(&text, &scores, None), out);
        }
    }

    fn end(&mut self, outcome: &Outcome, out: &mut String) {
        for chunk in self.head.end(outcome, self.include_usage) {
            sse::data(&chunk, out);
        }
        out.push_str(sse::DONE);
    }

    fn fail(&mut self, error: &ApiError, out: &mut String) {
        sse::data(&error.body(), out);
        out.push_str(sse::DONE);
    }
}
