//! Instances that their code cannot take further: blocked with the reason, and freed by code that fits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::runtime_support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{BlockedInstance, Provider};
use duroxide::runtime::registry::{ActivityRegistry, ActivityRegistryBuilder};
use duroxide::runtime::{OnForeignWait, OnMismatch, OnUnregistered, Runtime, UnregisteredBackoffConfig};
use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationRegistryBuilder,
    OrchestrationStatus, RuntimeOptions,
};
use runtime_support::unregistered_activities::shown_blocked;
use runtime_support::{SOON, World};

/// Both embedded stores.
async fn stores() -> Vec<Arc<dyn Provider>> {
    vec![Arc::new(MemoryProvider::new()), Arc::new(SqliteProvider::new_in_memory().await.unwrap())]
}

fn options(build: &str) -> RuntimeOptions {
    RuntimeOptions {
        on_mismatch: OnMismatch::Block,
        on_unregistered: OnUnregistered::Block,
        on_foreign_wait: OnForeignWait::Block,
        build_id: Some(build.to_string()),
        unregistered_backoff: UnregisteredBackoffConfig {
            base_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(1),
        },
        ..Default::default()
    }
}

fn echo() -> ActivityRegistryBuilder {
    let echo = |_: ActivityContext, input: String| async move { Ok(input) };
    ActivityRegistry::builder().register("A", echo).register("B", echo)
}

async fn start(store: &Arc<dyn Provider>, code: OrchestrationRegistryBuilder, build: &str) -> Arc<Runtime> {
    let (activities, code) = (echo().build(), code.build());
    Runtime::start_with_options(store.clone(), activities, code, options(build)).await
}

