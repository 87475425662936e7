//! One instance in detail: its events, executions, values and queue rows.

use rusqlite::{Connection, params};

use super::reads::number;
use super::write_transaction::{count, read_row, read_rows, shown_optional, shown_text, text_bytes};
use super::{history, list_pages, observed};
use crate::model::{EventView, QueuedActivity, QueuedMessage, cut_text};
use crate::providers::{
    EventOrder, EventRequest, ExecutionSummary, InstanceDetail, KvView,
};

/// Reads everything that tells how an instance stands.
pub(super) fn detail(
    connection: &Connection,
    instance: &str,
    events: usize,
    cut: usize,
    now: i64,
) -> Result<Option<InstanceDetail>, super::error::StoreError> {
    let Some(row) = list_pages::row(connection, instance, cut, now)? else { return Ok(None) };
    let execution_id = i64::try_from(row.execution_id).unwrap_or(i64::MAX);
    let mut detail = InstanceDetail::default();
    detail.started_at_ms = read_row(
        connection,
        "SELECT started_at FROM executions WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| number(row, 0),
    )?;
    detail.event_count = event_count(connection, instance, execution_id)?;
    let request = EventRequest::of(instance).execution(row.execution_id).cut(cut);
    detail.first_event = self::events(connection, &request.clone().limit(1))?.pop();
    detail.events = self::events(connection, &request.newest_first().limit(events))?;
    detail.events.reverse();
    detail.messages = messages(connection, instance, InstanceDetail::MOST_QUEUED, cut, now)?;
    detail.activities = activities(connection, instance, InstanceDetail::MOST_QUEUED, now)?;
    detail.obstacles = observed::obstacles(connection, Some(instance), InstanceDetail::MOST_QUEUED, now)?;
    let schedule = read_row(
        connection,
        "SELECT blocked_reason, blocked_at, locked_until FROM instance_schedule WHERE instance_id = ?1",
        [instance],
        |row| Ok((shown_optional(row, 0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, Option<i64>>(2)?)),
    )?;
    if let Some((reason, blocked_at, locked_until)) = schedule {
        let time = |at: i64| u64::try_from(at).unwrap_or(0);
        match blocked_at {
            Some(at) => detail.blocked = Some((reason.unwrap_or_default(), time(at))),
            None => detail.leased_until_ms = locked_until.filter(|until| *until > now).map(time),
        }
    }
    let is_due = |message: &QueuedMessage| !message.is_parked && message.delayed_until_ms.is_none();
    detail.is_busy = detail.messages.iter().any(is_due);
    detail.read_at_ms = u64::try_from(now).unwrap_or(0);
    detail.row = row;
    Ok(Some(detail))
}

fn event_count(connection: &Connection, instance: &str, execution_id: i64) -> rusqlite::Result<u64> {
    let highest = read_row(
        connection,
        "SELECT max(event_id) FROM history WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| row.get::<_, Option<i64>>(0),
    )?;
    Ok(highest.flatten().and_then(|highest| u64::try_from(highest).ok()).unwrap_or_default())
}

/// Reads a part of a history. Of a large event only the beginning is copied.
pub(super) fn events(connection: &Connection, request: &EventRequest) -> rusqlite::Result<Vec<EventView>> {
    let clamp = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let execution_id = match request.execution_id {
        Some(id) => clamp(id),
        None => history::latest_execution(connection, &request.instance)?,
    };
    let (sql, enough) = (
        match request.order {
            EventOrder::OldestFirst => {
                "SELECT event_id, event_data FROM history WHERE instance_id = ?1 AND execution_id = ?2
                 AND event_id >= ?3 AND event_id < ?4 ORDER BY event_id LIMIT ?5"
            }
            EventOrder::NewestFirst => {
                "SELECT event_id, event_data FROM history WHERE instance_id = ?1 AND execution_id = ?2
                 AND event_id >= ?3 AND event_id < ?4 ORDER BY event_id DESC LIMIT ?5"
            }
        },
        EventRequest::stored_bytes(request.cut),
    );
    let from = request.from_event_id.map_or(0, clamp);
    let before = request.before_event_id.map_or(i64::MAX, clamp);
    let limit = i64::try_from(request.page_size()).unwrap_or(i64::MAX);
    read_rows(connection, sql, params![request.instance, execution_id, from, before, limit], |row| {
        let text = row.get_ref(1)?.as_bytes()?;
        let beginning = text.get(..enough).unwrap_or(text);
        Ok(EventView::of_stored(number(row, 0)?, beginning, text.len() as u64, request.cut))
    })
}

pub(super) fn executions(
    connection: &Connection,
    instance: &str,
    before: Option<u64>,
    limit: usize,
    cut: usize,
) -> rusqlite::Result<Vec<ExecutionSummary>> {
    let before = before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let mut page = read_rows(
        connection,
        "SELECT execution_id, status, started_at, completed_at, substr(output, 1, ?4) FROM executions
         WHERE instance_id = ?1 AND execution_id < ?2 ORDER BY execution_id DESC LIMIT ?3",
        params![instance, before, limit as i64, cut as i64],
        |row| {
            let mut summary = ExecutionSummary::default();
            summary.execution_id = number(row, 0)?;
            summary.status = shown_text(row, 1)?;
            summary.started_at_ms = number(row, 2)?;
            summary.completed_at_ms = row.get::<_, Option<i64>>(3)?.and_then(|at| u64::try_from(at).ok());
            summary.output = shown_optional(row, 4)?;
            summary.output.iter_mut().for_each(|output| drop(cut_text(output, cut)));
            Ok(summary)
        },
    )?;
    for summary in &mut page {
        let execution_id = i64::try_from(summary.execution_id).unwrap_or(i64::MAX);
        summary.event_count = event_count(connection, instance, execution_id)?;
        if summary.event_count <= ExecutionSummary::MOST_MEASURED {
            summary.history_bytes = read_row(
                connection,
                "SELECT ifnull(sum(octet_length(event_data)), 0) FROM history
                 WHERE instance_id = ?1 AND execution_id = ?2",
                params![instance, execution_id],
                |row| number(row, 0),
            )?;
        }
    }
    Ok(page)
}

/// The newest values of an instance, by key.
pub(super) fn values(
    connection: &Connection,
    instance: &str,
    after: Option<&str>,
    limit: usize,
    cut: usize,
) -> rusqlite::Result<Vec<KvView>> {
    read_rows(
        connection,
        "SELECT key, substr(value, 1, ?4), octet_length(value), last_updated_at_ms FROM (
            SELECT key, value, last_updated_at_ms FROM kv_delta
            WHERE instance_id = ?1 AND value IS NOT NULL AND (?2 IS NULL OR key > ?2)
            UNION ALL
            SELECT key, value, last_updated_at_ms FROM kv_store s
            WHERE instance_id = ?1 AND (?2 IS NULL OR key > ?2)
                AND NOT EXISTS (SELECT 1 FROM kv_delta d WHERE d.instance_id = s.instance_id AND d.key = s.key))
         ORDER BY key LIMIT ?3",
        params![instance, after, limit as i64, cut as i64],
        |row| {
            let mut view = KvView::default();
            view.key = shown_text(row, 0)?;
            view.value = shown_text(row, 1)?;
            view.size_bytes = number(row, 2)?;
            view.updated_at_ms = number(row, 3)?;
            cut_text(&mut view.value, cut);
            Ok(view)
        },
    )
}

