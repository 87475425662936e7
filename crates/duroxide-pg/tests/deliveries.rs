//! Messages that bring the start of their instance along, over a wire that breaks: each request happens once, and its
//! caller hears the outcome.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::providers::{
    DeliveryOutcome, ExecutionMetadata, ExtendedProvider, Provider, ProviderError, StartOutcome, WorkItem,
};
use duroxide_pg::PostgresProvider;
use support::proxy::NextCommit;
use support::world::{World, metadata, start, started_event};

const LEASE: Duration = Duration::from_secs(30);

async fn send(
    store: &PostgresProvider,
    instance: &str,
    data: &str,
) -> Result<DeliveryOutcome, ProviderError> {
    let message =
        WorkItem::QueueMessage { instance: instance.into(), name: "inbox".into(), data: data.into() };
    store.enqueue_start_with_message(start(instance), message).await
}

/// Takes a turn of an instance, which ends it, and returns how many messages it had.
async fn end(store: &PostgresProvider, instance: &str) -> usize {
    let (item, token, _) =
        store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!(item.instance, instance);
    let ended = ExecutionMetadata { status: Some("Completed".into()), ..metadata() };
    let events = vec![started_event(instance)];
    store.ack_orchestration_item(&token, 1, events, vec![], vec![], ended, vec![]).await.unwrap();
    item.messages.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_a_start_is_sent_once_and_its_outcome_is_heard_over_a_broken_wire() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let ways = [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf];
    for how in ways {
        let instance = format!("{how:?}");
        world.proxy.spoil_next_commit(how);
        assert_eq!(send(&store, &instance, "1").await.unwrap(), DeliveryOutcome::Started, "{how:?}");
        world.proxy.spoil_next_commit(how);
        assert_eq!(send(&store, &instance, "2").await.unwrap(), DeliveryOutcome::Delivered, "{how:?}");
        assert_eq!(end(&store, &instance).await, 3, "{how:?}: a start and two messages, each once");
        world.proxy.spoil_next_commit(how);
        assert_eq!(send(&store, &instance, "3").await.unwrap(), DeliveryOutcome::Ended, "{how:?}");
        assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 0, "{how:?}");
    }
    assert_eq!(world.proxy.spoiled(), 3 * ways.len(), "every fault happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_with_and_without_messages_at_once_make_one_start() {
    let world = World::new(&[]).await;
    let (one, other) = (world.store().await, world.store().await);
    for round in 0..20 {
        let instance = format!("i-{round}");
        let sends = (0..4).map(|n| {
            let store = if n % 2 == 0 { one.clone() } else { other.clone() };
            let instance = instance.clone();
            tokio::spawn(async move { send(&store, &instance, &n.to_string()).await.unwrap() })
        });
        let starts = [&one, &other].map(|store| {
            let (store, instance) = (store.clone(), instance.clone());
            tokio::spawn(async move { store.enqueue_start_if_absent(start(&instance)).await.unwrap() })
        });
        let mut made = 0;
        for sent in sends.collect::<Vec<_>>() {
            made += usize::from(sent.await.unwrap() == DeliveryOutcome::Started);
        }
        for started in starts {
            made += usize::from(started.await.unwrap() == StartOutcome::New);
        }
        assert_eq!(made, 1, "one of them made the instance");
        assert_eq!(end(&one, &instance).await, 5, "one start and four messages");
    }
}
