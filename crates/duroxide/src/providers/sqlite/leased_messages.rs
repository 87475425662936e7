//! The messages that a lease covers. The store does not mark them: the lease says which they are.

use rusqlite::params;

use super::messages::{NextMessages, StoredMessage};
use super::write_transaction::WriteTransaction;

/// The messages visible at a moment, up to an id. A message that arrived later has a higher id; one that became visible
/// later has a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeasedMessages {
    pub(super) visible_at: i64,
    pub(super) last_id: i64,
    /// Set if there were more messages. It is then the last start that the lease covers, and `last_id` is the last of
    /// the other messages; 0 if there is none.
    pub(super) last_start_id: Option<i64>,
}

impl LeasedMessages {
    /// Returns the range that a lease of these messages covers; `None` if there are none.
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

/// Two statements change the messages of a lease that does not cover all: that way SQLite finds them without looking at
/// the messages that are left.
type Parts = [&'static str; 2];

/// Removes the messages of a lease.
pub(super) fn delete(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    leased: LeasedMessages,
) -> rusqlite::Result<()> {
    change(
        tx,
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
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    leased: LeasedMessages,
) -> rusqlite::Result<()> {
    change(
        tx,
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
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    leased: LeasedMessages,
    whole: &'static str,
    parts: Parts,
) -> rusqlite::Result<()> {
    let LeasedMessages { visible_at, last_id, last_start_id } = leased;
    let Some(last_start_id) = last_start_id else {
        return tx.execute(whole, params![instance, visible_at, last_id]).map(drop);
    };
    for sql in parts {
        tx.execute(sql, params![instance, visible_at, last_id, last_start_id])?;
    }
    Ok(())
}

/// Hides the messages of a lease until `later`.
pub(super) fn delay(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    leased: LeasedMessages,
    later: i64,
) -> rusqlite::Result<()> {
    let LeasedMessages { visible_at, last_id, last_start_id } = leased;
    let Some(last_start_id) = last_start_id else {
        return tx
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
        tx.execute(sql, params![instance, visible_at, last_id, last_start_id, later])?;
    }
    Ok(())
}
