//! Ending a lease on an instance: commit, give back, extend.

use std::time::Duration;

use rusqlite::params;

use super::batch::Batch;
use super::claims::held_lease;
use super::encode::{NewActivity, NewEvent, NewMessage, PinnedVersion};
use super::error::StoreError;
use super::schedule::{self, Lease};
use super::{history, instances, kv, leased, messages, work};
use crate::providers::inspect::{self, DeltaChanges};
use crate::providers::{ExecutionMetadata, ScheduledActivityIdentifier, refusal};

const ACK: &str = "ack_orchestration_item";

/// All that a turn changes, encoded.
pub(super) struct TurnCommit {
    pub(super) token: String,
    /// When the ack reached the writer: a lease that was live then is honoured, however long the queue is.
    pub(super) arrived_ms: i64,
    pub(super) execution_id: i64,
    pub(super) events: Vec<NewEvent>,
    pub(super) changes: DeltaChanges,
    pub(super) activities: Vec<NewActivity>,
    pub(super) messages: Vec<NewMessage>,
    pub(super) metadata: ExecutionMetadata,
    pub(super) pinned: Option<PinnedVersion>,
    pub(super) cancelled: Vec<ScheduledActivityIdentifier>,
}

impl TurnCommit {
    /// Tells whether the turn changes what watchers of its instance look at: status, custom status, values.
    fn is_noticed_outside(&self) -> bool {
        let metadata = &self.metadata;
        metadata.status.is_some()
            || metadata.orchestration_name.is_some()
            || self.changes != DeltaChanges::default()
    }
}

/// Commits a turn, wholly or not at all: everything that can be refused is checked before the first write. Returns the
/// incarnation of its instance.
pub(super) fn ack(batch: &mut Batch<'_, '_>, turn: &TurnCommit) -> Result<i64, StoreError> {
    let lease = held_lease(batch, &turn.token)?.ok_or_else(|| refusal::unknown_turn_token(ACK))?;
    if lease.locked_until <= turn.arrived_ms {
        return Err(refusal::turn_lease_expired().into());
    }
    let instance = lease.instance.as_str();
    history::refuse_duplicates(batch, ACK, instance, turn.execution_id, &turn.events)?;

    let now = batch.now_ms();
    history::append(batch, instance, turn.execution_id, &turn.events, now)?;
    let updated = instances::update(batch, instance, turn, now)?;
    kv::apply(batch, instance, &turn.changes.kv, now)?;
    if turn.metadata.status.as_deref().is_some_and(inspect::is_terminal_status) {
        kv::merge(batch, instance)?;
    }
    for activity in &turn.activities {
        work::insert(batch, activity, now)?;
    }
    for activity in &turn.cancelled {
        work::cancel(batch, activity)?;
    }
    leased::delete(batch, instance, lease.leased)?;
    let ended = turn.metadata.status.as_deref().filter(|status| inspect::is_terminal_status(status));
    let ended = ended.filter(|_| updated.is_current);
    if let Some(status) = ended {
        messages::delete_unread(batch, instance, status)?;
    }
    for message in &turn.messages {
        let goes = |status| message.instance == instance && message.class.goes_with(status);
        if !ended.is_some_and(goes) {
            messages::insert(batch, message, message.due_at, now)?;
        }
    }
    schedule::settle(batch, instance, now, Lease::End)?;
    if let Some(class) = &updated.class {
        schedule::classify(batch, instance, class)?;
    }
    if turn.is_noticed_outside() || updated.class.is_some() {
        batch.effects.changed_instances.push(lease.instance);
    }
    Ok(updated.incarnation)
}

/// Gives a turn back. A lease that has run out can still be given back as long as nobody has taken over.
pub(super) fn abandon(
    batch: &mut Batch<'_, '_>,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), StoreError> {
    let lease =
        held_lease(batch, token)?.ok_or_else(|| refusal::unknown_turn_token("abandon_orchestration_item"))?;
    let now = batch.now_ms();
    if !ignore_attempt {
        leased::count_attempt(batch, &lease.instance, lease.leased)?;
    }
    if let Some(delay) = delay.filter(|delay| !delay.is_zero()) {
        leased::delay(batch, &lease.instance, lease.leased, super::shared::after(now, delay))?;
    }
    schedule::settle(batch, &lease.instance, now, Lease::End)?;
    Ok(())
}

/// Extends a live lease; never shortens it.
pub(super) fn renew(
    batch: &mut Batch<'_, '_>,
    token: &str,
    arrived_ms: i64,
    extend_for: Duration,
) -> Result<(), StoreError> {
    let lease = held_lease(batch, token)?.filter(|lease| lease.locked_until > arrived_ms);
    let lease = lease.ok_or_else(refusal::turn_not_renewable)?;
    let until = batch.in_ms(extend_for).max(lease.locked_until);
    batch.execute(
        "UPDATE instance_schedule SET locked_until = ?2, due_at = ?2, ready_seq = NULL, owner = ?3 WHERE instance_id = ?1",
        params![lease.instance, until, batch.owner_until(until)],
    )?;
    batch.effects.instances_due.note(until);
    Ok(())
}
