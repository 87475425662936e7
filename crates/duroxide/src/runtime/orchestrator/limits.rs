//! The bounds on what a turn may store. The runtime checks them before it commits anything.

use crate::model::limits::{MAX_CUSTOM_STATUS_BYTES, MAX_KV_KEYS, MAX_KV_VALUE_BYTES, MAX_TAG_NAME_BYTES};
use crate::model::{Event, EventKind};

const TARGET: &str = "duroxide::runtime";

/// Tells what is too large in a turn: the custom status, a tag, a value, or the number of keys, in this order.
pub(super) fn violation(
    instance: &str,
    execution_id: u64,
    events: &[Event],
    kv_keys: usize,
) -> Option<String> {
    let text = custom_status(events)
        .or_else(|| events.iter().find_map(tag))
        .or_else(|| events.iter().find_map(value))
        .or_else(|| keys(events, kv_keys))?;
    tracing::error!(target: TARGET, instance_id = instance, execution_id, error = text, "limit exceeded");
    Some(text)
}

fn custom_status(events: &[Event]) -> Option<String> {
    let last = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::CustomStatusUpdated { status: Some(status) } => Some(status.len()),
        _ => None,
    })?;
    (last > MAX_CUSTOM_STATUS_BYTES)
        .then(|| format!("Custom status size ({last} bytes) exceeds limit ({MAX_CUSTOM_STATUS_BYTES} bytes)"))
}

fn tag(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::ActivityScheduled { name, tag: Some(tag), .. } if tag.len() > MAX_TAG_NAME_BYTES => {
            let size = tag.len();
            Some(format!(
                "Activity '{name}' tag size ({size} bytes) exceeds limit ({MAX_TAG_NAME_BYTES} bytes)"
            ))
        }
        _ => None,
    }
}

fn value(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::KeyValueSet { key, value, .. } if value.len() > MAX_KV_VALUE_BYTES => {
            let size = value.len();
            Some(format!(
                "KV value for key '{key}' ({size} bytes) exceeds limit ({MAX_KV_VALUE_BYTES} bytes)"
            ))
        }
        _ => None,
    }
}

fn keys(events: &[Event], kv_keys: usize) -> Option<String> {
    let grew = events.iter().any(|event| matches!(event.kind, EventKind::KeyValueSet { .. }));
    (grew && kv_keys > MAX_KV_KEYS).then(|| format!("KV key count ({kv_keys}) exceeds limit ({MAX_KV_KEYS})"))
}

/// Removes the code's requests from the events of a turn, and closes the gaps in the ids. Events that arrived stay.
pub(super) fn without_requests(events: Vec<Event>) -> Vec<Event> {
    let Some(first) = events.first().map(|event| event.event_id) else { return events };
    let asked: Vec<u64> =
        events.iter().filter(|event| is_request(event)).map(|event| event.event_id).collect();
    let belongs_to_request =
        |event: &Event| event.source_event_id.is_some_and(|source| asked.contains(&source));
    let kept = events.into_iter().filter(|event| !is_request(event) && !belongs_to_request(event));
    kept.zip(first..).map(|(event, event_id)| Event { event_id, ..event }).collect()
}

fn is_request(event: &Event) -> bool {
    match &event.kind {
        EventKind::ActivityScheduled { .. }
        | EventKind::TimerCreated { .. }
        | EventKind::ExternalSubscribed { .. }
        | EventKind::QueueSubscribed { .. }
        | EventKind::SubOrchestrationScheduled { .. }
        | EventKind::OrchestrationChained { .. }
        | EventKind::CustomStatusUpdated { .. }
        | EventKind::KeyValueSet { .. }
        | EventKind::KeyValueCleared { .. }
        | EventKind::KeyValuesCleared => true,
        #[cfg(feature = "replay-version-test")]
        EventKind::ExternalSubscribed2 { .. } => true,
        _ => false,
    }
}
