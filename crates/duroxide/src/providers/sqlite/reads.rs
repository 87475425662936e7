//! Reads that are not about leases: descriptions, listings, figures.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::StoreError;
use super::history;
use super::write_transaction::{read_row, read_rows, shown_text, text_bytes};
use crate::model::{Event, ExecutionStatus, SystemStats};
use crate::providers::{
    AwaitedInstance, AwaitedLook, ExecutionInfo, InstanceInfo, InstanceMetadata, ParkedMessage, QueueDepths,
    SystemMetrics, inspect, refusal,
};

pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0))
}

/// Decodes all events, or returns the reason why the first undecodable one fails.
pub(super) fn decode(texts: &[Vec<u8>]) -> Result<Vec<Event>, String> {
    texts.iter().map(|text| serde_json::from_slice(text).map_err(|error| error.to_string())).collect()
}

pub(super) fn metadata(
    connection: &Connection,
    instance: &str,
) -> rusqlite::Result<Option<InstanceMetadata>> {
    read_row(
        connection,
        "SELECT i.instance_id, i.orchestration_name, i.orchestration_version, i.parent_instance_id,
            i.current_execution_id, i.incarnation, ifnull(e.status, 'Unknown'), e.output, i.custom_status,
            i.custom_status_version, i.created_at, i.updated_at
         FROM instances i
         LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1",
        [instance],
        |row| {
            Ok(InstanceMetadata {
                instance_id: row.get(0)?,
                orchestration_name: row.get(1)?,
                orchestration_version: row.get(2)?,
                parent_instance_id: row.get(3)?,
                current_execution_id: number(row, 4)?,
                incarnation: number(row, 5)?,
                status: row.get(6)?,
                output: row.get(7)?,
                custom_status: row.get(8)?,
                custom_status_version: number(row, 9)?,
                created_at: number(row, 10)?,
                updated_at: number(row, 11)?,
            })
        },
    )
}

/// Looks at an instance that a client waits for. Does not read the output of one that goes on.
pub(super) fn look(connection: &Connection, awaited: AwaitedInstance<'_>) -> rusqlite::Result<AwaitedLook> {
    let found = read_row(
        connection,
        "SELECT i.custom_status_version, e.status FROM instances i
         LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1",
        [awaited.instance],
        |row| Ok((number(row, 0)?, row.get::<_, Option<String>>(1)?)),
    )?;
    let Some((version, status)) = found else {
        let has_history = read_row(
            connection,
            "SELECT 1 FROM history WHERE instance_id = ?1 LIMIT 1",
            [awaited.instance],
            |_| Ok(()),
        )?;
        return Ok(if has_history.is_some() { AwaitedLook::Unclear } else { AwaitedLook::Waiting });
    };
    let status = status.as_deref().and_then(ExecutionStatus::parse);
    let goes_on = status.is_some_and(|status| !status.ends_instance());
    if goes_on && awaited.custom_status_after.is_none_or(|seen| version <= seen) {
        return Ok(AwaitedLook::Waiting);
    }
    let metadata = metadata(connection, awaited.instance)?;
    Ok(metadata.map_or(AwaitedLook::Unclear, |metadata| awaited.judge(metadata)))
}

/// Describes an instance that has nothing in the store but a queued start.
pub(super) fn pending(connection: &Connection, instance: &str) -> rusqlite::Result<Option<InstanceMetadata>> {
    let start = read_row(
        connection,
        "SELECT work_item, created_at FROM orchestrator_queue
         WHERE instance_id = ?1 AND parked_at IS NULL AND class = 'start'
            AND NOT EXISTS (SELECT 1 FROM history WHERE instance_id = ?1)
         ORDER BY id LIMIT 1",
        [instance],
        |row| Ok((text_bytes(row, 0)?, number(row, 1)?)),
    )?;
    let Some((text, enqueued_at)) = start else { return Ok(None) };
    let item = serde_json::from_slice(&text).ok();
    Ok(item.and_then(|item| InstanceMetadata::pending(&item, enqueued_at)))
}

pub(super) fn instance_info(connection: &Connection, instance: &str) -> Result<InstanceInfo, StoreError> {
    let metadata = metadata(connection, instance)?
        .ok_or_else(|| refusal::instance_not_found("get_instance_info", instance))?;
    Ok(InstanceInfo {
        instance_id: metadata.instance_id,
        orchestration_name: metadata.orchestration_name,
        orchestration_version: metadata.orchestration_version,
        current_execution_id: metadata.current_execution_id,
        status: metadata.status,
        output: metadata.output,
        created_at: metadata.created_at,
        updated_at: metadata.updated_at,
        parent_instance_id: metadata.parent_instance_id,
    })
}

