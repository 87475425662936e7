//! Thousands of waiters of one store: what they cost it, and that each hears what it waits for.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, PruneOptions};
use duroxide::{Client, ClientError, InstanceFilter, OrchestrationContext, OrchestrationStatus};
use runtime_support::faulty::{Call, Faulty};
use runtime_support::{SOON, World, activities, faulty_world, orchestrations};
use tokio::task::JoinSet;

const MANY: usize = 10_000;

type Ended = (String, Result<OrchestrationStatus, ClientError>);

/// Waiters for instances `i0`, `i1`, ..., all of which have looked for the first time. They need a runtime of one thread.
async fn waiters(client: &Client, faulty: &Faulty, timeout: Duration) -> JoinSet<Ended> {
    let mut waits = JoinSet::new();
    let begun = Arc::new(AtomicUsize::new(0));
    // So that they meet: a store that answers at once would be asked by each of them in turn.
    let gate = faulty.hold(Call::Read);
    for n in 0..MANY {
        let (client, instance, begun) = (client.clone(), format!("i{n}"), begun.clone());
        waits.spawn(async move {
            begun.fetch_add(1, Ordering::Relaxed);
            let ended = client.wait_for_orchestration(&instance, timeout).await;
            (instance, ended)
        });
    }
    while begun.load(Ordering::Relaxed) < MANY {
        tokio::task::yield_now().await;
    }
    faulty.release(Call::Read);
    gate.add_permits(1);
    waits
}

fn code() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
}

async fn prune(client: &Client) {
    client.prune_executions_bulk(InstanceFilter::default(), PruneOptions::default()).await.unwrap();
}

// semantics: CLIENT-12
#[tokio::test]
async fn ten_thousand_waiters_share_a_few_reads() {
    let (world, faulty) = faulty_world();
    let mut waits = waiters(&world.client, &faulty, Duration::from_secs(600)).await;
    // The store says each time that anything may have changed.
    for _ in 0..100 {
        prune(&world.client).await;
        tokio::task::yield_now().await;
    }
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("i7", "Echo", "seven").await.unwrap();
    let (instance, ended) = waits.join_next().await.unwrap().unwrap();
    assert_eq!((instance.as_str(), runtime_support::output(ended.unwrap()).as_str()), ("i7", "seven"));
    let reads = faulty.count(Call::Read);
    assert!(reads < MANY / 20, "{reads} reads for {MANY} waiters");
    runtime.shutdown(None).await;
}

// semantics: CLIENT-12
#[tokio::test]
async fn ten_thousand_waiters_hear_of_every_end_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", directory.path().join("store.db").display());
    let faulty = Faulty::new(Arc::new(SqliteProvider::new(&url, None).await.unwrap()));
    let mut waits = waiters(&Client::new(faulty.clone()), &faulty, Duration::from_secs(600)).await;
    // A handle of its own tells the waiters as another process does: something has changed.
    let there: Arc<dyn Provider> = Arc::new(SqliteProvider::new(&url, None).await.unwrap());
    let runtime =
        duroxide::runtime::Runtime::start_with_store(there.clone(), activities().build(), code().build())
            .await;
    let client = Client::new(there);
    for n in 0..200 {
        client.start_orchestration(format!("i{n}"), "Echo", n.to_string()).await.unwrap();
    }
    for _ in 0..200 {
        let (instance, ended) = waits.join_next().await.unwrap().unwrap();
        let output = runtime_support::output(ended.unwrap());
        assert_eq!(instance, format!("i{output}"));
    }
    let reads = faulty.count(Call::Read);
    assert!(reads < MANY / 20, "{reads} reads for {MANY} waiters");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn waiters_whose_time_is_up_at_once_share_their_last_look() {
    let (world, faulty) = faulty_world();
    let client = world.client.clone().with_clock(world.clock.clone());
    let mut waits = waiters(&client, &faulty, Duration::from_secs(5)).await;
    world.clock.advance(Duration::from_secs(5));
    while let Some(ended) = waits.join_next().await {
        assert!(matches!(ended.unwrap().1, Err(ClientError::Timeout)));
    }
    let reads = faulty.count(Call::Read);
    assert!(reads < MANY / 20, "{reads} reads for {MANY} waiters");
}

#[tokio::test]
async fn a_waiter_that_goes_away_in_the_middle_of_a_read_leaves_nobody_behind() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(activities(), code()).await;
    assert!(matches!(world.run("i", "Echo", "x").await, OrchestrationStatus::Completed { .. }));
    let gate = faulty.hold(Call::Read);
    let wait = |client: Client| tokio::spawn(async move { client.wait_for_orchestration("i", SOON).await });
    let reads = faulty.count(Call::Read);
    let reader = wait(world.client.clone());
    while faulty.count(Call::Read) == reads {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..10).map(|_| wait(world.client.clone())).collect();
    tokio::task::yield_now().await;
    reader.abort();
    assert!(reader.await.unwrap_err().is_cancelled());
    faulty.release(Call::Read);
    gate.add_permits(1_000);
    for other in others {
        assert_eq!(runtime_support::output(other.await.unwrap().unwrap()), "x");
    }
    runtime.shutdown(None).await;
}

/// Large outputs are read one by one, so that an answer for many stays small.
#[tokio::test]
async fn large_outputs_reach_their_waiters() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    let large = "x".repeat(1_500_000);
    for n in 0..6 {
        world.client.start_orchestration(format!("i{n}"), "Echo", large.clone()).await.unwrap();
    }
    let mut waits = JoinSet::new();
    for n in 0..6 {
        let client = world.client.clone();
        waits.spawn(async move { client.wait_for_orchestration(&format!("i{n}"), SOON).await });
    }
    while let Some(ended) = waits.join_next().await {
        assert_eq!(runtime_support::output(ended.unwrap().unwrap()).len(), large.len());
    }
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_wait_for_a_custom_status_shares_reads_too() {
    let (world, _) = faulty_world();
    let code = orchestrations().register("Tells", |ctx: OrchestrationContext, _: String| async move {
        ctx.set_custom_status("one");
        ctx.schedule_wait("go").await;
        ctx.set_custom_status("two");
        ctx.schedule_wait("end").await;
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Tells", "").await.unwrap();
    let change =
        async |seen| world.client.wait_for_status_change("i", seen, Duration::ZERO, SOON).await.unwrap();
    let OrchestrationStatus::Running { custom_status, custom_status_version } = change(0).await else {
        panic!("it runs")
    };
    assert_eq!(custom_status.as_deref(), Some("one"));
    let next = async {
        prune(&world.client).await;
        world.client.raise_event("i", "go", "").await.unwrap();
    };
    let (changed, ()) = tokio::join!(change(custom_status_version), next);
    let OrchestrationStatus::Running { custom_status, .. } = changed else { panic!("it runs") };
    assert_eq!(custom_status.as_deref(), Some("two"));
    runtime.shutdown(None).await;
}
