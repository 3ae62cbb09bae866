//! Errors: those that keep the server from starting, and those that a client gets, in the body that it knows: OpenAI's
//! `{"error": {"message", "type", "param", "code"}}`, or Anthropic's `{"type": "error", "error": {"type", "message"},
//! "request_id"}`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header;
use luce_core::{Lifecycle, Refusal};
use serde_json::{Value, json};

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Other machines could reach the address.
    #[error(
        "api.listen = {listen} can be reached from other machines, and there are no API keys, so anyone there could use the \
         model; listen on 127.0.0.1, name a file of keys with api.keys_file, or set api.allow_remote = true if that is meant"
    )]
    Remote {
        /// The address.
        listen: SocketAddr,
    },
    /// A limit that must be at least 1.
    #[error("api.{key} is 0; it must be at least 1")]
    Zero {
        /// The key in `[api]`.
        key: &'static str,
    },
    /// The keys cannot be read.
    #[error("cannot read api.keys_file = {}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file of keys without keys would let nobody in.
    #[error("api.keys_file = {} holds no key; write one a line, or leave api.keys_file out", path.display())]
    NoKeys {
        /// The file.
        path: PathBuf,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}; is another server running there? api.listen chooses another address")]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The server's threads could not be started.
    #[error("cannot start the API's threads")]
    Start(#[source] io::Error),
}

/// Whose form an answer has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
}

/// What a client is told instead of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    /// `error.type`.
    class: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    message: Box<str>,
    /// Seconds after which another try makes sense.
    retry_after: Option<u32>,
    /// Another try cannot help: tell the SDKs, which repeat 5xx by themselves.
    hopeless: bool,
    /// `n_prompt_tokens` and `n_ctx` of a context overflow.
    overflow: Option<(u32, u32)>,
    /// The methods that the path knows, for a 405.
    allow: Option<&'static str>,
    /// `error.details` in Anthropic's form.
    details: Option<Box<Value>>,
}

const INVALID: &str = "invalid_request_error";
/// Anthropic's status of an overloaded server.
const OVERLOADED: u16 = 529;
/// Seconds after which a client should ask a server again that is loading or draining.
const RETRY_AFTER_S: u32 = 5;

impl ApiError {
    fn new(status: StatusCode, class: &'static str, code: Option<&'static str>, message: String) -> ApiError {
        ApiError {
            status,
            class,
            code,
            param: None,
            message: message.into(),
            retry_after: None,
            hopeless: false,
            overflow: None,
            allow: None,
            details: None,
        }
    }