pub(super) fn execution_info(
    connection: &Connection,
    instance: &str,
    execution_id: u64,
) -> Result<ExecutionInfo, StoreError> {
    let not_found = || refusal::execution_not_found(instance, execution_id);
    let stored_id = i64::try_from(execution_id).map_err(|_| not_found())?;
    let info = read_row(
        connection,
        "SELECT status, output, started_at, completed_at,
            (SELECT count(*) FROM history h WHERE h.instance_id = ?1 AND h.execution_id = ?2)
         FROM executions WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, stored_id],
        |row| {
            Ok(ExecutionInfo {
                execution_id,
                status: row.get(0)?,
                output: row.get(1)?,
                started_at: number(row, 2)?,
                completed_at: row.get::<_, Option<i64>>(3)?.map(|at| u64::try_from(at).unwrap_or(0)),
                event_count: usize::try_from(number(row, 4)?).unwrap_or(usize::MAX),
            })
        },
    )?;
    Ok(info.ok_or_else(not_found)?)
}

pub(super) fn list_instances(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    read_rows(connection, "SELECT instance_id FROM instances ORDER BY incarnation DESC", [], |row| {
        shown_text(row, 0)
    })
}

pub(super) fn list_instances_by_status(
    connection: &Connection,
    status: &str,
) -> rusqlite::Result<Vec<String>> {
    read_rows(
        connection,
        "SELECT i.instance_id FROM instances i
         JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE e.status = ?1 ORDER BY i.incarnation DESC",
        [status],
        |row| shown_text(row, 0),
    )
}

pub(super) fn list_executions(connection: &Connection, instance: &str) -> rusqlite::Result<Vec<u64>> {
    read_rows(
        connection,
        "SELECT execution_id FROM executions WHERE instance_id = ?1 ORDER BY execution_id",
        [instance],
        |row| number(row, 0),
    )
}

pub(super) fn list_children(connection: &Connection, instance: &str) -> rusqlite::Result<Vec<String>> {
    read_rows(
        connection,
        "SELECT instance_id FROM instances WHERE parent_instance_id = ?1 ORDER BY incarnation",
        [instance],
        |row| row.get(0),
    )
}

pub(super) fn parent(connection: &Connection, instance: &str) -> Result<Option<String>, StoreError> {
    let found = read_row(
        connection,
        "SELECT parent_instance_id FROM instances WHERE instance_id = ?1",
        [instance],
        |row| row.get(0),
    )?;
    Ok(found.ok_or_else(|| refusal::instance_not_found("get_parent_id", instance))?)
}

pub(super) fn system_metrics(connection: &Connection) -> rusqlite::Result<SystemMetrics> {
    connection
        .prepare_cached(
            "SELECT instances, executions, running_instances, completed_instances, failed_instances, events
             FROM totals",
        )?
        .query_row([], |row| {
            Ok(SystemMetrics {
                total_instances: number(row, 0)?,
                total_executions: number(row, 1)?,
                running_instances: number(row, 2)?,
                completed_instances: number(row, 3)?,
                failed_instances: number(row, 4)?,
                total_events: number(row, 5)?,
            })
        })
}

/// Counts the messages and activities that no worker holds. Few instances are leased at a time, so this counts the held
/// messages one lease at a time.
pub(super) fn queue_depths(connection: &Connection, now: i64) -> rusqlite::Result<QueueDepths> {
    let count = |sql: &str, params: &[i64]| -> rusqlite::Result<usize> {
        let mut statement = connection.prepare_cached(sql)?;
        let count: i64 = statement.query_row(rusqlite::params_from_iter(params), |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(0))
    };
    Ok(QueueDepths {
        orchestrator_queue: count(
            "SELECT (SELECT count(*) FROM orchestrator_queue) - (
                SELECT count(*) FROM instance_schedule s JOIN orchestrator_queue q ON q.instance_id = s.instance_id
                WHERE s.lock_token IS NOT NULL AND s.locked_until > ?1 AND q.parked_at IS NULL
                AND q.visible_at <= s.batch_visible_at AND q.id <= s.batch_last_id)",
            &[now],
        )?,
        worker_queue: count(
            "SELECT (SELECT count(*) FROM worker_queue)
                - (SELECT count(*) FROM worker_queue WHERE lock_token IS NOT NULL AND locked_until > ?1)",
            &[now],
        )?,
        timer_queue: 0,
    })
}

pub(super) fn custom_status(
    connection: &Connection,
    instance: &str,
    last_seen_version: u64,
) -> rusqlite::Result<Option<(Option<String>, u64)>> {
    let found = read_row(
        connection,
        "SELECT custom_status, custom_status_version FROM instances WHERE instance_id = ?1",
        [instance],
        |row| Ok((row.get(0)?, number(row, 1)?)),
    )?;
    Ok(found.filter(|(_, version)| *version > last_seen_version))
}

