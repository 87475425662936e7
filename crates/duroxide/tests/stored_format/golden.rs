//! Golden lines: the text decodes to the value, and the value encodes to the text.

use std::fmt::Debug;

use duroxide::EventKind::*;
use duroxide::providers::WorkItem;
use duroxide::{AppErrorKind, ConfigErrorKind, ErrorDetails, Event, EventKind, PoisonMessageType};
use serde::Serialize;
use serde::de::DeserializeOwned;

const EVENTS: &str = include_str!("../golden/events.jsonl");
const WORK_ITEMS: &str = include_str!("../golden/work_items.jsonl");
const ERROR_DETAILS: &str = include_str!("../golden/error_details.jsonl");
const ERROR_MESSAGES: &str = include_str!("../golden/error_details_messages.txt");
const NEWER_EVENTS: &str = include_str!("../golden/events_replay_version_test.jsonl");
const NEWER_WORK_ITEMS: &str = include_str!("../golden/work_items_replay_version_test.jsonl");

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(golden: &str, values: &[T]) {
    assert_eq!(golden.lines().count(), values.len(), "one value a golden line");
    for (line, value) in golden.lines().zip(values) {
        let decoded: T = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(&decoded, value, "decoding {line}");
        assert_eq!(serde_json::to_string(&decoded).unwrap(), line, "decoding and encoding again");
        assert_eq!(serde_json::to_string(value).unwrap(), line, "encoding {value:?}");
    }
}

fn event(event_id: u64, source_event_id: impl Into<Option<u64>>, kind: EventKind) -> Event {
    Event {
        event_id,
        source_event_id: source_event_id.into(),
        instance_id: s("order-1"),
        execution_id: 1,
        timestamp_ms: 1_760_000_000_000,
        duroxide_version: s("0.1.32"),
        kind,
    }
}

fn s(text: &str) -> String {
    text.to_string()
}

fn application(kind: AppErrorKind, message: &str) -> ErrorDetails {
    ErrorDetails::Application { kind, message: s(message), retryable: false }
}

fn card_declined() -> ErrorDetails {
    application(AppErrorKind::ActivityFailed, "card declined")
}

fn boom() -> ErrorDetails {
    application(AppErrorKind::OrchestrationFailed, "boom")
}

