//! The store at a glance: totals that follow every change, and queues that hide nothing.
//!
//! A store that cannot be looked into passes at once.

use super::support::*;
use super::{EventKind, ProviderFactory};
use crate::model::{AppErrorKind, ErrorDetails};
use crate::providers::{Count, Inspector, QueueState, WorkQueue};

fn inspector<'s>(store: &'s Store<'_>) -> Option<&'s dyn Inspector> {
    store.extended()?.as_inspector()
}

async fn queue(inspector: &dyn Inspector, name: &str, tag: Option<&str>) -> QueueState {
    let states = inspector.queue_states().await.expect("queue_states should work");
    let found = states.into_iter().find(|state| state.queue == name && state.tag.as_deref() == tag);
    found.expect("the queue is told")
}

/// The turn that ends a running instance because it was cancelled.
fn cancelling(instance: &str) -> Commit {
    let kind = AppErrorKind::Cancelled { reason: "stop".into() };
    let details = ErrorDetails::Application { kind, message: String::new(), retryable: false };
    Commit::appending(instance, 1, 2, [EventKind::OrchestrationFailed { details }]).status("Failed")
}

/// The totals tell cancelled instances from failed ones, whatever happens to them: they end, are deleted, and their
/// ids are used again.
pub async fn totals_tell_cancelled_instances_from_failed_ones(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let totals = async || {
        let totals = inspector.state_totals().await.expect("state_totals should work");
        [totals.failed, totals.cancelled, totals.waiting]
    };
    store.create_with_status("failed", "Failed").await;
    for instance in ["one", "two", "three"] {
        store.create(instance).await;
    }
    assert_eq!(totals().await, [1, 0, 3].map(Count::exact));
    store.next_turn("one", cancelling("one")).await;
    store.next_turn("two", cancelling("two")).await;
    assert_eq!(totals().await, [1, 2, 1].map(Count::exact));
    store.admin().delete_instance("one", false).await.expect("it has ended");
    store.admin().delete_instance("failed", false).await.expect("it has ended");
    assert_eq!(totals().await, [0, 1, 1].map(Count::exact), "what is deleted counts no more");
    store.create("one").await;
    store.next_turn("one", cancelling("one")).await;
    assert_eq!(totals().await, [0, 2, 1].map(Count::exact), "an id that is used again counts again");
}

/// What has become due counts as ready, and its age is told, although nobody has fetched since: a timer, the end of a lease, a
/// message for an instance that sleeps.
pub async fn what_is_due_is_ready_before_anybody_fetches(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let soon = store.lease();
    for instance in ["timer", "leased", "asleep"] {
        store.create(instance).await;
    }
    store.send_delayed(raised("asleep", "later", ""), ms(600_000)).await;
    store.send_delayed(raised("timer", "soon", ""), soon).await;
    store.send(raised("leased", "go", "")).await;
    store.send_work(activity("w", 1)).await;
    store.send_work(activity("w", 2)).await;
    let turn = store.turn_for(soon).await;
    assert_eq!(turn.item.instance, "leased");
    let _held = store.work_for(soon).await;
    let delayed = store.work().await;
    store.abandon_work(&delayed, Some(soon), false).await;

    store.pass(soon + MARGIN).await;
    store.send(raised("asleep", "now", "")).await;
    let messages = queue(inspector, "orchestrator", None).await;
    assert_eq!((messages.ready, messages.leased), (Count::exact(3), Count::exact(0)), "{messages:?}");
    assert!(messages.oldest_ready_ms.is_some_and(|since| since <= store.now_ms()), "{messages:?}");
    let work = queue(inspector, "worker", None).await;
    assert_eq!((work.ready, work.leased, work.delayed), (Count::exact(2), Count::exact(0), Count::exact(0)));
    assert!(work.oldest_ready_ms.is_some_and(|since| since <= store.now_ms()), "{work:?}");
    let (_, ready) = inspector.list_ready(WorkQueue::Worker, 10).await.expect("list_ready should work");
    let ids: Vec<u64> = ready.iter().map(|activity| activity.activity_id).collect();
    assert_eq!(ids, [1, 2], "what is counted is listed");
}

/// The ready activities of a tag are listed, however many others are ready: those that are new, those whose delay is over, those
/// whose lease has run out, and the first of a session.
pub async fn ready_activities_of_a_tag_are_listed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let listed = async |tag: Option<&str>, limit| -> Vec<u64> {
        let ready = inspector.list_ready_activities(tag, limit).await;
        let ready = ready.expect("list_ready_activities should work");
        ready.iter().map(|activity| activity.activity_id).collect()
    };
    for id in 1..=20 {
        store.send_work(activity("q", id)).await;
    }
    for id in 21..=23 {
        store.send_work(tagged_activity("q", id, "gpu")).await;
    }
    let soon = store.lease();
    let gpu = crate::providers::TagFilter::tags(["gpu"]);
    fetch_work(&*store.provider, soon, None, &gpu).await.expect("it is there");
    assert_eq!(listed(Some("gpu"), 10).await, [22, 23], "the first is leased");
    store.pass(soon + MARGIN).await;
    assert_eq!(listed(Some("gpu"), 10).await, [21, 22, 23], "its lease has run out");
    assert_eq!(listed(Some("gpu"), 2).await.len(), 2, "no more than asked for");
    assert_eq!(listed(None, 3).await, [1, 2, 3]);
    assert_eq!(listed(Some("other"), 3).await, [0; 0]);
}

/// A tag is told as long as it has activities, also if none of them is ready.
pub async fn a_tag_without_ready_activities_is_told(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.send_work(tagged_activity("q", 1, "gpu")).await;
    let filter = crate::providers::TagFilter::tags(["gpu"]);
    let held = store.try_tagged_work(&filter).await.expect("it is there");
    let gpu = queue(inspector, "worker", Some("gpu")).await;
    assert_eq!((gpu.ready, gpu.leased), (Count::exact(0), Count::exact(1)), "{gpu:?}");
    store.complete(&held).await;
    let states = inspector.queue_states().await.expect("queue_states should work");
    assert!(states.iter().all(|state| state.tag.is_none()), "{states:?}");
}
