//! The runtime on the embedded store, where a turn's commit claims its activities and a result's commit claims its
//! instance: order, shutdown, sessions and panics work as they do without that.
//!
//! The store's clock stands still, so no lease ever runs out: work that the runtime does not give back never appears
//! again.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;
use crate::sqlite_store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use duroxide::providers::LONGEST_OVERTAKING;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistryBuilder;
use duroxide::{
    ActivityContext, EventKind, OrchestrationContext, OrchestrationRegistryBuilder, RuntimeOptions,
};
use runtime_support::{Stage, World, activities, orchestrations};
use sqlite_store::{StoreFile, soon};

/// A store in a file, and the ways to inspect it.
struct Site {
    store: Arc<SqliteProvider>,
    world: World,
    file: StoreFile,
}

impl Site {
    async fn new() -> Self {
        let file = StoreFile::new();
        let store = file.open().await;
        let world = World::on(store.clone(), file.clock.clone());
        Self { store, world, file }
    }

    async fn runtime(
        &self,
        activities: ActivityRegistryBuilder,
        orchestrations: OrchestrationRegistryBuilder,
        options: RuntimeOptions,
    ) -> Arc<Runtime> {
        self.world.start_with(activities, orchestrations, options).await
    }

    async fn start(&self, instance: &str, orchestration: &str, input: &str) {
        self.world.client.start_orchestration(instance, orchestration, input).await.unwrap();
    }

    async fn output(&self, instance: &str) -> String {
        soon(self.world.output(instance)).await
    }

    async fn number(&self, sql: &str) -> i64 {
        self.store.query_number(sql).await.unwrap()
    }

