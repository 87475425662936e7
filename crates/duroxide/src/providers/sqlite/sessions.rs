//! Sessions: which owner each has, and which of its activities is next.

use std::time::Duration;

use rusqlite::params;

use super::error::StoreError;
use super::shared::after;
use super::work::PROMOTIONS_AT_ONCE;
use super::write_transaction::{DamagedId, WriteTransaction, stored_id};
use crate::providers::SessionFetchConfig;

/// Gives a session to the owner, or prolongs the owner's hold on it.
pub(super) fn claim(
    tx: &mut WriteTransaction<'_, '_>,
    session_id: &str,
    config: &SessionFetchConfig,
    now: i64,
) -> rusqlite::Result<()> {
    let until = after(now, config.lock_timeout);
    let locked_until = tx.execute_returning(
        "INSERT INTO sessions (session_id, worker_id, locked_until, last_activity_at, due_at, owner)
         VALUES (?1, ?2, ?3, ?4, ?3, ?5)
         ON CONFLICT (session_id) DO UPDATE SET worker_id = ?2, last_activity_at = ?4, owner = ?5,
            locked_until = iif(worker_id = ?2, max(locked_until, ?3), ?3),
            due_at = iif(worker_id = ?2, max(locked_until, ?3), ?3)
         RETURNING locked_until",
        params![session_id, config.owner_id, until, now, tx.owner_until(until)],
        |row| row.get(0),
    )?;
    // Another handle of this owner may have taken it for longer. If this one dies, it must be found up to then.
    tx.owner_until(locked_until);
    tx.effects.work_due.note(after(now, config.lock_timeout));
    // From now on the session's activities with other tags are the owner's too.
    tx.execute(
        "UPDATE worker_queue SET ready_for = ?2
         WHERE session_id = ?1 AND ready_for IS NOT NULL AND ready_for <> ?2",
        params![session_id, config.owner_id],
    )?;
    Ok(())
}

/// Makes the first ready activity of a session and tag its head: the one that the session's owner can claim, or any
/// worker if it has none.
pub(super) fn set_head(
    tx: &WriteTransaction<'_, '_>,
    session_id: &str,
    tag: Option<&str>,
) -> rusqlite::Result<()> {
    tx.execute(
        "UPDATE worker_queue SET ready_for = NULL
         WHERE session_id = ?1 AND tag IS ?2 AND ready_for IS NOT NULL",
        params![session_id, tag],
    )?;
    tx.execute(
        "UPDATE worker_queue SET ready_for = coalesce(
            (SELECT worker_id FROM sessions WHERE session_id = ?1 AND due_at IS NOT NULL), '')
         WHERE id = (SELECT id FROM worker_queue
                     WHERE session_id = ?1 AND tag IS ?2 AND due_at IS NULL ORDER BY id LIMIT 1)",
        params![session_id, tag],
    )?;
    Ok(())
}

/// Frees sessions whose owner did not renew them, so that any worker can claim their activities. Tells whether there
/// may be more.
pub(super) fn free_expired(tx: &mut WriteTransaction<'_, '_>, now: i64) -> rusqlite::Result<bool> {
    let expired = tx.rows(
        "SELECT session_id FROM sessions WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
        params![now, PROMOTIONS_AT_ONCE as i64],
        |row| stored_id(row, 0),
    )?;
    let more = expired.len() == PROMOTIONS_AT_ONCE;
    for session_id in expired {
        match session_id {
            Ok(session_id) => free(tx, &session_id)?,
            Err(damaged) => remove_damaged(tx, &damaged)?,
        }
    }
    Ok(more)
}

/// Removes a session with a damaged id. The store cannot tell which one it was, so it frees all activities that wait
/// for this owner and belong to no known session.
fn remove_damaged(tx: &mut WriteTransaction<'_, '_>, session_id: &DamagedId) -> rusqlite::Result<()> {
    tracing::error!(target: "duroxide::providers::sqlite", session = %String::from_utf8_lossy(session_id),
        "the id of a session is not UTF-8; it is removed");
    let freed = tx.execute(
        "UPDATE worker_queue SET ready_for = ''
         WHERE ready_for = (SELECT worker_id FROM sessions WHERE session_id = CAST(?1 AS TEXT))
         AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_id = worker_queue.session_id)",
        [session_id],
    )?;
    tx.effects.work_ready |= freed > 0;
    tx.execute("DELETE FROM sessions WHERE session_id = CAST(?1 AS TEXT)", [session_id]).map(drop)
}

/// Ends the lease on a session, so that any worker can claim its activities. It stays ended if the clock is set back.
pub(super) fn free(tx: &mut WriteTransaction<'_, '_>, session_id: &str) -> rusqlite::Result<()> {
    tx.execute(
        "UPDATE sessions SET due_at = NULL, locked_until = 0, owner = NULL WHERE session_id = ?1",
        [session_id],
    )?;
    let freed = tx.execute(
        "UPDATE worker_queue SET ready_for = '' WHERE session_id = ?1 AND ready_for IS NOT NULL",
        [session_id],
    )?;
    tx.effects.work_ready |= freed > 0;
    Ok(())
}

/// Notes that a session was used, if it still has an owner.
pub(super) fn note_activity(
    tx: &WriteTransaction<'_, '_>,
    session_id: &str,
    now: i64,
) -> rusqlite::Result<()> {
    tx.execute(
        "UPDATE sessions SET last_activity_at = ?2 WHERE session_id = ?1 AND locked_until > ?2",
        params![session_id, now],
    )
    .map(drop)
}

/// Extends the live sessions of these owners that were used within `idle_timeout`; returns how many.
pub(super) fn renew(
    tx: &mut WriteTransaction<'_, '_>,
    owners: &[String],
    extend_for: Duration,
    idle_timeout: Duration,
) -> Result<usize, StoreError> {
    let now = tx.now_ms();
    let until = after(now, extend_for);
    let active_since = now.saturating_sub(after(0, idle_timeout));
    let mut renewed = 0;
    let mut seen = std::collections::HashSet::new();
    for owner in owners.iter().filter(|owner| seen.insert(owner.as_str())) {
        let extended = tx.rows(
            "UPDATE sessions SET locked_until = max(locked_until, ?2), due_at = max(locked_until, ?2), owner = ?5
             WHERE worker_id = ?1 AND locked_until > ?3 AND last_activity_at > ?4
             RETURNING locked_until",
            params![owner, until, now, active_since, tx.owner_until(until)],
            |row| row.get(0),
        )?;
        renewed += extended.len();
        tx.note_change(!extended.is_empty());
        // As for a claim.
        extended.into_iter().max().map(|locked_until| tx.owner_until(locked_until));
    }
    if renewed > 0 {
        tx.effects.work_due.note(after(now, extend_for));
    }
    Ok(renewed)
}

/// Removes sessions that have expired and have no queued activity; returns how many.
pub(super) fn remove_orphaned(tx: &mut WriteTransaction<'_, '_>) -> Result<usize, StoreError> {
    let now = tx.now_ms();
    let removed = tx.execute(
        "DELETE FROM sessions WHERE locked_until <= ?1
         AND NOT EXISTS (SELECT 1 FROM worker_queue w WHERE w.session_id = sessions.session_id)",
        [now],
    )?;
    Ok(removed)
}