    /// 400: the request cannot be given a meaning.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, INVALID, None, message.into())
    }

    /// 400: a field is wrong.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::invalid(message) }
    }

    /// The same with a name of the problem.
    pub(crate) fn with_code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// 400: a field that this build cannot honour. Ignoring it would give another answer than was asked for.
    pub(crate) fn unsupported(param: &str) -> ApiError {
        ApiError {
            code: Some("unsupported_parameter"),
            ..ApiError::field(param, format!("`{param}` is not supported by this build yet; leave it out"))
        }
    }

    /// 400: the prompt does not fit the context. Agents look for this wording to start compaction.
    pub(crate) fn overflow(prompt: u32, max_tokens: u32, context: u32) -> ApiError {
        let total = u64::from(prompt) + u64::from(max_tokens);
        let message = format!(
            "This model's maximum context length is {context} tokens. However, you requested {total} tokens ({prompt} in \
             the messages, {max_tokens} in the completion). Please reduce the length of the messages or completion."
        );
        ApiError {
            code: Some("context_length_exceeded"),
            overflow: Some((prompt, context)),
            ..ApiError::field("messages", message)
        }
    }

    /// 400: the request relies on a history that the server does not keep. With these details Anthropic's SDK sends the
    /// whole history instead.
    pub(crate) fn thread(details: Value) -> ApiError {
        let message = "`thread` is not supported: this server keeps no history; send all messages with each request";
        ApiError { details: Some(Box::new(details)), ..ApiError::field("thread", message) }
    }

    /// 401: no key, or a wrong one.
    pub(crate) fn key(message: &str) -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, INVALID, Some("invalid_api_key"), message.to_owned())
    }

    /// 403: the `Host` header names another machine; a page in a browser may be behind it.
    pub(crate) fn host(host: &str) -> ApiError {
        let message = format!("the host {host:?} is not allowed; api.allowed_hosts lists further names of this server");
        ApiError::new(StatusCode::FORBIDDEN, INVALID, Some("host_not_allowed"), message)
    }

    /// 404: nothing is served at this path.
    pub(crate) fn path(path: &str, known: &str) -> ApiError {
        let message = format!("there is nothing at {path:?}; this server knows {known}");
        ApiError::new(StatusCode::NOT_FOUND, INVALID, Some("not_found"), message)
    }

    /// 404: what was answered before is not kept.
    pub(crate) fn stored() -> ApiError {
        let message = "there is no such response: this server stores none".to_owned();
        ApiError::new(StatusCode::NOT_FOUND, INVALID, Some("not_found"), message)
    }

    /// 404: another model is served.
    pub(crate) fn model(asked: &str, served: &str) -> ApiError {
        let message = format!("the model {asked:?} does not exist here; this server serves {served}");
        ApiError {
            param: Some("model".to_owned()),
            ..ApiError::new(StatusCode::NOT_FOUND, INVALID, Some("model_not_found"), message)
        }
    }

    /// 405: the path does not know the method.
    pub(crate) fn method(method: &str, allow: &'static str) -> ApiError {
        let message = format!("this path does not take {method}; it takes {allow}");
        ApiError {
            allow: Some(allow),
            ..ApiError::new(StatusCode::METHOD_NOT_ALLOWED, INVALID, Some("method_not_allowed"), message)
        }
    }

    /// 408: the body did not arrive in time.
    pub(crate) fn slow_body(seconds: u64) -> ApiError {
        let message = format!("the request body did not arrive within {seconds} seconds");
        ApiError::new(StatusCode::REQUEST_TIMEOUT, INVALID, Some("request_timeout"), message)
    }

    /// 413: the body is larger than the limit.
    pub(crate) fn too_large(limit: usize) -> ApiError {
        let message = format!("the request body is larger than the limit of {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, INVALID, Some("request_too_large"), message)
    }

    /// 415: the body is in a form that is not read.
    pub(crate) fn media(message: String) -> ApiError {
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID, Some("unsupported_media_type"), message)
    }

    /// 500: a fault of the server or a device.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", Some("internal_error"), message.into())
    }

    fn unavailable(message: &str) -> ApiError {
        // Several agents repeat a request only if the text begins with this word.
        let message = format!("Overloaded: {message}");
        ApiError {
            retry_after: Some(RETRY_AFTER_S),
            ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("server_is_overloaded"), message)
        }
    }

    /// 503: the server is shutting down.
    pub(crate) fn draining() -> ApiError {
        ApiError::unavailable("the server is shutting down")
    }

    /// 503: no place became free in time.
    pub(crate) fn queue_wait(seconds: u64) -> ApiError {
        ApiError::unavailable(&format!("no place became free within {seconds} seconds"))
    }

    fn broken(why: &str) -> ApiError {
        ApiError {
            message: format!("the engine cannot serve: {why}").into(),
            retry_after: None,
            hopeless: true,
            ..ApiError::unavailable("")
        }
    }

    /// The error that a state of the engine means for a request, if any.
    pub(crate) fn of_lifecycle(lifecycle: &Lifecycle) -> Option<ApiError> {
        match lifecycle {
            Lifecycle::Ready => None,
            Lifecycle::Loading(done) => {
                Some(ApiError::unavailable(&format!("the model is still loading ({:.0} % done)", done * 100.0)))
            }
            Lifecycle::Draining => Some(ApiError::draining()),
            Lifecycle::Broken(why) => Some(ApiError::broken(why)),
        }
    }

    /// The error that a refusal of the engine means for the client.
    pub(crate) fn of_refusal(refusal: &Refusal) -> ApiError {
        match refusal {
            Refusal::Loading => ApiError::unavailable("the model is still loading"),
            Refusal::Draining => ApiError::draining(),
            Refusal::Broken(why) => ApiError::broken(why),
            Refusal::Busy { queued } => ApiError {
                // Some seconds for each request ahead; a guess, since their lengths are not known.
                retry_after: Some(queued.saturating_mul(2).clamp(1, 60)),
                ..ApiError::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "rate_limit_error",
                    Some("rate_limit_exceeded"),
                    refusal.to_string(),
                )
            },
            Refusal::TooLong { prompt, max_tokens, context } => ApiError::overflow(*prompt, *max_tokens, *context),
            Refusal::Invalid(why) => ApiError::invalid(why.clone()),
        }
    }

    /// The prompt does not fit the context.
    pub(crate) fn is_overflow(&self) -> bool {
        self.overflow.is_some()
    }

    /// The status of the answer.
    pub(crate) fn status(&self, dialect: Dialect) -> StatusCode {
        match dialect {
            Dialect::Anthropic if self.status == StatusCode::SERVICE_UNAVAILABLE => {
                StatusCode::from_u16(OVERLOADED).expect("three digits")
            }
            Dialect::OpenAi | Dialect::Anthropic => self.status,
        }
    }

    /// The body in OpenAI's form.
    pub(crate) fn body(&self) -> Value {
        let mut error = json!({
            "message": self.message, "type": self.class, "param": self.param, "code": self.code,
        });
        if let Some((prompt, context)) = self.overflow {
            error["n_prompt_tokens"] = prompt.into();
            error["n_ctx"] = context.into();
        }
        json!({ "error": error })
    }

    /// The body in Anthropic's form.
    pub(crate) fn anthropic_body(&self, request_id: &str) -> Value {
        let class = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500.. => "api_error",
            _ => INVALID,
        };
        let mut error = json!({"type": class, "message": self.message});
        if let Some((prompt, context)) = self.overflow {
            // Claude Code takes both numbers out of this text.
            error["message"] = format!("prompt is too long: {prompt} tokens > {context} maximum").into();
            error["n_prompt_tokens"] = prompt.into();
            error["n_ctx"] = context.into();
        }
        if let Some(details) = &self.details {
            error["details"] = (**details).clone();
        }
        json!({"type": "error", "error": error, "request_id": request_id})
    }

    /// The whole answer.
    pub(crate) fn response(&self, dialect: Dialect, request_id: &str) -> HttpResponse {
        let mut response = HttpResponse::build(self.status(dialect));
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if self.hopeless {
            response.insert_header(("x-should-retry", "false"));
        }
        if let Some(allow) = self.allow {
            response.insert_header((header::ALLOW, allow));
        }
        response.json(match dialect {
            Dialect::OpenAi => self.body(),
            Dialect::Anthropic => self.anthropic_body(request_id),
        })
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
