//! Rows that do not decode: set aside with their text, reported, and out of everybody's way.

use rusqlite::{Connection, params};

use super::batch::{Batch, DamagedId, read_rows, shown_optional, shown_text, stored_id};
use super::encode::{self, NewActivity, NewMessage};
use super::error::StoreError;
use super::reads::number;
use super::schedule::{self, Lease};
use super::shared::clamp_ms;
use super::{messages, work};
use crate::providers::inspect::{self, MessageClass};
use crate::providers::{
    ProviderError, QuarantineEntry, QuarantineRetry, QuarantinedRow, StoreLimits, WorkQueue,
    decode_quarantined,
};

/// Which queue a row was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Orchestrator,
    Worker,
}

impl Queue {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Orchestrator => "orchestrator_queue",
            Self::Worker => "worker_queue",
        }
    }
}

/// A row that does not decode.
pub(super) struct BadRow {
    pub(super) id: i64,
    pub(super) reason: String,
}

/// Moves rows into quarantine. A row that is no longer there has been dealt with by somebody else.
pub(super) fn set_aside(batch: &Batch<'_, '_>, queue: Queue, rows: &[BadRow]) -> rusqlite::Result<()> {
    let (copy, delete) = match queue {
        Queue::Orchestrator => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, instance_id, ?3, ?4, work_item FROM orchestrator_queue WHERE id = ?1",
            "DELETE FROM orchestrator_queue WHERE id = ?1",
        ),
        Queue::Worker => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, nullif(instance_id, ''), ?3, ?4, work_item FROM worker_queue WHERE id = ?1",
            "DELETE FROM worker_queue WHERE id = ?1",
        ),
    };
    for row in rows {
        batch.execute(copy, params![row.id, queue.as_str(), row.reason, batch.now_ms()])?;
        batch.execute(delete, [row.id])?;
        tracing::error!(
            target: "duroxide::providers::sqlite",
            queue = queue.as_str(), row = row.id, reason = inspect::without_values(&row.reason),
            "a stored row does not decode and was set aside; its text is in the table `quarantine`"
        );
    }
    Ok(())
}

const DAMAGED_ID: &str = "an id of it is not UTF-8";

/// Sets rows aside of which an id was damaged.
pub(super) fn set_damaged_aside(
    batch: &Batch<'_, '_>,
    queue: Queue,
    rows: impl IntoIterator<Item = i64>,
) -> rusqlite::Result<()> {
    let rows: Vec<_> = rows.into_iter().map(|id| BadRow { id, reason: DAMAGED_ID.into() }).collect();
    set_aside(batch, queue, &rows)
}

/// Sets an instance aside whose id was damaged in the schedule, with its messages. If its first message still has its id,
/// only the schedule was damaged, and it is scheduled anew.
pub(super) fn set_instance_aside(
    batch: &mut Batch<'_, '_>,
    instance: &DamagedId,
    first_message: Option<i64>,
    now: i64,
) -> rusqlite::Result<()> {
    let messages = batch.rows(
        "SELECT id FROM orchestrator_queue WHERE instance_id = CAST(?1 AS TEXT)",
        [instance],
        |row| row.get(0),
    )?;
    set_damaged_aside(batch, Queue::Orchestrator, messages)?;
    batch.execute("DELETE FROM instance_schedule WHERE instance_id = CAST(?1 AS TEXT)", [instance])?;
    match first_message.map(|id| receiver(batch, id)).transpose()?.flatten() {
        Some(Ok(instance)) => {
            let scheduled = batch.execute(
                "INSERT INTO instance_schedule (instance_id, class)
                 VALUES (?1, coalesce((SELECT pinned_version FROM instances WHERE instance_id = ?1), ''))
                 ON CONFLICT (instance_id) DO NOTHING",
                [&instance],
            )?;
            // If it has a place already, that is right: it may be leased.
            if scheduled == 0 { Ok(()) } else { schedule::settle(batch, &instance, now, Lease::End) }
        }
        Some(Err(_)) => set_damaged_aside(batch, Queue::Orchestrator, first_message),
        None => Ok(()),
    }
}

/// Sets the message aside that an instance was scheduled for, if it is no longer that instance's because its id was
/// damaged.
pub(super) fn set_strayed_aside(batch: &Batch<'_, '_>, message: i64) -> rusqlite::Result<()> {
    match receiver(batch, message)? {
        Some(Err(_)) => set_damaged_aside(batch, Queue::Orchestrator, [message]),
        _ => Ok(()),
    }
}

/// For which instance a message is, as far as it can be told.
fn receiver(batch: &Batch<'_, '_>, message: i64) -> rusqlite::Result<Option<Result<String, DamagedId>>> {
    batch.row("SELECT instance_id FROM orchestrator_queue WHERE id = ?1", [message], |row| stored_id(row, 0))
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
            let is_work = queue == Queue::Worker.as_str();
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
    Message(NewMessage),
    Activity(NewActivity),
}

/// Puts a row back at the end of its queue, as if it had never been delivered.
pub(super) fn retry(batch: &mut Batch<'_, '_>, id: u64) -> Result<QuarantineRetry, StoreError> {
    let (id, now) = (clamp_ms(id), batch.now_ms());
    let found =
        batch.row("SELECT queue, CAST(work_item AS BLOB) FROM quarantine WHERE id = ?1", [id], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
    let Some((queue, text)) = found else { return Ok(QuarantineRetry::NotFound) };
    match encode_again(&batch.shared.limits, &queue, text) {
        Err(reason) => return Ok(QuarantineRetry::Kept { reason }),
        Ok(Retried::Message(message)) => messages::insert(batch, &message, message.due_at, now)?,
        Ok(Retried::Activity(activity)) => work::insert(batch, &activity, now)?,
    }
    batch.execute("DELETE FROM quarantine WHERE id = ?1", [id])?;
    Ok(QuarantineRetry::Enqueued)
}

fn encode_again(limits: &StoreLimits, queue: &str, text: Vec<u8>) -> Result<Retried, String> {
    const OPERATION: &str = "retry_quarantined";
    let text = String::from_utf8(text).map_err(|_| "it is not UTF-8".to_string())?;
    let refused = |error: ProviderError| error.message;
    if queue == Queue::Worker.as_str() {
        let item = decode_quarantined(WorkQueue::Worker, &text)?;
        let activity = encode::activity(limits, OPERATION, &item).map_err(refused)?;
        return Ok(Retried::Activity(NewActivity { text, ..activity }));
    }
    let item = decode_quarantined(WorkQueue::Orchestrator, &text)?;
    let mut message = encode::message(limits, OPERATION, &item).map_err(refused)?;
    // Whoever retries a message does not want it dropped.
    if message.class == MessageClass::Queue {
        message.class = MessageClass::Signal;
    }
    Ok(Retried::Message(NewMessage { text, ..message }))
}

/// Removes rows for good: those with these ids, and those that were set aside before a time.
pub(super) fn purge(batch: &Batch<'_, '_>, ids: &[u64], before: Option<i64>) -> rusqlite::Result<u64> {
    let mut purged = 0;
    for id in ids {
        purged += batch.execute("DELETE FROM quarantine WHERE id = ?1", [clamp_ms(*id)])?;
    }
    if let Some(before) = before {
        purged += batch.execute("DELETE FROM quarantine WHERE quarantined_at < ?1", [before])?;
    }
    Ok(purged as u64)
}
