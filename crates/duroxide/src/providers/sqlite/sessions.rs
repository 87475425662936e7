//! Sessions: whose they are, and which of their activities is next.

use std::time::Duration;

use rusqlite::params;

use super::batch::{Batch, DamagedId, stored_id};
use super::error::StoreError;
use super::shared::after;
use super::work::PROMOTIONS_AT_ONCE;
use crate::providers::SessionFetchConfig;

/// Makes a session the owner's, or its again.
pub(super) fn claim(
    batch: &mut Batch<'_, '_>,
    session_id: &str,
    config: &SessionFetchConfig,
    now: i64,
) -> rusqlite::Result<()> {
    let until = after(now, config.lock_timeout);
    batch.execute(
        "INSERT INTO sessions (session_id, worker_id, locked_until, last_activity_at, due_at, owner)
         VALUES (?1, ?2, ?3, ?4, ?3, ?5)
         ON CONFLICT (session_id) DO UPDATE SET worker_id = ?2, last_activity_at = ?4, owner = ?5,
            locked_until = iif(worker_id = ?2, max(locked_until, ?3), ?3),
            due_at = iif(worker_id = ?2, max(locked_until, ?3), ?3)",
        params![session_id, config.owner_id, until, now, batch.owner_until(until)],
    )?;
    batch.effects.work_due.note(after(now, config.lock_timeout));
    // Its activities with other tags are the owner's too from now on.
    batch.execute(
        "UPDATE worker_queue SET ready_for = ?2
         WHERE session_id = ?1 AND ready_for IS NOT NULL AND ready_for <> ?2",
        params![session_id, config.owner_id],
    )?;
    Ok(())
}

/// Seats the first ready activity of a session and tag, for the session's owner or for anybody.
pub(super) fn seat(batch: &Batch<'_, '_>, session_id: &str, tag: Option<&str>) -> rusqlite::Result<()> {
    batch.execute(
        "UPDATE worker_queue SET ready_for = NULL
         WHERE session_id = ?1 AND tag IS ?2 AND ready_for IS NOT NULL",
        params![session_id, tag],
    )?;
    batch.execute(
        "UPDATE worker_queue SET ready_for = coalesce(
            (SELECT worker_id FROM sessions WHERE session_id = ?1 AND due_at IS NOT NULL), '')
         WHERE id = (SELECT id FROM worker_queue
                     WHERE session_id = ?1 AND tag IS ?2 AND due_at IS NULL ORDER BY id LIMIT 1)",
        params![session_id, tag],
    )?;
    Ok(())
}

/// Frees sessions whose owner did not renew them: their activities are anybody's. Tells whether there may be more.
pub(super) fn free_expired(batch: &mut Batch<'_, '_>, now: i64) -> rusqlite::Result<bool> {
    let expired = batch.rows(
        "SELECT session_id FROM sessions WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
        params![now, PROMOTIONS_AT_ONCE as i64],
        |row| stored_id(row, 0),
    )?;
    let more = expired.len() == PROMOTIONS_AT_ONCE;
    for session_id in expired {
        match session_id {
            Ok(session_id) => free(batch, &session_id)?,
            Err(damaged) => remove_damaged(batch, &damaged)?,
        }
    }
    Ok(more)
}

/// Removes a session whose id was damaged. Nobody can tell which one it was: activities that wait for its owner and are of
/// no session that is known are anybody's.
fn remove_damaged(batch: &mut Batch<'_, '_>, session_id: &DamagedId) -> rusqlite::Result<()> {
    tracing::error!(target: "duroxide::providers::sqlite", session = %String::from_utf8_lossy(session_id),
        "the id of a session is not UTF-8; it is removed");
    let freed = batch.execute(
        "UPDATE worker_queue SET ready_for = ''
         WHERE ready_for = (SELECT worker_id FROM sessions WHERE session_id = CAST(?1 AS TEXT))
         AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_id = worker_queue.session_id)",
        [session_id],
    )?;
    batch.effects.work_ready |= freed > 0;
    batch.execute("DELETE FROM sessions WHERE session_id = CAST(?1 AS TEXT)", [session_id]).map(drop)
}

/// Ends the lease on a session, if it has not run out: its activities are anybody's.
pub(super) fn free(batch: &mut Batch<'_, '_>, session_id: &str) -> rusqlite::Result<()> {
    batch.execute(
        "UPDATE sessions SET due_at = NULL, locked_until = min(locked_until, ?2), owner = NULL WHERE session_id = ?1",
        params![session_id, batch.now_ms()],
    )?;
    let freed = batch.execute(
        "UPDATE worker_queue SET ready_for = '' WHERE session_id = ?1 AND ready_for IS NOT NULL",
        [session_id],
    )?;
    batch.effects.work_ready |= freed > 0;
    Ok(())
}

/// Notes that a session was used, if it is still somebody's.
pub(super) fn note_activity(batch: &Batch<'_, '_>, session_id: &str, now: i64) -> rusqlite::Result<()> {
    batch
        .execute(
            "UPDATE sessions SET last_activity_at = ?2 WHERE session_id = ?1 AND locked_until > ?2",
            params![session_id, now],
        )
        .map(drop)
}

/// Extends the live sessions of these owners that were used within `idle_timeout`; returns how many.
pub(super) fn renew(
    batch: &mut Batch<'_, '_>,
    owners: &[String],
    extend_for: Duration,
    idle_timeout: Duration,
) -> Result<usize, StoreError> {
    let now = batch.now_ms();
    let until = after(now, extend_for);
    let active_since = now.saturating_sub(after(0, idle_timeout));
    let mut renewed = 0;
    let mut seen = std::collections::HashSet::new();
    for owner in owners.iter().filter(|owner| seen.insert(owner.as_str())) {
        renewed += batch.execute(
            "UPDATE sessions SET locked_until = max(locked_until, ?2), due_at = max(locked_until, ?2), owner = ?5
             WHERE worker_id = ?1 AND locked_until > ?3 AND last_activity_at > ?4",
            params![owner, until, now, active_since, batch.owner_until(until)],
        )?;
    }
    if renewed > 0 {
        batch.effects.work_due.note(after(now, extend_for));
    }
    Ok(renewed)
}

/// Removes sessions that have expired and have nothing queued; returns how many.
pub(super) fn remove_orphaned(batch: &mut Batch<'_, '_>) -> Result<usize, StoreError> {
    let now = batch.now_ms();
    let removed = batch.execute(
        "DELETE FROM sessions WHERE locked_until <= ?1
         AND NOT EXISTS (SELECT 1 FROM worker_queue w WHERE w.session_id = sessions.session_id)",
        [now],
    )?;
    Ok(removed)
}
