//! Which instance comes next.
//!
//! `instance_schedule` has one row per instance with messages or a lease (see `schema.sql` for its states). Finding the
//! next instance is a few index probes, whatever else is in the store: ready rows are ordered by class and oldest
//! message, all others sit in an index of the times at which they have to be looked at again.

use rusqlite::params;

use super::batch::Batch;
use super::leased::LeasedBatch;
use super::orphans;
use crate::providers::DispatcherCapabilityFilter;

/// Rows that one job brings up to date, at most.
const PROMOTIONS_AT_ONCE: usize = 256;

/// An instance that can be leased.
pub(super) struct Candidate {
    pub(super) instance: String,
    /// The batch of a lease that ran out and that nobody has taken over yet.
    pub(super) lapsed: Option<LeasedBatch>,
    /// Whether some of its messages were parked because it did not exist.
    pub(super) has_parked: bool,
}

/// Moves rows whose time has come to where they belong now; tells whether there may be more of them.
pub(super) fn promote_due(batch: &mut Batch<'_, '_>, now: i64) -> rusqlite::Result<bool> {
    let due = batch.rows(
        "SELECT instance_id, parked FROM instance_schedule WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
        params![now, PROMOTIONS_AT_ONCE as i64],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)),
    )?;
    let more = due.len() == PROMOTIONS_AT_ONCE;
    for (instance, parked) in due {
        if parked {
            orphans::drop_expired(batch, &instance, now)?;
        }
        settle(batch, &instance, now, Lease::Keep)?;
    }
    Ok(more)
}

/// Finds the ready instances with the oldest messages among the classes that `filter` lets through, up to `max`.
///
/// A class is the version that an execution is pinned to. There are few of them, so their lines are merged.
pub(super) fn ready(
    batch: &Batch<'_, '_>,
    filter: Option<&DispatcherCapabilityFilter>,
    max: usize,
) -> rusqlite::Result<Vec<Candidate>> {
    let mut found: Vec<(i64, Candidate)> = Vec::new();
    let mut from_class = String::new();
    while let Some((class, head)) = head_of_next_class(batch, &from_class)? {
        match is_compatible(filter, &class) {
            true if max == 1 => found.push(head),
            true => found.extend(line(batch, &class, max)?),
            false => {}
        }
        // The next class in text order after this one.
        from_class = class + "\0";
    }
    found.sort_unstable_by_key(|(seq, _)| *seq);
    found.truncate(max);
    Ok(found.into_iter().map(|(_, candidate)| candidate).collect())
}

fn head_of_next_class(
    batch: &Batch<'_, '_>,
    from_class: &str,
) -> rusqlite::Result<Option<(String, (i64, Candidate))>> {
    batch.row(
        "SELECT ready_seq, instance_id, lock_token IS NOT NULL, batch_visible_at, batch_last_id, batch_start_id, parked,
            class
         FROM instance_schedule
         WHERE ready_seq IS NOT NULL AND class >= ?1 ORDER BY class, ready_seq LIMIT 1",
        [from_class],
        |row| Ok((row.get(7)?, candidate(row)?)),
    )
}

/// The first ready instances of a class.
fn line(batch: &Batch<'_, '_>, class: &str, max: usize) -> rusqlite::Result<Vec<(i64, Candidate)>> {
    batch.rows(
        "SELECT ready_seq, instance_id, lock_token IS NOT NULL, batch_visible_at, batch_last_id, batch_start_id, parked
         FROM instance_schedule
         WHERE ready_seq IS NOT NULL AND class = ?1 ORDER BY ready_seq LIMIT ?2",
        params![class, i64::try_from(max).unwrap_or(i64::MAX)],
        candidate,
    )
}

/// A ready row: its place in the line, and what it is about.
fn candidate(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, Candidate)> {
    let is_lapsed: bool = row.get(2)?;
    let lapsed = match is_lapsed {
        true => {
            Some(LeasedBatch { visible_at: row.get(3)?, last_id: row.get(4)?, last_start_id: row.get(5)? })
        }
        false => None,
    };
    Ok((row.get(0)?, Candidate { instance: row.get(1)?, lapsed, has_parked: row.get(6)? }))
}

fn is_compatible(filter: Option<&DispatcherCapabilityFilter>, class: &str) -> bool {
    let Some(filter) = filter else { return true };
    if class.is_empty() {
        return !filter.supported_duroxide_versions.is_empty();
    }
    semver::Version::parse(class).is_ok_and(|version| filter.is_compatible(&version))
}

/// What becomes of the lease when a row is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lease {
    /// It has ended.
    End,
    /// It has run out, but its holder may still give it back as long as nobody takes over.
    Keep,
}

/// What the messages of an instance say about its place.
struct Outlook {
    /// The oldest visible message that is not parked.
    head: Option<i64>,
    /// When another one becomes visible.
    next_visible: Option<i64>,
    /// Since when the longest parked one is parked.
    parked_since: Option<i64>,
}

fn outlook(batch: &Batch<'_, '_>, instance: &str, now: i64) -> rusqlite::Result<Outlook> {
    let outlook = batch.row(
        "SELECT
            (SELECT id FROM orchestrator_queue
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at = 0 ORDER BY id LIMIT 1),
            (SELECT min(id) FROM orchestrator_queue
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at > 0 AND visible_at <= ?2),
            (SELECT min(visible_at) FROM orchestrator_queue
             WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at > ?2),
            (SELECT min(parked_at) FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NOT NULL)",
        params![instance, now],
        |row| {
            let (at_once, delayed): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
            Ok(Outlook {
                head: at_once.into_iter().chain(delayed).min(),
                next_visible: row.get(2)?,
                parked_since: row.get(3)?,
            })
        },
    )?;
    outlook.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Puts an instance that is not leased where it belongs: ready, waiting, or nowhere if it has no messages.
pub(super) fn settle(
    batch: &mut Batch<'_, '_>,
    instance: &str,
    now: i64,
    lease: Lease,
) -> rusqlite::Result<()> {
    let outlook = outlook(batch, instance, now)?;
    let expiry = outlook.parked_since.map(|since| since.saturating_add(orphans::parking_ms(batch)));
    let due_at = outlook.next_visible.into_iter().chain(expiry).min();
    let parked = outlook.parked_since.is_some();
    if outlook.head.is_some() {
        batch.effects.ready_instances.insert(instance.to_string());
    }
    due_at.into_iter().for_each(|at| batch.effects.instances_due.note(at));
    match (outlook.head, due_at, lease) {
        (None, None, _) => {
            batch.execute("DELETE FROM instance_schedule WHERE instance_id = ?1", [instance])?
        }
        (Some(head), _, Lease::Keep) => batch.execute(
            "UPDATE instance_schedule SET ready_seq = ?2, due_at = ?3, parked = ?4 WHERE instance_id = ?1",
            params![instance, head, due_at, parked],
        )?,
        (head, ..) => batch.execute(
            "UPDATE instance_schedule SET ready_seq = ?2, due_at = ?3, parked = ?4, lock_token = NULL,
                locked_until = NULL, locked_at = NULL, owner = NULL WHERE instance_id = ?1",
            params![instance, head, due_at, parked],
        )?,
    };
    Ok(())
}

/// Files an instance under another class.
pub(super) fn classify(batch: &Batch<'_, '_>, instance: &str, class: &str) -> rusqlite::Result<()> {
    batch
        .execute("UPDATE instance_schedule SET class = ?2 WHERE instance_id = ?1", params![instance, class])
        .map(drop)
}
