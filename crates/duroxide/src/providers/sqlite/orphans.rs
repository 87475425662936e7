//! Messages for instances that do not exist: they hold up no others and never get lost silently.
//!
//! Completions belong to an instance that is gone: the store drops them, or they would reach a later instance of the
//! same id. Signals and cancellations may have overtaken the start: the store parks them, with the messages that came
//! with them, until a client starts the instance or their time is over. It also parks queue messages whose sender asked
//! for that, which have the class of a signal, and drops other queue messages. A parked message does not make its
//! instance ready. The store counts and lists what it drops, except completions.

use rusqlite::params;

use super::dropped;
use super::messages::{self, MessageKey};
use super::quarantine;
use super::schedule::{self, LeaseChange};
use super::shared::clamp_ms;
use super::write_transaction::WriteTransaction;
use crate::model::whole_ms;
use crate::providers::WorkQueue;
use crate::providers::inspect::MessageClass;

/// How long the store parks a message.
pub(super) fn parking_ms(tx: &WriteTransaction<'_, '_>) -> i64 {
    clamp_ms(whole_ms(tx.shared.parking_time))
}

/// Parks or drops the visible messages of an instance that does not exist, except those parked before.
pub(super) fn set_aside(tx: &mut WriteTransaction<'_, '_>, instance: &str, now: i64) -> rusqlite::Result<()> {
    let unparked = messages::visible_keys(tx, instance, now)?;
    let is = |message: &MessageKey, class: MessageClass| message.class == class.as_str();
    // Reading has replaced bytes that are not UTF-8, so the kind of such a message is lost.
    let (damaged, readable): (Vec<_>, Vec<_>) =
        unparked.iter().partition(|message| message.class.contains(char::REPLACEMENT_CHARACTER));
    quarantine::set_damaged_aside(tx, WorkQueue::Orchestrator, damaged.iter().map(|message| message.id))?;
    let (stale, rest): (Vec<_>, Vec<_>) =
        readable.into_iter().partition(|message| is(message, MessageClass::Completion));
    drop_messages(tx, instance, &ids(&stale))?;
    let may_be_started = rest.iter().any(|message| is(message, MessageClass::Signal))
        || messages::has_start(tx, instance)?
        || has_parked_signal(tx, instance)?;
    if may_be_started {
        for message in rest {
            tx.execute(
                "UPDATE orchestrator_queue SET parked_at = ?2 WHERE id = ?1",
                params![message.id, now],
            )?;
        }
    } else {
        drop_parked(tx, instance, i64::MAX, now)?;
        dropped::note(tx, &ids(&rest), now)?;
        drop_messages(tx, instance, &ids(&rest))?;
    }
    schedule::settle(tx, instance, now, LeaseChange::End)
}

fn ids(messages: &[&MessageKey]) -> Vec<i64> {
    messages.iter().map(|message| message.id).collect()
}

fn has_parked_signal(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    let found = tx.row(
        "SELECT 1 FROM orchestrator_queue
         WHERE instance_id = ?1 AND parked_at IS NOT NULL AND class = 'signal' LIMIT 1",
        [instance],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// Ends the parking of messages whose instance exists after all.
pub(super) fn unpark(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<()> {
    tx.execute(
        "UPDATE orchestrator_queue SET parked_at = NULL WHERE instance_id = ?1 AND parked_at IS NOT NULL",
        [instance],
    )
    .map(drop)
}

/// Notes that an instance exists now without a start: a caller appended a history by hand.
pub(super) fn instance_appears(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    now: i64,
) -> rusqlite::Result<()> {
    let parked = tx.row(
        "SELECT 1 FROM instance_schedule WHERE instance_id = ?1 AND parked = 1 AND lock_token IS NULL",
        [instance],
        |_| Ok(()),
    )?;
    if parked.is_none() {
        return Ok(());
    }
    unpark(tx, instance)?;
    schedule::settle(tx, instance, now, LeaseChange::End)
}

/// Drops the messages that were parked for too long.
pub(super) fn drop_expired(tx: &WriteTransaction<'_, '_>, instance: &str, now: i64) -> rusqlite::Result<()> {
    drop_parked(tx, instance, now.saturating_sub(parking_ms(tx)), now)
}

fn drop_parked(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    parked_until: i64,
    now: i64,
) -> rusqlite::Result<()> {
    dropped::note_parked(tx, instance, parked_until, now)?;
    let dropped = tx.execute(
        "DELETE FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NOT NULL AND parked_at <= ?2",
        params![instance, parked_until],
    )?;
    report(instance, dropped);
    Ok(())
}

fn drop_messages(tx: &WriteTransaction<'_, '_>, instance: &str, ids: &[i64]) -> rusqlite::Result<()> {
    report(instance, ids.len());
    messages::delete(tx, ids.iter().copied())
}

fn report(instance: &str, dropped: usize) {
    if dropped > 0 {
        tracing::warn!(
            target: "duroxide::providers::sqlite",
            instance, messages = dropped, "dropped messages for an instance that does not exist"
        );
    }
}
