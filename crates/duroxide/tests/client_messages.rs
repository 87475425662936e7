//! Messages sent before their instance starts: the store drops and lists them, parks them, or takes them with the
//! start.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use duroxide::client::{ClientError, EnqueueOptions, StartOptions};
use duroxide::providers::{DEFAULT_PARKING_TIME, DeliveryOutcome};
use duroxide::{OrchestrationContext, OrchestrationRegistryBuilder};
use runtime_support::{World, activities, orchestrations, output, plain_world};

/// Takes as many messages as its input says, and returns them.
fn code() -> OrchestrationRegistryBuilder {
    orchestrations().register("Collect", |ctx: OrchestrationContext, count: String| async move {
        let mut taken = Vec::new();
        for _ in 0..count.parse::<u32>().unwrap() {
            taken.push(ctx.dequeue_event("inbox").await);
        }
        Ok(taken.join(" "))
    })
}

fn parked() -> EnqueueOptions {
    EnqueueOptions::new().park_until_started()
}

#[tokio::test]
async fn a_message_before_the_start_is_dropped_counted_and_listed() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.client.enqueue_event("i", "inbox", "early").await.unwrap();
    world.drained().await;
    let dropped = world.client.list_dropped_messages(10).await.unwrap();
    assert_eq!(dropped.total, 1);
    assert_eq!((dropped.newest[0].instance.as_str(), dropped.newest[0].dropped_at), ("i", world.now_ms()));
    assert!(dropped.newest[0].raw.contains("early"), "{dropped:?}");
    world.client.start_orchestration("i", "Collect", "1").await.unwrap();
    world.client.enqueue_event("i", "inbox", "late").await.unwrap();
    assert_eq!(world.output("i").await, "late");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_parked_message_waits_for_the_start_and_keeps_its_place() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.client.enqueue_event_with("i", "inbox", "1", parked()).await.unwrap();
    world.client.enqueue_event_typed_with("i", "inbox", &2, parked()).await.unwrap();
    while world.client.list_parked_messages(10).await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    world.client.start_orchestration("i", "Collect", "3").await.unwrap();
    world.client.enqueue_event_with("i", "inbox", "3", EnqueueOptions::new()).await.unwrap();
    assert_eq!(world.output("i").await, "1 2 3");
    assert!(world.client.list_parked_messages(10).await.unwrap().is_empty());
    assert_eq!(world.client.list_dropped_messages(10).await.unwrap().total, 0);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_parked_message_that_nobody_waits_for_is_dropped_after_a_day_and_listed() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.client.enqueue_event_with("i", "inbox", "m", parked()).await.unwrap();
    while world.client.list_parked_messages(10).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    world.clock.advance(DEFAULT_PARKING_TIME);
    while world.client.list_dropped_messages(10).await.unwrap().total == 0 {
        tokio::task::yield_now().await;
    }
    assert!(world.client.list_parked_messages(10).await.unwrap().is_empty());
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_message_starts_the_instance_or_reaches_the_one_that_runs_or_is_refused_by_one_that_has_ended() {
    let world = World::new();
    let send = |data: &'static str| {
        world.client.start_with_message("i", "Collect", "3", "inbox", data, StartOptions::new())
    };
    assert_eq!(send("1").await.unwrap(), DeliveryOutcome::Started);
    assert_eq!(send("2").await.unwrap(), DeliveryOutcome::Delivered, "the start is queued");
    let runtime = world.start(activities(), code()).await;
    world.drained().await;
    assert_eq!(send("3").await.unwrap(), DeliveryOutcome::Delivered, "the instance runs");
    assert_eq!(world.output("i").await, "1 2 3");
    assert_eq!(send("4").await.unwrap(), DeliveryOutcome::Ended);
    world.client.delete_instance("i", false).await.unwrap();
    let version = StartOptions::new().version("1.0.0");
    let again = world.client.start_with_message_typed("i", "Collect", "1", "inbox", &"typed", version).await;
    assert_eq!(again.unwrap(), DeliveryOutcome::Started);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn callers_at_once_start_the_instance_once_and_lose_no_message() {
    const CALLERS: usize = 20;
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let client = world.client.clone();
            tokio::spawn(async move {
                let (count, data) = (CALLERS.to_string(), n.to_string());
                client.start_with_message("i", "Collect", count, "inbox", data, StartOptions::new()).await
            })
        })
        .collect();
    let mut started = 0;
    for caller in callers {
        started += usize::from(caller.await.unwrap().unwrap() == DeliveryOutcome::Started);
    }
    assert_eq!(started, 1);
    let taken = output(world.end("i").await);
    let mut taken: Vec<usize> = taken.split(' ').map(|n| n.parse().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..CALLERS).collect::<Vec<_>>());
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_id_of_a_child_cannot_be_started_with_a_message() {
    let world = World::new();
    let sent = world.client.start_with_message("sub::1", "Collect", "1", "inbox", "m", StartOptions::new());
    assert!(matches!(sent.await, Err(ClientError::InvalidInput { .. })));
}

#[tokio::test]
async fn a_store_that_cannot_park_or_send_along_says_which_option_it_lacks() {
    let (world, _) = plain_world();
    let refused = world.client.enqueue_event_with("i", "inbox", "m", parked()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Invalid input: EnqueueOptions::park_until_started is not supported by this store"
    );
    let sent = world.client.start_with_message("i", "Collect", "1", "inbox", "m", StartOptions::new());
    let refused = sent.await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Invalid input: Client::start_with_message is not supported by this store"
    );
    assert!(!refused.is_retryable());
    assert!(matches!(world.client.list_dropped_messages(1).await, Err(ClientError::ManagementNotAvailable)));
}
