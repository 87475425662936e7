//! The messages that were dropped because their instance did not exist: counted, and the newest listed.
//!
//! Completions are none of them: they belong to an instance that is gone, and nobody misses them.

use rusqlite::{Connection, params};

use super::reads::number;
use super::shared::clamp_ms;
use super::write_transaction::{WriteTransaction, read_row, read_rows, shown_text};
use crate::model::whole_ms;
use crate::providers::{DroppedMessage, DroppedMessages};

const TEXT_KEPT: i64 = DroppedMessage::TEXT_KEPT as i64;

/// The time before which a message was dropped too long ago to be listed at `now`.
fn horizon(now: i64) -> i64 {
    now.saturating_sub(clamp_ms(whole_ms(DroppedMessage::KEPT_FOR)))
}

/// Takes note of messages that are about to be removed, by their ids.
pub(super) fn note(tx: &WriteTransaction<'_, '_>, ids: &[i64], now: i64) -> rusqlite::Result<()> {
    let newest = &ids[ids.len().saturating_sub(DroppedMessage::KEPT)..];
    for id in newest {
        tx.execute(
            "INSERT INTO dropped_messages (instance_id, dropped_at, size, work_item)
             SELECT instance_id, ?2, length(CAST(work_item AS BLOB)), substr(work_item, 1, ?3)
             FROM orchestrator_queue WHERE id = ?1",
            params![id, now, TEXT_KEPT],
        )?;
    }
    count(tx, ids.len(), now)
}

/// Takes note of the parked messages of an instance that are about to be removed: those parked until a moment.
pub(super) fn note_parked(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    parked_until: i64,
    now: i64,
) -> rusqlite::Result<()> {
    let ids = tx.rows(
        "SELECT id FROM orchestrator_queue
         WHERE instance_id = ?1 AND parked_at IS NOT NULL AND parked_at <= ?2 ORDER BY id",
        params![instance, parked_until],
        |row| row.get(0),
    )?;
    note(tx, &ids, now)
}

/// Counts what was noted, and keeps the list short. There are few rows, so that age needs no index.
fn count(tx: &WriteTransaction<'_, '_>, noted: usize, now: i64) -> rusqlite::Result<()> {
    if noted == 0 {
        return Ok(());
    }
    tx.execute("UPDATE totals SET dropped_messages = dropped_messages + ?1", [noted as i64])?;
    tx.execute(
        "DELETE FROM dropped_messages
             WHERE id <= (SELECT max(id) FROM dropped_messages) - ?1 OR dropped_at <= ?2",
        params![DroppedMessage::KEPT as i64, horizon(now)],
    )
    .map(drop)
}

/// Lists what is not too old, newest first.
pub(super) fn list(connection: &Connection, limit: i64, now: i64) -> rusqlite::Result<DroppedMessages> {
    let total = read_row(connection, "SELECT dropped_messages FROM totals", [], |row| number(row, 0))?;
    let newest = read_rows(
        connection,
        "SELECT instance_id, work_item, size, dropped_at FROM dropped_messages
         WHERE dropped_at > ?1 ORDER BY id DESC LIMIT ?2",
        params![horizon(now), limit],
        |row| {
            Ok(DroppedMessage {
                instance: shown_text(row, 0)?,
                raw: shown_text(row, 1)?,
                size: number(row, 2)?,
                dropped_at: number(row, 3)?,
            })
        },
    )?;
    Ok(DroppedMessages { total: total.unwrap_or(0), newest })
}
