//! What stands between a request and a handler: host, origin, token, and the marks of a call that changes something.

mod hosts;
pub(crate) mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::Shared;
use crate::api::error::ApiError;
use tokens::Access;

/// The header that a call must carry to change something. A form of another site cannot set it.
pub(crate) const ACTION_HEADER: &str = "x-duroxide-action";

/// No script, style or connection but our own; no frame, no form, no base.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Whose routes are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The API, which asks for a token, and the pages, which hold no data: they are what asks for the token.
    Dashboard,
    /// Routes of the application, all of which ask for one.
    Application,
}

/// What the guard goes by.
type Guarded = (Arc<Shared>, Scope);

pub(crate) fn protect(router: Router, shared: Arc<Shared>, scope: Scope) -> Router {
    let guarded = (shared.clone(), scope);
    let limit = shared.settings.max_body_bytes;
    router
        .layer(DefaultBodyLimit::max(limit))
        .layer(middleware::from_fn_with_state(guarded, check))
        .layer(middleware::from_fn_with_state(scope, add_headers))
}

async fn check(State((shared, scope)): State<Guarded>, mut request: Request, next: Next) -> Response {
    match admit(&shared, scope, &request) {
        Ok(access) => {
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Decides whether a request may pass, and what its sender may do.
fn admit(shared: &Shared, scope: Scope, request: &Request<Body>) -> Result<Access, ApiError> {
    let headers = request.headers();
    let host = host_of(request).ok_or_else(|| ApiError::bad("the request names no host"))?;
    if !hosts::is_allowed(&host, &shared.settings.hosts) {
        let reason = "this server does not answer for that host; see Dashboard::allow_host";
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, reason));
    }
    if !hosts::is_same_origin(&host, headers) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "a page of another origin may not call this server",
        ));
    }
    let needs_token = scope.needs_token(request.uri().path());
    let access = match needs_token {
        true => tokens::access(&shared.settings, headers).ok_or_else(ApiError::unauthorized)?,
        false => Access::Read,
    };
    if needs_token && !request.method().is_safe() {
        may_act(access, headers)?;
    }
    Ok(access)
}

impl Scope {
    fn needs_token(self, path: &str) -> bool {
        self == Self::Application || path == "/api" || path.starts_with("/api/")
    }
}

fn may_act(access: Access, headers: &HeaderMap) -> Result<(), ApiError> {
    if access != Access::Full {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "read only: nothing may be changed with this access",
        ));
    }
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let reason = "a call that changes something has the content type application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    if !headers.contains_key(ACTION_HEADER) {
        let reason = format!("a call that changes something carries the header {ACTION_HEADER}");
        return Err(ApiError::new(StatusCode::FORBIDDEN, reason));
    }
    Ok(())
}

/// The host that the client meant: of HTTP/2 in the URI, of HTTP/1 in the header.
fn host_of(request: &Request<Body>) -> Option<String> {
    let named = request.headers().get(header::HOST).map(|value| value.to_str().map(str::to_string));
    match named {
        Some(host) => host.ok(),
        None => request.uri().authority().map(|authority| authority.to_string()),
    }
}

async fn add_headers(State(scope): State<Scope>, request: Request, next: Next) -> Response {
    let is_data = scope.needs_token(request.uri().path());
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_data {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
