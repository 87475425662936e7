//! The messages that a lease covers. They are not marked: the lease says which they are.

use rusqlite::params;

use super::batch::Batch;
use super::messages::{NextMessages, StoredMessage};

/// Those visible at a moment, up to an id. What arrived later has a higher id, what became visible later a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeasedBatch {
    pub(super) visible_at: i64,
    pub(super) last_id: i64,
    /// Set if there were more. It is the last start that is covered then, and `last_id` the last of the others; 0 if there
    /// is none.
    pub(super) last_start_id: Option<i64>,
}

impl LeasedBatch {
    /// What a lease of these messages covers; `None` if there are none.
    pub(super) fn of(next: &NextMessages, visible_at: i64) -> Option<Self> {
        let last = |is_wanted: fn(&StoredMessage) -> bool| {
            next.messages.iter().filter(|message| is_wanted(message)).map(|message| message.id).max()
        };
        let last_id = last(|_| true)?;
        Some(match next.has_more {
            false => Self { visible_at, last_id, last_start_id: None },
            true => Self {
                visible_at,
                last_id: last(|message| !message.is_start()).unwrap_or(0),
                last_start_id: Some(last(StoredMessage::is_start).unwrap_or(0)),
            },
        })
    }
}

/// The messages of a lease that does not cover all are changed by two statements, which find them without looking at those
/// that are left.
type Parts = [&'static str; 2];

/// Removes the messages of a lease.
pub(super) fn delete(batch: &Batch<'_, '_>, instance: &str, leased: LeasedBatch) -> rusqlite::Result<()> {
    change(
        batch,
        instance,
        leased,
        "DELETE FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 AND id <= ?3",
        [
            "DELETE FROM orchestrator_queue
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at = 0 AND id <= max(?3, ?4)
             AND id <= iif(class = 'start', ?4, ?3)",
            "DELETE FROM orchestrator_queue
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at > 0 AND visible_at <= ?2
             AND id <= iif(class = 'start', ?4, ?3)",
        ],
    )
}

/// Counts an attempt that ended without an ack.
pub(super) fn count_attempt(
    batch: &Batch<'_, '_>,
    instance: &str,
    leased: LeasedBatch,
) -> rusqlite::Result<()> {
    change(
        batch,
        instance,
        leased,
        "UPDATE orchestrator_queue SET attempt_count = attempt_count + 1
         WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 AND id <= ?3",
        [
            "UPDATE orchestrator_queue SET attempt_count = attempt_count + 1
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at = 0 AND id <= max(?3, ?4)
             AND id <= iif(class = 'start', ?4, ?3)",
            "UPDATE orchestrator_queue SET attempt_count = attempt_count + 1
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at > 0 AND visible_at <= ?2
             AND id <= iif(class = 'start', ?4, ?3)",
        ],
    )
}

fn change(
    batch: &Batch<'_, '_>,
    instance: &str,
    leased: LeasedBatch,
    whole: &'static str,
    parts: Parts,
) -> rusqlite::Result<()> {
    let LeasedBatch { visible_at, last_id, last_start_id } = leased;
    let Some(last_start_id) = last_start_id else {
        return batch.execute(whole, params![instance, visible_at, last_id]).map(drop);
    };
    for sql in parts {
        batch.execute(sql, params![instance, visible_at, last_id, last_start_id])?;
    }
    Ok(())
}

/// Hides the messages of a lease until `later`.
pub(super) fn delay(
    batch: &Batch<'_, '_>,
    instance: &str,
    leased: LeasedBatch,
    later: i64,
) -> rusqlite::Result<()> {
    let LeasedBatch { visible_at, last_id, last_start_id } = leased;
    let Some(last_start_id) = last_start_id else {
        return batch
            .execute(
                "UPDATE orchestrator_queue SET visible_at = ?4
                 WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 AND id <= ?3",
                params![instance, visible_at, last_id, later],
            )
            .map(drop);
    };
    let parts: Parts = [
        "UPDATE orchestrator_queue SET visible_at = ?5
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at = 0 AND id <= max(?3, ?4)
             AND id <= iif(class = 'start', ?4, ?3)",
        "UPDATE orchestrator_queue SET visible_at = ?5
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at > 0 AND visible_at <= ?2
             AND id <= iif(class = 'start', ?4, ?3)",
    ];
    for sql in parts {
        batch.execute(sql, params![instance, visible_at, last_id, last_start_id, later])?;
    }
    Ok(())
}
