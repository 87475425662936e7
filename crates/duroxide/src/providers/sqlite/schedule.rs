//! Which instance comes next.
//!
//! `instance_schedule` has one row per instance with messages or a lease (see `schema.sql` for its states). Finding the
//! next instance is a few index probes, whatever else is in the store: ready rows are ordered by class and oldest
//! message, all others sit in an index of the times at which they have to be looked at again.

use rusqlite::params;

use super::batch::Batch;
use super::shared::clamp_ms;
use crate::model::whole_ms;
use crate::providers::DispatcherCapabilityFilter;

/// Rows that are brought up to date at once. A fetch does it once, and again only while it finds nothing to take.
const PROMOTIONS_AT_ONCE: usize = 256;

/// The messages that a lease covers: those visible at a moment, up to an id. What arrived later has a higher id, what
/// became visible later a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeasedBatch {
    pub(super) visible_at: i64,
    pub(super) last_id: i64,
}

/// An instance that can be leased.
pub(super) struct Candidate {
    pub(super) instance: String,
    /// The batch of a lease that ran out and that nobody has taken over yet.
    pub(super) lapsed: Option<LeasedBatch>,
}

/// Moves rows whose time has come to where they belong now; tells whether there may be more of them.
pub(super) fn promote_due(batch: &mut Batch<'_>, now: i64) -> rusqlite::Result<bool> {
    let due = batch.rows(
        "SELECT instance_id, parked FROM instance_schedule WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
        params![now, PROMOTIONS_AT_ONCE as i64],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)),
    )?;
    let more = due.len() == PROMOTIONS_AT_ONCE;
    for (instance, parked) in due {
        if parked {
            park(batch, &instance, now)?;
        } else {
            settle(batch, &instance, now, Lease::Keep)?;
        }
    }
    Ok(more)
}

/// Finds the ready instance with the oldest message among the classes that `filter` lets through.
///
/// A class is the version that an execution is pinned to. There are few of them, so their heads are merged.
pub(super) fn next_ready(
    batch: &Batch<'_>,
    filter: Option<&DispatcherCapabilityFilter>,
) -> rusqlite::Result<Option<Candidate>> {
    let mut best: Option<(i64, Candidate)> = None;
    let mut from_class = String::new();
    while let Some((class, seq, candidate)) = head_of_next_class(batch, &from_class)? {
        if is_compatible(filter, &class) && best.as_ref().is_none_or(|(best_seq, _)| seq < *best_seq) {
            best = Some((seq, candidate));
        }
        // The next class in text order after this one.
        from_class = class + "\0";
    }
    Ok(best.map(|(_, candidate)| candidate))
}

