//! Which activities a worker gets, by their tag.

use super::ProviderFactory;
use super::support::*;
use crate::providers::{TagFilter, WorkItem};

const INSTANCE: &str = "tagged";

/// Enqueues activities with ids 1, 2, 3 … and these tags.
async fn enqueue(store: &Store<'_>, tags: &[Option<&str>]) {
    for (id, tag) in (1..).zip(tags) {
        store.send_work(activity_for(INSTANCE, id, None, *tag)).await;
    }
}

/// Asserts that this filter gets exactly these activities, in this order, and nothing more.
async fn expect_only(store: &Store<'_>, filter: &TagFilter, expected: &[u64]) {
    expect_next(store, filter, expected).await;
    let more = store.try_tagged_work(filter).await;
    assert!(more.is_none(), "{filter:?} should be given nothing more, got {more:?}");
}

/// Asserts that this filter gets these activities, in this order.
async fn expect_next(store: &Store<'_>, filter: &TagFilter, expected: &[u64]) {
    for id in expected {
        let work = store.try_tagged_work(filter).await;
        let work = work.unwrap_or_else(|| panic!("{filter:?} should be given activity {id}"));
        assert_eq!(work.id(), *id, "{filter:?} should be given activity {id}");
    }
}

fn tag_of(work: &Work) -> Option<&str> {
    match &work.item {
        WorkItem::ActivityExecute { tag, .. } => tag.as_deref(),
        other => panic!("the worker queue should hold activities only, not {other:?}"),
    }
}

/// The default filter takes activities without a tag.
pub async fn test_default_only_fetches_untagged(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[None, Some("gpu"), None]).await;
    expect_only(&store, &TagFilter::DefaultOnly, &[1, 3]).await;
}

/// A filter of one tag takes that tag only.
pub async fn test_tags_fetches_only_matching(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[None, Some("gpu"), Some("cpu"), Some("gpu")]).await;
    expect_only(&store, &TagFilter::tags(["gpu"]), &[2, 4]).await;
}

/// A worker can take untagged activities and some tags.
pub async fn test_default_and_fetches_untagged_and_matching(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[None, Some("gpu"), Some("cpu")]).await;
    expect_only(&store, &TagFilter::default_and(["gpu"]), &[1, 2]).await;
}

/// A worker that serves nothing gets nothing.
pub async fn test_none_filter_returns_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[None, Some("gpu")]).await;
    expect_only(&store, &TagFilter::None, &[]).await;
}

/// A filter of several tags takes all of these.
pub async fn test_multi_tag_filter(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[Some("gpu"), Some("tpu"), Some("cpu"), None]).await;
    expect_only(&store, &TagFilter::tags(["gpu", "tpu"]), &[1, 2]).await;
}

/// The tag comes back with the activity.
pub async fn test_tag_round_trip_preservation(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let sent = tagged_activity(INSTANCE, 1, "gpu");
    store.send_work(sent.clone()).await;
    let work = store.try_tagged_work(&TagFilter::tags(["gpu"])).await.expect("the activity should be given");
    assert_eq!(tag_of(&work), Some("gpu"), "the tag should come back");
    assert_eq!(work.item, sent, "the activity should come back as it was sent");
}

/// A worker can take everything.
pub async fn test_any_filter_fetches_everything(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[None, Some("gpu"), Some("cpu")]).await;
    expect_only(&store, &TagFilter::Any, &[1, 2, 3]).await;
}

/// An activity that was given back keeps its tag.
pub async fn test_tag_survives_abandon_and_refetch(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[Some("gpu"), None]).await;
    let gpu = TagFilter::tags(["gpu"]);
    let first = store.try_tagged_work(&gpu).await.expect("the tagged activity should be given");
    store.abandon_work(&first, None, false).await;

    expect_next(&store, &TagFilter::DefaultOnly, &[2]).await;
    let again = store.try_tagged_work(&gpu).await.expect("the tagged activity should be given again");
    assert_eq!(tag_of(&again), Some("gpu"), "the tag should survive");
    assert!(again.attempts >= 2, "the second attempt should be counted, got {}", again.attempts);
    assert_ne!(again.token, first.token, "every fetch should have a token of its own");
}

/// Workers with different filters share one queue without taking each other's work.
pub async fn test_multi_runtime_tag_isolation(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, &[None, Some("gpu"), Some("cpu"), Some("fpga"), Some("gpu")]).await;
    expect_only(&store, &TagFilter::DefaultOnly, &[1]).await;
    expect_next(&store, &TagFilter::tags(["gpu", "cpu"]), &[2, 3]).await;
    expect_only(&store, &TagFilter::tags(["cpu", "fpga"]), &[4]).await;
    expect_only(&store, &TagFilter::Any, &[5]).await;
}

/// Activities that a turn schedules keep their tags.
pub async fn test_tag_preserved_through_ack_orchestration_item(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let work = vec![tagged_activity(INSTANCE, 2, "gpu"), activity(INSTANCE, 3)];
    store.create_with_work(INSTANCE, work).await;
    expect_only(&store, &TagFilter::DefaultOnly, &[3]).await;
    let gpu = store.try_tagged_work(&TagFilter::tags(["gpu"])).await;
    let gpu = gpu.expect("the tagged activity should be given");
    assert_eq!((gpu.id(), tag_of(&gpu)), (2, Some("gpu")), "the tag should come through the ack");
}
