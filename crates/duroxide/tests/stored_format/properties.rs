//! No text breaks the codec: a value comes back unchanged whatever strings it holds, and decoding any text gives a
//! value or an error.

use duroxide::providers::WorkItem;
use duroxide::{AppErrorKind, ConfigErrorKind, ErrorDetails, Event, EventKind, PoisonMessageType};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Strings that JSON, SQL and terminals stumble over, alone and amid arbitrary ones.
fn text() -> impl Strategy<Value = String> {
    let nasty = prop_oneof![
        Just("\0".to_string()),
        Just("\"\\'`".to_string()),
        Just("\u{1f980}\u{10ffff}".to_string()),
        Just("\r\n\t\u{b}\u{7f}\u{2028}\u{feff}".to_string()),
        Just("{\"type\":\"KeyValuesCleared\"}".to_string()),
        any::<String>(),
        vec(any::<char>(), 0..8).prop_map(String::from_iter),
    ];
    vec(nasty, 0..4).prop_map(|parts| parts.concat())
}

fn maybe_text() -> impl Strategy<Value = Option<String>> {
    option::of(text())
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((text(), text()), 0..4)
}

fn details() -> impl Strategy<Value = ErrorDetails> {
    let app_kind = prop_oneof![
        Just(AppErrorKind::ActivityFailed),
        Just(AppErrorKind::OrchestrationFailed),
        Just(AppErrorKind::Panicked),
        text().prop_map(|reason| AppErrorKind::Cancelled { reason }),
    ];
    let poison_type = (0..3, text(), any::<u64>(), text(), any::<u64>()).prop_map(
        |(which, instance, execution_id, name, activity_id)| match which {
            0 => PoisonMessageType::Orchestration { instance, execution_id },
            1 => PoisonMessageType::Activity { instance, execution_id, activity_name: name, activity_id },
            _ => PoisonMessageType::FailedDeserialization { instance, execution_id, error: name },
        },
    );
    prop_oneof![
        (text(), text(), any::<bool>()).prop_map(|(operation, message, retryable)| {
            ErrorDetails::Infrastructure { operation, message, retryable }
        }),
        (text(), maybe_text()).prop_map(|(resource, message)| ErrorDetails::Configuration {
            kind: ConfigErrorKind::Nondeterminism,
            resource,
            message,
        }),
        (app_kind, text(), any::<bool>()).prop_map(|(kind, message, retryable)| ErrorDetails::Application {
            kind,
            message,
            retryable
        }),
        (any::<u32>(), any::<u32>(), poison_type, text()).prop_map(
            |(attempt_count, max_attempts, message_type, message)| ErrorDetails::Poison {
                attempt_count,
                max_attempts,
                message_type,
                message,
            }
        ),
    ]
}

fn started() -> impl Strategy<Value = EventKind> {
    let parent = (maybe_text(), any::<Option<u64>>(), any::<Option<u64>>());
    (text(), text(), text(), parent, option::of(pairs()), maybe_text()).prop_map(
        |(name, version, input, parent, carry_forward_events, initial_custom_status)| {
            let (parent_instance, parent_id, parent_execution_id) = parent;
            EventKind::OrchestrationStarted {
                name,
                version,
                input,
                parent_instance,
                parent_id,
                parent_execution_id,
                carry_forward_events,
                initial_custom_status,
            }
        },
    )
}

fn kind() -> impl Strategy<Value = EventKind> {
    use EventKind::*;
    let of_one_text = (0..13, text()).prop_map(|(which, a)| match which {
        0 => OrchestrationCompleted { output: a },
        1 => ActivityCompleted { result: a },
        2 => ActivityCancelRequested { reason: a },
        3 => ExternalSubscribed { name: a },
        4 => SubOrchestrationCompleted { result: a },
        5 => SubOrchestrationCancelRequested { reason: a },
        6 => OrchestrationContinuedAsNew { input: a },
        7 => OrchestrationCancelRequested { reason: a },
        8 => ExternalSubscribedCancelled { reason: a },
        9 => QueueSubscribed { name: a },
        10 => QueueSubscriptionCancelled { reason: a },
        11 => KeyValueCleared { key: a },
        _ => KeyValuesCleared,
    });
    let of_details = (0..3, details()).prop_map(|(which, details)| match which {
        0 => OrchestrationFailed { details },
        1 => ActivityFailed { details },
        _ => SubOrchestrationFailed { details },
    });
    let of_more = (0..7, text(), text(), text(), any::<u64>(), maybe_text()).prop_map(
        |(which, name, data, input, number, status)| match which {
            0 => ExternalEvent { name, data },
            1 => OrchestrationChained { name, instance: data, input },
            2 => SubOrchestrationScheduled { name, instance: data, input },
            3 => QueueEventDelivered { name, data },
            4 => KeyValueSet { key: name, value: data, last_updated_at_ms: number },
            5 => TimerCreated { fire_at_ms: number },
            _ => CustomStatusUpdated { status },
        },
    );
    prop_oneof![
        started(),
        of_one_text,
        of_details,
        of_more,
        any::<u64>().prop_map(|fire_at_ms| TimerFired { fire_at_ms }),
        (text(), text(), maybe_text(), maybe_text())
            .prop_map(|(name, input, session_id, tag)| ActivityScheduled { name, input, session_id, tag }),
    ]
}

