//! Finds the instance that comes next.
//!
//! `instance_schedule` has one row per instance with messages or a lease (see `schema.sql` for its states). Finding the
//! next instance is a few index probes, whatever else is in the store: ready rows are ordered by class and oldest
//! message, all others are in an index by the time at which the store must look at them again.

use rusqlite::params;

use super::leased_messages::LeasedMessages;
use super::write_transaction::{DamagedId, WriteTransaction, stored_id};
use super::{orphans, quarantine};
use crate::providers::DispatcherCapabilityFilter;

/// The most rows that one job brings up to date.
const PROMOTIONS_AT_ONCE: usize = 256;

/// An instance that can be leased.
pub(super) struct Candidate {
    /// Its oldest visible message, which decides its place in the queue.
    pub(super) first_message: i64,
    pub(super) instance: String,
    /// The messages of an expired lease that no other caller has taken over yet.
    pub(super) lapsed: Option<LeasedMessages>,
    /// Whether some of its messages were parked because it did not exist.
    pub(super) has_parked: bool,
}

/// Moves rows whose time has come to their new places; tells whether there may be more of them.
pub(super) fn promote_due(tx: &mut WriteTransaction<'_, '_>, now: i64) -> rusqlite::Result<bool> {
    let due = tx.rows(
        "SELECT instance_id, parked, ready_seq FROM instance_schedule WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
        params![now, PROMOTIONS_AT_ONCE as i64],
        |row| Ok((stored_id(row, 0)?, row.get::<_, bool>(1)?, row.get::<_, Option<i64>>(2)?)),
    )?;
    let more = due.len() == PROMOTIONS_AT_ONCE;
    for (instance, parked, first_message) in due {
        let instance = match instance {
            Ok(instance) => instance,
            Err(damaged) => {
                quarantine::set_instance_aside(tx, &damaged, first_message, now)?;
                continue;
            }
        };
        if parked {
            orphans::drop_expired(tx, &instance, now)?;
        }
        settle(tx, &instance, now, LeaseChange::Keep)?;
    }
    Ok(more)
}

/// Finds the ready instances with the oldest messages among the classes that `filter` lets through, up to `max`. Sets
/// damaged rows aside first.
pub(super) fn ready(
    tx: &mut WriteTransaction<'_, '_>,
    filter: Option<&DispatcherCapabilityFilter>,
    max: usize,
    now: i64,
) -> rusqlite::Result<Vec<Candidate>> {
    loop {
        match find_ready(tx, filter, max)? {
            Ok(candidates) => return Ok(candidates),
            Err(Damage::Instance(instance, first_message)) => {
                quarantine::set_instance_aside(tx, &instance, Some(first_message), now)?;
            }
            Err(Damage::Class(class)) => file_anew(tx, &class)?,
        }
    }
}

/// The damage of a row in the schedule.
enum Damage {
    Class(DamagedId),
    /// The id of an instance does not decode; its first message comes along.
    Instance(DamagedId, i64),
}

/// Merges the ready instances of all classes. A class is the version that an execution is pinned to, so there are few.
fn find_ready(
    tx: &WriteTransaction<'_, '_>,
    filter: Option<&DispatcherCapabilityFilter>,
    max: usize,
) -> rusqlite::Result<Result<Vec<Candidate>, Damage>> {
    let mut found: Vec<Result<Candidate, Damage>> = Vec::new();
    let mut from_class = String::new();
    while let Some((class, head)) = head_of_next_class(tx, &from_class)? {
        let class = match class {
            Ok(class) => class,
            Err(damaged) => return Ok(Err(Damage::Class(damaged))),
        };
        match is_compatible(filter, &class) {
            true if max == 1 => found.push(head),
            true => found.extend(ready_of_class(tx, &class, max)?),
            false => {}
        }
        // The next class in text order after this one.
        from_class = class + "\0";
    }
    Ok(found.into_iter().collect::<Result<Vec<_>, _>>().map(|mut found| {
        found.sort_unstable_by_key(|candidate| candidate.first_message);
        found.truncate(max);
        found
    }))
}

/// The next class that has ready instances, and the first of them.
type ClassHead = (Result<String, DamagedId>, Result<Candidate, Damage>);

fn head_of_next_class(
    tx: &WriteTransaction<'_, '_>,
    from_class: &str,
) -> rusqlite::Result<Option<ClassHead>> {
    tx.row(
        "SELECT ready_seq, instance_id, lock_token IS NOT NULL, batch_visible_at, batch_last_id, batch_start_id, parked,
            class
         FROM instance_schedule
         WHERE ready_seq IS NOT NULL AND class >= ?1 ORDER BY class, ready_seq LIMIT 1",
        [from_class],
        |row| Ok((stored_id(row, 7)?, candidate(row)?)),
    )
}

