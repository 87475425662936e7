//! Where the published contract leaves a choice, this is ours.
//!
//! Stores without the abilities of ours pass: theirs may be another choice.

use std::time::Duration;

use semver::Version;

use super::support::{
    Commit, Store, WORK_LEASE, activity, continue_as_new, event, event_in, kv_set, ms, named,
    named_with_status, raised, started, status, timer,
};
use super::{ExecutionMetadata, ProviderFactory};
use crate::providers::{DispatcherCapabilityFilter, InstanceFilter, QueueDepths, SemverRange};

const AN_HOUR: Duration = Duration::from_secs(60 * 60);

async fn depths(store: &Store<'_>) -> (usize, usize) {
    let depths = store.admin().get_queue_depths().await.expect("get_queue_depths should work");
    let QueueDepths { orchestrator_queue, worker_queue, .. } = depths;
    (orchestrator_queue, worker_queue)
}

/// An execution has an end once it completed, failed or continued as new; while it runs it has none.
pub async fn completion_time_is_set_when_an_execution_ends(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    for ended in ["Completed", "Failed", "ContinuedAsNew"] {
        store.create_with_status(ended, ended).await;
        let info = store.admin().get_execution_info(ended, 1).await.expect("the execution is there");
        assert!(info.started_at > 0, "a start time should be set; got {info:?}");
        assert!(info.completed_at.is_some_and(|end| end >= info.started_at), "{ended} ends it; got {info:?}");
    }
    store.create_with_status("Running", "Running").await;
    let info = store.admin().get_execution_info("Running", 1).await.expect("the execution is there");
    assert_eq!(info.completed_at, None, "an execution that runs has not ended");
}

/// Creation and update times are real, and every turn refreshes the latter.
pub async fn times_of_an_instance_are_real(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let begin = extended.clock().now_ms();
    store.create("i").await;
    store.pass(ms(50)).await;
    store.next_turn("i", Commit::default()).await;
    let end = extended.clock().now_ms();
    let info = store.admin().get_instance_info("i").await.expect("the instance is there");
    assert!((begin..=end).contains(&info.created_at), "created between {begin} and {end}; got {info:?}");
    assert!(info.updated_at >= info.created_at + 50, "the second turn came 50 ms later; got {info:?}");
    assert!(info.updated_at <= end, "and not in the future; got {info:?}");
}

/// Instances are listed newest first, also those made within one millisecond.
pub async fn instances_are_listed_newest_first(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    for instance in ["b", "c", "a"] {
        store.create(instance).await;
    }
    store.next_turn("b", Commit::default()).await;
    let listed = store.admin().list_instances().await.expect("list_instances should work");
    assert_eq!(listed, ["a", "c", "b"], "newest first, whatever turns they took since");
    let running = store.admin().list_instances_by_status("Running").await.expect("listing should work");
    assert_eq!(running, ["a", "c", "b"], "newest first by status as well");
}

/// Queue depths count what nobody holds, future work included.
pub async fn queue_depths_count_what_nobody_holds(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    store.create("i").await;
    assert_eq!(depths(&store).await, (0, 0), "everything was acked");
    store.send(raised("i", "now", "")).await;
    store.send_delayed(raised("i", "later", ""), AN_HOUR).await;
    store.send_work(activity("i", 1)).await;
    store.send_work(activity("i", 2)).await;
    assert_eq!(depths(&store).await, (2, 2), "delayed messages count");

    let (turn, work) = (store.turn_for(store.lease()).await, store.work_for(store.lease()).await);
    assert_eq!(depths(&store).await, (1, 1), "what is held does not count");
    store.abandon(&turn).await;
    store.abandon_work(&work, Some(AN_HOUR), false).await;
    assert_eq!(depths(&store).await, (2, 2), "what was given back counts");
    store.turn_for(store.lease()).await;
    store.outlive_lease().await;
    assert_eq!(depths(&store).await, (2, 2), "what nobody holds any more counts");
}

/// An instance between two executions runs: it is deleted by force only, and bulk deletion leaves it.
pub async fn instance_between_executions_counts_as_running(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    let commit = Commit {
        messages: vec![continue_as_new("i")],
        metadata: named_with_status("ContinuedAsNew"),
        ..Commit::creating("i")
    };
    store.start_and_ack("i", commit).await;
    let refused = store.admin().delete_instance("i", false).await;
    let refused = refused.expect_err("an instance with a queued successor should not be deleted");
    assert!(refused.message.contains("still running"), "the error should say why; got {refused}");
    let bulk = store.admin().delete_instance_bulk(InstanceFilter::default()).await;
    assert_eq!(bulk.expect("a bulk deletion should work").instances_deleted, 0, "bulk deletion leaves it");

    let turn = store.turn_of("i").await;
    let held = store.admin().delete_instance("i", false).await;
    assert!(held.is_err(), "the successor is being worked on");
    store.abandon(&turn).await;
    let deleted = store.admin().delete_instance("i", true).await.expect("force deletes it");
    assert_eq!(deleted.instances_deleted, 1);
    store.expect_no_turn("the queued successor goes with the instance").await;
}

