//! What changes something. Each call writes an audit line, whether it succeeds or not.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State as Shares;
use axum::http::StatusCode;
use duroxide::OrchestrationStatus;
use duroxide::client::StartOptions;
use duroxide::providers::{PruneOptions, QuarantinePurge, QuarantineRetry};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::Body;
use super::{MOST_NAME, check_id, check_text};
use crate::Shared;
use crate::audit::Operator;

/// The most rows of the quarantine in one call.
const MOST_ROWS: usize = 1_000;

/// The longest grace period: a year.
const MOST_GRACE_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

/// What an action did.
#[derive(Serialize, ToSchema)]
pub(super) struct Done {
    /// One sentence for people.
    message: String,
}

fn done(message: impl Into<String>) -> Json<Done> {
    Json(Done { message: message.into() })
}

fn check_name(what: &str, name: &str) -> Result<(), ApiError> {
    match name.is_empty() {
        true => Err(ApiError::bad(format!("{what} is empty"))),
        false => check_text(what, name, MOST_NAME),
    }
}

fn check_data(data: &str) -> Result<(), ApiError> {
    check_text("the data", data, usize::MAX)
}

/// A start.
#[derive(Deserialize, ToSchema)]
pub(super) struct StartBody {
    /// Made up if not given.
    instance: Option<String>,
    orchestration: String,
    /// The newest if not given.
    version: Option<String>,
    /// As the orchestration expects it; typed code expects JSON.
    #[serde(default)]
    input: String,
}

/// A start that was stored.
#[derive(Serialize, ToSchema)]
pub(super) struct Started {
    instance: String,
    /// False if there was such an instance already; then nothing was started.
    is_new: bool,
}

/// Starts an orchestration.
#[utoipa::path(post, path = "/actions/start", request_body = StartBody, responses((status = 200, body = Started)))]
pub(super) async fn start(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<StartBody>,
) -> Result<Json<Started>, ApiError> {
    let made_up = || format!("{}-{}", body.orchestration, uuid::Uuid::new_v4().simple());
    let id = body.instance.clone().filter(|id| !id.is_empty()).unwrap_or_else(made_up);
    let outcome = begin(&shared, &id, &body).await;
    operator.note("start", &id, outcome)
}

async fn begin(shared: &Shared, id: &str, body: &StartBody) -> Result<Json<Started>, ApiError> {
    check_id(id)?;
    check_name("the orchestration", &body.orchestration)?;
    check_data(&body.input)?;
    let mut options = StartOptions::new();
    if let Some(version) = body.version.as_ref().filter(|version| !version.is_empty()) {
        check_name("the version", version)?;
        options = options.version(version);
    }
    let started =
        shared.client.start_orchestration_with(id, &body.orchestration, body.input.as_str(), options).await?;
    Ok(Json(Started { instance: id.to_string(), is_new: started.is_new() }))
}

/// An event for an instance.
#[derive(Deserialize, ToSchema)]
pub(super) struct RaiseBody {
    instance: String,
    /// The event.
    name: String,
    #[serde(default)]
    data: String,
}

/// Raises an event: the oldest open wait for its name receives it. An instance that has ended, and one that does not exist, are
/// refused: nobody would receive it.
#[utoipa::path(post, path = "/actions/raise", request_body = RaiseBody, responses((status = 200, body = Done)))]
pub(super) async fn raise(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<RaiseBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = async {
        check_id(&body.instance)?;
        check_name("the name of the event", &body.name)?;
        check_data(&body.data)?;
        shared.client.signal_text(&body.instance, &body.name, body.data.as_str()).await?;
        Ok(done(format!("Raised {}.", body.name)))
    };
    operator.note("raise", &body.instance, outcome.await)
}

/// A message for a queue of an instance.
#[derive(Deserialize, ToSchema)]
pub(super) struct EnqueueBody {
    instance: String,
    queue: String,
    #[serde(default)]
    data: String,
}