#[test]
fn every_event_has_its_golden_line() {
    let root_started = OrchestrationStarted {
        name: s("ProcessOrder"),
        version: s("1.0.0"),
        input: s(r#"{"id":7}"#),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let child_started = OrchestrationStarted {
        name: s("Child"),
        version: s("2.1.0"),
        input: s("x"),
        parent_instance: Some(s("root")),
        parent_id: Some(4),
        parent_execution_id: Some(2),
        carry_forward_events: Some(vec![(s("inbox"), s("m1"))]),
        initial_custom_status: Some(s("step 3")),
    };
    let (name, input) = (s("Charge"), s("10"));
    let plain = ActivityScheduled { name: name.clone(), input: input.clone(), session_id: None, tag: None };
    let routed = ActivityScheduled { name, input, session_id: Some(s("s-1")), tag: Some(s("gpu")) };
    let due = 1_760_000_005_000;

    check(
        EVENTS,
        &[
            event(1, None, root_started),
            event(1, None, child_started),
            event(9, None, OrchestrationCompleted { output: s("ok") }),
            event(9, None, OrchestrationFailed { details: boom() }),
            event(2, None, plain),
            event(2, None, routed),
            event(3, 2, ActivityCompleted { result: s("done") }),
            event(3, 2, ActivityFailed { details: card_declined() }),
            event(4, 2, ActivityCancelRequested { reason: s("dropped_future") }),
            event(2, None, TimerCreated { fire_at_ms: due }),
            event(3, 2, TimerFired { fire_at_ms: due }),
            event(2, None, ExternalSubscribed { name: s("Approval") }),
            event(3, None, ExternalEvent { name: s("Approval"), data: s("yes") }),
            event(2, None, OrchestrationChained { name: s("Audit"), instance: s("audit-1"), input: s("x") }),
            event(
                2,
                None,
                SubOrchestrationScheduled { name: s("Child"), instance: s("sub::2"), input: s("x") },
            ),
            event(3, 2, SubOrchestrationCompleted { result: s("r") }),
            event(3, 2, SubOrchestrationFailed { details: boom() }),
            event(4, 2, SubOrchestrationCancelRequested { reason: s("dropped_future") }),
            event(5, None, OrchestrationContinuedAsNew { input: s("n+1") }),
            event(5, None, OrchestrationCancelRequested { reason: s("user") }),
            event(4, 2, ExternalSubscribedCancelled { reason: s("dropped_future") }),
            event(2, None, QueueSubscribed { name: s("inbox") }),
            event(3, None, QueueEventDelivered { name: s("inbox"), data: s("m1") }),
            event(4, 2, QueueSubscriptionCancelled { reason: s("orchestration_terminal") }),
            event(2, None, CustomStatusUpdated { status: Some(s("50%")) }),
            event(3, None, CustomStatusUpdated { status: None }),
            event(2, None, KeyValueSet { key: s("k"), value: s("v"), last_updated_at_ms: 1_760_000_000_000 }),
            event(3, None, KeyValueCleared { key: s("k") }),
            event(4, None, KeyValuesCleared),
        ],
    );
}

#[test]
fn every_work_item_has_its_golden_line() {
    let instance = || s("order-1");
    let details = card_declined();
    check(
        WORK_ITEMS,
        &[
            WorkItem::StartOrchestration {
                instance: instance(),
                orchestration: s("ProcessOrder"),
                input: s("x"),
                version: None,
                parent_instance: None,
                parent_id: None,
                parent_execution_id: None,
                execution_id: 1,
            },
            WorkItem::StartOrchestration {
                instance: s("root::sub::4"),
                orchestration: s("Child"),
                input: s("x"),
                version: Some(s("1.0.0")),
                parent_instance: Some(s("root")),
                parent_id: Some(4),
                parent_execution_id: Some(2),
                execution_id: 1,
            },
            activity_execute(None, None),
            activity_execute(Some("s-1"), Some("gpu")),
            WorkItem::ActivityCompleted { instance: instance(), execution_id: 1, id: 2, result: s("done") },
            WorkItem::ActivityFailed { instance: instance(), execution_id: 1, id: 2, details },
            WorkItem::TimerFired {
                instance: instance(),
                execution_id: 1,
                id: 2,
                fire_at_ms: 1_760_000_005_000,
            },
            WorkItem::ExternalRaised { instance: instance(), name: s("Approval"), data: s("yes") },
            WorkItem::SubOrchCompleted {
                parent_instance: s("root"),
                parent_execution_id: 1,
                parent_id: 4,
                result: s("r"),
            },
            WorkItem::SubOrchFailed {
                parent_instance: s("root"),
                parent_execution_id: 1,
                parent_id: 4,
                details: boom(),
            },
            WorkItem::CancelInstance { instance: instance(), reason: s("user") },
            WorkItem::ContinueAsNew {
                instance: instance(),
                orchestration: s("Loop"),
                input: s("2"),
                version: None,
                parent_instance: None,
                parent_id: None,
                parent_execution_id: None,
                carry_forward_events: vec![],
                initial_custom_status: None,
            },
            WorkItem::ContinueAsNew {
                instance: instance(),
                orchestration: s("Loop"),
                input: s("2"),
                version: Some(s("1.1.0")),
                parent_instance: Some(s("root")),
                parent_id: Some(4),
                parent_execution_id: Some(1),
                carry_forward_events: vec![(s("inbox"), s("m1"))],
                initial_custom_status: Some(s("s")),
            },
            WorkItem::QueueMessage { instance: instance(), name: s("inbox"), data: s("m1") },
        ],
    );
}

fn activity_execute(session_id: Option<&str>, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: s("order-1"),
        execution_id: 1,
        id: 2,
        name: s("Charge"),
        input: s("10"),
        session_id: session_id.map(s),
        tag: tag.map(s),
    }
}

