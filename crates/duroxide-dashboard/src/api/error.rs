//! Refusals as JSON: a status and one sentence.

use std::fmt;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duroxide::ClientError;
use duroxide::client::SendError;
use serde::Serialize;
use utoipa::ToSchema;

/// Why a call was refused.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
}

/// The body of a refusal.
#[derive(Serialize, ToSchema)]
pub(crate) struct Refusal {
    /// One sentence for people.
    error: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer …")
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Refusal { error: self.message })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::InvalidInput { .. } => StatusCode::BAD_REQUEST,
            ClientError::InstanceNotFound { .. } => StatusCode::NOT_FOUND,
            ClientError::InstanceStillRunning { .. } | ClientError::CannotDeleteSubOrchestration { .. } => {
                StatusCode::CONFLICT
            }
            ClientError::Provider(cause) if cause.retryable => StatusCode::SERVICE_UNAVAILABLE,
            ClientError::Timeout => StatusCode::SERVICE_UNAVAILABLE,
            // The store refused for good: the same call will never succeed.
            ClientError::Provider(_) | ClientError::ManagementNotAvailable => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
        };
        let message = match error {
            ClientError::InstanceStillRunning { instance_id } => {
                format!("Instance {instance_id} is still running. Cancel it first, or delete it by force.")
            }
            other => other.to_string(),
        };
        Self { status, message }
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotFound { .. } => Self::not_found("there is no such instance; nothing was sent"),
            SendError::Client(error) => error.into(),
            // `Ended`; a cause that is added later is about the state of the instance, too.
            _ => Self::new(
                StatusCode::CONFLICT,
                "the instance has ended; nothing was sent, because nobody would receive it",
            ),
        }
    }
}
