//! Futures that the code dropped before they had a result: which rows record the drops, and which drops a replay must
//! see again.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ErrorDetails, Event, EventKind};

use super::RacePolicy;
use super::journal::Journal;
use super::matching;
use super::outcome::nondeterminism;
use super::shared_state::{Cancellable, SharedState};

/// The recorded reason for a cancellation by dropping.
pub(crate) const DROPPED_FUTURE: &str = "dropped_future";

/// Futures that the code dropped according to stored rows, and that it must drop again.
#[derive(Debug, Default)]
pub(crate) struct DroppedFutures {
    last_old_event_id: u64,
    recorded: BTreeMap<Cancellable, BTreeSet<u64>>,
    repeated: BTreeMap<Cancellable, BTreeSet<u64>>,
}

impl DroppedFutures {
    pub(crate) fn note_old_event(&mut self, event_id: u64) {
        self.last_old_event_id = self.last_old_event_id.max(event_id);
    }

    /// Notes that a stored row records the drop of this future.
    pub(crate) fn expect(&mut self, kind: Cancellable, schedule_id: u64) {
        self.recorded.entry(kind).or_default().insert(schedule_id);
    }

    /// Takes the dropped futures, checks that every recorded drop is among them, and writes a row for each that has
    /// none. Returns the ids that got a row, by kind.
    pub(crate) fn settle(
        &mut self,
        shared_state: &SharedState,
        journal: &mut Journal,
        now_ms: u64,
        policy: RacePolicy,
        rows: &mut Vec<Event>,
    ) -> Result<BTreeMap<Cancellable, Vec<u64>>, ErrorDetails> {
        let mut new = BTreeMap::new();
        for kind in Cancellable::ALL {
            let dropped = shared_state.take_dropped(kind);
            let old = dropped.iter().filter(|id| **id <= self.last_old_event_id);
            self.repeated.entry(kind).or_default().extend(old);
            let unrecorded = dropped.into_iter().filter(|id| !journal.has_cancellation(*id));
            new.insert(kind, unrecorded.collect::<Vec<_>>());
        }
        self.check(policy, shared_state)?;
        for (kind, ids) in &new {
            for id in ids {
                rows.push(journal.record(Some(*id), now_ms, row(*kind, DROPPED_FUTURE)));
                shared_state.cancel_by_row(*id, *kind);
            }
        }
        *self = Self::default();
        Ok(new)
    }

    fn check(&self, policy: RacePolicy, shared_state: &SharedState) -> Result<(), ErrorDetails> {
        let none = BTreeSet::new();
        for kind in Cancellable::ALL {
            let recorded = self.recorded.get(&kind).unwrap_or(&none);
            let repeated = self.repeated.get(&kind).unwrap_or(&none);
            if !recorded.is_subset(repeated) {
                let block = block_name(kind);
                let text = format!(
                    "cancellation mismatch ({block}): baseline_dropped_future_cancel_requests={recorded:?} \
                     ctx_cancelled_in_replayed_segment={repeated:?}"
                );
                let kept: BTreeSet<_> = recorded.difference(repeated).collect();
                let explanation = format!(
                    " (the futures of events {kept:?} were dropped when this was recorded; the code now keeps them{})",
                    matching::of_code(shared_state.code_place())
                );
                // Replays compare legacy texts to the letter.
                let explained = if policy == RacePolicy::Prompt { text + &explanation } else { text };
                return Err(nondeterminism(explained));
            }
        }
        Ok(())
    }
}

/// The content of a cancellation row.
pub(crate) fn row(kind: Cancellable, reason: &str) -> EventKind {
    let reason = reason.to_string();
    match kind {
        Cancellable::Activity => EventKind::ActivityCancelRequested { reason },
        Cancellable::Child => EventKind::SubOrchestrationCancelRequested { reason },
        Cancellable::Wait => EventKind::ExternalSubscribedCancelled { reason },
        Cancellable::Dequeue => EventKind::QueueSubscriptionCancelled { reason },
    }
}

fn block_name(kind: Cancellable) -> &'static str {
    match kind {
        Cancellable::Activity => "activities",
        Cancellable::Child => "sub-orchestrations",
        Cancellable::Wait => "external waits",
        Cancellable::Dequeue => "persistent waits",
    }
}
