//! Work ends its process (abort) each time it is taken up: its code does, or decoding it. It is poisoned, and the work beside it
//! comes to its end.
//!
//! The process that dies is this test binary, started again. Leases last far longer than a test, so each comes free only because
//! its owner died.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::child_process::run_alone;
use crate::crash_looping::{AbortsAtDecoding, LARGE, large_work, poisoned_after, run_until_it_ends};
use crate::support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ExtendedProvider, InstanceRequest, Provider, TagFilter, WorkQueue, WorkRequest};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Client, Event, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus, RuntimeOptions,
};
use duroxide_pg::PostgresProvider;
use support::database::connect;
use support::proxy::Proxy;
use support::world::{World, signal, take_turn, until};

const LEASE: Duration = Duration::from_secs(3_600);
const FAILURE_BOUND: Duration = Duration::from_secs(60);
const MAX_ATTEMPTS: u32 = 5;
const BYSTANDERS: usize = 40;

const CHILD_URL: &str = "DUROXIDE_TEST_CRASH_URL";
const CHILD_SCHEMA: &str = "DUROXIDE_TEST_CRASH_SCHEMA";
const CULPRIT: &str = "DUROXIDE_TEST_CRASH_CULPRIT";

fn few_attempts() -> RuntimeOptions {
    RuntimeOptions {
        orchestrator_lock_timeout: LEASE,
        worker_lock_timeout: LEASE,
        session_idle_timeout: LEASE * 2,
        max_attempts: MAX_ATTEMPTS,
        ..Default::default()
    }
}

/// The process that dies: a runtime whose user code aborts it.
#[test]
fn child_runs_user_code_that_aborts() {
    let (Ok(url), Ok(culprit)) = (std::env::var(CHILD_URL), std::env::var(CULPRIT)) else { return };
    let schema = std::env::var(CHILD_SCHEMA).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = PostgresProvider::new_with_schema(&url, Some(&schema)).await.unwrap();
        let store = Arc::new(store);
        let activities = ActivityRegistry::builder()
            .register("Attempt", async |ctx: ActivityContext, _: String| Ok(ctx.attempt().to_string()))
            .register("Abort", async |_: ActivityContext, _: String| std::process::abort())
            .build();
        let orchestrations = OrchestrationRegistry::builder()
            .register("Bystander", async |ctx: OrchestrationContext, _: String| {
                ctx.schedule_activity("Attempt", "").await
            })
            .register("activity", async |ctx: OrchestrationContext, _: String| {
                ctx.schedule_activity("Abort", "").await
            })
            .register("turn", async |_: OrchestrationContext, _: String| std::process::abort())
            .build();
        let options =
            RuntimeOptions { orchestration_concurrency: 1, worker_concurrency: 1, ..few_attempts() };
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        let client = Client::new(store);
        client.wait_for_orchestration(&culprit, FAILURE_BOUND).await.unwrap();
        for n in 0..BYSTANDERS {
            client.wait_for_orchestration(&format!("b{n}"), FAILURE_BOUND).await.unwrap();
        }
        runtime.shutdown(None).await;
    });
}

fn child(world: &World, test: &str, culprit: &str) -> Command {
    let mut child = run_alone(module_path!(), test);
    child.env(CHILD_URL, world.cluster.url()).env(CHILD_SCHEMA, &world.schema).env(CULPRIT, culprit);
    child
}

