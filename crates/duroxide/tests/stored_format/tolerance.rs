//! The differences that a reader tolerates: later fields may be missing, it ignores unknown fields, and anything else
//! is an error.

use duroxide::providers::WorkItem;
use duroxide::{ErrorDetails, Event, EventKind};
use serde_json::{Value, json};

fn event(kind: Value) -> Value {
    let mut event = json!({
        "event_id": 2, "source_event_id": null, "instance_id": "order-1", "execution_id": 1,
        "timestamp_ms": 1_760_000_000_000_u64, "duroxide_version": "0.1.32",
    });
    let (Value::Object(fields), Value::Object(kind)) = (&mut event, kind) else { panic!("two objects") };
    fields.extend(kind);
    event
}

fn decode_kind(kind: Value) -> EventKind {
    serde_json::from_value::<Event>(event(kind)).unwrap().kind
}

fn event_error(text: &Value) -> String {
    serde_json::from_str::<Event>(&text.to_string()).unwrap_err().to_string()
}

fn item_error(text: &Value) -> String {
    serde_json::from_str::<WorkItem>(&text.to_string()).unwrap_err().to_string()
}

#[test]
fn unknown_fields_of_an_event_are_ignored() {
    let plain = event(json!({"type": "ActivityCompleted", "result": "r"}));
    let mut extended = plain.clone();
    extended["trace_parent"] = json!({"id": [1, 2, null]});
    assert_eq!(
        serde_json::from_value::<Event>(extended).unwrap(),
        serde_json::from_value::<Event>(plain).unwrap()
    );
}

#[test]
fn unknown_fields_of_work_items_and_errors_are_ignored() {
    let item: WorkItem = serde_json::from_value(json!({
        "ActivityFailed": {
            "instance": "i", "execution_id": 1, "id": 2, "priority": 9,
            "details": {"Application": {"kind": "Panicked", "message": "m", "retryable": false, "stack": []}},
        }
    }))
    .unwrap();
    let WorkItem::ActivityFailed { details, .. } = item else { panic!("{item:?}") };
    assert_eq!(details.display_message(), "orchestration panicked: m");
}

#[test]
fn the_type_may_stand_anywhere() {
    let text = r#"{"type":"KeyValueCleared","key":"k","event_id":1,"instance_id":"i","execution_id":1,
        "timestamp_ms":5,"duroxide_version":"0.1.32"}"#;
    let event: Event = serde_json::from_str(text).unwrap();
    assert_eq!(event.kind, EventKind::KeyValueCleared { key: "k".to_string() });
}

#[test]
fn an_event_may_lack_its_source() {
    let mut text = event(json!({"type": "KeyValuesCleared"}));
    text.as_object_mut().unwrap().remove("source_event_id");
    assert_eq!(serde_json::from_value::<Event>(text).unwrap().source_event_id, None);
}

#[test]
fn a_start_event_may_lack_everything_about_its_parent() {
    let kind =
        decode_kind(json!({"type": "OrchestrationStarted", "name": "N", "version": "1.0.0", "input": "x"}));
    let EventKind::OrchestrationStarted {
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
        ..
    } = kind
    else {
        panic!("{kind:?}")
    };
}

#[test]
fn an_activity_event_may_lack_session_and_tag() {
    let kind = decode_kind(json!({"type": "ActivityScheduled", "name": "N", "input": "x"}));
    assert!(
        matches!(kind, EventKind::ActivityScheduled { session_id: None, tag: None, .. }),
        "fields that came later"
    );
}

#[test]
fn a_status_event_without_status_clears_it() {
    let kind = decode_kind(json!({"type": "CustomStatusUpdated"}));
    assert_eq!(kind, EventKind::CustomStatusUpdated { status: None });
}

#[test]
fn a_value_without_a_time_was_set_at_zero() {
    let kind = decode_kind(json!({"type": "KeyValueSet", "key": "k", "value": "v"}));
    let (key, value) = ("k".to_string(), "v".to_string());
    assert_eq!(kind, EventKind::KeyValueSet { key, value, last_updated_at_ms: 0 });
}

