//! From a request's path and method to its endpoint.
//!
//! Every path works with and without `/v1`, below `/beta` and `/anthropic` too, with doubled and trailing slashes, and
//! whatever the query says. Each answer carries `x-request-id`, and `request-id` where Anthropic's clients ask.

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};

use crate::access;
use crate::endpoints::tokens::{self, Work};
use crate::endpoints::{chat, completions, documents, health, messages, models, responses, status};
use crate::error::{ApiError, Dialect};
use crate::ids;
use crate::state::Shared;

/// What a path means.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Endpoint {
    Chat,
    Completions,
    CountTokens,
    Health,
    Messages,
    Metrics,
    Models,
    Model(String),
    OpenApi,
    Page,
    Props,
    Responses,
    InputTokens,
    StoredResponse,
    Slots,
    Status,
    Tokens(Work),
}

/// For the message of a 404.
const PATHS: &str = "/v1/chat/completions, /v1/completions, /v1/responses, /v1/responses/input_tokens, /v1/messages, \
                     /v1/messages/count_tokens, /v1/models, /v1/models/{id}, /health, /status, /props, /slots, /metrics, \
                     /tokenize, /detokenize, /apply-template, /openapi.json and /";

impl Endpoint {
    fn of(path: &str) -> Option<Endpoint> {
        if path.bytes().all(|byte| byte == b'/') {
            return Some(Endpoint::Page);
        }
        let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        for prefix in ["anthropic", "beta", "v1"] {
            if segments.first() == Some(&prefix) {
                segments.remove(0);
            }
        }
        match segments.as_slice() {
            ["chat", "completions"] => Some(Endpoint::Chat),
            ["completions"] => Some(Endpoint::Completions),
            ["health" | "healthz"] => Some(Endpoint::Health),
            ["metrics"] => Some(Endpoint::Metrics),
            ["openapi.json"] => Some(Endpoint::OpenApi),
            ["props"] => Some(Endpoint::Props),
            ["slots"] => Some(Endpoint::Slots),
            ["status"] => Some(Endpoint::Status),
            ["tokenize"] => Some(Endpoint::Tokens(Work::Tokenize)),
            ["detokenize"] => Some(Endpoint::Tokens(Work::Detokenize)),
            ["apply-template"] => Some(Endpoint::Tokens(Work::ApplyTemplate)),
            ["messages"] => Some(Endpoint::Messages),
            ["messages", "count_tokens"] => Some(Endpoint::CountTokens),
            ["responses"] => Some(Endpoint::Responses),
            ["responses", "input_tokens"] => Some(Endpoint::InputTokens),
            ["responses", ..] => Some(Endpoint::StoredResponse),
            ["models"] => Some(Endpoint::Models),
            // Names may hold slashes, as in `organisation/model`.
            ["models", id @ ..] => Some(Endpoint::Model(percent_decoded(&id.join("/")))),
            _ => None,
        }
    }

    /// The methods it takes, as the `Allow` header lists them.
    fn methods(&self) -> &'static str {
        match self {
            Endpoint::Chat
            | Endpoint::Completions
            | Endpoint::CountTokens
            | Endpoint::Messages
            | Endpoint::Responses
            | Endpoint::InputTokens
            | Endpoint::Tokens(_) => "POST",
            Endpoint::StoredResponse => "GET, HEAD, POST, DELETE",
            Endpoint::Health
            | Endpoint::Metrics
            | Endpoint::Models
            | Endpoint::Model(_)
            | Endpoint::OpenApi
            | Endpoint::Page
            | Endpoint::Props
            | Endpoint::Slots
            | Endpoint::Status => "GET, HEAD",
        }
    }

    /// As metrics name it.
    fn name(&self) -> &'static str {
        match self {
            Endpoint::Chat => "chat",
            Endpoint::Completions => "completions",
            Endpoint::CountTokens => "count_tokens",
            Endpoint::Health => "health",
            Endpoint::Messages => "messages",
            Endpoint::Metrics => "metrics",
            Endpoint::Models | Endpoint::Model(_) => "models",
            Endpoint::OpenApi => "openapi",
            Endpoint::Page => "page",
            Endpoint::Props => "props",
            Endpoint::Responses | Endpoint::StoredResponse => "responses",
            Endpoint::InputTokens => "input_tokens",
            Endpoint::Slots => "slots",
            Endpoint::Status => "status",
            Endpoint::Tokens(Work::Tokenize) => "tokenize",
            Endpoint::Tokens(Work::Detokenize) => "detokenize",
            Endpoint::Tokens(Work::ApplyTemplate) => "apply_template",
        }
    }

    /// Whether it is answered without a key.
    fn is_free(&self) -> bool {
        matches!(self, Endpoint::Health | Endpoint::Page)
    }

    fn takes(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|known| known == method.as_str())
    }
}

