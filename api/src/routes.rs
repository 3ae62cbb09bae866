//! From a request's path and method to its endpoint.
//!
//! Every path works with and without `/v1`, below `/beta` and `/anthropic` too, with doubled and trailing slashes, and
//! whatever the query says. Each answer carries `x-request-id`, and `request-id` where Anthropic's clients ask.

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};

use crate::endpoints::{chat, health, messages, models, responses};
use crate::error::{ApiError, Dialect};
use crate::ids;
use crate::state::Shared;

/// What a path means.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Endpoint {
    Chat,
    CountTokens,
    Health,
    Messages,
    Models,
    Model(String),
    Responses,
    InputTokens,
    StoredResponse,
}

/// For the message of a 404.
const PATHS: &str = "/v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens, /v1/models, /v1/models/{id} and /health";

impl Endpoint {
    fn of(path: &str) -> Option<Endpoint> {
        let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        for prefix in ["anthropic", "beta", "v1"] {
            if segments.first() == Some(&prefix) {
                segments.remove(0);
            }
        }
        match segments.as_slice() {
            ["chat", "completions"] => Some(Endpoint::Chat),
            ["health" | "healthz"] => Some(Endpoint::Health),
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
            | Endpoint::CountTokens
            | Endpoint::Messages
            | Endpoint::Responses
            | Endpoint::InputTokens => "POST",
            Endpoint::StoredResponse => "GET, HEAD, POST, DELETE",
            Endpoint::Health | Endpoint::Models | Endpoint::Model(_) => "GET, HEAD",
        }
    }

    fn takes(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|known| known == method.as_str())
    }
}

/// Answers every request.
pub(crate) async fn dispatch(http: HttpRequest, payload: Payload, shared: Data<Arc<Shared>>) -> HttpResponse {
    let request_id = format!("req_{}", ids::unique());
    let dialect = dialect(&http);
    let answer = answer(&http, payload, &shared, &request_id).await;
    let mut response = answer.unwrap_or_else(|error| {
        let status = error.status(dialect).as_u16();
        tracing::debug!(request = request_id, status, path = http.path(), "refused");
        error.response(dialect, &request_id)
    });
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
    http: &HttpRequest,
    payload: Payload,
    shared: &Arc<Shared>,
    request_id: &str,
) -> Result<HttpResponse, ApiError> {
    check_host(http, shared)?;
    let endpoint = Endpoint::of(http.path()).ok_or_else(|| ApiError::path(http.path(), PATHS))?;
    if !endpoint.takes(http.method()) {
        return Err(ApiError::method(http.method().as_str(), endpoint.methods()));
    }
    match endpoint {
        Endpoint::Chat => chat::answer(http, payload, shared, request_id).await,
        Endpoint::Responses => responses::answer(http, payload, shared, request_id).await,
        Endpoint::InputTokens => responses::count(http, payload, shared).await,
        Endpoint::StoredResponse => Err(ApiError::stored()),
        Endpoint::Messages => messages::answer(http, payload, shared, request_id).await,
        Endpoint::CountTokens => messages::count(http, payload, shared).await,
        Endpoint::Health => Ok(health::answer(shared)),
        Endpoint::Models => models::list(shared),
        Endpoint::Model(id) => models::one(shared, &id),
    }
}

/// On a loopback address only loopback names are taken: a web page whose own name was made to resolve to this machine
/// still says that name in `Host`.
fn check_host(http: &HttpRequest, shared: &Shared) -> Result<(), ApiError> {
    if !shared.config.is_loopback() {
        return Ok(());
    }
    let Some(value) = http.headers().get(header::HOST) else { return Ok(()) };
    let host = value.to_str().unwrap_or("?");
    let name = without_port(host);
    let local = name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    let allowed = || shared.config.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    if local || allowed() { Ok(()) } else { Err(ApiError::host(host)) }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
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
        assert_eq!(Endpoint::of("/v1/models/"), Some(Endpoint::Models));
        assert_eq!(Endpoint::of("/models/a%2Fb%20c"), Some(Endpoint::Model("a/b c".to_owned())));
        assert_eq!(Endpoint::of("/v1/models/a/b"), Some(Endpoint::Model("a/b".to_owned())));
        for path in ["/", "/v1", "/v2/models", "/v1/v1/models", "/v1/chat", "/v1/embeddings", "/api/tags"] {
            assert_eq!(Endpoint::of(path), None, "{path}");
        }
    }

    #[test]
    fn the_port_is_cut_off_hosts_of_every_kind() {
        for (host, name) in
            [("localhost:80", "localhost"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a", "a"), ("::1", "::1")]
        {
            assert_eq!(without_port(host), name);
        }
    }
}
