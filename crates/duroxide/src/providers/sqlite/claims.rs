//! Leasing instances: picking the next one and handing out its messages.

use std::time::Duration;

use rusqlite::params;

use super::batch::{Batch, shown_optional, shown_text, text_bytes};
use super::encode::new_token;
use super::error::StoreError;
use super::history;
use super::messages::{self, StoredMessage};
use super::orphans;
use super::quarantine;
use super::schedule::{self, Candidate, Lease, LeasedBatch};
use super::shared::after;
use crate::providers::DispatcherCapabilityFilter;
use crate::providers::inspect::MessageClass;

/// An instance that was leased, with its messages still as text.
pub(super) struct StoredClaim {
    pub(super) instance: String,
    pub(super) token: String,
    pub(super) known: Known,
    pub(super) messages: Vec<StoredMessage>,
}

/// What the store knows about an instance apart from its messages.
pub(super) enum Known {
    /// It has a row.
    Row(KnownRow),
    /// It has history but no row, because a turn was stored without a name, or nothing but a start among its messages.
    NoRow { execution_id: i64, last_event_id: i64, status: Option<String>, start_event: Option<Vec<u8>> },
}

/// An instance's row and its current execution.
pub(super) struct KnownRow {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) execution_id: i64,
    pub(super) incarnation: i64,
    pub(super) last_event_id: i64,
    pub(super) status: Option<String>,
}

/// Instances that turn out not to exist and are set aside by one job, at most: others wait for the writer meanwhile.
const SET_ASIDE_AT_ONCE: usize = 64;

/// What one job claimed.
pub(super) struct Claimed<C> {
    pub(super) claims: Vec<C>,
    /// Nothing was found so far, but there is more to look at: another job has to go on.
    pub(super) unfinished: bool,
}