/// A timer that is enqueued directly waits for the later of its due time and the delay.
pub async fn timers_wait_for_due_time_and_delay(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("i").await;
    let now = extended.clock().now_ms();
    store.send(timer("i", 2, now + 500)).await;
    store.send_delayed(timer("i", 3, now), ms(500)).await;
    store.send_delayed(timer("i", 4, now + 1), ms(500)).await;
    store.expect_no_turn("no timer is due, or its delay has not passed").await;
    store.pass(ms(600)).await;
    assert_eq!(store.turn_of("i").await.item.messages.len(), 3, "all are due");
}

/// An instance without a row is fetched with the execution whose history it has.
pub async fn instance_without_row_has_its_real_execution(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    store.start_and_ack("i", Commit::of_events(vec![started("i", 1)])).await;
    let second = Commit { execution_id: 2, events: vec![started("i", 2)], ..Commit::default() };
    store.next_turn("i", second).await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.execution_id, 2, "the execution should be that of the history");
    assert_eq!(turn.item.history, store.history_of("i", 2).await);
}

/// Every range of a filter counts, and versions are compared part by part.
pub async fn every_range_of_a_filter_counts(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    let version = Version::new(1, 1_000, 0);
    let metadata = ExecutionMetadata { pinned_duroxide_version: Some(version.clone()), ..named() };
    let commit = Commit { metadata, messages: vec![raised("i", "n", "")], ..Commit::creating("i") };
    store.start_and_ack("i", commit).await;
    let two = SemverRange::new(Version::new(2, 0, 0), Version::new(2, 9, 9));
    let only_two = DispatcherCapabilityFilter { supported_duroxide_versions: vec![two.clone()] };
    assert!(store.try_turn_with(&only_two).await.is_none(), "1.1000.0 is not 2.0.0");
    let both = DispatcherCapabilityFilter {
        supported_duroxide_versions: vec![two, SemverRange::new(version.clone(), version)],
    };
    assert!(store.try_turn_with(&both).await.is_some(), "the second range should count");
}

/// Deletions report what was there, not what was asked for.
pub async fn deletions_count_what_was_there(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    store.create_with_status("i", "Completed").await;
    let ids = ["i".to_string(), "nobody".to_string(), "i".to_string()];
    let deleted = store.admin().delete_instances_atomic(&ids, true).await.expect("the deletion should work");
    assert_eq!(
        (deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted),
        (1, 1, 1),
        "one instance was there"
    );
    let none = store.admin().delete_instances_atomic(&[], false).await.expect("an empty list is no error");
    assert_eq!(none.instances_deleted, 0);
}

/// Values are measured in bytes, and a value that is hidden does not count.
pub async fn stats_count_bytes_of_what_is_visible(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    let mut commit = Commit::creating("i");
    commit.events.push(event("i", 2, kv_set("crab", "\u{1f980}")));
    commit.events.push(event("i", 3, kv_set("hidden", "12345")));
    commit.metadata.status = Some("ContinuedAsNew".to_string());
    store.start_and_ack("i", commit).await;
    let hide = super::EventKind::KeyValueCleared { key: "hidden".to_string() };
    let events = vec![started("i", 2), event_in("i", 2, 2, hide)];
    store.next_turn("i", Commit { execution_id: 2, events, ..Commit::default() }).await;
    let stats = store.provider.get_instance_stats("i").await.expect("get_instance_stats should work");
    let stats = stats.expect("the instance is there");
    assert_eq!((stats.kv_user_key_count, stats.kv_total_value_bytes), (1, 4), "one value of four bytes");
    assert_eq!(stats.history_event_count, 2, "the current execution has two events");
}

/// A parent id that was left open is not needed, and a parent that is gone does not fail its child.
pub async fn children_need_no_parent_row(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    store.create_child("child", "gone").await;
    let parent = store.admin().get_parent_id("child").await.expect("the child is there");
    assert_eq!(parent.as_deref(), Some("gone"), "the parent's id should be kept as it was given");
    store.next_turn("child", Commit { metadata: status("Completed"), ..Commit::default() }).await;
}

/// Cancelling goes by instance, execution and id: an activity of another execution stays.
pub async fn cancellation_matches_the_execution(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let mut other = super::support::scheduled("i", 2);
    other.execution_id = 2;
    let elsewhere = super::support::scheduled("j", 2);
    store.next_turn("i", Commit { cancelled: vec![other, elsewhere], ..Commit::default() }).await;
    let work = store.try_work_for(WORK_LEASE).await;
    assert!(work.is_some(), "an activity of another execution or instance should stay");
}
