//! Server-sent events: their bytes and the headers of a stream of them.

use actix_web::HttpResponse;
use actix_web::http::header;
use bytes::Bytes;
use futures_core::Stream;
use serde_json::Value;

/// The last line of an OpenAI stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";
/// A comment that keeps proxies and clients from giving up. Some clients stumble over a bare colon, hence the text.
pub(crate) const KEEP_ALIVE: &str = ": keep-alive\n\n";

/// Appends one event without a name.
pub(crate) fn data(json: &Value, out: &mut String) {
    out.push_str("data: ");
    out.push_str(&json.to_string());
    out.push_str("\n\n");
}

/// Appends one event; its name is the `type` of its JSON.
pub(crate) fn named(json: &Value, out: &mut String) {
    out.push_str("event: ");
    out.push_str(json["type"].as_str().expect("every event has a type"));
    out.push('\n');
    data(json, out);
}

/// A stream of events as an answer. Each item holds whole events and is written and flushed by itself.
pub(crate) fn response(events: impl Stream<Item = Result<Bytes, actix_web::Error>> + 'static) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream; charset=utf-8"))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(events)
}
