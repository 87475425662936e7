//! Claims that lease while other processes commit.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::providers::{ExtendedProvider, InstanceClaim, InstanceRequest, Provider, TagFilter};
use support::world::{World, activity, completion, metadata, signal, start, started_event};

const LEASE: Duration = Duration::from_secs(30);
const REQUEST: InstanceRequest<'_> = InstanceRequest { max: 10, lock_timeout: LEASE, filter: None };

fn names(claims: &[InstanceClaim]) -> Vec<&str> {
    let mut names: Vec<&str> = claims.iter().map(|claim| claim.instance.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_turn_has_taken_meanwhile_is_not_leased_again() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let client = world.connect().await;
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    world.close_gate(&["TRIGGER gate BEFORE INSERT ON instance_schedule"]).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim_instances(&REQUEST).await }
    });
    world.until_held_up().await;
    // The commit of a turn in another process that took the start alone.
    let turn = "DELETE FROM orchestrator_queue WHERE class = 'start';
        INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at)
        VALUES ('i', 'Order', '1.0.0', 0, 0);
        INSERT INTO executions (instance_id, execution_id, started_at) VALUES ('i', 1, 0);
        INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
        VALUES ('i', 1, 1, 'OrchestrationStarted', 0, '{}')";
    client.batch_execute(turn).await.unwrap();
    world.open_gate().await;
    let claims = claiming.await.unwrap().unwrap();
    let [claim] = claims.as_slice() else { panic!("the signal is left; got {claims:?}") };
    assert_eq!(claim.messages, [signal("i")], "the start has been taken");
    assert_eq!((claim.last_event_id, claim.attempt_count), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_committed_with_messages_gets_its_own_leases() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    for instance in ["first", "result", "message"] {
        store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
        let (_, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        let events = vec![started_event(instance)];
        let ack = store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]);
        ack.await.unwrap();
    }
    store.enqueue_for_worker(activity("result")).await.unwrap();
    let fetched = store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::default()).await;
    let (_, work, _) = fetched.unwrap().unwrap();

    // While the store commits the first message, a result and another message wait for the next batch.
    world.close_gate(&["TRIGGER gate BEFORE INSERT ON orchestrator_queue"]).await;
    let first = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue_for_orchestrator(signal("first"), None).await }
    });
    world.until_held_up().await;
    let together = async {
        let result = store.store_result(&work, Some(completion("result")), Some(&REQUEST));
        let message = store.enqueue_for_orchestrator(signal("message"), None);
        tokio::join!(result, message, async {
            tokio::task::yield_now().await;
            world.open_gate().await;
        })
    };
    let (stored, message, ()) = together.await;
    first.await.unwrap().unwrap();
    message.unwrap();
    let stored = stored.unwrap();
    assert_eq!(names(&stored.claims), ["first", "result"]);
    stored.durable.wait().await.unwrap();
    let left = store.claim_instances(&REQUEST).await.unwrap();
    assert_eq!(names(&left), ["message"]);
    assert!(left.iter().chain(&stored.claims).all(|claim| claim.attempt_count == 1));
}

/// Otherwise the instance would count as waiting until the time of the message, which may be weeks away.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_ends_while_a_claim_gives_it_a_place_keeps_none() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    let (_, token, _) = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    let events = vec![started_event("i")];
    store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]).await.unwrap();
    let in_a_week = Duration::from_secs(7 * 24 * 60 * 60);
    store.enqueue_for_orchestrator(signal("i"), Some(in_a_week)).await.unwrap();
    // What the step of another process does that ends the instance.
    let step = world.connect().await;
    let guarded = "BEGIN;
        INSERT INTO instance_schedule (instance_id, lock_token) VALUES ('i', 'step_1');
        DELETE FROM orchestrator_queue WHERE instance_id = 'i'";
    step.batch_execute(guarded).await.unwrap();
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim_instances(&REQUEST).await }
    });
    world.until("EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock')").await;
    step.batch_execute("DELETE FROM instance_schedule WHERE instance_id = 'i'; COMMIT").await.unwrap();
    assert!(claiming.await.unwrap().unwrap().is_empty());
    assert_eq!(world.number("SELECT count(*) FROM instance_schedule").await, 0);
}
