//! `GET /health`: whether requests are taken, and if not, why. Never waits for anything.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use luce_core::Lifecycle;
use serde_json::json;

use crate::state::Shared;

/// The answer to `/health`.
pub(crate) fn answer(shared: &Shared) -> HttpResponse {
    let (status, body) = match shared.lifecycle() {
        Lifecycle::Ready => (StatusCode::OK, json!({"status": "ok"})),
        Lifecycle::Loading(done) => {
            // Three decimals: a share in f32 printed as f64 would show digits that mean nothing.
            let progress = (f64::from(done) * 1000.0).round() / 1000.0;
            (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "loading", "progress": progress}))
        }
        Lifecycle::Draining => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "draining"})),
        Lifecycle::Broken(reason) => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "error", "reason": reason})),
    };
    HttpResponse::build(status).json(body)
}
