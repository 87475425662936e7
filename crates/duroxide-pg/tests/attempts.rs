//! Attempts at activities on PostgreSQL: retries that the store keeps, heartbeats, and completion from elsewhere, across
//! processes and over a wire that breaks.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, ActivityOptions, ActivityRegistry, Client, CompleteError, CompletionToken,
    OrchestrationContext, OrchestrationRegistry, OrchestrationStatus, StoredRetry,
};
use support::proxy::NextCommit;
use support::world::World;
use tokio::sync::mpsc;

/// Nothing here takes long; a test that waits for so long has failed.
const BOUND: Duration = Duration::from_secs(60);

type Told = (String, u32, String, Option<CompletionToken>);

async fn runtime(store: Arc<dyn Provider>, told: mpsc::UnboundedSender<Told>) -> Arc<Runtime> {
    let activities = ActivityRegistry::builder()
        .register("Flaky", {
            let told = told.clone();
            move |ctx: ActivityContext, _: String| {
                told.send((ctx.instance_id().to_string(), ctx.attempt(), ctx.idempotency_key(), None))
                    .unwrap();
                async move {
                    let row = ctx.last_heartbeat::<u32>().unwrap().unwrap_or(0);
                    ctx.heartbeat(&(row + 1)).unwrap();
                    match ctx.attempt() {
                        20 => Ok(format!("row {row}")),
                        attempt => Err(format!("not yet: {attempt}")),
                    }
                }
            }
        })
        .register("Ask", move |ctx: ActivityContext, _: String| {
            let token = ctx.completion_token().unwrap();
            told.send((ctx.instance_id().to_string(), ctx.attempt(), ctx.idempotency_key(), Some(token)))
                .unwrap();
            async move { ctx.pending().await }
        })
        .build_result()
        .unwrap();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Flaky", |ctx: OrchestrationContext, _: String| async move {
            let retry = StoredRetry::attempts(20).first_pause(Duration::from_millis(1)).multiplier(1.0);
            ctx.schedule_activity("Flaky", "").with_options(ActivityOptions::new().retry(retry)).await
        })
        .register("Ask", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Ask", "").await
        })
        .build_result()
        .unwrap();
    Runtime::start_with_options(store, activities, orchestrations, Default::default()).await
}

async fn output(client: &Client, instance: &str) -> String {
    match client.wait_for_orchestration(instance, BOUND).await.unwrap() {
        OrchestrationStatus::Completed { output, .. } => output,
        other => panic!("{other:?}"),
    }
}

// semantics: ACT-20
#[tokio::test(flavor = "multi_thread")]
async fn attempts_and_completions_work_across_two_processes() {
    let world = World::new(&[]).await;
    let (one, two) = (world.sound_store().await, world.sound_store().await);
    let (told, mut heard) = mpsc::unbounded_channel();
    let runtimes = [runtime(one.clone(), told.clone()).await, runtime(two.clone(), told).await];
    let client = Client::new(one.clone());
    client.start_orchestration("flaky", "Flaky", "").await.unwrap();
    assert_eq!(output(&client, "flaky").await, "row 19");
    assert_eq!(client.read_execution_history("flaky", 1).await.unwrap().len(), 4);
    let (_, _, key, _) = heard.recv().await.unwrap();
    for attempt in 2..=20 {
        let (_, number, same, _) = heard.recv().await.unwrap();
        assert_eq!((number, &same), (attempt, &key));
    }

    client.start_orchestration("ask", "Ask", "").await.unwrap();
    let (_, _, other, token) = heard.recv().await.unwrap();
    assert_ne!(key, other);
    let token = token.unwrap();
    let elsewhere = Client::new(two.clone());
    elsewhere.complete_activity(&token, Ok("done".to_string())).await.unwrap();
    assert_eq!(output(&client, "ask").await, "done");
    let again = elsewhere.complete_activity(&token, Ok("again".to_string())).await;
    assert!(matches!(again, Err(CompleteError::Ended { .. })), "{again:?}");
    for runtime in runtimes {
        runtime.shutdown(None).await;
    }
    assert_eq!(world.number("SELECT count(*) FROM worker_queue").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_answer_is_lost_happens_once_and_says_that_it_is_unsure() {
    let world = World::new(&[]).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let runtime = runtime(world.sound_store().await, told).await;
    let store = world.store().await;
    let client = Client::new(store);
    for how in [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf] {
        let instance = format!("{how:?}");
        client.start_orchestration(&instance, "Ask", "").await.unwrap();
        let (_, _, _, token) = heard.recv().await.unwrap();
        let token = token.unwrap();
        world.proxy.spoil_next_commit(how);
        let first = client.complete_activity(&token, Ok("1".to_string())).await;
        match first {
            Ok(()) => {}
            // It may have happened: another call tells.
            Err(CompleteError::Client(error)) if error.is_retryable() => {
                let second = client.complete_activity(&token, Ok("1".to_string())).await;
                assert!(matches!(second, Ok(()) | Err(CompleteError::Ended { .. })), "{how:?}: {second:?}");
            }
            Err(error) => panic!("{how:?}: {error}"),
        }
        assert_eq!(output(&client, &instance).await, "1", "{how:?}");
    }
    runtime.shutdown(None).await;
    assert_eq!(world.number("SELECT count(*) FROM worker_queue").await, 0);
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 0);
}
