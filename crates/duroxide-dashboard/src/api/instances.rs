//! The list of instances: filters, pages, counts.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State as Shares;
use duroxide::InstanceState;
use duroxide::providers::{InstanceQuery, ListSort};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::error::ApiError;
use super::extract::Params;
use super::shapes::{InstancePage, InstanceRow};
use super::{MOST_NAME, check_text, page_size, waiting_views};
use crate::Shared;

/// Instances are counted up to here; beyond it the answer is "more".
const COUNTED: u64 = 10_000;
/// The most rows of a page.
const MOST_ROWS: u16 = 500;

/// Which instances, in which order, and where the page begins.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// States, separated by commas.
    state: Option<String>,
    /// The orchestration.
    name: Option<String>,
    version: Option<String>,
    /// Text in the id.
    q: Option<String>,
    /// The beginning of the id.
    prefix: Option<String>,
    /// Milliseconds since the epoch.
    created_after: Option<u64>,
    /// Milliseconds since the epoch.
    created_before: Option<u64>,
    /// Milliseconds since the epoch.
    updated_after: Option<u64>,
    /// Milliseconds since the epoch.
    updated_before: Option<u64>,
    /// Children of this instance.
    parent: Option<String>,
    /// Descendants of this instance.
    root: Option<String>,
    custom_status: Option<String>,
    /// Only instances that wait for an event from outside, or that try something again.
    #[param(inline)]
    waits: Option<WaitsFor>,
    /// `created` if not given.
    #[param(inline)]
    sort: Option<Sort>,
    /// `newest` if not given.
    #[param(inline)]
    order: Option<Order>,
    /// Where the page before this one ended.
    cursor: Option<String>,
    /// How many at most (50).
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
    /// Whether to count all that pass.
    count: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WaitsFor {
    Event,
    Retry,
}

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sort {
    Created,
    Updated,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    Newest,
    Oldest,
}

impl ListParams {
    fn query(self) -> Result<InstanceQuery, ApiError> {
        let mut query = InstanceQuery::new();
        for word in self.state.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty()) {
            let state: InstanceState =
                word.trim().parse().map_err(|error| ApiError::bad(format!("{error}")))?;
            query.states.push(state);
        }
        let texts =
            [&self.name, &self.version, &self.q, &self.prefix, &self.parent, &self.root, &self.custom_status];
        for text in texts.into_iter().flatten() {
            check_text("a filter", text, MOST_NAME)?;
        }
        // Beyond what a store can keep, a time is as good as the latest that it can.
        let time = |ms: Option<u64>| ms.map(|ms| ms.min(i64::MAX as u64));
        query.name = self.name;
        query.version = self.version;
        query.id_contains = self.q.filter(|text| !text.is_empty());
        query.id_prefix = self.prefix.filter(|text| !text.is_empty());
        query.parent = self.parent;
        query.root = self.root;
        query.custom_status = self.custom_status;
        query.created_from_ms = time(self.created_after);
        query.created_before_ms = time(self.created_before);
        query.updated_from_ms = time(self.updated_after);
        query.updated_before_ms = time(self.updated_before);
        query.sort = match self.sort {
            Some(Sort::Updated) => ListSort::Updated,
            _ => ListSort::Created,
        };
        query.ascending = self.order == Some(Order::Oldest);
        query.cursor = self.cursor.filter(|cursor| !cursor.is_empty());
        query.limit = page_size(self.limit, 50, MOST_ROWS)?;
        Ok(query)
    }
}

/// A page of instances. A page may be short and still have a next one.
#[utoipa::path(get, path = "/instances", params(ListParams), responses((status = 200, body = InstancePage)))]
pub(super) async fn list(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<ListParams>,
) -> Result<Json<InstancePage>, ApiError> {
    let (waits, counts) = (params.waits, params.count == Some(true));
    let query = params.query()?;
    if let Some(waits) = waits {
        return Ok(Json(waiting_views::list(&shared.client, query, waits).await?));
    }
    let all = query.clone();
    let count = async {
        match counts {
            true => shared.client.count(&all, COUNTED).await.map(|count| Some(count.into())),
            false => Ok(None),
        }
    };
    let (count, page) = tokio::join!(count, fill(&shared, query));
    let (rows, next) = page?;
    Ok(Json(InstancePage { instances: rows, next, count: count? }))
}

/// A store may answer with a short page if its filter needs a scan. A few more are asked for, as long as that goes fast, so that a
/// reader seldom sees it.
async fn fill(
    shared: &Shared,
    mut query: InstanceQuery,
) -> Result<(Vec<InstanceRow>, Option<String>), ApiError> {
    const ASKED: usize = 5;
    const LONG_ENOUGH: Duration = Duration::from_millis(50);
    let Shared { client, clock, .. } = shared;
    let (wanted, began) = (query.limit, clock.monotonic());
    let mut rows: Vec<InstanceRow> = Vec::new();
    for _ in 0..ASKED {
        query.limit = wanted - rows.len();
        let page = client.list(&query).await?;
        rows.extend(page.rows.into_iter().map(InstanceRow::from));
        query.cursor = page.next_cursor;
        let took = clock.monotonic().saturating_sub(began);
        if query.cursor.is_none() || rows.len() >= wanted || took > LONG_ENOUGH {
            break;
        }
    }
    Ok((rows, query.cursor))
}
