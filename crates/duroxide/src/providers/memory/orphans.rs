//! Messages for instances that do not exist, and messages that do not decode.
//!
//! Neither may block the queue, reach the wrong instance or get lost silently. Completions for an instance that is gone
//! are stale: the store drops them, or they would reach a later instance of the same id. Signals and cancellations may
//! have overtaken the start: the store parks them, with the messages that came with them, until the start is there or
//! their time is over. It also parks queue messages whose sender asked for that, and drops other queue messages. A
//! parked message is an ordinary row that gives its instance no place in the queue. The store counts and lists what it
//! drops, except completions.

use super::state::{Message, State};
use crate::model::payload::{self, PAYLOAD_TARGET};
use crate::model::{ExecutionStatus, WorkItem};
use crate::providers::inspect::{self, MessageClass};
use crate::providers::{
    DroppedMessage, ParkedMessage, QuarantineEntry, QuarantinedRow, StoreMetrics, WorkQueue, rows,
};

const METRICS: StoreMetrics = StoreMetrics::new("memory");

impl State {
    /// Chooses the messages of an instance's next turn, by their positions: the oldest, as many as a turn has room for.
    /// If an execution is about to begin, its start comes first, wherever it is in the queue.
    pub fn next_messages(&self, instance: &str, now: u64) -> Vec<usize> {
        let is_visible = |position: &usize| {
            self.messages[*position].instance == instance && self.messages[*position].is_visible(now)
        };
        let visible: Vec<usize> = (0..self.messages.len()).filter(is_visible).collect();
        let take = |positions: &[usize]| -> Vec<usize> {
            let mut room = self.limits.turn_room();
            positions.iter().copied().take_while(|at| room.take(self.messages[*at].payload.len())).collect()
        };
        let oldest = take(&visible);
        if oldest.len() == visible.len() || !self.awaits_start(instance) {
            return oldest;
        }
        let is_start = |at: &usize| self.messages[*at].class == MessageClass::Start;
        let (starts, others): (Vec<usize>, Vec<usize>) = visible.into_iter().partition(is_start);
        let mut chosen = take(&[starts, others].concat());
        chosen.sort_unstable();
        chosen
    }

    /// Tells whether an instance does not exist yet, or is between two executions.
    fn awaits_start(&self, instance: &str) -> bool {
        self.instances
            .get(instance)
            .is_none_or(|row| self.status(instance, row) == ExecutionStatus::ContinuedAsNew.as_str())
    }

    /// Decodes these messages. Takes undecodable ones out of the queue, and returns the others with their positions.
    pub fn decode_messages(
        &mut self,
        instance: &str,
        positions: &[usize],
        now: u64,
    ) -> (Vec<usize>, Vec<WorkItem>) {
        let (mut good, mut decoded, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        for &at in positions {
            match serde_json::from_str(&self.messages[at].payload) {
                Ok(item) => {
                    good.push(at - bad.len());
                    decoded.push(item);
                }
                Err(error) => bad.push((at, error.to_string())),
            }
        }
        for (removed, (at, reason)) in bad.into_iter().enumerate() {
            let raw = self.messages.remove(at - removed).payload;
            self.set_aside(WorkQueue::Orchestrator, instance, raw, reason, now);
        }
        (good, decoded)
    }

    /// Keeps a row that does not decode where an operator finds it.
    pub fn set_aside(&mut self, queue: WorkQueue, instance: &str, raw: String, reason: String, now: u64) {
        tracing::trace!(target: PAYLOAD_TARGET, instance, ?queue, raw, "a queue row does not decode");
        tracing::error!(
            instance,
            ?queue,
            reason = inspect::without_values(&reason),
            row = payload::summary(&raw),
            "a queue row does not decode and was set aside"
        );
        METRICS.quarantined(rows::name_of(queue));
        let instance = Some(instance.to_string());
        self.set_aside_rows += 1;
        let row = QuarantinedRow { queue, instance, raw, reason, quarantined_at: now };
        self.quarantine.push(QuarantineEntry { id: self.set_aside_rows, row });
    }

    /// Tells whether messages for this instance can be delivered: it exists, or a visible message starts it.
    pub fn has_context(&self, instance: &str, now: u64) -> bool {
        let is_start = |message: &Message| message.class == MessageClass::Start && message.is_visible(now);
        self.instances.contains_key(instance)
            || self.has_history(instance)
            || self.messages_of(instance).any(is_start)
    }

    /// Deals with the visible messages of an instance that does not exist.
    pub fn settle_orphans(&mut self, instance: &str, now: u64) {
        self.drop_messages(instance, "its instance does not exist", now, |message| {
            message.class == MessageClass::Completion && message.is_visible(now)
        });
        // A start that is only delayed still wants the queue messages.
        let may_be_started = self.messages_of(instance).any(|message| {
            message.class == MessageClass::Start
                || (message.class == MessageClass::Signal && message.is_visible(now))
        });
        if !may_be_started {
            self.drop_messages(instance, "its instance does not exist", now, |message| {
                message.is_visible(now)
            });
        }
        for message in &mut self.messages {
            if message.instance == instance && message.is_visible(now) {
                message.parked_at.get_or_insert(now);
            }
        }
    }

    /// Ends the parking of messages whose instance exists after all.
    pub fn unpark(&mut self, instance: &str) {
        let parked = self.messages.iter_mut().filter(|message| message.instance == instance);
        parked.for_each(|message| message.parked_at = None);
    }

    /// Drops the messages that were parked for too long.
    pub fn drop_expired_parked(&mut self, now: u64) {
        let parking_ms = self.parking_ms;
        let expired: Vec<String> = self
            .messages
            .iter()
            .filter(|message| parked_until(message, parking_ms).is_some_and(|until| until <= now))
            .map(|message| message.instance.clone())
            .collect();
        for instance in expired {
            self.drop_messages(&instance, "its instance was never started", now, |message| {
                parked_until(message, parking_ms).is_some_and(|until| until <= now)
            });
        }
    }

    /// Lists the parked messages, oldest first.
    pub fn list_parked(&self, limit: usize) -> Vec<ParkedMessage> {
        let parked = self.messages.iter().filter_map(|message| {
            Some(ParkedMessage {
                instance: message.instance.clone(),
                raw: message.payload.clone(),
                expires_at: parked_until(message, self.parking_ms)?,
            })
        });
        parked.take(limit).collect()
    }

    fn drop_messages(
        &mut self,
        instance: &str,
        reason: &str,
        now: u64,
        is_dropped: impl Fn(&Message) -> bool,
    ) {
        let noted = &mut self.dropped;
        self.messages.retain(|message| {
            let drops = message.instance == instance && is_dropped(message);
            if drops {
                tracing::warn!(
                    instance,
                    reason,
                    class = message.class.as_str(),
                    "an orphaned message was dropped"
                );
                if message.class != MessageClass::Completion {
                    noted.note(DroppedMessage::new(instance, &message.payload, now));
                }
            }
            !drops
        });
    }

    /// Returns the messages of an instance in the order of enqueueing.
    pub fn messages_of(&self, instance: &str) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.instance == instance)
    }
}

/// The moment at which the store drops a parked message; `None` if it is not parked.
pub(super) fn parked_until(message: &Message, parking_ms: u64) -> Option<u64> {
    message.parked_at.map(|since| since.saturating_add(parking_ms))
}