prop_compose! {
    fn event()(
        event_id: u64, source_event_id: Option<u64>, instance_id in text(), execution_id: u64, timestamp_ms: u64,
        duroxide_version in text(), kind in kind(),
    ) -> Event {
        Event { event_id, source_event_id, instance_id, execution_id, timestamp_ms, duroxide_version, kind }
    }
}

prop_compose! {
    fn start()(
        instance in text(), orchestration in text(), input in text(), version in maybe_text(),
        parent_instance in maybe_text(), parent_id: Option<u64>, parent_execution_id: Option<u64>, execution_id: u64,
    ) -> WorkItem {
        WorkItem::StartOrchestration {
            instance, orchestration, input, version, parent_instance, parent_id, parent_execution_id, execution_id,
        }
    }
}

prop_compose! {
    fn continue_as_new()(
        instance in text(), orchestration in text(), input in text(), version in maybe_text(),
        parent_instance in maybe_text(), parent_id: Option<u64>, parent_execution_id: Option<u64>,
        carry_forward_events in pairs(), initial_custom_status in maybe_text(),
    ) -> WorkItem {
        WorkItem::ContinueAsNew {
            instance, orchestration, input, version, parent_instance, parent_id, parent_execution_id,
            carry_forward_events, initial_custom_status,
        }
    }
}

prop_compose! {
    fn activity_execute()(
        instance in text(), execution_id: u64, id: u64, name in text(), input in text(), session_id in maybe_text(),
        tag in maybe_text(),
    ) -> WorkItem {
        WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
    }
}

fn work_item() -> impl Strategy<Value = WorkItem> {
    let message = (0..8, text(), text(), text(), (any::<u64>(), any::<u64>(), any::<u64>()), details())
        .prop_map(|(which, instance, name, data, (execution_id, id, fire_at_ms), details)| match which {
            0 => WorkItem::ActivityCompleted { instance, execution_id, id, result: data },
            1 => WorkItem::ActivityFailed { instance, execution_id, id, details },
            2 => WorkItem::TimerFired { instance, execution_id, id, fire_at_ms },
            3 => WorkItem::ExternalRaised { instance, name, data },
            4 => WorkItem::QueueMessage { instance, name, data },
            5 => WorkItem::CancelInstance { instance, reason: data },
            6 => WorkItem::SubOrchCompleted {
                parent_instance: instance,
                parent_execution_id: execution_id,
                parent_id: id,
                result: data,
            },
            _ => WorkItem::SubOrchFailed {
                parent_instance: instance,
                parent_execution_id: execution_id,
                parent_id: id,
                details,
            },
        });
    prop_oneof![start(), continue_as_new(), activity_execute(), message]
}

/// Text that is almost a stored line: a golden line with a piece cut out or put in.
fn damaged_line() -> impl Strategy<Value = String> {
    let lines: Vec<&'static str> = include_str!("../golden/events.jsonl")
        .lines()
        .chain(include_str!("../golden/work_items.jsonl").lines())
        .collect();
    let piece = prop_oneof![text(), Just("}".to_string()), Just("null".to_string()), Just("[".repeat(300))];
    (proptest::sample::select(lines), any::<prop::sample::Index>(), 0..20_usize, piece).prop_map(
        |(line, at, cut, piece)| {
            let at = at.index(line.len());
            let end = (at + cut).min(line.len());
            // The golden lines are ASCII, so every index is a character's.
            format!("{}{piece}{}", &line[..at], &line[end..])
        },
    )
}

proptest! {
    #[test]
    fn any_event_round_trips(event in event()) {
        let line = serde_json::to_string(&event).unwrap();
        prop_assert!(!line.contains(['\n', '\0']), "one line of text");
        prop_assert_eq!(&serde_json::from_str::<Event>(&line).unwrap(), &event);
        // Through a value too, as readers in other languages see it.
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        prop_assert_eq!(serde_json::from_value::<Event>(value).unwrap(), event);
    }

    #[test]
    fn any_work_item_round_trips(item in work_item()) {
        let line = serde_json::to_string(&item).unwrap();
        prop_assert!(!line.contains(['\n', '\0']), "one line of text");
        prop_assert_eq!(serde_json::from_str::<WorkItem>(&line).unwrap(), item);
    }

    #[test]
    fn arbitrary_text_never_panics_the_decoder(text in text()) {
        let _ = serde_json::from_str::<Event>(&text);
        let _ = serde_json::from_str::<WorkItem>(&text);
        let _ = serde_json::from_str::<ErrorDetails>(&text);
    }

    #[test]
    fn a_damaged_line_never_panics_the_decoder(line in damaged_line()) {
        // Text that still decodes must also encode.
        if let Ok(event) = serde_json::from_str::<Event>(&line) {
            serde_json::to_string(&event).unwrap();
        }
        if let Ok(item) = serde_json::from_str::<WorkItem>(&line) {
            serde_json::to_string(&item).unwrap();
        }
    }
}