#[test]
fn a_configuration_error_may_lack_its_message() {
    let text = json!({"Configuration": {"kind": "Nondeterminism", "resource": "orch"}});
    let details: ErrorDetails = serde_json::from_value(text).unwrap();
    assert_eq!(details.display_message(), "nondeterministic in orch");
}

#[test]
fn older_work_items_may_lack_what_came_later() {
    let start: WorkItem = serde_json::from_value(json!({
        "StartOrchestration": {"instance": "i", "orchestration": "O", "input": "x", "execution_id": 1}
    }))
    .unwrap();
    let WorkItem::StartOrchestration {
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        ..
    } = start
    else {
        panic!("{start:?}")
    };

    let activity: WorkItem = serde_json::from_value(json!({
        "ActivityExecute": {"instance": "i", "execution_id": 1, "id": 2, "name": "N", "input": "x"}
    }))
    .unwrap();
    assert!(matches!(activity, WorkItem::ActivityExecute { session_id: None, tag: None, .. }));

    let next: WorkItem = serde_json::from_value(json!({
        "ContinueAsNew": {"instance": "i", "orchestration": "O", "input": "x"}
    }))
    .unwrap();
    let WorkItem::ContinueAsNew {
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events,
        initial_custom_status: None,
        ..
    } = next
    else {
        panic!("{next:?}")
    };
    assert!(carry_forward_events.is_empty());
}

#[test]
fn an_event_without_a_version_is_refused_by_name() {
    let mut text = event(json!({"type": "KeyValuesCleared"}));
    text.as_object_mut().unwrap().remove("duroxide_version");
    assert!(event_error(&text).contains("missing field `duroxide_version`"), "{}", event_error(&text));
}

#[test]
fn an_event_of_an_unknown_type_is_refused_by_name() {
    let error = event_error(&event(json!({"type": "TimeTravelled", "to": 1})));
    assert!(error.contains("unknown variant `TimeTravelled`"), "{error}");
    assert!(
        error.contains(
            "expected one of `OrchestrationStarted`, `OrchestrationCompleted`, `OrchestrationFailed`"
        ),
        "the message lists the types in the order of their declaration: {error}"
    );
}

#[test]
fn an_event_without_a_type_is_refused() {
    assert!(event_error(&event(json!({"result": "r"}))).contains("missing field `type`"));
}

#[test]
fn a_queue_event_is_not_known_by_its_rust_name() {
    let error = event_error(&event(json!({"type": "QueueSubscribed", "name": "q"})));
    assert!(error.contains("unknown variant `QueueSubscribed`"), "{error}");
}

#[test]
fn unknown_work_items_and_errors_are_refused_by_name() {
    let error = item_error(&json!({"TimeTravel": {"instance": "i"}}));
    assert!(error.contains("unknown variant `TimeTravel`"), "{error}");

    let details = json!({"Mystery": {"message": "m"}});
    let failed = json!({"ActivityFailed": {"instance": "i", "execution_id": 1, "id": 2, "details": details}});
    assert!(item_error(&failed).contains("unknown variant `Mystery`"));
}

#[test]
fn a_start_without_its_execution_is_refused_by_name() {
    let start = json!({
        "StartOrchestration": {
            "instance": "i", "orchestration": "O", "input": "x",
            "version": null, "parent_instance": null, "parent_id": null,
        }
    });
    assert!(item_error(&start).contains("missing field `execution_id`"));
}

#[test]
fn numbers_out_of_range_are_refused() {
    for id in [json!(-1), json!(1.5), json!("1"), json!(1e30)] {
        let mut text = event(json!({"type": "KeyValuesCleared"}));
        text["event_id"] = id;
        assert!(serde_json::from_str::<Event>(&text.to_string()).is_err(), "{text}");
    }
}
