//! The worker queue: activities, first in, first out among those that a worker may take.
//!
//! A fetch finds a ready activity without a session by its tag. Of the ready activities of one session and tag it finds
//! only the first, the *head* of the session. So a fetch is one probe per tag, and two more if it may take sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::params;

use super::claims::Claimed;
use super::error::StoreError;
use super::quarantine;
use super::shared::after;
use super::write_transaction::{DamagedId, WriteTransaction, count, shown_optional, stored_id, text_bytes};
use super::{messages, sessions};
use crate::providers::WorkQueue;
use crate::providers::rows::{ActivityRow, MessageRow, lease_token};
use crate::providers::{ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, refusal};

/// The most rows that one job brings up to date.
pub(super) const PROMOTIONS_AT_ONCE: usize = 256;

/// A leased activity, still as text.
pub(super) struct StoredWork {
    pub(super) id: i64,
    pub(super) token: String,
    pub(super) attempts: u32,
    pub(super) text: Vec<u8>,
}

/// Appends an activity, ready at once.
pub(super) fn insert(
    tx: &mut WriteTransaction<'_, '_>,
    activity: &ActivityRow,
    now: i64,
) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO worker_queue (instance_id, execution_id, activity_id, session_id, tag, created_at, work_item)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            activity.instance,
            activity.execution_id,
            activity.activity_id,
            activity.session_id,
            activity.tag,
            now,
            activity.text
        ],
    )?;
    let id = tx.connection().last_insert_rowid();
    tx.effects.ready_work.insert(id);
    Ok(())
}

/// Appends an activity that is leased at once, for the caller of this transaction; returns the lease's token.
pub(super) fn insert_leased(
    tx: &mut WriteTransaction<'_, '_>,
    activity: &ActivityRow,
    now: i64,
    lock_timeout: Duration,
) -> rusqlite::Result<String> {
    // The token names the row, so its id must be known first: the next one that SQLite would give.
    let last = tx
        .row("SELECT seq FROM sqlite_sequence WHERE name = 'worker_queue'", [], |row| row.get::<_, i64>(0))?;
    let id = last.unwrap_or(0) + 1;
    let token = lease_token::new(id);
    let until = after(now, lock_timeout);
    tx.execute(
        "INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, tag, created_at, work_item, lock_token,
            locked_until, due_at, owner, attempt_count)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, 1)",
        params![
            id,
            activity.instance,
            activity.execution_id,
            activity.activity_id,
            activity.tag,
            now,
            activity.text,
            token,
            until,
            tx.owner_until(until)
        ],
    )?;
    tx.effects.work_due.note(until);
    Ok(token)
}

/// Removes an activity, whether or not a worker is running it.
pub(super) fn cancel(
    tx: &mut WriteTransaction<'_, '_>,
    activity: &ScheduledActivityIdentifier,
) -> Result<(), StoreError> {
    let (Ok(execution_id), Ok(activity_id)) =
        (i64::try_from(activity.execution_id), i64::try_from(activity.activity_id))
    else {
        // No stored activity has such a high id, so it was never here.
        return Ok(());
    };
    let removed = tx.execute(
        "DELETE FROM worker_queue WHERE instance_id = ?1 AND execution_id = ?2 AND activity_id = ?3",
        params![activity.instance, execution_id, activity_id],
    )?;
    // The next activity of its session may be ready now.
    tx.effects.work_ready |= removed > 0;
    Ok(())
}

/// Which activities a claim may take.
pub(super) struct WorkOrder {
    pub(super) max: usize,
    pub(super) lock_timeout: Duration,
    pub(super) session: Option<SessionFetchConfig>,
    pub(super) tag_filter: TagFilter,
}

impl WorkOrder {
    /// Tells whether a new activity may be handed over right away.
    pub(super) fn may_take(&self, activity: &ActivityRow) -> bool {
        activity.session_id.is_none() && self.tag_filter.matches(activity.tag.as_deref())
    }
}

/// When the oldest ready activity of no session that matches a filter was entered; `None` if there is none.
pub(super) fn oldest_ready(
    tx: &mut WriteTransaction<'_, '_>,
    filter: &TagFilter,
    now: i64,
) -> rusqlite::Result<Option<i64>> {
    promote(tx, now)?;
    let Some(oldest) = next_ready(tx, None, filter)? else { return Ok(None) };
    tx.row("SELECT created_at FROM worker_queue WHERE id = ?1", [oldest.id], |row| row.get(0))
}

