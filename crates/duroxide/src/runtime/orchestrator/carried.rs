//! The queue messages that continue-as-new carries over.

use std::collections::{HashMap, HashSet};

use crate::model::limits::MAX_CARRY_FORWARD_EVENTS;
use crate::model::{Event, EventKind};

/// Keeps the oldest messages, up to the limit, and says which are lost.
pub(super) fn oldest(instance: &str, mut unread: Vec<(String, String)>) -> Vec<(String, String)> {
    for (name, data) in unread.iter().skip(MAX_CARRY_FORWARD_EVENTS) {
        tracing::warn!(target: "duroxide::runtime::execution", instance, name, data,
            "Dropping carry-forward event beyond limit of {MAX_CARRY_FORWARD_EVENTS} during continue-as-new");
    }
    unread.truncate(MAX_CARRY_FORWARD_EVENTS);
    unread
}

/// Finds the unread messages of an execution of the legacy policy, which does not know them by itself: each dequeue that
/// was not given up counts as having read one, in order.
pub(super) fn legacy_unread<'a>(history: impl Iterator<Item = &'a Event> + Clone) -> Vec<(String, String)> {
    let given_up: HashSet<u64> = history
        .clone()
        .filter(|event| matches!(event.kind, EventKind::QueueSubscriptionCancelled { .. }))
        .filter_map(|event| event.source_event_id)
        .collect();
    let mut reads: HashMap<&str, usize> = HashMap::new();
    for event in history.clone() {
        if let EventKind::QueueSubscribed { name } = &event.kind
            && !given_up.contains(&event.event_id)
        {
            *reads.entry(name).or_default() += 1;
        }
    }
    let mut unread = Vec::new();
    for event in history {
        let EventKind::QueueEventDelivered { name, data } = &event.kind else { continue };
        match reads.get_mut(name.as_str()) {
            Some(left) if *left > 0 => *left -= 1,
            _ => unread.push((name.clone(), data.clone())),
        }
    }
    unread
}