    async fn has_scheduled(&self, instance: &str) {
        let scheduled = |kind: &EventKind| matches!(kind, EventKind::ActivityScheduled { .. });
        // The store does not tell watchers of every turn, so this reads the history.
        soon(async {
            while !self.world.history(instance).await.iter().any(|event| scheduled(&event.kind)) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// An orchestration that runs as many steps as its input says, one after the other, and returns their results.
fn chain() -> OrchestrationRegistryBuilder {
    orchestrations().register("Chain", |ctx: OrchestrationContext, steps: String| async move {
        let mut results = String::new();
        for step in 0..steps.parse::<usize>().unwrap() {
            results += &ctx.schedule_activity("Step", step.to_string()).await?;
        }
        Ok(results)
    })
}

/// One of everything.
fn narrow() -> RuntimeOptions {
    RuntimeOptions { worker_concurrency: 1, orchestration_concurrency: 1, ..Default::default() }
}

// On one thread: the machine may hold up one of several while the others go on, and what it was handing over with them.
#[tokio::test]
async fn the_next_step_of_a_chain_does_not_overtake_work_of_others_that_has_waited() {
    let site = Site::new().await;
    let stage = Stage::default();
    let reporting = {
        let stage = stage.clone();
        activities().register("Step", move |ctx: ActivityContext, step: String| {
            let stage = stage.clone();
            async move {
                let name = format!("{}-{step}", ctx.instance_id());
                stage.report(&name);
                if name == "chain-0" {
                    stage.wait().await;
                }
                Ok(step)
            }
        })
    };
    let runtime = site.runtime(reporting, chain(), narrow()).await;
    site.start("chain", "Chain", "3").await;
    soon(stage.seen("chain-0", 1)).await;
    // Each of them has its activity in the queue before the chain takes its next step.
    for n in 0..4 {
        let instance = format!("other{n}");
        site.start(&instance, "Chain", "1").await;
        site.has_scheduled(&instance).await;
    }
    // For a moment it might. Then those who wait come first.
    site.file.clock.advance(LONGEST_OVERTAKING);
    stage.let_go();
    assert_eq!(site.output("chain").await, "012");
    let expected = ["chain-0", "other0-0", "other1-0", "other2-0", "other3-0", "chain-1", "chain-2"];
    assert_eq!(stage.log(), expected);
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_in_the_middle_of_the_work_loses_nothing_and_counts_no_attempt() {
    let site = Site::new().await;
    let stage = Stage::default();
    let step = |stage: &Stage| {
        let stage = stage.clone();
        activities().register("Step", move |ctx: ActivityContext, _: String| {
            stage.report("step");
            async move { Ok(ctx.attempt().to_string()) }
        })
    };
    const INSTANCES: usize = 20;
    const STEPS: usize = 10;
    for n in 0..INSTANCES {
        site.start(&format!("i{n}"), "Chain", &STEPS.to_string()).await;
    }
    // A second attempt of anything would be one too many.
    let options = RuntimeOptions { max_attempts: 1, ..Default::default() };
    for round in 1..=12 {
        let runtime = site.runtime(step(&stage), chain(), options.clone()).await;
        soon(stage.seen("step", 13 * round)).await;
        soon(runtime.shutdown(None)).await;
        let leased = "SELECT (SELECT count(*) FROM worker_queue WHERE lock_token IS NOT NULL)
            + (SELECT count(*) FROM instance_schedule WHERE lock_token IS NOT NULL)";
        assert_eq!(site.number(leased).await, 0, "round {round}: everything was given back");
    }
    let runtime = site.runtime(step(&stage), chain(), options).await;
    for n in 0..INSTANCES {
        assert_eq!(site.output(&format!("i{n}")).await, "1".repeat(STEPS));
    }
    assert_eq!(stage.log().len(), INSTANCES * STEPS, "each step was run once");
    runtime.shutdown(None).await;
    site.file.assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_without_workers_claims_no_activity_and_one_without_orchestrators_no_instance() {
    let site = Site::new().await;
    let step = || {
        activities()
            .register("Step", |ctx: ActivityContext, _: String| async move { Ok(ctx.attempt().to_string()) })
    };
    let options = |worker_concurrency, orchestration_concurrency| RuntimeOptions {
        worker_concurrency,
        orchestration_concurrency,
        max_attempts: 1,
        ..Default::default()
    };
    let turns_only = site.runtime(step(), chain(), options(0, 2)).await;
    for n in 0..5 {
        site.start(&format!("i{n}"), "Chain", "2").await;
    }
    for n in 0..5 {
        site.has_scheduled(&format!("i{n}")).await;
    }
    turns_only.shutdown(None).await;
    let untouched = "SELECT count(*) FROM worker_queue WHERE lock_token IS NULL AND attempt_count = 0";
    assert_eq!(site.number(untouched).await, 5, "nobody claimed an activity");

    let activities_only = site.runtime(step(), chain(), options(2, 0)).await;
    soon(async {
        while site.number("SELECT count(*) FROM orchestrator_queue").await < 5 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    activities_only.shutdown(None).await;
    let untouched = "SELECT count(*) FROM orchestrator_queue WHERE attempt_count = 0";
    assert_eq!(site.number(untouched).await, 5, "nobody claimed an instance");
    assert_eq!(site.number("SELECT count(*) FROM instance_schedule WHERE lock_token IS NOT NULL").await, 0);

    let both = (
        site.runtime(step(), chain(), options(0, 2)).await,
        site.runtime(step(), chain(), options(2, 0)).await,
    );
    for n in 0..5 {
        assert_eq!(site.output(&format!("i{n}")).await, "11");
    }
    both.0.shutdown(None).await;
    both.1.shutdown(None).await;
}

/// Where the activities of a session ran.
type Places = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activities_of_a_session_stay_with_one_worker_while_others_are_handed_over() {
    let site = Site::new().await;
    let places = Places::default();
    let step = {
        let places = places.clone();
        activities().register("Step", move |ctx: ActivityContext, _: String| {
            if let Some(session) = ctx.session_id() {
                let worker = ctx.worker_id().to_string();
                places.lock().unwrap().entry(session.to_string()).or_default().push(worker);
            }
            async move { Ok(ctx.attempt().to_string()) }
        })
    };
    let mixed = orchestrations().register("Mixed", |ctx: OrchestrationContext, session: String| async move {
        let mut results = String::new();
        for _ in 0..5 {
            results += &ctx.schedule_activity("Step", "").await?;
            results += &ctx.schedule_activity_on_session("Step", "", &session).await?;
        }
        let both = ctx
            .join2(ctx.schedule_activity("Step", ""), ctx.schedule_activity_on_session("Step", "", &session))
            .await;
        Ok(results + &both.0? + &both.1?)
    });
    let options = RuntimeOptions { worker_concurrency: 3, max_attempts: 1, ..Default::default() };
    let runtime = site.runtime(step, mixed, options).await;
    for n in 0..12 {
        site.start(&format!("i{n}"), "Mixed", &format!("s{}", n % 6)).await;
    }
    for n in 0..12 {
        assert_eq!(site.output(&format!("i{n}")).await, "1".repeat(12));
    }
    runtime.shutdown(None).await;
    let places = places.lock().unwrap();
    assert_eq!(places.len(), 6);
    for (session, workers) in &*places {
        assert_eq!(workers.len(), 12, "{session}");
        assert!(workers.iter().all(|worker| worker == &workers[0]), "{session} ran in {workers:?}");
    }
}

/// Panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_panics_fails_and_its_slot_goes_on() {
    let site = Site::new().await;
    let step = activities().register("Step", |_: ActivityContext, kind: String| async move {
        match kind.as_str() {
            "at once" => panic!("at once"),
            "later" => {
                tokio::task::yield_now().await;
                panic!("later, with {}", 7)
            }
            "no text" => std::panic::panic_any(7),
            "grenade" => std::panic::panic_any(Grenade),
            other => Ok(other.to_string()),
        }
    });
    let each = orchestrations().register("Each", |ctx: OrchestrationContext, _: String| async move {
        let mut results = Vec::new();
        for kind in ["at once", "later", "no text", "grenade", "fine"] {
            results.push(ctx.schedule_activity("Step", kind).await.unwrap_or_else(|error| error));
        }
        Ok(results.join("\n"))
    });
    let runtime = site.runtime(step, each, narrow()).await;
    site.start("i", "Each", "").await;
    let expected = [
        "activity panicked with message \"at once\"",
        "activity panicked with message \"later, with 7\"",
        "activity panicked",
        "activity panicked",
        "fine",
    ];
    assert_eq!(site.output("i").await, expected.join("\n"));
    runtime.shutdown(None).await;
}