/// The columns that describe a message.
pub(super) const MESSAGE: &str = "id, instance_id, created_at, visible_at, attempt_count, parked_at, work_item";

pub(super) fn message(row: &rusqlite::Row<'_>, cut: usize, now: i64) -> rusqlite::Result<QueuedMessage> {
    let mut message = QueuedMessage::default();
    message.id = number(row, 0)?;
    message.instance = shown_text(row, 1)?;
    message.enqueued_at_ms = number(row, 2)?;
    message.delayed_until_ms = later(row.get(3)?, now);
    message.attempts = count(row, 4)?;
    message.is_parked = row.get::<_, Option<i64>>(5)?.is_some();
    message.describe(&text_bytes(row, 6)?, cut);
    Ok(message)
}

pub(super) fn messages(
    connection: &Connection,
    instance: &str,
    limit: usize,
    cut: usize,
    now: i64,
) -> rusqlite::Result<Vec<QueuedMessage>> {
    let sql = format!("SELECT {MESSAGE} FROM orchestrator_queue WHERE instance_id = ?1 ORDER BY id LIMIT ?2");
    read_rows(connection, &sql, params![instance, limit as i64], |row| message(row, cut, now))
}

/// The columns that describe an activity.
pub(super) const ACTIVITY: &str = "id, instance_id, execution_id, activity_id, tag, session_id, attempt_count,
    created_at, visible_at, locked_until, work_item";

pub(super) fn activity(row: &rusqlite::Row<'_>, now: i64) -> rusqlite::Result<QueuedActivity> {
    let mut activity = QueuedActivity::default();
    activity.id = number(row, 0)?;
    activity.instance = shown_text(row, 1)?;
    activity.execution_id = number(row, 2)?;
    activity.activity_id = number(row, 3)?;
    activity.attempts = count(row, 6)?;
    activity.enqueued_at_ms = number(row, 7)?;
    activity.delayed_until_ms = later(row.get(8)?, now);
    activity.leased_until_ms = later(row.get::<_, Option<i64>>(9)?.unwrap_or_default(), now);
    activity.describe(&text_bytes(row, 10)?);
    activity.tag = shown_optional(row, 4)?;
    activity.session_id = shown_optional(row, 5)?;
    Ok(activity)
}

pub(super) fn activities(
    connection: &Connection,
    instance: &str,
    limit: usize,
    now: i64,
) -> rusqlite::Result<Vec<QueuedActivity>> {
    let sql = format!("SELECT {ACTIVITY} FROM worker_queue WHERE instance_id = ?1 ORDER BY id LIMIT ?2");
    read_rows(connection, &sql, params![instance, limit as i64], |row| activity(row, now))
}

/// A moment, if it is still to come.
fn later(at: i64, now: i64) -> Option<u64> {
    (at > now).then(|| u64::try_from(at).unwrap_or(0))
}
