//! Request bodies: read within limits of size and time, then parsed as a JSON object.

use std::time::Duration;

use actix_web::http::header::{self, HeaderMap};
use actix_web::web::Payload;
use futures_util::StreamExt;
use luce_model::chat::json_kind;
use serde_json::{Map, Value};

use crate::config::ApiConfig;
use crate::error::ApiError;

/// Reads the whole body.
///
/// # Errors
/// 413 above the size limit, 408 after the time limit, 415 for a form that is not read, 400 for a body that breaks off.
pub(crate) async fn read(headers: &HeaderMap, mut payload: Payload, config: &ApiConfig) -> Result<Vec<u8>, ApiError> {
    check_headers(headers, config.max_body)?;
    let reading = async {
        let mut body = Vec::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|error| ApiError::invalid(format!("the request body broke off: {error}")))?;
            if chunk.len() > config.max_body - body.len() {
                return Err(ApiError::too_large(config.max_body));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    match tokio::time::timeout(Duration::from_secs(config.body_timeout), reading).await {
        Ok(body) => body,
        Err(_) => Err(ApiError::slow_body(config.body_timeout)),
    }
}

fn check_headers(headers: &HeaderMap, max_body: usize) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(encoding) = text(header::CONTENT_ENCODING)
        && !encoding.trim().is_empty()
        && !encoding.trim().eq_ignore_ascii_case("identity")
    {
        return Err(ApiError::media(format!("Content-Encoding {encoding:?} is not read; send the body as it is")));
    }
    if let Some(kind) = text(header::CONTENT_TYPE) {
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // curl -d says form, some clients say text or nothing; what is inside is JSON all the same.
        let lenient = ["", "application/x-www-form-urlencoded", "application/octet-stream", "text/plain", "text/json"];
        if essence != "application/json" && !essence.ends_with("+json") && !lenient.contains(&essence.as_str()) {
            return Err(ApiError::media(format!("Content-Type {kind:?} is not read; send application/json")));
        }
    }
    match text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > max_body as u64 => Err(ApiError::too_large(max_body)),
        _ => Ok(()),
    }
}

/// Does the work on a body on a thread that may block: what a long prompt takes are many milliseconds.
///
/// # Errors
/// Those of the work, and 500 where the thread fails.
pub(crate) async fn work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |_| Err(ApiError::internal("the request could not be read: a thread failed"));
    actix_web::web::block(work).await.unwrap_or_else(failed)
}

/// Parses a body. Nesting deeper than 127 levels is refused.
///
/// # Errors
/// 400 that names line and column, or what is there instead of an object.
pub(crate) fn parse(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(ApiError::invalid("the request body is empty; send a JSON object"));
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(ApiError::invalid(format!("the request body is {}, not a JSON object", json_kind(&other)))),
        Err(error) => Err(ApiError::invalid(format!("the request body is not valid JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> String {
        parse(body.as_bytes()).unwrap_err().body()["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn broken_json_is_named_by_line_and_column() {
        let broken = message("{\n  \"a\": 1\n  \"b\": 2}");
        assert!(broken.contains("line 3 column 3"), "{broken}");
        assert!(message("[]").contains("an array"));
        assert!(message(" \n").contains("empty"));
        assert!(message("{\"a\": \"\\ud800\"}").contains("line 1"));
    }

    #[test]
    fn nesting_has_a_limit_and_does_not_overflow_the_stack() {
        let nested = |depth: usize| format!("{{\"a\": {}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(parse(nested(127).as_bytes()).is_ok());
        assert!(message(&nested(128)).contains("recursion limit"));
        assert!(message(&"[".repeat(1_000_000)).contains("recursion limit"));
    }
}