/// The first ready instances of a class.
fn ready_of_class(
    tx: &WriteTransaction<'_, '_>,
    class: &str,
    max: usize,
) -> rusqlite::Result<Vec<Result<Candidate, Damage>>> {
    tx.rows(
        "SELECT ready_seq, instance_id, lock_token IS NOT NULL, batch_visible_at, batch_last_id, batch_start_id, parked
         FROM instance_schedule
         WHERE ready_seq IS NOT NULL AND class = ?1 ORDER BY ready_seq LIMIT ?2",
        params![class, i64::try_from(max).unwrap_or(i64::MAX)],
        candidate,
    )
}

/// Reads the candidate of a ready row.
fn candidate(row: &rusqlite::Row<'_>) -> rusqlite::Result<Result<Candidate, Damage>> {
    let first_message = row.get(0)?;
    let is_lapsed: bool = row.get(2)?;
    let lapsed = match is_lapsed {
        true => {
            Some(LeasedMessages { visible_at: row.get(3)?, last_id: row.get(4)?, last_start_id: row.get(5)? })
        }
        false => None,
    };
    let has_parked = row.get(6)?;
    Ok(match stored_id(row, 1)? {
        Ok(instance) => Ok(Candidate { first_message, instance, lapsed, has_parked }),
        Err(damaged) => Err(Damage::Instance(damaged, first_message)),
    })
}

/// Files the instances of a damaged class under the class that their instance rows name, or under none.
fn file_anew(tx: &WriteTransaction<'_, '_>, class: &DamagedId) -> rusqlite::Result<()> {
    tracing::error!(target: "duroxide::providers::sqlite", class = %String::from_utf8_lossy(class),
        "the class of a scheduled instance is not UTF-8");
    tx
        .execute(
            "UPDATE instance_schedule SET class = coalesce(nullif(
                (SELECT pinned_version FROM instances i WHERE i.instance_id = instance_schedule.instance_id), class), '')
             WHERE ready_seq IS NOT NULL AND class = CAST(?1 AS TEXT)",
            [class],
        )
        .map(drop)
}

fn is_compatible(filter: Option<&DispatcherCapabilityFilter>, class: &str) -> bool {
    let Some(filter) = filter else { return true };
    if class.is_empty() {
        return !filter.supported_duroxide_versions.is_empty();
    }
    semver::Version::parse(class).is_ok_and(|version| filter.is_compatible(&version))
}

/// What `settle` does with the lease of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseChange {
    /// The lease has ended.
    End,
    /// The lease has run out, but its holder may still give it back as long as no other caller takes over.
    Keep,
}

/// The facts about an instance's messages that decide its place.
struct Outlook {
    /// The oldest visible message that is not parked.
    head: Option<i64>,
    /// When another one becomes visible.
    next_visible: Option<i64>,
    /// Since when the longest parked message is parked.
    parked_since: Option<i64>,
}

fn outlook(tx: &WriteTransaction<'_, '_>, instance: &str, now: i64) -> rusqlite::Result<Outlook> {
    let outlook = tx.row(
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

/// Tells whether a message is there, but not visible yet.
pub(super) fn is_hidden(tx: &WriteTransaction<'_, '_>, message: i64, now: i64) -> rusqlite::Result<bool> {
    let hidden = "SELECT 1 FROM orchestrator_queue WHERE id = ?1 AND visible_at > ?2";
    Ok(tx.row(hidden, [message, now], |_| Ok(()))?.is_some())
}

/// Puts an instance without a live lease in its place: ready, waiting, or nowhere if it has no messages.
pub(super) fn settle(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    now: i64,
    lease: LeaseChange,
) -> rusqlite::Result<()> {
    let outlook = outlook(tx, instance, now)?;
    let expiry = outlook.parked_since.map(|since| since.saturating_add(orphans::parking_ms(tx)));
    let due_at = outlook.next_visible.into_iter().chain(expiry).min();
    let parked = outlook.parked_since.is_some();
    if outlook.head.is_some() {
        tx.effects.ready_instances.insert(instance.to_string());
    }
    due_at.into_iter().for_each(|at| tx.effects.instances_due.note(at));
    match (outlook.head, due_at, lease) {
        (None, None, _) => tx.execute("DELETE FROM instance_schedule WHERE instance_id = ?1", [instance])?,
        (Some(head), _, LeaseChange::Keep) => tx.execute(
            "UPDATE instance_schedule SET ready_seq = ?2, due_at = ?3, parked = ?4 WHERE instance_id = ?1",
            params![instance, head, due_at, parked],
        )?,
        (head, ..) => tx.execute(
            "UPDATE instance_schedule SET ready_seq = ?2, due_at = ?3, parked = ?4, lock_token = NULL,
                locked_until = NULL, locked_at = NULL, owner = NULL WHERE instance_id = ?1",
            params![instance, head, due_at, parked],
        )?,
    };
    Ok(())
}

/// Files an instance under another class.
pub(super) fn classify(tx: &WriteTransaction<'_, '_>, instance: &str, class: &str) -> rusqlite::Result<()> {
    tx.execute("UPDATE instance_schedule SET class = ?2 WHERE instance_id = ?1", params![instance, class])
        .map(drop)
}
