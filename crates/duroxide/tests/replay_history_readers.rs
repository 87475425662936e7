//! `HistoryManager`, `WorkItemReader` and `kind_of`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use duroxide::providers::WorkItem;
use duroxide::runtime::{HistoryManager, WorkItemReader, kind_of};
use duroxide::{Event, EventKind};
use support::*;

fn child_start(version: &str) -> EventKind {
    EventKind::OrchestrationStarted {
        name: "Child".into(),
        version: version.into(),
        input: "in".into(),
        parent_instance: Some("parent".into()),
        parent_id: Some(7),
        parent_execution_id: Some(3),
        carry_forward_events: None,
        initial_custom_status: None,
    }
}

fn continue_as_new(carried: &[(&str, &str)]) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: INSTANCE.into(),
        orchestration: "Next".into(),
        input: "n".into(),
        version: Some("2.0.0".into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: carried.iter().map(|(n, d)| (n.to_string(), d.to_string())).collect(),
        initial_custom_status: None,
    }
}

fn start(name: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: INSTANCE.into(),
        orchestration: name.into(),
        input: "i".into(),
        version: None,
        parent_instance: Some("p".into()),
        parent_id: Some(4),
        parent_execution_id: Some(1),
        execution_id: 1,
    }
}

#[test]
fn the_last_start_and_the_first_end_after_it_count() {
    let done = EventKind::OrchestrationCompleted { output: "x".into() };
    let failed = EventKind::OrchestrationFailed { details: app_error("x") };
    let history = History::started_with("first").push(None, failed.clone());
    let history = history.push(None, child_start("1.2.3")).push(None, done).push(None, failed);
    let manager = HistoryManager::from_history(&history.events);
    assert_eq!(manager.orchestration_name.as_deref(), Some("Child"));
    assert_eq!(manager.orchestration_version.as_deref(), Some("1.2.3"));
    assert_eq!(manager.input(), Some("in"));
    assert_eq!(
        (manager.parent_instance.as_deref(), manager.parent_id, manager.parent_execution_id),
        (Some("parent"), Some(7), Some(3))
    );
    assert_eq!((manager.is_completed, manager.is_failed, manager.is_continued_as_new), (true, false, false));
    assert_eq!((manager.status(), manager.is_terminal()), ("Completed", true));
    assert_eq!(manager.current_execution_id, Some(2));
    assert_eq!(manager.extract_context(), ("in".into(), Some(("parent".into(), Some(3), 7))));
}

#[test]
fn every_end_has_its_status() {
    let ends = [
        (EventKind::OrchestrationCompleted { output: String::new() }, "Completed"),
        (EventKind::OrchestrationFailed { details: app_error("") }, "Failed"),
        (EventKind::OrchestrationContinuedAsNew { input: String::new() }, "ContinuedAsNew"),
    ];
    for (end, status) in ends {
        assert_eq!(HistoryManager::from_history(&History::started().push(None, end).events).status(), status);
    }
    assert_eq!(HistoryManager::from_history(&History::started().events).status(), "Running");
}

#[test]
fn new_events_are_counted_but_do_not_change_what_is_known_of_the_stored_ones() {
    let mut manager = HistoryManager::from_history(&[]);
    assert!(manager.is_empty() && manager.is_full_history_empty());
    assert_eq!(manager.next_event_id(), 1);
    manager.append(Event::with_event_id(1, INSTANCE, 1, None, child_start("1.0.0")));
    assert_eq!(manager.orchestration_name, None);
    assert_eq!(manager.version().as_deref(), Some("1.0.0"));
    assert_eq!(manager.extract_context().1, Some(("parent".into(), Some(3), 7)));
    manager.append_failed(INSTANCE, 1, app_error("x"));
    assert_eq!((manager.original_len(), manager.full_history_len(), manager.delta().len()), (0, 2, 2));
    assert_eq!(manager.next_event_id(), 3);
    manager.extend(vec![Event::with_event_id(9, INSTANCE, 1, None, EventKind::KeyValuesCleared)]);
    assert_eq!(manager.next_event_id(), 10);
    assert_eq!(manager.full_history().len(), manager.full_history_iter().count());
    assert_eq!(manager.into_delta().len(), 3);
}

#[test]
fn the_placeholder_version_is_no_version() {
    let history = History { events: vec![], execution_id: 1 }.push(None, child_start("0.0.0"));
    assert_eq!(HistoryManager::from_history(&history.events).version(), None);
}

