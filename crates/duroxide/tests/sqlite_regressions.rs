//! Defects of earlier SQLite stores that the validation kit cannot see, because they show in the file or in SQLite's
//! own limits. Each test is named for what must hold instead.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::time::Duration;

use duroxide::providers::{
    Clock, DispatcherCapabilityFilter, ExecutionMetadata, InstanceFilter, Provider, ProviderAdmin,
    PruneOptions, ScheduledActivityIdentifier, SemverRange, WorkItem,
};
use semver::Version;
use support::{
    LEASE, StoreFile, ack, activity, completion, create, fetch, fetch_work, metadata, signal, start,
    started_event,
};

#[tokio::test]
async fn a_message_for_nobody_at_the_head_of_the_queue_blocks_no_instance() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(signal("nobody", "lost"), None).await.unwrap();
    store.enqueue_for_orchestrator(completion("nobody-else", 1), None).await.unwrap();
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    assert_eq!(fetch(&store).await.unwrap().0.instance, "a");
    assert_eq!(
        file.number("SELECT count(*) FROM orchestrator_queue WHERE instance_id = 'nobody'"),
        1,
        "kept"
    );
    assert_eq!(file.number("SELECT parked FROM instance_schedule WHERE instance_id = 'nobody'"), 1);
}

#[tokio::test]
async fn times_are_stored_and_a_running_execution_has_not_ended() {
    let file = StoreFile::new();
    let store = file.open().await;
    let made = file.clock.now_ms();
    create(&store, "a").await;
    file.clock.advance(Duration::from_secs(5));
    store.enqueue_for_orchestrator(signal("a", "1"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    let running = ExecutionMetadata { status: Some("Running".into()), ..metadata() };
    store.ack_orchestration_item(&token, 1, vec![], vec![], vec![], running, vec![]).await.unwrap();
    let info = store.get_instance_info("a").await.unwrap();
    assert_eq!((info.created_at, info.updated_at), (made, made + 5_000));
    let execution = store.get_execution_info("a", 1).await.unwrap();
    assert_eq!((execution.started_at, execution.completed_at), (made, None));
}

#[tokio::test]
async fn an_abandoned_turn_leaves_no_marks_and_counts_in_the_depths_again() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    assert_eq!(store.get_queue_depths().await.unwrap().orchestrator_queue, 0);
    store.abandon_orchestration_item(&token, None, false).await.unwrap();
    assert_eq!(store.get_queue_depths().await.unwrap().orchestrator_queue, 1);
    assert_eq!(file.number("SELECT count(*) FROM instance_locks"), 0);
    let marks =
        "SELECT count(*) FROM orchestrator_queue WHERE lock_token IS NOT NULL OR locked_until IS NOT NULL";
    assert_eq!(file.number(marks), 0);
}

#[tokio::test]
async fn a_child_is_stored_whether_or_not_its_parent_is_known() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("child"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    let orphan = ExecutionMetadata { parent_instance_id: Some("never-seen".into()), ..metadata() };
    store
        .ack_orchestration_item(&token, 1, vec![started_event("child", 1)], vec![], vec![], orphan, vec![])
        .await
        .unwrap();
    assert_eq!(store.get_parent_id("child").await.unwrap().as_deref(), Some("never-seen"));
}

#[tokio::test]
async fn unknown_ids_are_not_counted_as_deleted() {
    let file = StoreFile::new();
    let store = file.open().await;
    create(&store, "a").await;
    let ids = ["a".to_string(), "unknown".to_string(), "a".to_string()];
    let deleted = store.delete_instances_atomic(&ids, true).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted), (1, 1, 1));
    let metrics = store.get_system_metrics().await.unwrap();
    assert_eq!((metrics.total_instances, metrics.running_instances, metrics.total_events), (0, 0, 0));
}

#[tokio::test]
async fn version_numbers_have_no_limit_and_every_range_counts() {
    let file = StoreFile::new();
    let store = file.open().await;
    let pins = ["0.1.1000", "0.1000.0", "1000.0.1", "1.0.0"].map(|pin| pin.parse::<Version>().unwrap());
    for pin in &pins {
        let instance = format!("pinned-{pin}");
        store.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        let (_, token, _) = fetch(&store).await.unwrap();
        let pinned = ExecutionMetadata { pinned_duroxide_version: Some(pin.clone()), ..metadata() };
        store
            .ack_orchestration_item(
                &token,
                1,
                vec![started_event(&instance, 1)],
                vec![],
                vec![],
                pinned,
                vec![],
            )
            .await
            .unwrap();
    }
    for pin in &pins {
        store.enqueue_for_orchestrator(signal(&format!("pinned-{pin}"), "1"), None).await.unwrap();
    }
    let exactly = |pin: &Version| SemverRange::new(pin.clone(), pin.clone());
    for pin in pins.iter().rev() {
        // The range that counts is the last one.
        let filter = DispatcherCapabilityFilter {
            supported_duroxide_versions: vec![exactly(&Version::new(7, 7, 7)), exactly(pin)],
        };
        let found = store.fetch_orchestration_item(LEASE, Duration::ZERO, Some(&filter)).await.unwrap();
        assert_eq!(found.unwrap().0.instance, format!("pinned-{pin}"));
        assert!(
            store.fetch_orchestration_item(LEASE, Duration::ZERO, Some(&filter)).await.unwrap().is_none()
        );
    }
}