async fn crash_loop(culprit: &str) {
    let world = World::new(&[]).await;
    let client = Client::new(world.sound_store().await);
    for n in 0..BYSTANDERS {
        if n == BYSTANDERS / 2 {
            client.start_orchestration(culprit, culprit, "").await.unwrap();
        }
        client.start_orchestration(format!("b{n}"), "Bystander", "").await.unwrap();
    }
    let child = child(&world, "child_runs_user_code_that_aborts", culprit);
    assert_eq!(run_until_it_ends(child, MAX_ATTEMPTS), MAX_ATTEMPTS);
    assert_eq!(poisoned_after(&client, culprit).await, MAX_ATTEMPTS + 1);
    let mut tried_again = 0;
    for n in 0..BYSTANDERS {
        let status = client.get_orchestration_status(&format!("b{n}")).await.unwrap();
        let OrchestrationStatus::Completed { output, .. } = status else { panic!("b{n}: {status:?}") };
        tried_again += output.parse::<u32>().unwrap() - 1;
    }
    // Each counts as tried once if it was leased ahead a moment before a crash. After that only what ran or was about to run
    // counts: there is one slot for activities, and one for the turn that takes the result of another.
    let most = u32::try_from(BYSTANDERS).unwrap() + 2 * MAX_ATTEMPTS;
    assert!(tried_again <= most, "bystanders were charged {tried_again} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_crashes_the_process_is_poisoned_and_no_bystander_is() {
    crash_loop("activity").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_crashes_the_process_is_poisoned_and_no_bystander_is() {
    crash_loop("turn").await;
}

/// Opens a store in a process that dies. A process that died before others know it would keep its leases.
async fn known_store(url: &str, schema: &str) -> Arc<PostgresProvider> {
    let store = Arc::new(PostgresProvider::new_with_schema(url, Some(schema)).await.unwrap());
    let nobodys = TagFilter::tags(["nobody's"]);
    let request = WorkRequest { max: 1, lock_timeout: LEASE, session: None, tag_filter: &nobodys };
    assert!(store.claim_work(&request).await.unwrap().is_empty());
    let database = connect_to(url, schema).await;
    let is_known = "EXISTS (SELECT 1 FROM lease_holders h, pg_locks l
        WHERE l.locktype = 'advisory' AND (l.classid::bigint << 32) | l.objid::bigint = h.lock_key)";
    until(&database, is_known).await;
    store
}

async fn connect_to(url: &str, schema: &str) -> tokio_postgres::Client {
    let database = connect(url).await;
    database.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
    database
}

/// Makes this process abort where its store decodes `CULPRIT`, if it is a child, and returns the store's address and schema.
fn abort_in_decoding() -> Option<(String, String)> {
    let variable = |name| std::env::var(name).ok();
    let (url, schema, what) = (variable(CHILD_URL)?, variable(CHILD_SCHEMA)?, variable(CULPRIT)?);
    tracing::subscriber::set_global_default(AbortsAtDecoding { what }).unwrap();
    Some((url, schema))
}

/// The process that dies: a runtime.
#[test]
fn child_aborts_in_decoding() {
    let Some((url, schema)) = abort_in_decoding() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = known_store(&url, &schema).await;
        let (activities, orchestrations) = large_work();
        let runtime =
            Runtime::start_with_options(store.clone(), activities, orchestrations, few_attempts()).await;
        Client::new(store).wait_for_orchestration("large", FAILURE_BOUND).await.unwrap();
        runtime.shutdown(None).await;
    });
}

/// The process that dies: when it loads the history, it has listed the lease as not begun.
#[test]
fn child_loads_what_it_has_held() {
    let Some((url, schema)) = abort_in_decoding() else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = known_store(&url, &schema).await;
        let claim = store.claim_instances(&one_instance()).await.unwrap().pop().unwrap();
        let is_listed =
            format!("EXISTS (SELECT 1 FROM lease_holders WHERE '{}' = ANY (held))", claim.lock_token);
        until(&connect_to(&url, &schema).await, &is_listed).await;
        drop(store.load_history(&claim.lock_token, 0).await);
    });
}

fn one_instance() -> InstanceRequest<'static> {
    InstanceRequest { max: 1, lock_timeout: LEASE, filter: None }
}

/// Makes an instance with a large history and a message.
async fn large_instance(store: &PostgresProvider) {
    take_turn(store, "large").await;
    let text = "x".repeat(LARGE);
    for id in 2..5 {
        let kind = EventKind::ActivityCompleted { result: text.clone() };
        store
            .append_with_execution("large", 1, vec![Event::with_event_id(id, "large", 1, None, kind)])
            .await
            .unwrap();
    }
    store.enqueue_for_orchestrator(signal("large"), None).await.unwrap();
}

