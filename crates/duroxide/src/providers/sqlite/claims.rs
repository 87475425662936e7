//! Leases instances: picks the next one and hands out its messages.

use std::time::Duration;

use rusqlite::params;

use super::error::StoreError;
use super::history;
use super::leased_messages::{self, LeasedMessages};
use super::messages::{self, NextMessages, StoredMessage};
use super::orphans;
use super::quarantine;
use super::schedule::{self, Candidate, LeaseChange};
use super::shared::after;
use super::write_transaction::{WriteTransaction, shown_optional, shown_text, text_bytes};
use crate::model::ExecutionStatus;
use crate::providers::DispatcherCapabilityFilter;
use crate::providers::rows::lease_token;

/// A leased instance, with its messages still as text.
pub(super) struct StoredClaim {
    pub(super) instance: String,
    pub(super) token: String,
    pub(super) stored: StoredInstance,
    pub(super) messages: Vec<StoredMessage>,
    /// The size of all its messages together.
    pub(super) bytes: usize,
}

/// The store's knowledge of an instance, apart from its messages.
pub(super) enum StoredInstance {
    /// It has a row.
    Row(InstanceRow),
    /// It has no row: a turn was stored without a name, so that it has only history, or it has only messages with a
    /// start.
    NoRow { execution_id: i64, last_event_id: i64, status: Option<String>, start_event: Option<Vec<u8>> },
}

/// An instance's row and its current execution.
pub(super) struct InstanceRow {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) execution_id: i64,
    pub(super) incarnation: i64,
    pub(super) last_event_id: i64,
    pub(super) status: Option<String>,
}

/// The most missing instances that one job sets aside: other jobs wait for the writer meanwhile.
const SET_ASIDE_AT_ONCE: usize = 64;

/// The claims of one job.
pub(super) struct Claimed<C> {
    pub(super) claims: Vec<C>,
    /// This job found nothing and stopped before it had looked at everything. The writer has to run another one.
    pub(super) unfinished: bool,
}

/// Leases up to `max` instances, the one with the oldest message first.
pub(super) fn claim(
    tx: &mut WriteTransaction<'_, '_>,
    max: usize,
    lock_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Claimed<StoredClaim>, StoreError> {
    let now = tx.now_ms();
    // This caller may not be able to take the promoted instances, but may take those that are still to be promoted.
    let mut more = schedule::promote_due(tx, now)?;
    let mut claims = Vec::new();
    let mut set_aside = 0;
    let mut room = tx.shared.limits.max_turn_bytes;
    'claiming: while claims.len() < max && set_aside < SET_ASIDE_AT_ONCE {
        let wanted = (max - claims.len()).min(SET_ASIDE_AT_ONCE);
        let candidates = schedule::ready(tx, filter, wanted, now)?;
        let mut are_all = candidates.len() < wanted;
        for candidate in candidates {
            if schedule::is_hidden(tx, candidate.first_message, now)? {
                // The clock was set back. The next message of the instance gives it another place.
                schedule::settle(tx, &candidate.instance, now, LeaseChange::Keep)?;
                are_all = false;
                continue;
            }
            let Some(claim) = claim_one(tx, candidate, now, lock_timeout)? else {
                set_aside += 1;
                continue;
            };
            room = room.saturating_sub(claim.bytes);
            claims.push(claim);
            if room == 0 {
                // This answer is full. The other instances keep their places.
                more = true;
                break 'claiming;
            }
        }
        if are_all {
            break;
        }
    }
    more |= set_aside >= SET_ASIDE_AT_ONCE;
    // A message that was parked counts here; it did not make its instance ready.
    claims.sort_by_key(|claim: &StoredClaim| claim.messages.iter().map(|message| message.id).min());
    let unfinished = claims.is_empty() && more;
    if more && !unfinished {
        // A caller that gets fewer than it asked for waits for the signal.
        tx.effects.instances_left = true;
    }
    Ok(Claimed { claims, unfinished })
}