/// Leases up to `max` activities, oldest first; at most one of them is bound to a session.
pub(super) fn claim(
    tx: &mut WriteTransaction<'_, '_>,
    order: &WorkOrder,
) -> Result<Claimed<StoredWork>, StoreError> {
    let now = tx.now_ms();
    let more_due = promote(tx, now)?;
    let mut session = order.session.as_ref();
    let mut claims = Vec::new();
    while claims.len() < order.max {
        let Some(next) = next_ready(tx, session, &order.tag_filter)? else { break };
        if next.is_damaged {
            quarantine::set_damaged_aside(tx, WorkQueue::Worker, [next.id])?;
            continue;
        }
        claims.push(lease(tx, next.id, now, order.lock_timeout)?);
        if let (Some(session_id), Some(config)) = (next.session_id, session) {
            sessions::claim(tx, &session_id, config, now)?;
            sessions::set_head(tx, &session_id, next.tag.as_deref())?;
            session = None;
        }
    }
    // This caller cannot take the promoted activities, but may take those that are still to be promoted.
    let unfinished = claims.is_empty() && more_due;
    Ok(Claimed { claims, unfinished })
}

/// Frees sessions and readies activities whose time has come; tells whether there may be more of them.
fn promote(tx: &mut WriteTransaction<'_, '_>, now: i64) -> rusqlite::Result<bool> {
    if !tx.has_due_work(now) {
        return Ok(false);
    }
    let more_sessions = sessions::free_expired(tx, now)?;
    Ok(promote_due(tx, now)? || more_sessions)
}

/// Readies activities whose delay is over or whose lease has run out; tells whether there may be more of them.
fn promote_due(tx: &mut WriteTransaction<'_, '_>, now: i64) -> rusqlite::Result<bool> {
    let due = tx.rows(
        "SELECT id, session_id, tag FROM worker_queue WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
        params![now, PROMOTIONS_AT_ONCE as i64],
        |row| Ok((row.get::<_, i64>(0)?, optional_id(row, 1)?, optional_id(row, 2)?)),
    )?;
    let more = due.len() == PROMOTIONS_AT_ONCE;
    for (id, session_id, tag) in due {
        let (Ok(session_id), Ok(tag)) = (session_id, tag) else {
            quarantine::set_damaged_aside(tx, WorkQueue::Worker, [id])?;
            continue;
        };
        // The token stays: its holder may still give the activity back, until another worker takes over.
        tx.execute("UPDATE worker_queue SET due_at = NULL WHERE id = ?1", [id])?;
        if let Some(session_id) = session_id {
            sessions::set_head(tx, &session_id, tag.as_deref())?;
        }
        tx.effects.ready_work.insert(id);
    }
    Ok(more)
}

struct ReadyWork {
    id: i64,
    session_id: Option<String>,
    tag: Option<String>,
    /// Its session's id is not UTF-8.
    is_damaged: bool,
}

/// Reads an id that may be missing; `Err` if it is damaged.
fn optional_id(
    row: &rusqlite::Row<'_>,
    column: usize,
) -> rusqlite::Result<Result<Option<String>, DamagedId>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(Ok(None)),
        _ => Ok(stored_id(row, column)?.map(Some)),
    }
}

/// Finds the oldest ready activity that fits.
fn next_ready(
    tx: &WriteTransaction<'_, '_>,
    session: Option<&SessionFetchConfig>,
    filter: &TagFilter,
) -> rusqlite::Result<Option<ReadyWork>> {
    let mut best: Option<ReadyWork> = None;
    let mut consider = |candidate: Option<ReadyWork>| {
        if let Some(candidate) = candidate
            && best.as_ref().is_none_or(|best| candidate.id < best.id)
        {
            best = Some(candidate);
        }
    };
    let (untagged, tags) = match filter {
        TagFilter::None => return Ok(None),
        TagFilter::Any => (true, readable_tags(tx, session)?),
        TagFilter::DefaultOnly => (true, Vec::new()),
        TagFilter::Tags(tags) => (false, tags.iter().cloned().collect()),
        TagFilter::DefaultAnd(tags) => (true, tags.iter().cloned().collect()),
    };
    let tags = untagged.then_some(None).into_iter().chain(tags.into_iter().map(Some));
    for tag in tags {
        consider(ready_without_session(tx, tag.as_deref())?);
        if let Some(config) = session {
            for owner in ["", config.owner_id.as_str()] {
                consider(session_head(tx, owner, tag.as_deref())?);
            }
        }
    }
    Ok(best)
}

fn ready_without_session(
    tx: &WriteTransaction<'_, '_>,
    tag: Option<&str>,
) -> rusqlite::Result<Option<ReadyWork>> {
    tx.row(
        "SELECT id, tag FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL AND tag IS ?1
         ORDER BY id LIMIT 1",
        [tag],
        |row| Ok(ReadyWork { id: row.get(0)?, session_id: None, tag: row.get(1)?, is_damaged: false }),
    )
}

