//! Rows that do not decode: the store sets them aside with their text and reports them, so that they hold up no others.

use rusqlite::{Connection, params};

use super::error::StoreError;
use super::reads::number;
use super::schedule::{self, LeaseChange};
use super::shared::{Shared, clamp_ms};
use super::write_transaction::{
    DamagedId, WriteTransaction, read_rows, shown_optional, shown_text, stored_id,
};
use super::{messages, work};
use crate::providers::inspect::MessageClass;
use crate::providers::rows::{ActivityRow, MessageRow, UndecodableRow, name_of, table_of};
use crate::providers::{
    ProviderError, QuarantineEntry, QuarantineRetry, QuarantinedRow, StoreLimits, WorkQueue,
    decode_quarantined,
};

/// Moves rows into quarantine. Skips a row that is gone: another caller has dealt with it.
pub(super) fn set_aside(
    tx: &WriteTransaction<'_, '_>,
    queue: WorkQueue,
    rows: &[UndecodableRow],
) -> rusqlite::Result<()> {
    let (copy, delete) = match queue {
        WorkQueue::Orchestrator => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, instance_id, ?3, ?4, work_item FROM orchestrator_queue WHERE id = ?1",
            "DELETE FROM orchestrator_queue WHERE id = ?1",
        ),
        WorkQueue::Worker => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, nullif(instance_id, ''), ?3, ?4, work_item FROM worker_queue WHERE id = ?1",
            "DELETE FROM worker_queue WHERE id = ?1",
        ),
    };
    for row in rows {
        let copied = tx.execute(copy, params![row.id, table_of(queue), row.reason, tx.now_ms()])?;
        tx.execute(delete, [row.id])?;
        if copied > 0 {
            row.report(table_of(queue));
            Shared::METRICS.quarantined(name_of(queue));
        }
    }
    Ok(())
}

const DAMAGED_ID: &str = "an id of it is not UTF-8";

/// Sets aside rows with a damaged id.
pub(super) fn set_damaged_aside(
    tx: &WriteTransaction<'_, '_>,
    queue: WorkQueue,
    rows: impl IntoIterator<Item = i64>,
) -> rusqlite::Result<()> {
    let rows: Vec<_> = rows.into_iter().map(|id| UndecodableRow { id, reason: DAMAGED_ID.into() }).collect();
    set_aside(tx, queue, &rows)
}

/// Sets aside an instance whose id is damaged in the schedule, with its messages. If its first message still has the
/// id, only the schedule is damaged, and this schedules the instance anew.
pub(super) fn set_instance_aside(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &DamagedId,
    first_message: Option<i64>,
    now: i64,
) -> rusqlite::Result<()> {
    let messages = tx.rows(
        "SELECT id FROM orchestrator_queue WHERE instance_id = CAST(?1 AS TEXT)",
        [instance],
        |row| row.get(0),
    )?;
    set_damaged_aside(tx, WorkQueue::Orchestrator, messages)?;
    tx.execute("DELETE FROM instance_schedule WHERE instance_id = CAST(?1 AS TEXT)", [instance])?;
    match first_message.map(|id| receiver(tx, id)).transpose()?.flatten() {
        Some(Ok(instance)) => {
            let scheduled = tx.execute(
                "INSERT INTO instance_schedule (instance_id, class)
                 VALUES (?1, coalesce((SELECT pinned_version FROM instances WHERE instance_id = ?1), ''))
                 ON CONFLICT (instance_id) DO NOTHING",
                [&instance],
            )?;
            // A place that it already has is right: the instance may be leased.
            if scheduled == 0 { Ok(()) } else { schedule::settle(tx, &instance, now, LeaseChange::End) }
        }
        Some(Err(_)) => set_damaged_aside(tx, WorkQueue::Orchestrator, first_message),
        None => Ok(()),
    }
}

/// Sets aside the message that an instance was scheduled for, if a damaged id no longer ties it to that instance.
pub(super) fn set_strayed_aside(tx: &WriteTransaction<'_, '_>, message: i64) -> rusqlite::Result<()> {
    match receiver(tx, message)? {
        Some(Err(_)) => set_damaged_aside(tx, WorkQueue::Orchestrator, [message]),
        _ => Ok(()),
    }
}

