//! Whether anything happens on this store, for a clock that skips the times in which nothing does.
//!
//! Whatever a runtime does, it does under a lease, and whatever it could do is ready in a queue. So the rows tell whether
//! something happens, and when the next thing will.

use tokio::sync::watch;

use super::MemoryProvider;
use super::dues::activity_ready_at;
use super::inspection::queued_activity;
use super::state::State;
use crate::model::QueuedActivity;
use crate::providers::ScheduledActivityIdentifier;

/// What happens on the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quiescence {
    /// Something that is ready, or under way.
    pub busy_with: Option<String>,
    /// When the next thing is due, if nothing happens before.
    pub next_due_ms: Option<u64>,
    /// How many activities only wait for time to pass.
    pub dozing: usize,
}

impl MemoryProvider {
    /// Tells what happens now. `is_dozing` picks activities that only wait for time to pass; their leases count as kept
    /// while more than `renewed_before_ms` is left of them.
    pub(crate) fn quiescence(
        &self,
        is_dozing: impl Fn(&ScheduledActivityIdentifier) -> bool,
        renewed_before_ms: u64,
    ) -> Quiescence {
        let state = self.lock();
        let now = self.clock.now_ms();
        let mut busy_with = state.busy_turn(now);
        let mut next_due_ms = state.next_message_due(now);
        let mut dozing = 0;
        for activity in &state.activities {
            let identity = &activity.identity;
            let left = activity.lease.as_ref().map_or(0, |lease| lease.locked_until.saturating_sub(now));
            if is_dozing(identity) && left > renewed_before_ms {
                dozing += 1;
            } else if activity.is_leased(now) || activity_ready_at(activity) <= now {
                busy_with.get_or_insert_with(|| {
                    format!("activity {} of '{}'", identity.activity_id, identity.instance)
                });
            } else {
                let ready_at = activity_ready_at(activity);
                next_due_ms = Some(next_due_ms.map_or(ready_at, |due| due.min(ready_at)));
            }
        }
        Quiescence { busy_with, next_due_ms, dozing }
    }

    /// Returns the activities that no worker runs.
    pub(crate) fn idle_activities(&self) -> Vec<QueuedActivity> {
        let (state, now) = (self.lock(), self.clock.now_ms());
        let idle = state.activities.iter().filter(|activity| !activity.is_leased(now));
        idle.map(|activity| queued_activity(activity, now)).collect()
    }

    /// Wakes the tasks that wait for a change.
    pub(crate) fn beat(&self) {
        self.pulse.send_modify(|beats| *beats = beats.wrapping_add(1));
    }

    /// Reports every change of what happens from now on.
    pub(crate) fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// Ends all leases, as a store does that notices the death of their owner. Attempts stay counted.
    pub(crate) fn release_leases(&self) {
        self.change(|state, now| {
            state.turn_leases.clear();
            state.messages.iter_mut().for_each(|message| message.taken_by = None);
            state.activities.iter_mut().for_each(|activity| activity.lease = None);
            state.sessions.values_mut().for_each(|session| session.locked_until = now);
        });
    }
}

impl State {
    fn busy_turn(&self, now: u64) -> Option<String> {
        let leased = self.turn_leases.iter().find(|(_, lease)| lease.is_live(now));
        if let Some((instance, _)) = leased {
            return Some(format!("a turn of '{instance}'"));
        }
        self.has_ready_messages(now).then(|| "messages that are ready".to_string())
    }
}