/// The oldest activity that heads a session of this owner, or a free session if `owner` is empty.
fn session_head(
    tx: &WriteTransaction<'_, '_>,
    owner: &str,
    tag: Option<&str>,
) -> rusqlite::Result<Option<ReadyWork>> {
    tx.row(
        "SELECT id, session_id, tag FROM worker_queue WHERE ready_for = ?1 AND tag IS ?2 ORDER BY id LIMIT 1",
        params![owner, tag],
        |row| {
            let session_id = optional_id(row, 1)?;
            let is_damaged = session_id.is_err();
            Ok(ReadyWork {
                id: row.get(0)?,
                session_id: session_id.ok().flatten(),
                tag: row.get(2)?,
                is_damaged,
            })
        },
    )
}

/// The tags of ready activities. Sets aside activities with a damaged tag.
fn readable_tags(
    tx: &WriteTransaction<'_, '_>,
    session: Option<&SessionFetchConfig>,
) -> rusqlite::Result<Vec<String>> {
    loop {
        let damaged = match ready_tags(tx, session)? {
            Ok(tags) => return Ok(tags),
            Err(damaged) => damaged,
        };
        let rows =
            tx.rows("SELECT id FROM worker_queue WHERE tag = CAST(?1 AS TEXT)", [&damaged], |row| {
                row.get(0)
            })?;
        quarantine::set_damaged_aside(tx, WorkQueue::Worker, rows)?;
    }
}

/// The tags of ready activities, found by hopping from one to the next in the indexes; or a damaged one.
fn ready_tags(
    tx: &WriteTransaction<'_, '_>,
    session: Option<&SessionFetchConfig>,
) -> rusqlite::Result<Result<Vec<String>, DamagedId>> {
    let mut tags = BTreeSet::new();
    let without_session = hop(&mut tags, |from| {
        tx.row(
            "SELECT min(tag) FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL AND tag >= ?1",
            [from],
            |row| optional_id(row, 0),
        )
    })?;
    if let Err(damaged) = without_session {
        return Ok(Err(damaged));
    }
    for owner in session.into_iter().flat_map(|config| ["", config.owner_id.as_str()]) {
        let of_owner = hop(&mut tags, |from| {
            tx.row(
                "SELECT min(tag) FROM worker_queue WHERE ready_for = ?2 AND tag >= ?1",
                [from, owner],
                |row| optional_id(row, 0),
            )
        })?;
        if let Err(damaged) = of_owner {
            return Ok(Err(damaged));
        }
    }
    Ok(Ok(tags.into_iter().collect()))
}

fn hop(
    tags: &mut BTreeSet<String>,
    next: impl Fn(&str) -> rusqlite::Result<Option<Result<Option<String>, DamagedId>>>,
) -> rusqlite::Result<Result<(), DamagedId>> {
    let mut from = String::new();
    loop {
        match next(&from)? {
            None | Some(Ok(None)) => return Ok(Ok(())),
            Some(Err(damaged)) => return Ok(Err(damaged)),
            Some(Ok(Some(tag))) => {
                // The next tag in text order after this one.
                from = format!("{tag}\0");
                tags.insert(tag);
            }
        }
    }
}

fn lease(
    tx: &mut WriteTransaction<'_, '_>,
    id: i64,
    now: i64,
    lock_timeout: Duration,
) -> rusqlite::Result<StoredWork> {
    let token = lease_token::new(id);
    let until = after(now, lock_timeout);
    let (attempts, text) = tx.execute_returning(
        "UPDATE worker_queue SET lock_token = ?2, locked_until = ?3, due_at = ?3, ready_for = NULL,
            owner = ?4, attempt_count = attempt_count + 1 WHERE id = ?1 RETURNING attempt_count, work_item",
        params![id, token, until, tx.owner_until(until)],
        |row| Ok((count(row, 0)?, text_bytes(row, 1)?)),
    )?;
    tx.effects.ready_work.remove(&id);
    tx.effects.work_due.note(until);
    Ok(StoredWork { id, token, attempts, text })
}

/// The lease on an activity, as a holder's token finds it.
struct HeldWork {
    id: i64,
    locked_until: i64,
    /// The store has seen the lease run out: the activity is ready, and may be the head of its session.
    is_ready: bool,
    session_id: Option<String>,
    tag: Option<String>,
}

fn held_work(tx: &WriteTransaction<'_, '_>, token: &str) -> rusqlite::Result<Option<HeldWork>> {
    let Some(id) = lease_token::leased_by(token).and_then(|id| id.parse::<i64>().ok()) else {
        return Ok(None);
    };
    tx.row(
        "SELECT locked_until, due_at IS NULL, session_id, tag FROM worker_queue WHERE id = ?1 AND lock_token = ?2",
        params![id, token],
        |row| {
            let (session_id, tag) = (shown_optional(row, 2)?, shown_optional(row, 3)?);
            Ok(HeldWork { id, locked_until: row.get(0)?, is_ready: row.get(1)?, session_id, tag })
        },
    )
}

