//! Lists of instances by what they wait for. No index tells that, so each candidate is looked at, a bounded number a page.

use duroxide::providers::{EventRequest, InstanceQuery};
use duroxide::{Client, ClientError, InstanceState};
use futures_util::StreamExt;
use futures_util::stream;

use super::error::ApiError;
use super::instances::WaitsFor;
use super::shapes::{AWAITING_COMPLETION, InstancePage, InstanceRow, Wait, WaitKind};

/// How many instances one call looks at.
const LOOKED_AT: usize = 200;
/// How many of them at the same time.
const AT_ONCE: usize = 8;

pub(super) async fn list(
    client: &Client,
    mut query: InstanceQuery,
    waits: WaitsFor,
) -> Result<InstancePage, ApiError> {
    if query.states.is_empty() {
        query.states = vec![InstanceState::Waiting, InstanceState::Running];
    }
    let wanted = query.limit;
    query.limit = wanted.min(LOOKED_AT / 2);
    let mut found = Vec::new();
    let mut looked_at = 0;
    loop {
        let page = client.list(&query).await?;
        query.cursor = page.next_cursor;
        looked_at += page.rows.len().max(1);
        let rows = page.rows.into_iter().map(InstanceRow::from);
        let mut looks = stream::iter(rows.map(|row| look(client, row, waits))).buffered(AT_ONCE);
        while let Some(looked) = looks.next().await {
            found.extend(looked?);
        }
        // Whole pages only, so that the cursor stands behind what was looked at.
        if query.cursor.is_none() || found.len() >= wanted || looked_at >= LOOKED_AT {
            return Ok(InstancePage { instances: found, next: query.cursor, count: None });
        }
    }
}

async fn look(
    client: &Client,
    mut row: InstanceRow,
    waits: WaitsFor,
) -> Result<Option<InstanceRow>, ApiError> {
    let open = match client.waits(&row.id).await {
        Ok(open) => open.open,
        // It was deleted meanwhile.
        Err(ClientError::InstanceNotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let open: Vec<Wait> = open.into_iter().map(Wait::from).collect();
    row.reason = open.iter().find_map(|wait| sentence(wait, waits));
    let timer = open.iter().find(|wait| wait.kind == WaitKind::Timer);
    if let (None, WaitsFor::Retry, Some(timer)) = (&row.reason, waits, timer) {
        row.reason = pause_after(client, &row.id, timer.event_id).await?;
    }
    Ok(row.reason.is_some().then_some(row))
}

/// Between two attempts an orchestration waits for a timer: the one that it set right after an activity failed.
async fn pause_after(client: &Client, id: &str, timer: u64) -> Result<Option<String>, ApiError> {
    let before = EventRequest::of(id).before_event(timer).newest_first().limit(1).cut(500);
    let event = client.read_events(&before).await?.pop();
    let failure = event.filter(|event| event.kind == "ActivityFailed").and_then(|event| event.error_text());
    Ok(failure.map(|error| format!("tries again soon: {error}")))
}

/// Says what is waited for, if it is what the list is about.
fn sentence(wait: &Wait, waits: WaitsFor) -> Option<String> {
    match (waits, wait.kind) {
        (WaitsFor::Event, WaitKind::Signal) => Some(format!("waits for event {}", wait.name)),
        (WaitsFor::Event, WaitKind::Queue) => Some(format!("waits for a message in {}", wait.name)),
        (WaitsFor::Event, WaitKind::Activity) if wait.stage.as_deref() == Some(AWAITING_COMPLETION) => {
            Some(format!("waits for the completion of {} from elsewhere", wait.name))
        }
        (WaitsFor::Retry, WaitKind::Activity) => {
            let failures = wait.failures();
            (failures > 0).then(|| match &wait.last_error {
                Some(error) => format!("{}, attempt {}: {error}", wait.name, failures + 1),
                None => format!("{}, attempt {}", wait.name, failures + 1),
            })
        }
        _ => None,
    }
}