/// Puts a message into a queue of an instance, where it stays until the orchestration takes it or ends.
#[utoipa::path(post, path = "/actions/enqueue", request_body = EnqueueBody, responses((status = 200, body = Done)))]
pub(super) async fn enqueue(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<EnqueueBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = async {
        check_id(&body.instance)?;
        check_name("the queue", &body.queue)?;
        check_data(&body.data)?;
        shared.client.send_text(&body.instance, &body.queue, body.data.as_str()).await?;
        Ok(done(format!("Put a message into {}.", body.queue)))
    };
    operator.note("enqueue", &body.instance, outcome.await)
}

/// A cancellation.
#[derive(Deserialize, ToSchema)]
pub(super) struct CancelBody {
    instance: String,
    /// The instance ends with this reason.
    #[serde(default)]
    reason: String,
    /// How long its own cleanup may take; 0 ends it at once, without cleanup. As long as it takes if not given.
    #[schema(maximum = 31536000000_u64)]
    grace_ms: Option<u64>,
}

/// Asks to cancel an instance: one that listens cleans up first, any other ends at its next turn.
#[utoipa::path(post, path = "/actions/cancel", request_body = CancelBody, responses((status = 200, body = Done)))]
pub(super) async fn cancel(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<CancelBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = cancel_one(&shared, &body.instance, &body.reason, body.grace_ms).await;
    operator.note("cancel", &body.instance, outcome.map(|()| done("Asked it to cancel.")))
}

pub(super) async fn cancel_one(
    shared: &Shared,
    id: &str,
    reason: &str,
    grace_ms: Option<u64>,
) -> Result<(), ApiError> {
    check_id(id)?;
    check_text("the reason", reason, MOST_NAME)?;
    if grace_ms.is_some_and(|grace_ms| grace_ms > MOST_GRACE_MS) {
        return Err(ApiError::bad("the grace period is longer than a year"));
    }
    // Only for an honest answer: a request for an instance that ends meanwhile changes nothing.
    match shared.client.get_orchestration_status(id).await? {
        OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. } => {
            return Err(ApiError::new(StatusCode::CONFLICT, "the instance has ended already"));
        }
        OrchestrationStatus::NotFound => drop(shared.client.describe(id, 0).await?),
        OrchestrationStatus::Running { .. } => {}
    }
    let cancel = shared.client.cancel(id).reason(reason);
    match grace_ms {
        Some(grace_ms) => cancel.grace(Duration::from_millis(grace_ms)).await?,
        None => cancel.await?,
    }
    Ok(())
}

/// Names an instance.
#[derive(Deserialize, ToSchema)]
pub(super) struct InstanceBody {
    instance: String,
}

/// Lets a blocked instance go on.
#[utoipa::path(post, path = "/actions/retry", request_body = InstanceBody, responses((status = 200, body = Done)))]
pub(super) async fn retry(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<InstanceBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = retry_one(&shared, &body.instance).await;
    let said = outcome.map(|was_blocked| match was_blocked {
        true => done("It goes on."),
        false => done("The store had not blocked it; workers try it by themselves."),
    });
    operator.note("retry", &body.instance, said)
}

pub(super) async fn retry_one(shared: &Shared, id: &str) -> Result<bool, ApiError> {
    check_id(id)?;
    Ok(shared.client.unblock_instance(id).await?)
}

/// A deletion.
#[derive(Deserialize, ToSchema)]
pub(super) struct DeleteBody {
    instance: String,
    /// Also if it is running.
    #[serde(default)]
    force: bool,
}

/// Deletes an instance with its children.
#[utoipa::path(post, path = "/actions/delete", request_body = DeleteBody, responses((status = 200, body = Done)))]
pub(super) async fn delete(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<DeleteBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = delete_one(&shared, &body.instance, body.force).await;
    let said = outcome.map(|count| match count {
        1 => done("Deleted it."),
        count => done(format!("Deleted {count} instances: it and its children.")),
    });
    operator.note("delete", &body.instance, said)
}