/// Claims until something comes free, and returns its token and which attempt it is.
async fn claim_one(store: &PostgresProvider, queue: WorkQueue) -> (String, u32) {
    let mut announced = store.work_signal(queue);
    let all = TagFilter::Any;
    let work = WorkRequest { max: 1, lock_timeout: LEASE, session: None, tag_filter: &all };
    loop {
        announced.mark_seen();
        let claimed = match queue {
            WorkQueue::Orchestrator => {
                let claims = store.claim_instances(&one_instance()).await.unwrap();
                claims.into_iter().next().map(|claim| (claim.lock_token, claim.attempt_count))
            }
            WorkQueue::Worker => {
                let claims = store.claim_work(&work).await.unwrap();
                claims.into_iter().next().map(|claim| (claim.lock_token, claim.attempt_count))
            }
        };
        match claimed {
            Some(claimed) => return claimed,
            None => announced.wait().await,
        }
    }
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_kills_the_process_which_loads_it_is_poisoned() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let client = Client::new(store.clone());
    let (activities, orchestrations) = large_work();
    let runtime = Runtime::start_with_options(store, activities, orchestrations, few_attempts()).await;
    client.start_orchestration("large", "Collect", "").await.unwrap();
    client.wait_for_status_change("large", 0, Duration::from_millis(10), FAILURE_BOUND).await.unwrap();
    runtime.shutdown(None).await;
    client.raise_event("large", "go", "").await.unwrap();

    // The attempt after the last one loads the history to fail the instance as poison. The next one does without.
    let child = child(&world, "child_aborts_in_decoding", "history");
    assert_eq!(run_until_it_ends(child, MAX_ATTEMPTS + 1), MAX_ATTEMPTS + 1);
    assert_eq!(poisoned_after(&client, "large").await, MAX_ATTEMPTS + 2);
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_counts_that_kills_the_process_after_its_lease_was_held_for_a_while() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    large_instance(&store).await;
    let mut child = child(&world, "child_loads_what_it_has_held", "history");
    assert!(!child.stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(claim_one(&store, WorkQueue::Orchestrator).await.1, 2);
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_does_not_count_whose_large_history_is_loaded_and_whose_code_has_not_begun() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    large_instance(&store).await;
    for (attempt, is_noted) in [(1, "cardinality(held) = 1"), (2, "TRUE")] {
        let proxy = Proxy::new(world.cluster.port()).await;
        let doomed = world.open(&world.cluster.url_through(proxy.port())).await;
        let (token, count) = claim_one(&doomed, WorkQueue::Orchestrator).await;
        assert_eq!(count, attempt);
        doomed.load_history(&token, 0).await.unwrap();
        let holder = format!(
            "EXISTS (SELECT 1 FROM lease_holders WHERE '{token}' LIKE 'lock_' || holder || '%' AND {is_noted})"
        );
        world.until(&holder).await;
        drop(proxy);
        let (token, count) = claim_one(&store, WorkQueue::Orchestrator).await;
        assert_eq!(count, attempt);
        // The next attempt is the second one.
        store.abandon_orchestration_item(&token, None, false).await.unwrap();
    }
}

/// The store decodes before a runtime can judge the attempts. So another process, which has the memory, looks at them.
async fn crash_in_decoding_of(what: &str, queue: WorkQueue) {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    Client::new(store.clone()).start_orchestration("large", "Pass", "x".repeat(LARGE)).await.unwrap();
    for _ in 0..MAX_ATTEMPTS {
        let mut child = child(&world, "child_aborts_in_decoding", what);
        assert!(!child.stdout(Stdio::null()).status().unwrap().success());
    }
    assert_eq!(claim_one(&store, queue).await.1, MAX_ATTEMPTS + 1);
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_kill_the_process_which_decodes_them_use_up_attempts() {
    crash_in_decoding_of("messages", WorkQueue::Orchestrator).await;
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_kills_the_process_which_decodes_it_uses_up_attempts() {
    crash_in_decoding_of("activity", WorkQueue::Worker).await;
}