/// Leases up to `max` instances, the one with the oldest message first.
pub(super) fn claim(
    batch: &mut Batch<'_, '_>,
    max: usize,
    lock_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Claimed<StoredClaim>, StoreError> {
    let now = batch.now_ms();
    // What is promoted may not be for this caller, while what is still to be promoted is.
    let mut more = schedule::promote_due(batch, now)?;
    let mut claims = Vec::new();
    let mut set_aside = 0;
    while claims.len() < max && set_aside < SET_ASIDE_AT_ONCE {
        let wanted = (max - claims.len()).min(SET_ASIDE_AT_ONCE);
        let candidates = schedule::ready(batch, filter, wanted, now)?;
        let are_all = candidates.len() < wanted;
        for candidate in candidates {
            match claim_one(batch, candidate, now, lock_timeout)? {
                Some(claim) => claims.push(claim),
                None => set_aside += 1,
            }
        }
        if are_all {
            break;
        }
    }
    more |= set_aside >= SET_ASIDE_AT_ONCE;
    let unfinished = claims.is_empty() && more;
    if more && !unfinished {
        // Whoever gets fewer than asked for waits for the signal.
        batch.effects.instances_left = true;
    }
    Ok(Claimed { claims, unfinished })
}

/// Leases one instance; `None` if it turns out not to exist, in which case its messages are out of the way now.
fn claim_one(
    batch: &mut Batch<'_, '_>,
    candidate: Candidate,
    now: i64,
    lock_timeout: Duration,
) -> Result<Option<StoredClaim>, StoreError> {
    let Candidate { first_message, instance, lapsed, has_parked } = candidate;
    if let Some(lapsed) = lapsed {
        messages::count_attempt(batch, &instance, lapsed)?;
    }
    let mut messages = messages::visible(batch, &instance, now)?;
    if messages.is_empty() {
        quarantine::set_strayed_aside(batch, first_message)?;
    }
    let Some(known) = find_out(batch, &instance, &messages)? else {
        orphans::set_aside(batch, &instance, &messages, now)?;
        return Ok(None);
    };
    if has_parked {
        orphans::unpark(batch, &instance)?;
        messages = messages::visible(batch, &instance, now)?;
    }
    let Some(last_id) = messages.iter().map(|message| message.id).max() else {
        // Somebody removed the messages behind the store's back.
        schedule::settle(batch, &instance, now, Lease::End)?;
        return Ok(None);
    };
    let token = new_token(&instance);
    let locked_until = after(now, lock_timeout);
    batch.execute(
        "UPDATE instance_schedule SET ready_seq = NULL, due_at = ?3, parked = 0, lock_token = ?2, locked_until = ?3,
            locked_at = ?4, batch_visible_at = ?4, batch_last_id = ?5, owner = ?6 WHERE instance_id = ?1",
        params![instance, token, locked_until, now, last_id, batch.owner_until(locked_until)],
    )?;
    batch.effects.ready_instances.remove(&instance);
    batch.effects.instances_due.note(locked_until);
    Ok(Some(StoredClaim { instance, token, known, messages }))
}

/// Finds out what is known of an instance; `None` if nothing is and no message starts it.
fn find_out(
    batch: &Batch<'_, '_>,
    instance: &str,
    messages: &[StoredMessage],
) -> Result<Option<Known>, StoreError> {
    let row = batch.row(
        "SELECT i.orchestration_name, i.orchestration_version, i.current_execution_id, i.incarnation, e.status,
            (SELECT max(event_id) FROM history
             WHERE instance_id = i.instance_id AND execution_id = i.current_execution_id)
         FROM instances i
         LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1",
        [instance],
        |row| {
            Ok(KnownRow {
                name: shown_text(row, 0)?,
                version: shown_text(row, 1)?,
                execution_id: row.get(2)?,
                incarnation: row.get(3)?,
                status: shown_optional(row, 4)?,
                last_event_id: row.get::<_, Option<i64>>(5)?.unwrap_or(0),
            })
        },
    )?;
    if let Some(row) = row {
        return Ok(Some(Known::Row(row)));
    }
    let starts = messages.iter().any(|message| message.class == MessageClass::Start.as_str());
    let has_history =
        || batch.row("SELECT 1 FROM history WHERE instance_id = ?1 LIMIT 1", [instance], |_| Ok(()));
    if !starts && has_history()?.is_none() {
        return Ok(None);
    }
    Ok(Some(rowless(batch, instance)?))
}

/// The latest execution of an instance without a row: its id, last event, status and start event.
fn rowless(batch: &Batch<'_, '_>, instance: &str) -> rusqlite::Result<Known> {
    let execution_id = history::highest_execution(batch.connection(), instance)?;
    let status = batch.row(
        "SELECT status FROM executions WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| shown_text(row, 0),
    )?;
    let last_event_id = batch.row(
        "SELECT max(event_id) FROM history WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| row.get::<_, Option<i64>>(0),
    )?;
    let start_event = batch.row(
        "SELECT event_data FROM history
         WHERE instance_id = ?1 AND execution_id = ?2 AND event_type = 'OrchestrationStarted'
         ORDER BY event_id LIMIT 1",
        params![instance, execution_id],
        |row| text_bytes(row, 0),
    )?;
    Ok(Known::NoRow {
        execution_id,
        last_event_id: last_event_id.flatten().unwrap_or(0),
        status,
        start_event,
    })
}

/// The lease on an instance, as a holder's token finds it.
pub(super) struct HeldLease {
    pub(super) instance: String,
    pub(super) locked_until: i64,
    pub(super) leased: LeasedBatch,
}

/// Finds the lease that a token stands for; `None` if it was never given out, was consumed or was taken over.
pub(super) fn held_lease(batch: &Batch<'_, '_>, token: &str) -> rusqlite::Result<Option<HeldLease>> {
    let Some(instance) = super::encode::leased_by(token) else { return Ok(None) };
    let lease = batch.row(
        "SELECT locked_until, batch_visible_at, batch_last_id FROM instance_schedule
         WHERE instance_id = ?1 AND lock_token = ?2",
        params![instance, token],
        |row| {
            Ok(HeldLease {
                instance: instance.to_string(),
                locked_until: row.get(0)?,
                leased: LeasedBatch { visible_at: row.get(1)?, last_id: row.get(2)? },
            })
        },
    )?;
    Ok(lease)
}
