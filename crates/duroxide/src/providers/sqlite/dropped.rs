//! The messages that the store dropped because their instance did not exist: their count, and the newest of them.
//!
//! Completions are not among them: they belong to an instance that is gone, and no sender misses them.

use rusqlite::{Connection, params};

use super::reads::number;
use super::shared::clamp_ms;
use super::write_transaction::{WriteTransaction, read_row, read_rows, shown_text};
use crate::model::whole_ms;
use crate::providers::{DroppedMessage, DroppedMessages};

const TEXT_KEPT: i64 = DroppedMessage::TEXT_KEPT as i64;

/// Returns the time limit at `now`: messages dropped before it are too old to list.
fn horizon(now: i64) -> i64 {
    now.saturating_sub(clamp_ms(whole_ms(DroppedMessage::KEPT_FOR)))
}

/// Notes messages that the store is about to remove, by their ids.
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

/// Notes the parked messages of an instance that the store is about to remove: those parked until a moment.
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

/// Counts the noted messages, and keeps the list short. There are few rows, so a search by age needs no index.
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

/// Lists the messages that are not too old, newest first.
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
