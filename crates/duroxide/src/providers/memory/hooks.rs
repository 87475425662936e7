//! Hooks for tests: ways to damage rows, and the whole state as text.

use std::cell::Cell;
use std::fmt::{self, Write};

use super::MemoryProvider;
use super::orphans::parked_until;
use super::state::{State, StoredLease};

/// The text of a damaged row: the beginning of former JSON.
const DAMAGED: &str = "{\"damaged";

thread_local! {
    static NEXT_TOKEN: Cell<Option<u128>> = const { Cell::new(None) };
}

/// Returns the next token, if this thread numbers them.
pub(super) fn next_token() -> Option<uuid::Uuid> {
    let number = NEXT_TOKEN.get()?;
    NEXT_TOKEN.set(Some(number.wrapping_add(1)));
    Some(uuid::Uuid::from_u128(number))
}

/// The contents of a store at some moment.
pub struct KeptState(State);

impl MemoryProvider {
    /// Returns a copy of everything in the store, as a disk would have it.
    pub fn keep(&self) -> KeptState {
        KeptState(self.read_state(State::clone))
    }

    /// Gives the store the contents of an earlier moment, as a power cut does that loses what was not synced.
    pub fn put_back(&self, kept: KeptState) {
        self.change(|state, _| *state = kept.0);
    }

    /// Numbers the lock tokens that this thread makes, from 1 on, instead of throwing dice: pauses depend on tokens, and a
    /// simulation wants the same ones every time.
    pub fn number_tokens_of_this_thread() {
        NEXT_TOKEN.set(Some(1));
    }

    /// Ends all leases, as a store does that notices the death of their owner. The attempt of a lease counts if `ran` says of
    /// its token that the user's code was running.
    pub fn release_leases_of_the_dead(&self, ran: impl Fn(&str) -> bool) {
        self.change(|state, now| {
            let turns = state.turn_leases.values().filter(|lease| !lease.is_over);
            let turns: Vec<String> = turns.map(|lease| lease.token.clone()).collect();
            let activities = state.activities.iter().filter_map(|activity| activity.lease.as_ref());
            let activities = activities.filter(|lease| !lease.is_over).map(|lease| lease.token.clone());
            let activities: Vec<String> = activities.collect();
            for token in turns {
                let given_back = state.abandon_turn(&token, None, !ran(&token), now);
                debug_assert!(given_back.is_ok(), "the lease was there");
            }
            for token in activities {
                let given_back = state.abandon_activity(&token, None, !ran(&token), now);
                debug_assert!(given_back.is_ok(), "the lease was there");
            }
            state.sessions.values_mut().for_each(|session| session.locked_until = 0);
        });
    }

    /// Damages all events of an instance, so that none of them decodes.
    pub fn corrupt_history(&self, instance: &str) {
        self.change(|state, _| {
            let histories = state.histories.iter_mut().filter(|((owner, _), _)| owner == instance);
            histories.flat_map(|(_, events)| events.values_mut()).for_each(damage);
        });
    }

    /// Damages all queued messages of an instance.
    pub fn corrupt_messages(&self, instance: &str) {
        self.change(|state, _| {
            let messages = state.messages.iter_mut().filter(|message| message.instance == instance);
            messages.for_each(|message| damage(&mut message.payload));
        });
    }

    /// Damages all queued activities of an instance.
    pub fn corrupt_work_items(&self, instance: &str) {
        self.change(|state, _| {
            let activities = state.activities.iter_mut();
            let activities = activities.filter(|activity| activity.identity.instance == instance);
            activities.for_each(|activity| damage(&mut activity.payload));
        });
    }

    /// Gives all rows of an instance that were set aside this text instead of theirs.
    pub fn repair_quarantined(&self, instance: &str, text: &str) {
        self.change(|state, _| {
            let rows = state.quarantine.iter_mut().map(|entry| &mut entry.row);
            let rows = rows.filter(|row| row.instance.as_deref() == Some(instance));
            rows.for_each(|row| row.raw = text.to_string());
        });
    }

