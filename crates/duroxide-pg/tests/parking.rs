//! The store parks messages for an instance that does not exist, but not the start that is on its way at that moment.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::providers::{Provider, WorkItem};
use support::world::{World, completion, start};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_arrives_while_others_are_set_aside_is_not_set_aside_with_them() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let cancel = WorkItem::CancelInstance { instance: "i".into(), reason: "r".into() };
    // The claim drops the completion for an instance that is gone before it parks the cancellation.
    store.enqueue_for_orchestrator(completion("i"), None).await.unwrap();
    store.enqueue_for_orchestrator(cancel, None).await.unwrap();
    world.close_gate(&["TRIGGER gate BEFORE DELETE ON orchestrator_queue"]).await;
    let fetching = tokio::spawn({
        let store = store.clone();
        async move { store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await }
    });
    world.until_held_up().await;
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    world.open_gate().await;
    let fetched = match fetching.await.unwrap().unwrap() {
        Some(fetched) => Some(fetched),
        None => store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap(),
    };
    let (item, ..) = fetched.expect("the start was acknowledged, so it is found");
    assert_eq!((item.instance.as_str(), item.messages.len()), ("i", 2), "with the cancellation");
}
