//! `POST /v1/completions`: raw text in, raw text out, without the chat format.

mod request;
mod shape;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};

use self::request::Completion;
use self::shape::Head;
use super::chat::{Log, fingerprint};
use super::models;
use crate::error::ApiError;
use crate::run::{Run, Step};
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
    let head = Head {
        id: format!("cmpl-{}", ids::unique()),
        created: unix_seconds(),
        model: models::resolve(shared, served, options.model.as_deref())?,
        fingerprint: fingerprint(served),
        logprobs: options.logprobs.is_some(),
        offset: 0,
    };
    let prompt = ready.request.prompt.len();
    let log = Log { endpoint: "completions", request_id: request_id.to_owned(), prompt, begun: Instant::now() };
    let run = Run::submit(backend, place, ready)?;
    if options.stream {
        let keep_alive = Duration::from_secs(shared.config.keep_alive);
        let answer = Answer { run, head, log, include_usage: options.include_usage, keep_alive };
        return Ok(sse::response(answer.events(&echo)));
    }
    whole(run, head, &log, echo).await
}

/// Parses, checks and encodes a body, on a thread that may block: a long prompt takes many milliseconds.
async fn prepare(bytes: Vec<u8>, shared: Arc<Shared>, backend: Backend) -> Result<Completion, ApiError> {
    let work = move || request::read(&body::parse(&bytes)?, &shared, &backend);
    web::block(work).await.unwrap_or_else(|_| Err(ApiError::internal("the request could not be read: a thread failed")))
}

async fn whole(mut run: Run, mut head: Head, log: &Log, mut text: String) -> Result<HttpResponse, ApiError> {
    let mut all = Scores::default();
    loop {
        match run.next(Duration::from_secs(3600)).await {
            Step::Deltas(deltas, scores) => {
                text.push_str(&shape::text(deltas));
                all.append(scores);
            }
            // Nothing can be sent before the answer is whole.
            Step::Silence => {}
            Step::Failed(error) => {
                log.failed(&error);
                return Err(error);
            }
            Step::Done(mut outcome) => {
                text.push_str(&shape::text(std::mem::take(&mut outcome.last)));
                all.append(std::mem::take(&mut outcome.last_scores));
                log.done(&outcome);
                return Ok(HttpResponse::Ok().json(head.whole(&text, &all, &outcome)));
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
    fn events(mut self, echo: &str) -> impl Stream<Item = Result<Bytes, actix_web::Error>> + 'static {
        let mut first = String::new();
        sse::data(&self.head.piece(echo, &Scores::default(), None), &mut first);
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
        match self.run.next(self.keep_alive).await {
            Step::Silence => text.push_str(sse::KEEP_ALIVE),
            Step::Deltas(deltas, scores) => {
                sse::data(&self.head.piece(&shape::text(deltas), &scores, None), &mut text);
            }
            Step::Done(mut outcome) => {
                let last = shape::text(std::mem::take(&mut outcome.last));
                if !last.is_empty() {
                    sse::data(&self.head.piece(&last, &outcome.last_scores, None), &mut text);
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