    /// Returns the highest attempt count among the queued messages of an instance; 0 if there is none.
    pub fn max_attempt_count(&self, instance: &str) -> u32 {
        self.read_state(|state| state.messages_of(instance).map(|message| message.attempts).max())
            .unwrap_or(0)
    }

    /// Returns the whole state as text, one row a line.
    ///
    /// Two stores that went through the same calls at the same times print the same, so the dump omits tokens and shows
    /// a lease by its end. Rows of queues are in the order of enqueueing, all others in the order of their keys.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.read_state(|state| dump(state, &mut text));
        text
    }
}

fn damage(payload: &mut String) {
    *payload = DAMAGED.to_string();
}

fn dump(state: &State, text: &mut String) -> fmt::Result {
    for (id, row) in &state.instances {
        writeln!(
            text,
            "instance {id:?} name={:?} version={:?} parent={:?} execution={} incarnation={} custom_status={:?}/{} \
             created_at={} updated_at={}",
            row.orchestration_name,
            row.orchestration_version,
            row.parent_instance_id,
            row.current_execution_id,
            row.incarnation,
            row.custom_status,
            row.custom_status_version,
            row.created_at,
            row.updated_at,
        )?;
    }
    for ((id, execution_id), row) in &state.executions {
        writeln!(
            text,
            "execution {id:?}/{execution_id} status={:?} output={:?} pinned={:?} started_at={} completed_at={:?}",
            row.status,
            row.output,
            row.pinned_version.as_ref().map(ToString::to_string),
            row.started_at,
            row.completed_at,
        )?;
    }
    for ((id, execution_id), events) in &state.histories {
        for (event_id, event) in events {
            writeln!(text, "event {id:?}/{execution_id}/{event_id} {event}")?;
        }
    }
    dump_key_values(state, text)?;
    dump_queues(state, text)
}

fn dump_key_values(state: &State, text: &mut String) -> fmt::Result {
    for (id, values) in &state.key_values {
        for (key, entry) in &values.settled {
            writeln!(
                text,
                "kv_store {id:?} {key:?}={:?} updated_at={}",
                entry.value, entry.last_updated_at_ms
            )?;
        }
        for (key, change) in &values.changed {
            match change {
                Some(entry) => writeln!(
                    text,
                    "kv_delta {id:?} {key:?}={:?} updated_at={}",
                    entry.value, entry.last_updated_at_ms
                )?,
                None => writeln!(text, "kv_delta {id:?} {key:?} cleared")?,
            }
        }
    }
    Ok(())
}

fn dump_queues(state: &State, text: &mut String) -> fmt::Result {
    for (id, lease) in &state.turn_leases {
        writeln!(text, "turn {id:?} locked_until={}", lease.locked_until)?;
    }
    for message in &state.messages {
        writeln!(
            text,
            "message {:?} class={} visible_at={} attempts={} taken={} parked_until={:?} {}",
            message.instance,
            message.class.as_str(),
            message.visible_at,
            message.attempts,
            message.taken_by.is_some(),
            parked_until(message, state.parking_ms),
            message.payload,
        )?;
    }
    for activity in &state.activities {
        writeln!(
            text,
            "activity {:?}/{}/{} session={:?} tag={:?} visible_at={} attempts={} locked_until={:?} {}",
            activity.identity.instance,
            activity.identity.execution_id,
            activity.identity.activity_id,
            activity.session_id,
            activity.tag,
            activity.visible_at,
            activity.attempts,
            activity.lease.as_ref().map(|lease: &StoredLease| lease.locked_until),
            activity.payload,
        )?;
    }
    for (id, session) in &state.sessions {
        writeln!(
            text,
            "session {id:?} owner={:?} locked_until={} last_activity_at={}",
            session.owner_id, session.locked_until, session.last_activity_at,
        )?;
    }
    for row in state.quarantine.iter().map(|entry| &entry.row) {
        writeln!(
            text,
            "quarantined {:?} {:?} at={} reason={:?} {}",
            row.queue, row.instance, row.quarantined_at, row.reason, row.raw,
        )?;
    }
    Ok(())
}
