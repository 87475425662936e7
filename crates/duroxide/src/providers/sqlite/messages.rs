//! The orchestrator queue.

use rusqlite::params;

use super::batch::{Batch, count, shown_text, text_bytes};
use super::encode::NewMessage;
use super::schedule::LeasedBatch;

/// A message as it is stored.
pub(super) struct StoredMessage {
    pub(super) id: i64,
    pub(super) class: String,
    pub(super) attempts: u32,
    pub(super) text: Vec<u8>,
}

/// Appends a message; it schedules its instance (by a trigger). Visible at `visible_at`, or at once if that is past.
pub(super) fn insert(
    batch: &mut Batch<'_, '_>,
    message: &NewMessage,
    visible_at: i64,
    now: i64,
) -> rusqlite::Result<()> {
    let visible_at = if visible_at <= now { 0 } else { visible_at };
    batch.execute(
        "INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![message.instance, message.class, visible_at, now, message.text],
    )?;
    match visible_at {
        0 => {
            batch.effects.ready_instances.insert(message.instance.clone());
        }
        later => batch.effects.instances_due.note(later),
    }
    Ok(())
}

/// Reads what an instance can be told now, in the order in which it was enqueued; not what is parked.
pub(super) fn visible(
    batch: &Batch<'_, '_>,
    instance: &str,
    now: i64,
) -> rusqlite::Result<Vec<StoredMessage>> {
    batch.rows(
        "SELECT id, class, attempt_count, work_item FROM orchestrator_queue
         WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 ORDER BY id",
        params![instance, now],
        |row| {
            Ok(StoredMessage {
                id: row.get(0)?,
                class: shown_text(row, 1)?,
                attempts: count(row, 2)?,
                text: text_bytes(row, 3)?,
            })
        },
    )
}

/// Removes the messages of a lease.
pub(super) fn delete_leased(
    batch: &Batch<'_, '_>,
    instance: &str,
    leased: LeasedBatch,
) -> rusqlite::Result<usize> {
    batch.execute(
        "DELETE FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 AND id <= ?3",
        params![instance, leased.visible_at, leased.last_id],
    )
}

/// Counts an attempt that ended without an ack.
pub(super) fn count_attempt(
    batch: &Batch<'_, '_>,
    instance: &str,
    leased: LeasedBatch,
) -> rusqlite::Result<()> {
    batch
        .execute(
            "UPDATE orchestrator_queue SET attempt_count = attempt_count + 1
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 AND id <= ?3",
            params![instance, leased.visible_at, leased.last_id],
        )
        .map(drop)
}

/// Hides the messages of a lease until `visible_at`.
pub(super) fn delay(
    batch: &Batch<'_, '_>,
    instance: &str,
    leased: LeasedBatch,
    visible_at: i64,
) -> rusqlite::Result<()> {
    batch
        .execute(
            "UPDATE orchestrator_queue SET visible_at = ?4
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 AND id <= ?3",
            params![instance, leased.visible_at, leased.last_id, visible_at],
        )
        .map(drop)
}

/// Removes messages by their ids.
pub(super) fn delete(batch: &Batch<'_, '_>, ids: impl IntoIterator<Item = i64>) -> rusqlite::Result<()> {
    for id in ids {
        batch.execute("DELETE FROM orchestrator_queue WHERE id = ?1", [id])?;
    }
    Ok(())
}

/// Tells whether a start is queued for an instance, visible or not. Starts are never parked.
pub(super) fn has_start(batch: &Batch<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    let found = batch.row(
        "SELECT 1 FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NULL AND class = 'start' LIMIT 1",
        [instance],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}