/// Returns the instance that a message is for, if that can be told.
fn receiver(
    tx: &WriteTransaction<'_, '_>,
    message: i64,
) -> rusqlite::Result<Option<Result<String, DamagedId>>> {
    tx.row("SELECT instance_id FROM orchestrator_queue WHERE id = ?1", [message], |row| stored_id(row, 0))
}

/// Lists what was set aside, oldest first.
pub(super) fn list(
    connection: &Connection,
    after_id: i64,
    limit: i64,
) -> rusqlite::Result<Vec<QuarantineEntry>> {
    read_rows(
        connection,
        "SELECT queue, instance_id, work_item, reason, quarantined_at, id FROM quarantine
         WHERE id > ?1 ORDER BY id LIMIT ?2",
        [after_id, limit],
        |row| {
            let queue: String = row.get(0)?;
            let is_work = queue == table_of(WorkQueue::Worker);
            let entry = QuarantinedRow {
                queue: if is_work { WorkQueue::Worker } else { WorkQueue::Orchestrator },
                instance: shown_optional(row, 1)?,
                raw: shown_text(row, 2)?,
                reason: row.get(3)?,
                quarantined_at: number(row, 4)?,
            };
            Ok(QuarantineEntry { id: number(row, 5)?, row: entry })
        },
    )
}

/// A row that goes back into its queue.
enum Retried {
    Message(MessageRow),
    Activity(ActivityRow),
}

/// Puts a row back at the end of its queue, as if it had never been delivered.
pub(super) fn retry(tx: &mut WriteTransaction<'_, '_>, id: u64) -> Result<QuarantineRetry, StoreError> {
    let (id, now) = (clamp_ms(id), tx.now_ms());
    let found =
        tx.row("SELECT queue, CAST(work_item AS BLOB) FROM quarantine WHERE id = ?1", [id], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
    let Some((queue, text)) = found else { return Ok(QuarantineRetry::NotFound) };
    match encode_again(&tx.shared.limits, &queue, text) {
        Err(reason) => return Ok(QuarantineRetry::Kept { reason }),
        Ok(Retried::Message(message)) => messages::insert(tx, &message, message.due_at_ms, now)?,
        Ok(Retried::Activity(activity)) => work::insert(tx, &activity, now)?,
    }
    tx.execute("DELETE FROM quarantine WHERE id = ?1", [id])?;
    Ok(QuarantineRetry::Enqueued)
}

fn encode_again(limits: &StoreLimits, queue: &str, text: Vec<u8>) -> Result<Retried, String> {
    const OPERATION: &str = "retry_quarantined";
    let text = String::from_utf8(text).map_err(|_| "it is not UTF-8".to_string())?;
    let refused = |error: ProviderError| error.message;
    if queue == table_of(WorkQueue::Worker) {
        let item = decode_quarantined(WorkQueue::Worker, &text)?;
        let activity = ActivityRow::encode(limits, OPERATION, &item).map_err(refused)?;
        return Ok(Retried::Activity(ActivityRow { text, ..activity }));
    }
    let item = decode_quarantined(WorkQueue::Orchestrator, &text)?;
    let mut message = MessageRow::encode(limits, OPERATION, &item).map_err(refused)?;
    // The operator who retries the message wants it kept.
    if message.class == MessageClass::Queue {
        message.class = MessageClass::Signal;
    }
    Ok(Retried::Message(MessageRow { text, ..message }))
}

/// Removes rows for good: those with these ids, and those that were set aside before a time.
pub(super) fn purge(
    tx: &WriteTransaction<'_, '_>,
    ids: &[u64],
    before: Option<i64>,
) -> rusqlite::Result<u64> {
    let mut purged = 0;
    for id in ids {
        purged += tx.execute("DELETE FROM quarantine WHERE id = ?1", [clamp_ms(*id)])?;
    }
    if let Some(before) = before {
        purged += tx.execute("DELETE FROM quarantine WHERE quarantined_at < ?1", [before])?;
    }
    Ok(purged as u64)
}