fn all_error_details() -> Vec<ErrorDetails> {
    let (instance, execution_id) = (s("order-1"), 1);
    let nondeterminism = |resource: &str, message: Option<&str>| ErrorDetails::Configuration {
        kind: ConfigErrorKind::Nondeterminism,
        resource: s(resource),
        message: message.map(s),
    };
    let poison = |message_type, message: &str| ErrorDetails::Poison {
        attempt_count: 11,
        max_attempts: 10,
        message_type,
        message: s(message),
    };
    let turn = PoisonMessageType::Orchestration { instance: instance.clone(), execution_id };
    let activity = PoisonMessageType::Activity {
        instance: instance.clone(),
        execution_id,
        activity_name: s("Charge"),
        activity_id: 2,
    };
    let history = PoisonMessageType::FailedDeserialization { instance, execution_id, error: s("E") };
    vec![
        ErrorDetails::Infrastructure {
            operation: s("ack_orchestration_item"),
            message: s("db down"),
            retryable: true,
        },
        nondeterminism("", Some("schedule mismatch")),
        nondeterminism("orch", None),
        card_declined(),
        boom(),
        application(AppErrorKind::Panicked, "oops"),
        application(AppErrorKind::Cancelled { reason: s("user") }, ""),
        poison(turn, "[]"),
        poison(activity, "{}"),
        poison(history, "E"),
    ]
}

#[test]
fn every_error_has_its_golden_line() {
    check(ERROR_DETAILS, &all_error_details());
}

#[test]
fn every_error_has_its_message() {
    let messages: Vec<String> = all_error_details().iter().map(ErrorDetails::display_message).collect();
    assert_eq!(messages, ERROR_MESSAGES.lines().collect::<Vec<_>>());
}

#[test]
fn errors_know_their_category_and_whether_to_try_again() {
    let facts: Vec<_> = all_error_details().iter().map(|e| (e.category(), e.is_retryable())).collect();
    let mut expected = vec![("infrastructure", true)];
    expected.extend([("configuration", false); 2]);
    expected.extend([("application", false); 4]);
    expected.extend([("poison", false); 3]);
    assert_eq!(facts, expected);
}

#[test]
fn queue_events_keep_their_historic_names() {
    let names: Vec<String> = [
        QueueSubscribed { name: s("q") },
        QueueEventDelivered { name: s("q"), data: s("d") },
        QueueSubscriptionCancelled { reason: s("r") },
    ]
    .iter()
    .map(|kind| serde_json::to_value(kind).unwrap()["type"].as_str().unwrap().to_string())
    .collect();
    let historic =
        ["ExternalSubscribedPersistent", "ExternalEventPersistent", "ExternalSubscribedPersistentCancelled"];
    assert_eq!(names, historic);
}

#[cfg(feature = "replay-version-test")]
#[test]
fn the_newer_variants_have_their_golden_lines() {
    let (name, topic, data) = (s("n"), s("t"), s("d"));
    let raised = WorkItem::ExternalRaised2 {
        instance: s("order-1"),
        name: name.clone(),
        topic: topic.clone(),
        data: data.clone(),
    };
    let subscribed = ExternalSubscribed2 { name: name.clone(), topic: topic.clone() };
    let arrived = ExternalEvent2 { name, topic, data };
    check(NEWER_EVENTS, &[event(2, None, subscribed), event(3, None, arrived)]);
    check(NEWER_WORK_ITEMS, &[raised]);
}

#[cfg(not(feature = "replay-version-test"))]
#[test]
fn the_newer_variants_are_refused_by_name() {
    for (line, variant) in NEWER_EVENTS.lines().zip(["ExternalSubscribed2", "ExternalEvent2"]) {
        let error = serde_json::from_str::<Event>(line).unwrap_err().to_string();
        assert!(error.contains(&format!("unknown variant `{variant}`")), "{error}");
    }
    for line in NEWER_WORK_ITEMS.lines() {
        let error = serde_json::from_str::<WorkItem>(line).unwrap_err().to_string();
        assert!(error.contains("unknown variant `ExternalRaised2`"), "{error}");
    }
}