/// Leases one instance; `None` if it turns out not to exist; its messages are then set aside.
fn claim_one(
    tx: &mut WriteTransaction<'_, '_>,
    candidate: Candidate,
    now: i64,
    lock_timeout: Duration,
) -> Result<Option<StoredClaim>, StoreError> {
    let Candidate { first_message, instance, lapsed, has_parked } = candidate;
    if let Some(lapsed) = lapsed {
        leased_messages::count_attempt(tx, &instance, lapsed)?;
    }
    let row = instance_row(tx, &instance)?;
    let mut next = next_messages(tx, &instance, row.as_ref(), now)?;
    if next.messages.is_empty() {
        quarantine::set_strayed_aside(tx, first_message)?;
    }
    let Some(stored) = find_out(tx, &instance, row, next.has_start())? else {
        orphans::set_aside(tx, &instance, now)?;
        return Ok(None);
    };
    if has_parked {
        orphans::unpark(tx, &instance)?;
        let row = if let StoredInstance::Row(row) = &stored { Some(row) } else { None };
        next = next_messages(tx, &instance, row, now)?;
    }
    let Some(LeasedMessages { visible_at, last_id, last_start_id }) = LeasedMessages::of(&next, now) else {
        // Another program removed the messages from the file.
        schedule::settle(tx, &instance, now, LeaseChange::End)?;
        return Ok(None);
    };
    let token = lease_token::new(&instance);
    let locked_until = after(now, lock_timeout);
    let owner = tx.owner_until(locked_until);
    tx.execute(
        "UPDATE instance_schedule SET ready_seq = NULL, due_at = ?3, parked = 0, lock_token = ?2, locked_until = ?3,
            locked_at = ?4, batch_visible_at = ?4, batch_last_id = ?5, batch_start_id = ?6, owner = ?7
         WHERE instance_id = ?1",
        params![instance, token, locked_until, visible_at, last_id, last_start_id, owner],
    )?;
    tx.effects.ready_instances.remove(&instance);
    tx.effects.instances_due.note(locked_until);
    Ok(Some(StoredClaim { instance, token, stored, messages: next.messages, bytes: next.bytes }))
}

/// Reads the messages of the next turn of an instance with this row.
fn next_messages(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    row: Option<&InstanceRow>,
    now: i64,
) -> rusqlite::Result<NextMessages> {
    let next = messages::oldest(tx, instance, now)?;
    let awaits_start =
        row.is_none_or(|row| row.status.as_deref() == Some(ExecutionStatus::ContinuedAsNew.as_str()));
    match next.has_more && awaits_start {
        true => messages::starts_first(tx, instance, now),
        false => Ok(next),
    }
}

/// Reads the row of an instance.
fn instance_row(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<Option<InstanceRow>> {
    tx.row(
        "SELECT i.orchestration_name, i.orchestration_version, i.current_execution_id, i.incarnation, e.status,
            (SELECT max(event_id) FROM history
             WHERE instance_id = i.instance_id AND execution_id = i.current_execution_id)
         FROM instances i
         LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1",
        [instance],
        |row| {
            Ok(InstanceRow {
                name: shown_text(row, 0)?,
                version: shown_text(row, 1)?,
                execution_id: row.get(2)?,
                incarnation: row.get(3)?,
                status: shown_optional(row, 4)?,
                last_event_id: row.get::<_, Option<i64>>(5)?.unwrap_or(0),
            })
        },
    )
}

/// Finds what the store knows of an instance without a row; `None` if it knows nothing and no message starts it.
fn find_out(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    row: Option<InstanceRow>,
    is_started: bool,
) -> Result<Option<StoredInstance>, StoreError> {
    if let Some(row) = row {
        return Ok(Some(StoredInstance::Row(row)));
    }
    let has_history =
        || tx.row("SELECT 1 FROM history WHERE instance_id = ?1 LIMIT 1", [instance], |_| Ok(()));
    if !is_started && has_history()?.is_none() {
        return Ok(None);
    }
    Ok(Some(rowless(tx, instance)?))
}

/// The latest execution of an instance without a row: its id, last event, status and start event.
fn rowless(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<StoredInstance> {
    let execution_id = history::highest_execution(tx.connection(), instance)?;
    let status = tx.row(
        "SELECT status FROM executions WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| shown_text(row, 0),
    )?;
    let last_event_id = tx.row(
        "SELECT max(event_id) FROM history WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| row.get::<_, Option<i64>>(0),
    )?;
    let start_event = tx.row(
        "SELECT event_data FROM history
         WHERE instance_id = ?1 AND execution_id = ?2 AND event_type = 'OrchestrationStarted'
         ORDER BY event_id LIMIT 1",
        params![instance, execution_id],
        |row| text_bytes(row, 0),
    )?;
    Ok(StoredInstance::NoRow {
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
    pub(super) leased: LeasedMessages,
}

/// Finds the lease that a token stands for; `None` if the token was never handed out, was consumed, or belongs to a
/// lease that another caller took over.
pub(super) fn held_lease(tx: &WriteTransaction<'_, '_>, token: &str) -> rusqlite::Result<Option<HeldLease>> {
    let Some(instance) = lease_token::leased_by(token) else { return Ok(None) };
    let lease = tx.row(
        "SELECT locked_until, batch_visible_at, batch_last_id, batch_start_id FROM instance_schedule
         WHERE instance_id = ?1 AND lock_token = ?2",
        params![instance, token],
        |row| {
            Ok(HeldLease {
                instance: instance.to_string(),
                locked_until: row.get(0)?,
                leased: LeasedMessages {
                    visible_at: row.get(1)?,
                    last_id: row.get(2)?,
                    last_start_id: row.get(3)?,
                },
            })
        },
    )?;
    Ok(lease)
}
