//! Messages for instances that do not exist: never in the way, never lost without a word.
//!
//! Completions belong to an instance that is gone and are dropped, or they would reach a later one of the same id.
//! Signals and cancellations may have overtaken the start: they are parked, with whatever came with them, until the
//! instance is started or their time is over. A parked message gives its instance no place in the line.

use rusqlite::params;

use super::batch::Batch;
use super::messages::{self, StoredMessage};
use super::quarantine::{self, Queue};
use super::schedule::{self, Lease};
use super::shared::clamp_ms;
use crate::model::whole_ms;
use crate::providers::inspect::MessageClass;

/// How long a message is parked.
pub(super) fn parking_ms(batch: &Batch<'_, '_>) -> i64 {
    clamp_ms(whole_ms(batch.shared.parking_time))
}

/// Deals with the visible messages, not parked before, of an instance that does not exist.
pub(super) fn set_aside(
    batch: &mut Batch<'_, '_>,
    instance: &str,
    unparked: &[StoredMessage],
    now: i64,
) -> rusqlite::Result<()> {
    let is = |message: &StoredMessage, class: MessageClass| message.class == class.as_str();
    // What is not UTF-8 was replaced when it was read. Nobody can tell what such a message is.
    let (damaged, readable): (Vec<_>, Vec<_>) =
        unparked.iter().partition(|message| message.class.contains(char::REPLACEMENT_CHARACTER));
    quarantine::set_damaged_aside(batch, Queue::Orchestrator, damaged.iter().map(|message| message.id))?;
    let (stale, rest): (Vec<_>, Vec<_>) =
        readable.into_iter().partition(|message| is(message, MessageClass::Completion));
    drop_messages(batch, instance, stale.iter().map(|message| message.id))?;
    let may_be_started = rest.iter().any(|message| is(message, MessageClass::Signal))
        || messages::has_start(batch, instance)?
        || has_parked_signal(batch, instance)?;
    if may_be_started {
        for message in rest {
            batch.execute(
                "UPDATE orchestrator_queue SET parked_at = ?2 WHERE id = ?1",
                params![message.id, now],
            )?;
        }
    } else {
        drop_messages(batch, instance, rest.iter().map(|message| message.id))?;
        drop_parked(batch, instance, i64::MAX)?;
    }
    schedule::settle(batch, instance, now, Lease::End)
}

fn has_parked_signal(batch: &Batch<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    let found = batch.row(
        "SELECT 1 FROM orchestrator_queue
         WHERE instance_id = ?1 AND parked_at IS NOT NULL AND class = 'signal' LIMIT 1",
        [instance],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// Lets the messages of an instance that exists after all take their part again.
pub(super) fn unpark(batch: &Batch<'_, '_>, instance: &str) -> rusqlite::Result<()> {
    batch
        .execute(
            "UPDATE orchestrator_queue SET parked_at = NULL WHERE instance_id = ?1 AND parked_at IS NOT NULL",
            [instance],
        )
        .map(drop)
}

/// Takes note that an instance exists now although nobody started it: a history was appended by hand.
pub(super) fn instance_appears(batch: &mut Batch<'_, '_>, instance: &str, now: i64) -> rusqlite::Result<()> {
    let parked = batch.row(
        "SELECT 1 FROM instance_schedule WHERE instance_id = ?1 AND parked = 1 AND lock_token IS NULL",
        [instance],
        |_| Ok(()),
    )?;
    if parked.is_none() {
        return Ok(());
    }
    unpark(batch, instance)?;
    schedule::settle(batch, instance, now, Lease::End)
}

/// Drops what was parked for too long.
pub(super) fn drop_expired(batch: &Batch<'_, '_>, instance: &str, now: i64) -> rusqlite::Result<()> {
    drop_parked(batch, instance, now.saturating_sub(parking_ms(batch)))
}

fn drop_parked(batch: &Batch<'_, '_>, instance: &str, parked_until: i64) -> rusqlite::Result<()> {
    let dropped = batch.execute(
        "DELETE FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NOT NULL AND parked_at <= ?2",
        params![instance, parked_until],
    )?;
    report(instance, dropped);
    Ok(())
}

fn drop_messages(
    batch: &Batch<'_, '_>,
    instance: &str,
    ids: impl ExactSizeIterator<Item = i64>,
) -> rusqlite::Result<()> {
    report(instance, ids.len());
    messages::delete(batch, ids)
}

fn report(instance: &str, dropped: usize) {
    if dropped > 0 {
        tracing::warn!(
            target: "duroxide::providers::sqlite",
            instance, messages = dropped, "dropped messages for an instance that does not exist"
        );
    }
}