#[test]
fn activities_in_flight_are_those_without_result_or_cancellation() {
    let history = History::started()
        .activity("A", "")
        .activity("B", "")
        .activity("C", "")
        .activity("D", "")
        .activity_done(2, "")
        .activity_failed(3, "")
        .activity_cancelled(4);
    let in_flight = HistoryManager::from_history(&history.events).compute_inflight_activities("x", 6);
    assert_eq!(in_flight.len(), 1);
    assert_eq!(
        (in_flight[0].instance.as_str(), in_flight[0].execution_id, in_flight[0].activity_id),
        ("x", 6, 5)
    );
}

#[test]
fn a_batch_with_a_start_is_read_from_the_start() {
    let empty = HistoryManager::from_history(&[]);
    let batch = [msg::signal("s", "1"), start("First"), start("Second"), msg::cancel("c")];
    let reader = WorkItemReader::from_messages(&batch, &empty, INSTANCE);
    assert!(reader.has_start_item() && reader.has_orchestration_name());
    assert_eq!((reader.orchestration_name.as_str(), reader.input.as_str()), ("First", "i"));
    assert_eq!((reader.version, reader.is_continue_as_new), (None, false));
    assert_eq!((reader.parent_id, reader.parent_execution_id), (Some(4), Some(1)));
    assert_eq!(reader.completion_messages, [msg::signal("s", "1"), msg::cancel("c")]);
}

#[test]
fn a_start_for_an_instance_with_history_is_ignored() {
    let manager = HistoryManager::from_history(&History::started_with("old").events);
    let reader = WorkItemReader::from_messages(&[start("Other")], &manager, INSTANCE);
    assert!(!reader.has_start_item());
    assert_eq!((reader.orchestration_name.as_str(), reader.input.as_str()), ("Orch", "old"));
    assert_eq!(reader.version.as_deref(), Some("1.0.0"));
}

#[test]
fn a_continue_as_new_wins_over_a_duplicate_start_in_either_order() {
    let history = History { events: vec![], execution_id: 1 }.push(None, child_start("1.0.0"));
    let manager = HistoryManager::from_history(&history.events);
    for batch in [[start("Dup"), continue_as_new(&[])], [continue_as_new(&[]), start("Dup")]] {
        let reader = WorkItemReader::from_messages(&batch, &manager, INSTANCE);
        assert!(reader.is_continue_as_new);
        assert_eq!((reader.orchestration_name.as_str(), reader.version.as_deref()), ("Next", Some("2.0.0")));
        assert_eq!(reader.parent_instance, None, "the parent link never comes from the old history");
    }
}

#[test]
fn carried_messages_come_before_the_others() {
    let manager = HistoryManager::from_history(&History::started().events);
    let batch = [msg::queue("q", "new"), continue_as_new(&[("q", "a"), ("r", "b")])];
    let reader = WorkItemReader::from_messages(&batch, &manager, INSTANCE);
    assert_eq!(
        reader.completion_messages,
        [msg::queue("q", "a"), msg::queue("r", "b"), msg::queue("q", "new")]
    );
}

#[test]
fn nothing_is_known_without_a_start_and_a_history() {
    let reader =
        WorkItemReader::from_messages(&[msg::cancel("x")], &HistoryManager::from_history(&[]), INSTANCE);
    assert!(!reader.has_start_item() && !reader.has_orchestration_name());
}

#[test]
fn a_message_is_named_by_its_kind_and_a_queue_message_by_its_historic_name() {
    assert_eq!(kind_of(&start("x")), "StartOrchestration");
    assert_eq!(kind_of(&continue_as_new(&[])), "ContinueAsNew");
    assert_eq!(kind_of(&msg::activity(1, "")), "ActivityCompleted");
    assert_eq!(kind_of(&msg::activity_failed(1, app_error(""))), "ActivityFailed");
    assert_eq!(kind_of(&msg::timer(1)), "TimerFired");
    assert_eq!(kind_of(&msg::signal("", "")), "ExternalRaised");
    assert_eq!(kind_of(&msg::child(1, "")), "SubOrchCompleted");
    assert_eq!(kind_of(&msg::child_failed(1, app_error(""))), "SubOrchFailed");
    assert_eq!(kind_of(&msg::cancel("")), "CancelInstance");
    assert_eq!(kind_of(&msg::queue("", "")), "ExternalRaisedPersistent");
}
