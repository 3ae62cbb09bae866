//! What does not change: the web page at `/` and the OpenAPI document.

use actix_web::HttpResponse;
use actix_web::http::header;

/// The page. It loads nothing from elsewhere, and the browser is told so.
pub(crate) fn page() -> HttpResponse {
    const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                          connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .body(include_str!("../page.html"))
}

/// What the server understands, for programs.
pub(crate) fn openapi() -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body(include_str!("../openapi.json"))
}
