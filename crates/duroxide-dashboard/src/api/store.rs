//! The store as a whole: what it is, totals, queues, workers, quarantine.

use std::sync::Arc;

use axum::extract::State as Shares;
use axum::{Extension, Json};
use duroxide::providers::{Count, WorkQueue};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error::ApiError;
use super::extract::Params;
use super::page_size;
use super::shapes::{
    AccessWord, CUT, Dropped, MINUTES, Meta, Overview, Parked, Payload, QuarantinePage, QuarantineRow, Queue,
    Queues, Worker, Workers,
};
use crate::Shared;
use crate::guard::tokens::Access;

/// How many parked and dropped messages are listed, and how many rows in quarantine an overview counts.
const LISTED: usize = 100;

/// What this server is, and what the caller may do.
#[utoipa::path(get, path = "/meta", responses((status = 200, body = Meta)))]
pub(super) async fn meta(
    Shares(shared): Shares<Arc<Shared>>,
    Extension(access): Extension<Access>,
) -> Json<Meta> {
    Json(Meta {
        version: env!("CARGO_PKG_VERSION").to_string(),
        store: shared.settings.store_name.clone(),
        access: match access {
            Access::Read => AccessWord::Read,
            Access::Full => AccessWord::Full,
        },
        crash: shared.settings.crash.is_some(),
        now_ms: shared.clock.now_ms(),
    })
}

/// The whole store at a glance. The live stream sends the same whenever it changes.
#[utoipa::path(get, path = "/overview", responses((status = 200, body = Overview)))]
pub(super) async fn overview(Shares(shared): Shares<Arc<Shared>>) -> Result<Json<Overview>, ApiError> {
    Ok(Json(read_overview(&shared.client, shared.clock.now_ms()).await?))
}

pub(crate) async fn read_overview(client: &duroxide::Client, now_ms: u64) -> Result<Overview, ApiError> {
    let overview = client.overview(MINUTES).await?;
    let quarantined = match client.list_quarantined(0, LISTED + 1).await {
        Ok(rows) => Some(Count::up_to(LISTED as u64, rows.len() as u64).into()),
        Err(error) => {
            tracing::debug!(target: "duroxide::dashboard", %error, "the rows in quarantine cannot be counted");
            None
        }
    };
    Ok(Overview::of(overview, quarantined, now_ms))
}

/// The workers that reported lately.
#[utoipa::path(get, path = "/workers", responses((status = 200, body = Workers)))]
pub(super) async fn workers(Shares(shared): Shares<Arc<Shared>>) -> Result<Json<Workers>, ApiError> {
    let now_ms = shared.clock.now_ms();
    let workers = shared.client.list_workers().await?;
    Ok(Json(Workers { workers: workers.into_iter().map(|worker| Worker::of(worker, now_ms)).collect() }))
}

/// The queues, and messages that found no instance.
#[utoipa::path(get, path = "/queues", responses((status = 200, body = Queues)))]
pub(super) async fn queues(Shares(shared): Shares<Arc<Shared>>) -> Result<Json<Queues>, ApiError> {
    let client = &shared.client;
    let dropped = client.list_dropped_messages(LISTED).await?;
    let parked = client.list_parked_messages(LISTED).await?;
    Ok(Json(Queues {
        queues: client.queue_states().await?.into_iter().map(Queue::from).collect(),
        parked: parked
            .into_iter()
            .map(|one| Parked {
                instance: one.instance,
                text: shorten(one.raw),
                expires_at_ms: one.expires_at,
            })
            .collect(),
        dropped_total: dropped.total,
        dropped: dropped
            .newest
            .into_iter()
            .map(|one| Dropped {
                instance: one.instance,
                text: shorten(one.raw),
                dropped_at_ms: one.dropped_at,
            })
            .collect(),
    }))
}

fn shorten(text: String) -> String {
    text.chars().take(CUT).collect()
}

/// A page of rows in quarantine.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct QuarantineParams {
    /// Only rows with a higher id.
    after: Option<u64>,
    /// How many at most (50).
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// Rows of the queues that do not decode and were set aside.
#[utoipa::path(get, path = "/quarantine", params(QuarantineParams), responses((status = 200, body = QuarantinePage)))]
pub(super) async fn quarantine(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<QuarantineParams>,
) -> Result<Json<QuarantinePage>, ApiError> {
    let limit = page_size(params.limit, 50, 500)?;
    let after = params.after.unwrap_or(0).min(i64::MAX as u64);
    let mut entries = shared.client.list_quarantined(after, limit + 1).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let rows = entries.into_iter().map(|entry| {
        let bytes = entry.row.raw.len() as u64;
        QuarantineRow {
            id: entry.id,
            queue: match entry.row.queue {
                WorkQueue::Orchestrator => "orchestrator".to_string(),
                WorkQueue::Worker => "worker".to_string(),
            },
            instance: entry.row.instance,
            reason: entry.row.reason,
            text: Payload::of(entry.row.raw.chars().take(CUT).collect(), bytes),
            quarantined_at_ms: entry.row.quarantined_at,
        }
    });
    Ok(Json(QuarantinePage { rows: rows.collect(), more }))
}
