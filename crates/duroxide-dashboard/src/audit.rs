//! A line for everything that was changed, or was tried: who, what, and how it ended. Payloads are not in it.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;

use crate::Shared;
use crate::api::error::ApiError;

/// Who sent a request.
pub(crate) struct Operator {
    name: String,
    peer: String,
}

impl FromRequestParts<Arc<Shared>> for Operator {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Infallible> {
        let settings = &shared.settings;
        let named = settings.operator_header.as_ref().and_then(|header| parts.headers.get(header));
        let name = match named.and_then(|name| name.to_str().ok()) {
            Some(name) => name.chars().take(200).collect(),
            None if settings.token.is_some() => "token".to_string(),
            None => "anonymous".to_string(),
        };
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or_else(|| "unknown".to_string(), |ConnectInfo(address)| address.to_string());
        Ok(Self { name, peer })
    }
}

impl Operator {
    /// Writes the line, and hands the outcome on.
    pub(crate) fn note<T>(
        &self,
        action: &'static str,
        target: &str,
        outcome: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        match &outcome {
            Ok(_) => tracing::info!(target: "duroxide::audit", action, instance = target, who = self.name,
                peer = self.peer, outcome = "done", "operator action"),
            Err(error) => {
                tracing::warn!(target: "duroxide::audit", action, instance = target, who = self.name,
                peer = self.peer, outcome = "refused", reason = %error, "operator action")
            }
        }
        outcome
    }
}
