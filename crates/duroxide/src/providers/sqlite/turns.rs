//! Ends or extends a lease on an instance: commit, give back, renew.

use std::time::Duration;

use rusqlite::params;

use super::claims::held_lease;
use super::error::StoreError;
use super::instances::Updated;
use super::schedule::{self, LeaseChange};
use super::write_transaction::WriteTransaction;
use super::{history, instances, kv, leased_messages, messages, work};
use crate::providers::inspect::{self, DeltaChanges};
use crate::providers::rows::{ActivityRow, EventRow, MessageRow, PinnedVersion};
use crate::providers::{ExecutionMetadata, ScheduledActivityIdentifier, refusal};

const ACK: &str = "ack_orchestration_item";

/// All changes of a turn, encoded.
pub(super) struct TurnCommit {
    pub(super) token: String,
    /// When the ack reached the writer: the store honours a lease that was live then, however long the queue is.
    pub(super) arrived_ms: i64,
    pub(super) execution_id: i64,
    pub(super) events: Vec<EventRow>,
    pub(super) changes: DeltaChanges,
    pub(super) activities: Vec<ActivityRow>,
    pub(super) messages: Vec<MessageRow>,
    pub(super) metadata: ExecutionMetadata,
    pub(super) pinned: Option<PinnedVersion>,
    pub(super) cancelled: Vec<ScheduledActivityIdentifier>,
}

impl TurnCommit {
    /// Tells whether the turn changes something that watchers of its instance see: status, custom status, values.
    fn is_noticed_outside(&self) -> bool {
        let metadata = &self.metadata;
        metadata.status.is_some()
            || metadata.orchestration_name.is_some()
            || self.changes != DeltaChanges::default()
    }
}

/// Commits a turn, wholly or not at all: it makes every check before the first write. Returns the incarnation of its
/// instance.
pub(super) fn ack(tx: &mut WriteTransaction<'_, '_>, turn: &TurnCommit) -> Result<i64, StoreError> {
    let lease = held_lease(tx, &turn.token)?.ok_or_else(|| refusal::unknown_turn_token(ACK))?;
    if lease.locked_until <= turn.arrived_ms {
        return Err(refusal::turn_lease_expired().into());
    }
    let instance = lease.instance.as_str();
    history::refuse_duplicates(tx, ACK, instance, turn.execution_id, &turn.events)?;

    let now = tx.now_ms();
    let updated = write_state(tx, instance, turn, now)?;
    for activity in &turn.activities {
        work::insert(tx, activity, now)?;
    }
    write_messages(tx, instance, turn, updated.is_current, now, |tx| {
        leased_messages::delete(tx, instance, lease.leased)
    })?;
    schedule::settle(tx, instance, now, LeaseChange::End)?;
    if let Some(class) = &updated.class {
        schedule::classify(tx, instance, class)?;
    }
    note_changes(tx, instance, turn, &updated);
    Ok(updated.incarnation)
}

/// Writes what a turn does to its instance: history, status, values.
pub(super) fn write_state(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    now: i64,
) -> Result<Updated, StoreError> {
    history::append(tx, instance, turn.execution_id, &turn.events, now)?;
    let updated = instances::update(tx, instance, turn, now)?;
    kv::apply(tx, instance, &turn.changes.kv, now)?;
    if turn.metadata.status.as_deref().is_some_and(inspect::is_terminal_status) {
        kv::merge(tx, instance)?;
    }
    Ok(updated)
}

/// Removes the activities that a turn gave up and the messages that it took, and sends its own messages.
pub(super) fn write_messages(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    is_current: bool,
    now: i64,
    consume: impl FnOnce(&WriteTransaction<'_, '_>) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    for activity in &turn.cancelled {
        work::cancel(tx, activity)?;
    }
    consume(tx)?;
    let ended = turn.metadata.status.as_deref().filter(|status| inspect::is_terminal_status(status));
    let ended = ended.filter(|_| is_current);
    if let Some(status) = ended {
        messages::delete_unread(tx, instance, status)?;
    }
    for message in &turn.messages {
        let goes = |status| message.instance == instance && message.class.goes_with(status);
        if !ended.is_some_and(goes) {
            messages::insert(tx, message, message.due_at_ms, now)?;
        }
    }
    Ok(())
}

/// Notes whether the store has to tell the watchers of the instance.
pub(super) fn note_changes(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    updated: &Updated,
) {
    if turn.is_noticed_outside() || updated.class.is_some() {
        tx.effects.changed_instances.push(instance.to_string());
    }
}

/// Gives a turn back. The holder can still give back an expired lease as long as no other caller has taken over.
pub(super) fn abandon(
    tx: &mut WriteTransaction<'_, '_>,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), StoreError> {
    let lease =
        held_lease(tx, token)?.ok_or_else(|| refusal::unknown_turn_token("abandon_orchestration_item"))?;
    let now = tx.now_ms();
    if !ignore_attempt {
        leased_messages::count_attempt(tx, &lease.instance, lease.leased)?;
    }
    if let Some(delay) = delay {
        // At once is at once, also on a machine whose clock was set back since.
        let later = if delay.is_zero() { 0 } else { super::shared::after(now, delay) };
        leased_messages::delay(tx, &lease.instance, lease.leased, later)?;
    }
    schedule::settle(tx, &lease.instance, now, LeaseChange::End)?;
    Ok(())
}

/// Extends a live lease; never shortens it.
pub(super) fn renew(
    tx: &mut WriteTransaction<'_, '_>,
    token: &str,
    arrived_ms: i64,
    extend_for: Duration,
) -> Result<(), StoreError> {
    let lease = held_lease(tx, token)?.filter(|lease| lease.locked_until > arrived_ms);
    let lease = lease.ok_or_else(refusal::turn_not_renewable)?;
    let until = tx.in_ms(extend_for).max(lease.locked_until);
    tx.execute(
        "UPDATE instance_schedule SET locked_until = ?2, due_at = ?2, ready_seq = NULL, owner = ?3 WHERE instance_id = ?1",
        params![lease.instance, until, tx.owner_until(until)],
    )?;
    tx.effects.instances_due.note(until);
    Ok(())
}