/// Answers every request.
pub(crate) async fn dispatch(http: HttpRequest, payload: Payload, shared: Data<Arc<Shared>>) -> HttpResponse {
    let request_id = format!("req_{}", ids::unique());
    let dialect = dialect(&http);
    let endpoint = Endpoint::of(http.path());
    let name = endpoint.as_ref().map_or("unknown", Endpoint::name);
    let answer = answer(endpoint, &http, payload, &shared, &request_id, dialect).await;
    let mut response = answer.unwrap_or_else(|error| {
        let status = error.status(dialect).as_u16();
        tracing::debug!(request = request_id, status, path = http.path(), "refused");
        error.response(dialect, &request_id)
    });
    shared.metrics.answered(name, response.status().as_u16());
    access::allow_page(http.headers(), &shared.config, response.headers_mut());
    if dialect == Dialect::Anthropic {
        response.headers_mut().insert(messages::REQUEST_ID, header_value(&request_id));
    }
    response.headers_mut().insert(HeaderName::from_static("x-request-id"), header_value(&request_id));
    response
}

fn header_value(request_id: &str) -> HeaderValue {
    HeaderValue::from_str(request_id).expect("an id is letters, digits and an underscore")
}

/// Anthropic's form for Messages, and wherever a client says that it speaks it.
fn dialect(http: &HttpRequest) -> Dialect {
    let messages = http.path().split('/').any(|segment| segment == "messages" || segment == "anthropic");
    if messages || http.headers().contains_key("anthropic-version") { Dialect::Anthropic } else { Dialect::OpenAi }
}

async fn answer(
    endpoint: Option<Endpoint>,
    http: &HttpRequest,
    payload: Payload,
    shared: &Arc<Shared>,
    request_id: &str,
    dialect: Dialect,
) -> Result<HttpResponse, ApiError> {
    access::check_host(http, &shared.config)?;
    if let Some(response) = access::preflight(http, &shared.config) {
        return Ok(response);
    }
    if !endpoint.as_ref().is_some_and(Endpoint::is_free) {
        shared.keys.check(http.headers())?;
    }
    let endpoint = endpoint.ok_or_else(|| ApiError::path(http.path(), PATHS))?;
    if !endpoint.takes(http.method()) {
        return Err(ApiError::method(http.method().as_str(), endpoint.methods()));
    }
    match endpoint {
        Endpoint::Chat => chat::answer(http, payload, shared, request_id).await,
        Endpoint::Completions => completions::answer(http, payload, shared, request_id).await,
        Endpoint::Responses => responses::answer(http, payload, shared, request_id).await,
        Endpoint::InputTokens => responses::count(http, payload, shared).await,
        Endpoint::StoredResponse => Err(ApiError::stored()),
        Endpoint::Messages => messages::answer(http, payload, shared, request_id).await,
        Endpoint::CountTokens => messages::count(http, payload, shared).await,
        Endpoint::Health => Ok(health::answer(shared)),
        Endpoint::Models => models::list(shared),
        Endpoint::Model(id) => models::one(shared, &id),
        Endpoint::Metrics => Ok(status::metrics(shared)),
        Endpoint::OpenApi => Ok(documents::openapi()),
        Endpoint::Page => Ok(documents::page()),
        Endpoint::Props => status::props(shared),
        Endpoint::Slots => status::slots(shared),
        Endpoint::Status => Ok(status::status(shared)),
        Endpoint::Tokens(work) => tokens::answer(work, dialect, http, payload, shared).await,
    }
}

/// `%2F` and the like as the bytes they stand for; what is not valid stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_known_in_all_their_spellings() {
        for path in ["/v1/chat/completions", "/chat/completions", "//v1//chat/completions/", "/beta/chat/completions"] {
            assert_eq!(Endpoint::of(path), Some(Endpoint::Chat), "{path}");
        }
        for path in ["/health", "/healthz", "/v1/health/"] {
            assert_eq!(Endpoint::of(path), Some(Endpoint::Health), "{path}");
        }
        for path in ["/v1/messages", "/messages", "/anthropic/v1/messages/", "/beta/v1/messages"] {
            assert_eq!(Endpoint::of(path), Some(Endpoint::Messages), "{path}");
        }
        assert_eq!(Endpoint::of("//"), Some(Endpoint::Page));
        assert_eq!(Endpoint::of("/v1/models/"), Some(Endpoint::Models));
        assert_eq!(Endpoint::of("/models/a%2Fb%20c"), Some(Endpoint::Model("a/b c".to_owned())));
        assert_eq!(Endpoint::of("/v1/models/a/b"), Some(Endpoint::Model("a/b".to_owned())));
        for path in ["/v1", "/v2/models", "/v1/v1/models", "/v1/chat", "/v1/embeddings", "/api/tags"] {
            assert_eq!(Endpoint::of(path), None, "{path}");
        }
    }
}