pub(super) async fn delete_one(shared: &Shared, id: &str, force: bool) -> Result<u64, ApiError> {
    check_id(id)?;
    let result = shared.client.delete_instance(id, force).await?;
    shared.hub.removed(id);
    Ok(result.instances_deleted)
}

/// A pruning.
#[derive(Deserialize, ToSchema)]
pub(super) struct PruneBody {
    instance: String,
    /// How many of the newest executions stay.
    #[schema(minimum = 1)]
    keep_last: u32,
}

/// Removes old executions of an instance; the current one always stays.
#[utoipa::path(post, path = "/actions/prune", request_body = PruneBody, responses((status = 200, body = Done)))]
pub(super) async fn prune(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<PruneBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = prune_one(&shared, &body.instance, body.keep_last).await;
    let said = outcome.map(|count| done(format!("Removed {count} executions.")));
    operator.note("prune", &body.instance, said)
}

pub(super) async fn prune_one(shared: &Shared, id: &str, keep_last: u32) -> Result<u64, ApiError> {
    check_id(id)?;
    let options = PruneOptions { keep_last: Some(keep_last.max(1)), completed_before: None };
    Ok(shared.client.prune_executions(id, options).await?.executions_deleted)
}

/// Names rows in quarantine.
#[derive(Deserialize, ToSchema)]
pub(super) struct RowsBody {
    #[schema(max_items = 1000)]
    rows: Vec<u64>,
}

impl RowsBody {
    fn check(&self) -> Result<(), ApiError> {
        if self.rows.len() > MOST_ROWS {
            return Err(ApiError::bad(format!("more than {MOST_ROWS} rows in one call")));
        }
        match self.rows.iter().any(|row| *row > i64::MAX as u64) {
            true => Err(ApiError::bad("there is no such row")),
            false => Ok(()),
        }
    }

    fn names(&self) -> String {
        format!("{} rows", self.rows.len())
    }
}

/// Puts rows from quarantine back into their queues.
#[utoipa::path(post, path = "/actions/release", request_body = RowsBody, responses((status = 200, body = Done)))]
pub(super) async fn release(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<RowsBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = async {
        body.check()?;
        let retried = shared.client.retry_quarantined(&body.rows).await?;
        let back = retried.iter().filter(|retry| **retry == QuarantineRetry::Enqueued).count();
        let why = retried.iter().find_map(|retry| match retry {
            QuarantineRetry::Kept { reason } => Some(format!(" One that stays: {reason}")),
            _ => None,
        });
        Ok(done(format!("{back} of {} went back.{}", body.rows.len(), why.unwrap_or_default())))
    };
    operator.note("release", &body.names(), outcome.await)
}

/// Removes rows from quarantine, for good.
#[utoipa::path(post, path = "/actions/drop", request_body = RowsBody, responses((status = 200, body = Done)))]
pub(super) async fn drop_rows(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(body): Body<RowsBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = async {
        body.check()?;
        let count = shared.client.purge_quarantined(QuarantinePurge::Ids(&body.rows)).await?;
        Ok(done(format!("Dropped {count}.")))
    };
    operator.note("drop", &body.names(), outcome.await)
}

/// Nothing.
#[derive(Deserialize, ToSchema)]
pub(super) struct EmptyBody {}

/// Kills a worker, if the server was made to: to watch the work go on.
#[utoipa::path(post, path = "/actions/crash", request_body = EmptyBody, responses((status = 200, body = Done)))]
pub(super) async fn crash(
    Shares(shared): Shares<Arc<Shared>>,
    operator: Operator,
    Body(EmptyBody {}): Body<EmptyBody>,
) -> Result<Json<Done>, ApiError> {
    let outcome = match &shared.settings.crash {
        None => Err(ApiError::not_found("this server has no worker to crash")),
        Some(crash) => crash().await.map(done).map_err(|reason| ApiError::new(StatusCode::CONFLICT, reason)),
    };
    operator.note("crash", "", outcome)
}