/// Removes an activity and enqueues its completion.
pub(super) fn ack(
    tx: &mut WriteTransaction<'_, '_>,
    token: &str,
    arrived_ms: i64,
    completion: Option<&MessageRow>,
) -> Result<(), StoreError> {
    let held = held_work(tx, token)?.filter(|held| held.locked_until > arrived_ms);
    let held = held.ok_or_else(refusal::work_not_held)?;
    let now = tx.now_ms();
    tx.execute("DELETE FROM worker_queue WHERE id = ?1", [held.id])?;
    if let Some(completion) = completion {
        messages::insert(tx, completion, 0, now)?;
    }
    if let Some(session_id) = held.session_id {
        sessions::note_activity(tx, &session_id, now)?;
    }
    Ok(())
}

/// Removes an activity whose result is stored in the same transaction; `None` if no lease has this token.
pub(super) fn end_held(
    tx: &mut WriteTransaction<'_, '_>,
    token: &str,
    arrived_ms: i64,
    now: i64,
) -> rusqlite::Result<Option<()>> {
    let Some(id) = lease_token::leased_by(token).and_then(|id| id.parse::<i64>().ok()) else {
        return Ok(None);
    };
    let session_id = tx.row(
        "DELETE FROM worker_queue WHERE id = ?1 AND lock_token = ?2 AND locked_until > ?3 RETURNING session_id",
        params![id, token, arrived_ms],
        |row| shown_optional(row, 0),
    )?;
    let Some(session_id) = session_id else { return Ok(None) };
    tx.note_change(true);
    if let Some(session_id) = session_id {
        sessions::note_activity(tx, &session_id, now)?;
    }
    Ok(Some(()))
}

/// Extends a live lease; never shortens it.
pub(super) fn renew(
    tx: &mut WriteTransaction<'_, '_>,
    token: &str,
    arrived_ms: i64,
    extend_for: Duration,
) -> Result<(), StoreError> {
    let held = held_work(tx, token)?.filter(|held| held.locked_until > arrived_ms);
    let held = held.ok_or_else(refusal::work_not_renewable)?;
    let now = tx.now_ms();
    let until = after(now, extend_for).max(held.locked_until);
    tx.execute(
        "UPDATE worker_queue SET locked_until = ?2, due_at = ?2, ready_for = NULL, owner = ?3 WHERE id = ?1",
        params![held.id, until, tx.owner_until(until)],
    )?;
    tx.effects.work_due.note(until);
    if let Some(session_id) = held.session_id {
        sessions::note_activity(tx, &session_id, now)?;
        if held.is_ready {
            // If it was the head of its session, the next one is now.
            sessions::set_head(tx, &session_id, held.tag.as_deref())?;
            tx.effects.work_ready = true;
        }
    }
    Ok(())
}

/// Writes the text of an activity anew. As with `abandon`, the lease may have run out.
pub(super) fn rewrite(tx: &mut WriteTransaction<'_, '_>, token: &str, text: &str) -> Result<(), StoreError> {
    let held = held_work(tx, token)?.ok_or_else(refusal::unknown_work_token)?;
    tx.execute("UPDATE worker_queue SET work_item = ?2 WHERE id = ?1", params![held.id, text])?;
    Ok(())
}

/// Gives an activity back. The holder can still give back an expired lease as long as no other worker has taken over.
pub(super) fn abandon(
    tx: &mut WriteTransaction<'_, '_>,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), StoreError> {
    let held = held_work(tx, token)?.ok_or_else(refusal::unknown_work_token)?;
    let now = tx.now_ms();
    let visible_at = delay.map(|delay| after(now, delay)).filter(|at| *at > now);
    tx.execute(
        "UPDATE worker_queue SET lock_token = NULL, locked_until = NULL, owner = NULL, visible_at = ifnull(?2, 0),
            due_at = ?2, ready_for = NULL, attempt_count = max(attempt_count - ?3, 0) WHERE id = ?1",
        params![held.id, visible_at, ignore_attempt],
    )?;
    if let Some(session_id) = held.session_id {
        sessions::set_head(tx, &session_id, held.tag.as_deref())?;
    }
    // If it had its session's turn, that is the next one's now.
    tx.effects.work_ready |= visible_at.is_none() || held.is_ready;
    visible_at.into_iter().for_each(|later| tx.effects.work_due.note(later));
    Ok(())
}