/// Waits until an instance is blocked.
async fn blocked(client: &Client, instance: &str) -> BlockedInstance {
    loop {
        let blocked = client.list_blocked_instances(100).await.unwrap();
        if let Some(blocked) = blocked.into_iter().find(|blocked| blocked.instance == instance) {
            return blocked;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until an instance has this many events.
async fn recorded(store: &Arc<dyn Provider>, instance: &str, events: usize) {
    while store.read(instance).await.unwrap().len() < events {
        tokio::task::yield_now().await;
    }
}

fn completed(status: OrchestrationStatus) -> String {
    match status {
        OrchestrationStatus::Completed { output, .. } => output,
        other => panic!("{other:?}"),
    }
}

fn order() -> OrchestrationRegistryBuilder {
    OrchestrationRegistry::builder().register("Order", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("A", "a").await?;
        ctx.schedule_wait("Go").await;
        ctx.schedule_activity("B", "b").await
    })
}

/// The same orchestration, changed in a way that does not fit what is recorded.
fn changed_order() -> OrchestrationRegistryBuilder {
    OrchestrationRegistry::builder().register("Order", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("B", "b").await
    })
}

// semantics: BLOCK-1
#[tokio::test]
async fn an_instance_whose_code_does_not_fit_is_blocked_and_goes_on_after_a_rollback() {
    for store in stores().await {
        let client = Client::new(store.clone());
        let old = start(&store, order(), "old").await;
        client.start_orchestration("o", "Order", "").await.unwrap();
        recorded(&store, "o", 4).await;
        old.shutdown(None).await;
        let before = store.read("o").await.unwrap();

        let new = start(&store, changed_order(), "new").await;
        client.raise_event("o", "Go", "").await.unwrap();
        let reason = blocked(&client, "o").await.reason;
        assert!(reason.starts_with(r#"mismatch ["Order","1.0.0","new"]: "#), "{reason}");
        assert!(
            reason.contains("event 2 recorded activity 'A'; the code now asks for activity 'B' at "),
            "{reason}"
        );
        assert!(reason.contains("blocked_instances.rs:"), "{reason}");
        assert_eq!(store.read("o").await.unwrap(), before);
        // Another runtime of the same build changes nothing.
        let same = start(&store, changed_order(), "new").await;
        same.shutdown(None).await;
        new.shutdown(None).await;
        assert_eq!(client.list_blocked_instances(10).await.unwrap().len(), 1);

        let back = start(&store, order(), "old").await;
        assert_eq!(completed(client.wait_for_orchestration("o", SOON).await.unwrap()), "b");
        assert!(client.list_blocked_instances(10).await.unwrap().is_empty());
        back.shutdown(None).await;
    }
}

// semantics: BLOCK-2
#[tokio::test]
async fn an_instance_that_waits_for_something_foreign_is_blocked_and_goes_on_with_a_fixed_version() {
    let broken = || {
        OrchestrationRegistry::builder().register("Nap", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("A", "a").await?;
            tokio::sync::Notify::new().notified().await;
            ctx.schedule_activity("B", "b").await
        })
    };
    let mended = || {
        OrchestrationRegistry::builder().register("Nap", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("A", "a").await?;
            ctx.schedule_timer(Duration::from_millis(1)).await;
            ctx.schedule_activity("B", "b").await
        })
    };
    for store in stores().await {
        let client = Client::new(store.clone());
        let runtime = start(&store, broken(), "1").await;
        client.start_orchestration("n", "Nap", "").await.unwrap();
        let reason = blocked(&client, "n").await.reason;
        assert!(reason.starts_with(r#"foreign wait ["Nap","1.0.0","1"]: "#), "{reason}");
        assert!(reason.contains("waits for something that is not durable"), "{reason}");
        assert!(
            reason.contains("after its request at crates/duroxide/tests/blocked_instances.rs:"),
            "{reason}"
        );
        assert!(reason.contains("taken up by event 3 (the outcome of an activity)"), "{reason}");
        assert_eq!(store.read("n").await.unwrap().len(), 2);
        runtime.shutdown(None).await;
        let runtime = start(&store, mended(), "2").await;
        assert_eq!(completed(client.wait_for_orchestration("n", SOON).await.unwrap()), "b");
        runtime.shutdown(None).await;
    }
}

// semantics: BLOCK-2
#[tokio::test]
async fn an_instance_in_memory_that_something_foreign_woke_between_two_turns_is_blocked() {
    let bell = Arc::new(tokio::sync::Notify::new());
    let code = OrchestrationRegistry::builder().register("Nap", {
        let bell = bell.clone();
        move |ctx: OrchestrationContext, _: String| {
            let bell = bell.clone();
            async move {
                // Each future of the set is polled with a waker of the set, so nobody sees who keeps it.
                let mut set = FuturesUnordered::new();
                set.push(ctx.schedule_wait("Go").boxed());
                set.push(ctx.schedule_wait("Never").boxed());
                set.push(async move { bell.notified().await }.map(|()| "rung".to_string()).boxed());
                Ok(set.next().await.unwrap_or_default())
            }
        }
    });
    let store: Arc<dyn Provider> = Arc::new(SqliteProvider::new_in_memory().await.unwrap());
    let client = Client::new(store.clone());
    let runtime = start(&store, code, "1").await;
    client.start_orchestration("n", "Nap", "").await.unwrap();
    recorded(&store, "n", 3).await;
    bell.notify_waiters();
    client.raise_event("n", "Go", "data").await.unwrap();
    let reason = blocked(&client, "n").await.reason;
    assert!(reason.contains("the code was woken by something that is not durable"), "{reason}");
    assert!(reason.contains("after its request at crates/duroxide/tests/blocked_instances.rs:"), "{reason}");
    assert_eq!(store.read("n").await.unwrap().len(), 3);
    runtime.shutdown(None).await;
}

// semantics: BLOCK-3
#[tokio::test]
async fn an_instance_that_nobody_has_registered_is_blocked_until_somebody_has() {
    for store in stores().await {
        let client = Client::new(store.clone());
        let without = start(&store, OrchestrationRegistry::builder(), "1").await;
        client.start_orchestration("o", "Order", "").await.unwrap();
        let reason = blocked(&client, "o").await.reason;
        assert!(reason.starts_with(r#"unregistered ["Order","","1"]: Order is not registered"#), "{reason}");
        client.raise_event("o", "Go", "").await.unwrap();
        without.shutdown(None).await;
        // Also by a runtime of the same build, as in a fleet whose members register different things.
        let with = start(&store, order(), "1").await;
        recorded(&store, "o", 5).await;
        client.raise_event("o", "Go", "").await.unwrap();
        assert_eq!(completed(client.wait_for_orchestration("o", SOON).await.unwrap()), "b");
        with.shutdown(None).await;
    }
}

// semantics: BLOCK-3
#[tokio::test]
async fn a_version_that_is_missing_blocks_and_the_version_frees() {
    for store in stores().await {
        let client = Client::new(store.clone());
        let one = start(&store, order(), "1").await;
        client.start_orchestration_versioned("o", "Order", "2.0.0", "").await.unwrap();
        let reason = blocked(&client, "o").await.reason;
        assert!(reason.contains("Order 2.0.0 is not registered on any worker that tried; registered: 1.0.0"));
        one.shutdown(None).await;
        let code = order().register_versioned("Order", "2.0.0", |_: OrchestrationContext, _: String| async {
            Ok("two".to_string())
        });
        let two = start(&store, code, "2").await;
        assert_eq!(completed(client.wait_for_orchestration("o", SOON).await.unwrap()), "two");
        two.shutdown(None).await;
    }
}

// semantics: BLOCK-4
#[tokio::test]
async fn two_builds_on_one_store_do_not_pass_an_instance_to_and_fro() {
    let world = World::new();
    let old = start(&world.store, order(), "old").await;
    world.client.start_orchestration("o", "Order", "").await.unwrap();
    world.waits_for("o", "Go").await;
    old.shutdown(None).await;
    // Neither of these fits.
    let one = start(&world.store, changed_order(), "one").await;
    world.client.raise_event("o", "Go", "").await.unwrap();
    blocked(&world.client, "o").await;
    let other = start(&world.store, changed_order(), "other").await;
    let mut blockings = std::collections::BTreeSet::new();
    // In ten hours each of them tries a few times, and no more.
    for _ in 0..600 {
        world.clock.advance(Duration::from_secs(60));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let blocked = world.client.list_blocked_instances(1).await.unwrap();
        blockings.extend(blocked.iter().map(|blocked| blocked.blocked_at));
    }
    // At first after 1, 2, 4, 8, 16 and 32 minutes, then every hour.
    assert!((4..=40).contains(&blockings.len()), "{blockings:?}");
    one.shutdown(None).await;
    other.shutdown(None).await;
}

// semantics: BLOCK-1
#[tokio::test]
async fn a_blocked_instance_can_be_cancelled() {
    for store in stores().await {
        let client = Client::new(store.clone());
        let old = start(&store, order(), "old").await;
        client.start_orchestration("o", "Order", "").await.unwrap();
        recorded(&store, "o", 4).await;
        old.shutdown(None).await;
        let new = start(&store, changed_order(), "new").await;
        client.raise_event("o", "Go", "").await.unwrap();
        blocked(&client, "o").await;
        client.cancel_instance("o", "no longer wanted").await.unwrap();
        assert!(client.unblock_instance("o").await.unwrap());
        match client.wait_for_orchestration("o", SOON).await.unwrap() {
            OrchestrationStatus::Failed { details, .. } => {
                assert!(details.display_message().contains("no longer wanted"), "{details:?}");
            }
            other => panic!("{other:?}"),
        }
        new.shutdown(None).await;
    }
}

// semantics: BLOCK-3
#[tokio::test]
async fn an_activity_that_nobody_has_registered_waits_and_is_never_poison() {
    let world = World::new();
    let code = || {
        OrchestrationRegistry::builder().register("One", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("A", "a").await
        })
    };
    let few = RuntimeOptions { max_attempts: 2, ..options("1") };
    let without = Runtime::start_with_options(
        world.store.clone(),
        ActivityRegistry::default(),
        code().build(),
        few.clone(),
    )
    .await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    for _ in 0..200 {
        world.clock.advance(Duration::from_millis(100));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(world.history("i").await.len(), 2);
    without.shutdown(None).await;
    let with = Runtime::start_with_options(world.store.clone(), echo().build(), code().build(), few).await;
    assert_eq!(completed(world.end_in_time("i", Duration::from_secs(1)).await), "a");
    with.shutdown(None).await;
}

// semantics: BLOCK-3
#[tokio::test]
async fn an_activity_that_nobody_has_registered_is_found_among_the_blocked_and_goes_on_when_it_is_there() {
    for store in stores().await {
        shown_blocked(store).await;
    }
}

/// The published behaviour stays the default.
#[tokio::test]
async fn by_default_an_instance_whose_code_does_not_fit_fails() {
    let world = World::new();
    let old = start(&world.store, order(), "old").await;
    world.client.start_orchestration("o", "Order", "").await.unwrap();
    world.waits_for("o", "Go").await;
    old.shutdown(None).await;
    let new = world.start(echo(), changed_order()).await;
    world.client.raise_event("o", "Go", "").await.unwrap();
    let failure = world.failure("o").await;
    assert!(failure.contains("nondeterministic"), "{failure}");
    new.shutdown(None).await;
}