pub(super) fn instance_stats(
    connection: &Connection,
    instance: &str,
) -> Result<Option<SystemStats>, StoreError> {
    let execution: Option<i64> = read_row(
        connection,
        "SELECT current_execution_id FROM instances WHERE instance_id = ?1",
        [instance],
        |row| row.get(0),
    )?;
    let Some(execution_id) = execution else { return Ok(None) };
    let (history_event_count, history_size_bytes) = connection
        .prepare_cached(
            "SELECT count(*), ifnull(sum(length(CAST(event_data AS BLOB))), 0) FROM history
             WHERE instance_id = ?1 AND execution_id = ?2",
        )?
        .query_row(params![instance, execution_id], |row| Ok((number(row, 0)?, number(row, 1)?)))?;
    let values = super::kv::all_values(connection, instance)?;
    Ok(Some(SystemStats {
        history_event_count,
        history_size_bytes,
        queue_pending_count: carried_messages(connection, instance, execution_id)?,
        kv_user_key_count: values.len() as u64,
        kv_total_value_bytes: values.values().map(|value| value.len() as u64).sum(),
    }))
}

fn carried_messages(connection: &Connection, instance: &str, execution_id: i64) -> Result<u64, StoreError> {
    let first: Option<Vec<u8>> = connection
        .prepare_cached(
            "SELECT event_data FROM history WHERE instance_id = ?1 AND execution_id = ?2 AND event_id = 1",
        )?
        .query_row(params![instance, execution_id], |row| text_bytes(row, 0))
        .optional()?;
    let Some(text) = first else { return Ok(0) };
    let event: Event = serde_json::from_slice(&text)
        .map_err(|error| refusal::undecodable_history("get_instance_stats", &error.to_string()))?;
    Ok(inspect::carried_messages(&event))
}

/// Reads and decodes a history.
pub(super) fn events(
    connection: &Connection,
    operation: &str,
    instance: &str,
    execution_id: Option<u64>,
) -> Result<Vec<Event>, StoreError> {
    let execution_id = match execution_id.map(i64::try_from) {
        Some(Ok(id)) => id,
        // No stored execution has such a high id, so there is nothing.
        Some(Err(_)) => return Ok(Vec::new()),
        None => history::latest_execution(connection, instance)?,
    };
    let texts = history::read(connection, instance, execution_id, 0)?;
    Ok(decode(&texts).map_err(|reason| refusal::undecodable_history(operation, &reason))?)
}

pub(super) fn parked(
    connection: &Connection,
    parking_ms: i64,
    limit: i64,
) -> rusqlite::Result<Vec<ParkedMessage>> {
    read_rows(
        connection,
        "SELECT q.instance_id, q.work_item, q.parked_at FROM instance_schedule s
         JOIN orchestrator_queue q ON q.instance_id = s.instance_id
         WHERE s.parked = 1 AND q.parked_at IS NOT NULL ORDER BY q.id LIMIT ?1",
        [limit],
        |row| {
            let parked_at: i64 = row.get(2)?;
            Ok(ParkedMessage {
                instance: shown_text(row, 0)?,
                raw: shown_text(row, 1)?,
                expires_at: u64::try_from(parked_at.saturating_add(parking_ms)).unwrap_or(0),
            })
        },
    )
}

/// Counts and first rows of both queues, for a person to read.
pub(super) fn dump(connection: &Connection) -> rusqlite::Result<String> {
    const QUEUES: [(&str, &str); 2] = [
        (
            "orchestrator_queue",
            "SELECT count(*) OVER (), id, instance_id, visible_at, attempt_count, work_item
             FROM orchestrator_queue ORDER BY id LIMIT 10",
        ),
        (
            "worker_queue",
            "SELECT count(*) OVER (), id, instance_id, visible_at, attempt_count, work_item
             FROM worker_queue ORDER BY id LIMIT 10",
        ),
    ];
    let mut dump = String::new();
    for (queue, sql) in QUEUES {
        let rows = read_rows(connection, sql, [], |row| {
            let line = format!(
                "  #{} {} visible_at={} attempts={} {}\n",
                row.get::<_, i64>(1)?,
                shown_text(row, 2)?,
                row.get::<_, i64>(3)?,
                row.get::<_, i64>(4)?,
                shown_text(row, 5)?
            );
            Ok((row.get::<_, i64>(0)?, line))
        })?;
        let count = rows.first().map_or(0, |(count, _)| *count);
        dump.push_str(&format!("{queue}: {count} rows\n"));
        dump.extend(rows.into_iter().map(|(_, line)| line));
    }
    Ok(dump)
}
