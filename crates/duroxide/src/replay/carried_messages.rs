//! Which unread queue messages continue-as-new carries over.

use std::collections::{HashMap, HashSet};

use crate::model::limits::MAX_CARRY_FORWARD_EVENTS;
use crate::model::payload::{self, PAYLOAD_TARGET};
use crate::model::{Event, EventKind};

/// The unread messages of a legacy execution, by the count that legacy executions have always used: each dequeue that
/// was not cancelled takes one message of its queue, in order, whether the code read it or not.
pub(crate) fn legacy_unread<'a>(history: impl Iterator<Item = &'a Event> + Clone) -> Vec<(String, String)> {
    let cancelled: HashSet<u64> = history
        .clone()
        .filter(|event| matches!(event.kind, EventKind::QueueSubscriptionCancelled { .. }))
        .filter_map(|event| event.source_event_id)
        .collect();
    let mut taken: HashMap<&str, usize> = HashMap::new();
    for event in history.clone() {
        if let EventKind::QueueSubscribed { name } = &event.kind
            && !cancelled.contains(&event.event_id)
        {
            *taken.entry(name).or_default() += 1;
        }
    }
    let mut unread = Vec::new();
    for event in history {
        let EventKind::QueueEventDelivered { name, data } = &event.kind else { continue };
        match taken.get_mut(name.as_str()) {
            Some(left) if *left > 0 => *left -= 1,
            _ => unread.push((name.clone(), data.clone())),
        }
    }
    unread
}

/// Keeps the oldest messages up to the limit, and logs each one that it leaves behind.
pub(crate) fn carry_forward(instance: &str, mut unread: Vec<(String, String)>) -> Vec<(String, String)> {
    let kept = unread.len().min(MAX_CARRY_FORWARD_EVENTS);
    for (name, data) in unread.drain(kept..) {
        tracing::trace!(target: PAYLOAD_TARGET, instance, name, data, "a message is not carried over");
        tracing::warn!(
            target: "duroxide::runtime",
            instance,
            name,
            data = payload::summary(&data),
            "Dropping carry-forward event beyond limit of {MAX_CARRY_FORWARD_EVENTS} during continue-as-new"
        );
    }
    unread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(kinds: Vec<(Option<u64>, EventKind)>) -> Vec<Event> {
        let numbered = kinds.into_iter().zip(1..);
        numbered.map(|((source, kind), id)| Event::with_event_id(id, "i", 1, source, kind)).collect()
    }

    fn subscribed(name: &str) -> (Option<u64>, EventKind) {
        (None, EventKind::QueueSubscribed { name: name.into() })
    }

    fn message(name: &str, data: &str) -> (Option<u64>, EventKind) {
        (None, EventKind::QueueEventDelivered { name: name.into(), data: data.into() })
    }

    #[test]
    fn a_legacy_execution_carries_what_its_dequeues_did_not_count_for() {
        let cancelled = (Some(2), EventKind::QueueSubscriptionCancelled { reason: "dropped_future".into() });
        let history = events(vec![
            subscribed("q"),
            subscribed("q"),
            message("q", "m1"),
            message("other", "x"),
            message("q", "m2"),
            cancelled,
        ]);
        let unread = legacy_unread(history.iter());
        assert_eq!(unread, [("other".to_string(), "x".to_string()), ("q".to_string(), "m2".to_string())]);
    }

    #[test]
    fn the_oldest_hundred_messages_are_carried() {
        let unread = |n: usize| (0..n).map(|i| ("q".to_string(), i.to_string())).collect::<Vec<_>>();
        assert_eq!(carry_forward("i", unread(100)).len(), 100);
        let carried = carry_forward("i", unread(101));
        assert_eq!(carried, unread(100));
    }
}