#[tokio::test]
async fn statistics_count_bytes_not_characters() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    let mut event = started_event("a", 1);
    if let duroxide::EventKind::OrchestrationStarted { input, .. } = &mut event.kind {
        *input = "日本\u{0}\u{1F980}".into();
    }
    let bytes = serde_json::to_string(&event).unwrap().len();
    ack(&store, &token, vec![event.clone()], vec![]).await.unwrap();
    let stats = store.get_instance_stats("a").await.unwrap().unwrap();
    assert_eq!(stats.history_size_bytes, bytes as u64);
    assert_eq!(store.read("a").await.unwrap(), [event]);
}

#[tokio::test]
async fn ten_thousand_activities_are_cancelled_in_one_turn() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    let activities: Vec<WorkItem> = (2..10_002).map(|id| activity("a", id)).collect();
    ack(&store, &token, vec![started_event("a", 1)], activities).await.unwrap();
    store.enqueue_for_orchestrator(signal("a", "stop"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    let cancelled = (2..10_002)
        .map(|activity_id| ScheduledActivityIdentifier { instance: "a".into(), execution_id: 1, activity_id })
        .collect();
    store
        .ack_orchestration_item(&token, 1, vec![], vec![], vec![], ExecutionMetadata::default(), cancelled)
        .await
        .unwrap();
    assert!(fetch_work(&store).await.is_none());
}

#[tokio::test]
async fn an_instance_between_two_executions_is_not_at_rest() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    let next = WorkItem::ContinueAsNew {
        instance: "a".into(),
        orchestration: "Order".into(),
        input: "2".into(),
        version: Some("1.0.0".into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![],
        initial_custom_status: None,
    };
    let continued = ExecutionMetadata { status: Some("ContinuedAsNew".into()), ..metadata() };
    store
        .ack_orchestration_item(&token, 1, vec![started_event("a", 1)], vec![], vec![next], continued, vec![])
        .await
        .unwrap();
    let refused = store.delete_instances_atomic(&["a".to_string()], false).await.unwrap_err();
    assert!(refused.message.contains("still running"), "{refused}");
    let swept = store.delete_instance_bulk(InstanceFilter::default()).await.unwrap();
    assert_eq!(swept.instances_deleted, 0);
    store.prune_executions_bulk(InstanceFilter::default(), PruneOptions::default()).await.unwrap();
    assert_eq!(fetch(&store).await.unwrap().0.instance, "a");
}

#[tokio::test]
async fn ids_and_payloads_of_any_characters_are_kept_apart_and_come_back_as_they_were() {
    let file = StoreFile::new();
    let store = file.open().await;
    let names =
        ["a", "a'; DROP TABLE history; --", "\"quoted\"", "日本 🦀", "a_b%c", "lock_x_y", "A", " a ", "a\n"];
    for name in names {
        create(&store, name).await;
        store.enqueue_for_orchestrator(signal(name, &format!("{name}\0\u{1}'\"\\")), None).await.unwrap();
        let (item, token, _) = fetch(&store).await.unwrap();
        assert_eq!(item.instance, name);
        assert_eq!(item.messages, [signal(name, &format!("{name}\0\u{1}'\"\\"))]);
        assert_eq!(item.history, [started_event_as_read(&item.history, name)]);
        let mut work = activity(name, 2);
        if let WorkItem::ActivityExecute { tag, session_id, .. } = &mut work {
            (*tag, *session_id) = (Some(name.to_string()), None);
        }
        ack(&store, &token, vec![], vec![work.clone()]).await.unwrap();
        let only = duroxide::providers::TagFilter::tags([name]);
        let (found, token, _) =
            store.fetch_work_item(LEASE, Duration::ZERO, None, &only).await.unwrap().unwrap();
        assert_eq!(found, work);
        store.ack_work_item(&token, None).await.unwrap();
    }
    assert_eq!(store.list_instances().await.unwrap().len(), names.len());
    file.assert_sound();
}

/// The event that `create` stored, with the time that the event itself carries.
fn started_event_as_read(history: &[duroxide::Event], instance: &str) -> duroxide::Event {
    let mut event = started_event(instance, 1);
    event.timestamp_ms = history[0].timestamp_ms;
    event
}