fn head_of_next_class(
    batch: &Batch<'_>,
    from_class: &str,
) -> rusqlite::Result<Option<(String, i64, Candidate)>> {
    batch.row(
        "SELECT class, ready_seq, instance_id, lock_token IS NOT NULL, batch_visible_at, batch_last_id
         FROM instance_schedule
         WHERE ready_seq IS NOT NULL AND class >= ?1 ORDER BY class, ready_seq LIMIT 1",
        [from_class],
        |row| {
            let lapsed = if row.get(3)? {
                Some(LeasedBatch { visible_at: row.get(4)?, last_id: row.get(5)? })
            } else {
                None
            };
            Ok((row.get(0)?, row.get(1)?, Candidate { instance: row.get(2)?, lapsed }))
        },
    )
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

/// Puts an instance that is not leased where it belongs: ready, waiting for a delayed message, or nowhere.
pub(super) fn settle(batch: &mut Batch<'_>, instance: &str, now: i64, lease: Lease) -> rusqlite::Result<()> {
    let (head, next_due) = batch
        .row(
            "SELECT
                min(ifnull((SELECT id FROM orchestrator_queue
                            WHERE instance_id = ?1 AND visible_at = 0 ORDER BY id LIMIT 1), ?3),
                    ifnull((SELECT min(id) FROM orchestrator_queue
                            WHERE instance_id = ?1 AND visible_at > 0 AND visible_at <= ?2), ?3)),
                (SELECT min(visible_at) FROM orchestrator_queue WHERE instance_id = ?1 AND visible_at > ?2)",
            params![instance, now, i64::MAX],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)),
        )?
        .unwrap_or((i64::MAX, None));
    if head < i64::MAX {
        batch.effects.instances_ready = true;
        match lease {
            Lease::Keep => batch.execute(
                "UPDATE instance_schedule SET ready_seq = ?2, due_at = NULL, parked = 0 WHERE instance_id = ?1",
                params![instance, head],
            )?,
            Lease::End => batch.execute(
                "UPDATE instance_schedule SET ready_seq = ?2, due_at = NULL, parked = 0, lock_token = NULL,
                    locked_until = NULL, locked_at = NULL, owner = NULL WHERE instance_id = ?1",
                params![instance, head],
            )?,
        };
    } else if let Some(due_at) = next_due {
        batch.execute(
            "UPDATE instance_schedule SET ready_seq = NULL, due_at = ?2, parked = 0, lock_token = NULL,
                locked_until = NULL, locked_at = NULL, owner = NULL WHERE instance_id = ?1",
            params![instance, due_at],
        )?;
    } else {
        batch.execute("DELETE FROM instance_schedule WHERE instance_id = ?1", [instance])?;
    }
    Ok(())
}

/// Sets the messages of an instance that does not exist aside, until it is started or they are too old.
pub(super) fn park(batch: &mut Batch<'_>, instance: &str, now: i64) -> rusqlite::Result<()> {
    let started = batch
        .row(
            "SELECT 1 FROM orchestrator_queue WHERE instance_id = ?1 AND visible_at <= ?2 AND class = 'start' LIMIT 1",
            params![instance, now],
            |_| Ok(()),
        )?
        .is_some();
    if started {
        return settle(batch, instance, now, Lease::End);
    }
    let parking_ms = clamp_ms(whole_ms(batch.shared.parking_time));
    let expired = batch.execute(
        "DELETE FROM orchestrator_queue WHERE instance_id = ?1 AND visible_at <= ?2 AND created_at <= ?3",
        params![instance, now, now.saturating_sub(parking_ms)],
    )?;
    if expired > 0 {
        tracing::warn!(
            target: "duroxide::providers::sqlite",
            instance, messages = expired, "dropped messages for an instance that was never started"
        );
    }
    let (oldest, next_due) = batch
        .row(
            "SELECT (SELECT min(created_at) FROM orchestrator_queue WHERE instance_id = ?1 AND visible_at <= ?2),
                (SELECT min(visible_at) FROM orchestrator_queue WHERE instance_id = ?1 AND visible_at > ?2)",
            params![instance, now],
            |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)),
        )?
        .unwrap_or_default();
    let expiry = oldest.map(|created_at| created_at.saturating_add(parking_ms));
    match expiry.into_iter().chain(next_due).min() {
        Some(due_at) => batch.execute(
            "UPDATE instance_schedule SET ready_seq = NULL, due_at = ?2, parked = ?3, lock_token = NULL,
                locked_until = NULL, locked_at = NULL, owner = NULL WHERE instance_id = ?1",
            params![instance, due_at, oldest.is_some()],
        )?,
        None => batch.execute("DELETE FROM instance_schedule WHERE instance_id = ?1", [instance])?,
    };
    Ok(())
}

/// Makes the next fetch look at an instance's waiting messages again.
pub(super) fn look_again(batch: &mut Batch<'_>, instance: &str) -> rusqlite::Result<()> {
    batch.execute(
        "UPDATE instance_schedule SET due_at = 0, parked = 0
         WHERE instance_id = ?1 AND ready_seq IS NULL AND lock_token IS NULL",
        [instance],
    )?;
    batch.effects.instances_ready = true;
    Ok(())
}
