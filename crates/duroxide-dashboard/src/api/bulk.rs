//! The same action for many instances. Each is done by itself: one that cannot be done does not hold up the others.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shares;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::actions::{cancel_one, delete_one, prune_one, retry_one};
use super::error::ApiError;
use super::extract::Body;
use crate::Shared;
use crate::audit::Operator;

/// The most instances of one call.
const MOST_INSTANCES: usize = 1_000;

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum BulkAction {
    Cancel,
    Retry,
    Delete,
    Prune,
}

/// An action for many instances.
#[derive(Deserialize, ToSchema)]
pub(super) struct BulkBody {
    action: BulkAction,
    #[schema(max_items = 1000)]
    instances: Vec<String>,
    /// Of a cancellation.
    reason: Option<String>,
    /// Of a cancellation: how long the cleanup may take; 0 ends at once, without cleanup. As long as it takes if not given.
    #[schema(maximum = 31536000000_u64)]
    grace_ms: Option<u64>,
    /// Of a deletion: also those that are running.
    #[serde(default)]
    force: bool,
    /// Of a pruning.
    keep_last: Option<u32>,
}

/// How it went.
#[derive(Serialize, ToSchema)]
pub(super) struct BulkResult {
    done: u64,
    failed: Vec<BulkFailure>,
}

/// An instance for which it could not be done.
#[derive(Serialize, ToSchema)]
pub(super) struct BulkFailure {
    instance: String,
    error: String,
}

/// Does the same for many instances.
#[utoipa::path(post, path = "/actions/bulk", request_body = BulkBody, responses((status = 200, body = BulkResult)))]
pub(super) async fn bulk(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<BulkBody>,
) -> Result<Json<BulkResult>, ApiError> {
    if body.instances.len() > MOST_INSTANCES {
        return Err(ApiError::bad(format!("more than {MOST_INSTANCES} instances in one call")));
    }
    let mut result = BulkResult { done: 0, failed: Vec::new() };
    for id in &body.instances {
        let (action, outcome) = match body.action {
            BulkAction::Cancel => {
                let reason = body.reason.as_deref().unwrap_or("cancelled in the dashboard");
                ("cancel", cancel_one(&shared, id, reason, body.grace_ms).await)
            }
            BulkAction::Retry => ("retry", retry_one(&shared, id).await.map(|_| ())),
            BulkAction::Delete => ("delete", delete_one(&shared, id, body.force).await.map(|_| ())),
            BulkAction::Prune => {
                ("prune", prune_one(&shared, id, body.keep_last.unwrap_or(1)).await.map(|_| ()))
            }
        };
        match operator.note(action, id, outcome) {
            Ok(()) => result.done += 1,
            Err(error) => result.failed.push(BulkFailure { instance: id.clone(), error: error.to_string() }),
        }
    }
    Ok(Json(result))
}
