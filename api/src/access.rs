//! Who may ask: the host that a request names, its API key, and the web pages that may read the answers.

use std::path::{Path, PathBuf};

use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};
use subtle::{Choice, ConstantTimeEq};

use crate::config::ApiConfig;
use crate::error::{ApiError, ServeError};

/// The keys that are accepted; none: whoever reaches the server may use it.
#[derive(Default)]
pub(crate) struct Keys(Vec<String>);

impl Keys {
    /// Reads a file with one key a line. Blank lines and such as begin with `#` are passed over.
    ///
    /// # Errors
    /// [`ServeError::Keys`] when it cannot be read, [`ServeError::NoKeys`] when no key is in it.
    pub(crate) fn read(path: &Path) -> Result<Keys, ServeError> {
        let path = || -> PathBuf { path.to_owned() };
        let text = std::fs::read_to_string(path()).map_err(|source| ServeError::Keys { path: path(), source })?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<_> = lines.map(str::to_owned).collect();
        if keys.is_empty() { Err(ServeError::NoKeys { path: path() }) } else { Ok(Keys(keys)) }
    }

    /// Checks the key of a request: `Authorization: Bearer K` or `x-api-key: K`. Without keys anything is accepted, since
    /// clients send dummies.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let given = [bearer(headers), headers.get("x-api-key").map(HeaderValue::as_bytes)];
        let mut given = given.into_iter().flatten().peekable();
        if given.peek().is_none() {
            return Err(ApiError::key(
                "this server needs an API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`",
            ));
        }
        // Every key is compared, each in a time that does not depend on where it differs.
        let known = given.fold(Choice::from(0), |known, given| {
            self.0.iter().fold(known, |known, key| known | key.as_bytes().ct_eq(given))
        });
        if bool::from(known) { Ok(()) } else { Err(ApiError::key("the API key is not one of this server's")) }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
}

/// On a loopback address only loopback names are taken: a web page whose own name was made to resolve to this machine
/// still says that name in `Host`.
///
/// # Errors
/// 403.
pub(crate) fn check_host(http: &HttpRequest, config: &ApiConfig) -> Result<(), ApiError> {
    if !config.is_loopback() {
        return Ok(());
    }
    let Some(value) = http.headers().get(header::HOST) else { return Ok(()) };
    let host = value.to_str().unwrap_or("?");
    let name = without_port(host);
    let local = name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    let allowed = || config.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    if local || allowed() { Ok(()) } else { Err(ApiError::host(host)) }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

/// Headers that a page may send, beside those whose names begin with `x-stainless-`.
const PAGE_HEADERS: [&str; 6] = [
    "authorization",
    "content-type",
    "x-api-key",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
];
/// Headers that a page may read.
const SHOWN_HEADERS: &str = "x-request-id, request-id, retry-after, x-should-retry";
/// Seconds that a browser may remember an answer to its question.
const PREFLIGHT_S: u32 = 86_400;

/// The page that asks, if it is one of the allowed ones.
fn allowed_origin<'h>(headers: &'h HeaderMap, config: &ApiConfig) -> Option<&'h HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    config.cors_origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(text)).then_some(origin)
}

/// The answer to a browser that asks whether a page may send a request; it carries no key. `None` for anything else.
pub(crate) fn preflight(http: &HttpRequest, config: &ApiConfig) -> Option<HttpResponse> {
    let asks = http.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if http.method() != Method::OPTIONS || !asks || config.cors_origins.is_empty() {
        return None;
    }
    let mut response = HttpResponse::NoContent();
    if allowed_origin(http.headers(), config).is_some() {
        let asked = http.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|v| v.to_str().ok());
        let names = asked.unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase());
        // A `*` would not cover Authorization, so the names are listed.
        let names: Vec<_> =
            names.filter(|name| PAGE_HEADERS.contains(&name.as_str()) || name.starts_with("x-stainless-")).collect();
        response.insert_header((header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"));
        response.insert_header((header::ACCESS_CONTROL_ALLOW_HEADERS, names.join(", ")));
        response.insert_header((header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_S));
    }
    Some(response.finish())
}

/// Adds what lets an allowed page read the answer.
pub(crate) fn allow_page(request: &HeaderMap, config: &ApiConfig, response: &mut HeaderMap) {
    if config.cors_origins.is_empty() {
        return;
    }
    response.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = allowed_origin(request, config) {
        response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        response
            .insert(HeaderName::from_static("access-control-expose-headers"), HeaderValue::from_static(SHOWN_HEADERS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_cut_off_hosts_of_every_kind() {
        for (host, name) in
            [("localhost:80", "localhost"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a", "a"), ("::1", "::1")]
        {
            assert_eq!(without_port(host), name);
        }
    }
}
