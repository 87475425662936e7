//! Locks that last longer than leases: maintenance on a table, a row in an operator's editor, a forgotten transaction.
//! No instance fails, no attempt counts, no step is done twice, neighbours go on meanwhile, and the blocked work goes
//! on by itself.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::{ExtendedProvider, Provider, SendOutcome, StartOutcome, TagFilter};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
    RuntimeOptions,
};
use duroxide_pg::{Migrations, PostgresProvider};
use support::world::{World, activity, metadata, signal, start, started_event};

const LEASE: Duration = Duration::from_secs(30);
/// The lease of turns in tests that last longer.
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// Nothing here takes long; a test that waits for so long has failed.
const FAILURE_BOUND: Duration = Duration::from_secs(90);
/// Activities of each job, one after the other.
const STEPS: usize = 3;
const ATTEMPTS: u32 = 2;

/// How often each activity has run.
type Ledger = Arc<Mutex<HashMap<String, usize>>>;

/// Jobs that wait for a signal and then take their steps, with a record of what ran.
struct Jobs {
    client: Client,
    runtime: Arc<Runtime>,
    ledger: Ledger,
}

impl Jobs {
    async fn new(store: Arc<PostgresProvider>) -> Self {
        let ledger = Ledger::default();
        let noted = ledger.clone();
        let work = move |_: ActivityContext, input: String| {
            let noted = noted.clone();
            async move {
                *noted.lock().unwrap().entry(input.clone()).or_default() += 1;
                Ok(input)
            }
        };
        let job = |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_wait("go").await;
            for step in 0..STEPS {
                ctx.schedule_activity("Work", format!("{input}/{step}")).await?;
            }
            Ok(input)
        };
        let options = RuntimeOptions {
            orchestration_concurrency: 16,
            worker_concurrency: 16,
            orchestrator_lock_timeout: SHORT_LEASE,
            worker_lock_timeout: SHORT_LEASE,
            max_attempts: ATTEMPTS,
            ..Default::default()
        };
        let activities = ActivityRegistry::builder().register("Work", work).build();
        let orchestrations = OrchestrationRegistry::builder().register("Job", job).build();
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        Self { client: Client::new(store), runtime, ledger }
    }

    /// Starts jobs that wait for their signal.
    async fn start(&self, world: &World, count: usize) {
        for n in 0..count {
            self.client.start_orchestration(&format!("job-{n}"), "Job", format!("job-{n}")).await.unwrap();
        }
        let waiting = "SELECT count(*) FROM history WHERE event_type LIKE '%Subscribed%'";
        world.until(&format!("({waiting}) = {count} AND NOT EXISTS (SELECT 1 FROM instance_locks)")).await;
    }

    /// Lets jobs go, all at once.
    async fn go(&self, jobs: std::ops::Range<usize>) {
        let mut raising = tokio::task::JoinSet::new();
        for n in jobs {
            let client = self.client.clone();
            raising.spawn(async move { client.raise_event(&format!("job-{n}"), "go", "").await.unwrap() });
        }
        raising.join_all().await;
    }

    /// Waits until these jobs have ended well, each step of them run and recorded once.
    async fn completed(&self, jobs: std::ops::Range<usize>) {
        self.recorded_once(jobs.clone()).await;
        let ran = self.ledger.lock().unwrap().clone();
        for n in jobs {
            for step in 0..STEPS {
                let step = format!("job-{n}/{step}");
                assert_eq!(ran.get(&step), Some(&1), "{step}: {ran:?}");
            }
        }
    }

    /// Waits until these jobs have ended well, each step of them recorded once. An activity whose lease ran out while the
    /// worker could not reach the server may have run again.
    async fn recorded_once(&self, jobs: std::ops::Range<usize>) {
        for n in jobs {
            let instance = format!("job-{n}");
            let ending = async {
                loop {
                    match self.client.wait_for_orchestration(&instance, FAILURE_BOUND).await {
                        // The store cannot reach the server for now.
                        Err(error) if error.is_retryable() => tokio::task::yield_now().await,
                        status => return status.unwrap(),
                    }
                }
            };
            let status = tokio::time::timeout(FAILURE_BOUND, ending).await.expect("it ends");
            assert!(matches!(status, OrchestrationStatus::Completed { .. }), "{instance}: {status:?}");
            let events = self.client.read_execution_history(&instance, 1).await.unwrap();
            let count =
                |wanted: fn(&EventKind) -> bool| events.iter().filter(|event| wanted(&event.kind)).count();
            assert_eq!(
                count(|kind| matches!(kind, EventKind::ActivityScheduled { .. })),
                STEPS,
                "{instance}"
            );
            assert_eq!(
                count(|kind| matches!(kind, EventKind::ActivityCompleted { .. })),
                STEPS,
                "{instance}"
            );
        }
    }
}

/// Waits until so much time has passed in the database.
async fn pass_time(world: &World, time: Duration) {
    let database = world.connect().await;
    let now: String = database.query_one("SELECT clock_timestamp()::text", &[]).await.unwrap().get(0);
    let ms = time.as_millis();
    world.until(&format!("clock_timestamp() > '{now}'::timestamptz + interval '{ms} ms'")).await;
}

/// Counts the attempts that are held against messages.
async fn attempts(world: &World) -> i64 {
    world.number("SELECT coalesce(max(attempt_count), 0) FROM orchestrator_queue").await
}

// semantics: PG-11
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_locked_for_longer_than_leases_fails_no_instance() {
    let world = World::new(&[]).await;
    let jobs = Jobs::new(world.sound_store().await).await;
    jobs.start(&world, 20).await;
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    // The lock that `CREATE INDEX` takes.
    lock.batch_execute("LOCK history IN SHARE MODE").await.unwrap();
    jobs.go(0..20).await;
    pass_time(&world, SHORT_LEASE * (ATTEMPTS + 5)).await;
    assert_eq!(attempts(&world).await, 0);
    lock.rollback().await.unwrap();
    jobs.completed(0..20).await;
    jobs.runtime.shutdown(None).await;
}

// semantics: PG-11
#[tokio::test(flavor = "multi_thread")]
async fn the_neighbours_of_an_instance_whose_row_is_locked_go_on() {
    let world = World::new(&[]).await;
    let jobs = Jobs::new(world.sound_store().await).await;
    jobs.start(&world, 20).await;
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("SELECT 1 FROM instances WHERE instance_id = 'job-0' FOR UPDATE").await.unwrap();
    jobs.go(0..20).await;
    jobs.completed(1..20).await;
    pass_time(&world, SHORT_LEASE * (ATTEMPTS + 2)).await;
    assert_eq!(attempts(&world).await, 0);
    let status = jobs.client.get_orchestration_status("job-0").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Running { .. }), "{status:?}");
    lock.rollback().await.unwrap();
    jobs.completed(0..1).await;
    jobs.runtime.shutdown(None).await;
}

// semantics: PG-11
#[tokio::test(flavor = "multi_thread")]
async fn many_locked_instances_do_not_hold_up_the_others() {
    let world = World::new(&[]).await;
    let jobs = Jobs::new(world.sound_store().await).await;
    jobs.start(&world, 120).await;
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    let blocked = "SELECT 1 FROM instances WHERE substr(instance_id, 5)::int < 100 FOR UPDATE";
    lock.batch_execute(blocked).await.unwrap();
    jobs.go(0..120).await;
    jobs.completed(100..120).await;
    pass_time(&world, SHORT_LEASE * (ATTEMPTS + 1)).await;
    assert_eq!(attempts(&world).await, 0);
    lock.rollback().await.unwrap();
    jobs.completed(0..100).await;
    jobs.runtime.shutdown(None).await;
}

// semantics: PG-13
#[tokio::test(flavor = "multi_thread")]
async fn privileges_and_logins_that_are_missing_for_a_while_fail_no_instance() {
    let world = World::new(&[]).await;
    // The owner makes the schema.
    drop(world.sound_store().await);
    let schema = &world.schema;
    let grants = format!(
        "CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA {schema} TO worker;
         GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO worker; GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO worker"
    );
    world.run(&grants).await;
    let builder = PostgresProvider::builder().schema(schema).migrations(Migrations::Verify);
    let url = world.cluster.url().replace("postgres@", "worker@");
    let store = builder.retry_for(Duration::from_secs(1)).open(&url).await.unwrap();
    let jobs = Jobs::new(Arc::new(store)).await;
    jobs.start(&world, 10).await;
    world.run("REVOKE INSERT ON history FROM worker").await;
    jobs.go(0..5).await;
    pass_time(&world, SHORT_LEASE * (ATTEMPTS + 1)).await;
    assert_eq!(attempts(&world).await, 0);
    world.run("GRANT INSERT ON history TO worker").await;
    jobs.completed(0..5).await;
    jobs.go(5..10).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker'";
    world.run(&format!("ALTER ROLE worker NOLOGIN; {cut}")).await;
    pass_time(&world, SHORT_LEASE).await;
    world.run("ALTER ROLE worker LOGIN").await;
    jobs.recorded_once(5..10).await;
    jobs.runtime.shutdown(None).await;
}

/// Starts an instance and takes its turn.
async fn taken_turn(store: &PostgresProvider, instance: &str, lease: Duration) -> String {
    store.enqueue_start_if_absent(start(instance)).await.unwrap();
    let (item, token, _) =
        store.fetch_orchestration_item(lease, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!(item.instance, instance);
    token
}

// semantics: PG-11
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_waits_for_a_lock_holds_up_no_other_and_counts_from_when_it_came() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let blocked = taken_turn(&store, "blocked", SHORT_LEASE).await;
    let free = taken_turn(&store, "free", LEASE).await;
    store.enqueue_for_worker(activity("blocked")).await.unwrap();
    let tags = TagFilter::default();
    let (_, work, _) =
        store.fetch_work_item(SHORT_LEASE, Duration::ZERO, None, &tags).await.unwrap().unwrap();
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    for table in ["instance_schedule", "worker_queue"] {
        let sql = format!("SELECT 1 FROM {table} WHERE instance_id = 'blocked' FOR UPDATE");
        lock.batch_execute(&sql).await.unwrap();
    }
    let waiting = tokio::spawn({
        let store = store.clone();
        async move {
            tokio::join!(
                store.renew_orchestration_item_lock(&blocked, LEASE),
                store.renew_work_item_lock(&work, LEASE)
            )
        }
    });
    let others = async {
        for _ in 0..100 {
            store.renew_orchestration_item_lock(&free, LEASE).await.unwrap();
        }
    };
    tokio::time::timeout(SHORT_LEASE / 2, others).await.expect("they do not wait for it");
    // The leases run out while their renewals wait.
    world
        .until(
            "NOT EXISTS (SELECT 1 FROM instance_locks WHERE instance_id = 'blocked'
        AND locked_until > extract(epoch FROM clock_timestamp()) * 1000)",
        )
        .await;
    assert!(!waiting.is_finished());
    lock.rollback().await.unwrap();
    let (turn, work) = waiting.await.unwrap();
    turn.unwrap();
    work.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_while_its_row_is_locked_holds_up_no_claim() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let blocked = taken_turn(&store, "blocked", LEASE).await;
    store.enqueue_for_worker(activity("blocked")).await.unwrap();
    let tags = TagFilter::default();
    let (_, work, _) = store.fetch_work_item(LEASE, Duration::ZERO, None, &tags).await.unwrap().unwrap();
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    for table in ["instance_schedule", "worker_queue"] {
        let sql = format!("SELECT 1 FROM {table} WHERE instance_id = 'blocked' FOR UPDATE");
        lock.batch_execute(&sql).await.unwrap();
    }
    let giving_back = tokio::spawn({
        let store = store.clone();
        async move {
            tokio::join!(
                store.abandon_orchestration_item(&blocked, None, true),
                store.abandon_work_item(&work, None, true)
            )
        }
    });
    let claims = async {
        for n in 0..20 {
            taken_turn(&store, &format!("free-{n}"), LEASE).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), claims).await.expect("they do not wait for it");
    assert!(!giving_back.is_finished());
    lock.rollback().await.unwrap();
    let (turn, work) = giving_back.await.unwrap();
    turn.unwrap();
    work.unwrap();
    let (item, _, attempt) =
        store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!((item.instance.as_str(), attempt), ("blocked", 1));
    let (_, _, attempt) = store.fetch_work_item(LEASE, Duration::ZERO, None, &tags).await.unwrap().unwrap();
    assert_eq!(attempt, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_a_lock_leaves_its_lease_renewable() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let token = taken_turn(&store, "i", LEASE).await;
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("LOCK history IN SHARE MODE").await.unwrap();
    let committing = tokio::spawn({
        let (store, token) = (store.clone(), token.clone());
        async move {
            loop {
                let events = vec![started_event("i")];
                let ack = store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]);
                match ack.await {
                    Err(error) if error.retryable => {}
                    answer => return answer,
                }
            }
        }
    });
    world.until("EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock')").await;
    for _ in 0..5 {
        let renewing = store.renew_orchestration_item_lock(&token, LEASE);
        tokio::time::timeout(SHORT_LEASE, renewing).await.expect("it is renewed in time").unwrap();
    }
    lock.rollback().await.unwrap();
    committing.await.unwrap().unwrap();
    assert_eq!(store.read("i").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_meets_a_lock_is_not_in_the_way_of_others() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    world.run("CREATE TABLE held (instance text PRIMARY KEY); INSERT INTO held VALUES ('blocked')").await;
    // A write to this instance needs a row that another transaction holds.
    world
        .run(
            "CREATE FUNCTION need() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM 1 FROM held WHERE instance = NEW.instance_id FOR UPDATE; RETURN NEW;
            END $$;
            CREATE TRIGGER need BEFORE INSERT ON orchestrator_queue FOR EACH ROW EXECUTE FUNCTION need()",
        )
        .await;
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("SELECT 1 FROM held FOR UPDATE").await.unwrap();
    let mut blocked = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let store = store.clone();
        blocked.spawn(async move { store.enqueue_for_orchestrator(signal("blocked"), None).await });
    }
    let others = async {
        for n in 0..10 {
            store.enqueue_for_orchestrator(signal(&format!("free-{n}")), None).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(15), others).await.expect("they go through");
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 10);
    lock.rollback().await.unwrap();
    for told in blocked.join_all().await {
        told.unwrap();
    }
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 210);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_an_earlier_connection_left_behind_is_ended() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    let mut other = world.connect().await;
    let left = other.transaction().await.unwrap();
    left.batch_execute("UPDATE committers SET batch = batch").await.unwrap();
    world.proxy.cut();
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    assert!(left.batch_execute("SELECT 1").await.is_err(), "its backend was ended");
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_a_standby_is_not_ended() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let token = taken_turn(&store, "i", LEASE).await;
    let operator = world.connect().await;
    operator.batch_execute("SET synchronous_commit = local").await.unwrap();
    operator.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await.unwrap();
    operator.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let committing = tokio::spawn({
        let store = store.clone();
        async move {
            let events = vec![started_event("i")];
            store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]).await
        }
    });
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    world.until(&format!("EXISTS (SELECT 1 {waits})")).await;
    let waiting: i32 = operator.query_one(&format!("SELECT pid {waits}"), &[]).await.unwrap().get(0);
    world.proxy.cut();
    // The next epoch meets the row that this transaction holds, more than once.
    let waits_for_it = format!(
        "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {waiting} = ANY (pg_blocking_pids(pid)))"
    );
    for _ in 0..2 {
        world.until(&waits_for_it).await;
        world.until(&format!("NOT {waits_for_it}")).await;
    }
    assert_eq!(world.number(&format!("SELECT count(*) {waits} AND pid = {waiting}")).await, 1);
    operator.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await.unwrap();
    operator.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    committing.await.unwrap().unwrap();
    assert_eq!(store.read("i").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_statement_that_is_given_up_is_cancelled() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let sleeps = "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND state = 'active')";
    let asking = tokio::spawn({
        let store = store.clone();
        async move { store.execute_sql("SELECT pg_sleep(3000)").await }
    });
    world.until(sleeps).await;
    // No caller waits so long for an answer.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert!(asking.await.unwrap().unwrap_err().retryable);
    world.until(&format!("NOT {sleeps}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_leased_by_a_call_whose_answer_was_lost_is_given_back() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let tags = TagFilter::default();
    let spoil = || world.proxy.spoil_next_claim(support::proxy::NextCommit::LoseAnswer);
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    store.enqueue_for_worker(activity("i")).await.unwrap();
    // These calls prepare the statements.
    assert!(store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().is_some());
    assert!(store.fetch_work_item(LEASE, Duration::ZERO, None, &tags).await.unwrap().is_some());
    for n in 0..3 {
        let instance = format!("i-{n}");
        store.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        spoil();
        let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
        let (item, _, attempt) = fetched.expect("it is leased again at once");
        assert_eq!((item.instance, attempt), (instance.clone(), 1));
        store.enqueue_for_worker(activity(&instance)).await.unwrap();
        spoil();
        let fetched = store.fetch_work_item(LEASE, Duration::ZERO, None, &tags).await.unwrap();
        let (_, _, attempt) = fetched.expect("it is leased again at once");
        assert_eq!(attempt, 1);
    }
    assert_eq!(world.proxy.spoiled(), 6, "every fault happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_of_one_id_by_many_processes_make_one_instance_and_take_no_locks_of_the_server() {
    let world = World::new(&[]).await;
    let stores = [world.sound_store().await, world.sound_store().await, world.sound_store().await];
    for round in 0..5 {
        let mut starting = tokio::task::JoinSet::new();
        for n in 0..100 {
            // Each store begins at another place.
            for (place, store) in stores.iter().enumerate() {
                let (store, instance) = (store.clone(), format!("i-{round}-{}", (n + place * 33) % 100));
                starting.spawn(async move { store.enqueue_start_if_absent(start(&instance)).await.unwrap() });
            }
        }
        let outcomes = starting.join_all().await;
        let new = outcomes.iter().filter(|outcome| **outcome == StartOutcome::New).count();
        assert_eq!((new, outcomes.len()), (100, 300));
    }
    let distinct = "SELECT count(DISTINCT instance_id) - count(*) FROM orchestrator_queue";
    assert_eq!(world.number(distinct).await, 0);
    // A batch that waits at the gate holds no advisory locks.
    world.close_gate(&["TRIGGER gate BEFORE INSERT ON arrivals"]).await;
    let held = tokio::spawn({
        let store = stores[0].clone();
        async move { store.enqueue_start_if_absent(start("held")).await }
    });
    world.until_held_up().await;
    assert_eq!(world.number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").await, 0);
    world.open_gate().await;
    assert_eq!(held.await.unwrap().unwrap(), StartOutcome::New);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_whose_first_turn_is_being_stored_is_taken() {
    let world = World::new(&[]).await;
    let (here, there) = (world.sound_store().await, world.sound_store().await);
    let token = taken_turn(&here, "i", LEASE).await;
    world.close_gate(&["TRIGGER gate BEFORE INSERT ON history"]).await;
    let storing = tokio::spawn({
        let here = here.clone();
        async move {
            let events = vec![started_event("i")];
            here.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]).await
        }
    });
    world.until_held_up().await;
    assert_eq!(there.enqueue_start_if_absent(start("i")).await.unwrap(), StartOutcome::Existing);
    world.open_gate().await;
    storing.await.unwrap().unwrap();
    assert_eq!(there.enqueue_start_if_absent(start("i")).await.unwrap(), StartOutcome::Existing);
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 0);
}

// semantics: PG-12
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_outlasts_the_patience_of_the_store_runs_no_activity_twice() {
    let world = World::new(&[]).await;
    let builder = PostgresProvider::builder().schema(&world.schema).retry_for(Duration::from_millis(300));
    let store = Arc::new(builder.open(&world.cluster.url()).await.unwrap());
    let ledger = Ledger::default();
    let (noted, finish) = (ledger.clone(), tokio::sync::watch::Sender::new(false));
    let finished = finish.subscribe();
    let work = move |_: ActivityContext, input: String| {
        let (noted, mut finished) = (noted.clone(), finished.clone());
        async move {
            *noted.lock().unwrap().entry(input.clone()).or_default() += 1;
            let _ = finished.wait_for(|finished| *finished).await;
            Ok(input)
        }
    };
    let job =
        |ctx: OrchestrationContext, input: String| async move { ctx.schedule_activity("Work", input).await };
    let options = RuntimeOptions { worker_concurrency: 20, ..Default::default() };
    let activities = ActivityRegistry::builder().register("Work", work).build();
    let orchestrations = OrchestrationRegistry::builder().register("Job", job).build();
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store.clone());
    for n in 0..10 {
        client.start_orchestration(&format!("job-{n}"), "Job", format!("{n}")).await.unwrap();
    }
    while ledger.lock().unwrap().len() < 10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // They end while the server is away, for longer than the store retries. It crashes, and need not remember a lease that is not
    // on its disk.
    world.write_log_to_disk().await;
    world.cluster.stop();
    finish.send_replace(true);
    for _ in 0..5 {
        assert!(store.read("job-0").await.unwrap_err().retryable, "the store gives up for now");
    }
    world.cluster.start();
    for n in 0..10 {
        let status = client.wait_for_orchestration(&format!("job-{n}"), FAILURE_BOUND).await;
        let status = match status {
            Err(error) if error.is_retryable() => {
                client.wait_for_orchestration(&format!("job-{n}"), FAILURE_BOUND).await.unwrap()
            }
            status => status.unwrap(),
        };
        assert!(matches!(status, OrchestrationStatus::Completed { .. }), "{status:?}");
    }
    let ran = ledger.lock().unwrap().clone();
    assert!(ran.len() == 10 && ran.values().all(|times| *times == 1), "{ran:?}");
    runtime.shutdown(None).await;
}

// semantics: PG-11
#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_for_a_held_row_as_long_as_the_settings_say() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let patience = Duration::from_millis(300);
    let builder = PostgresProvider::builder().schema(&world.schema).retry_for(patience);
    let impatient = builder.open(&world.cluster.url()).await.unwrap();
    for (instance, status) in [("goes-on", None), ("over", Some("Completed".to_string()))] {
        store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
        let (_, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        let metadata = duroxide::providers::ExecutionMetadata { status, ..metadata() };
        let events = vec![started_event(instance)];
        store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata, vec![]).await.unwrap();
    }
    let mut other = world.connect().await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("SELECT 1 FROM instances FOR UPDATE").await.unwrap();
    let ended = impatient.enqueue_if_alive(signal("over")).await.unwrap();
    assert_eq!(ended, SendOutcome::Ended, "this answer needs no lock");
    let refused = impatient.enqueue_if_alive(signal("goes-on")).await.unwrap_err();
    assert!(refused.retryable && refused.message.contains("holds the row"), "{refused:?}");

    let sender = store.clone();
    let sending = tokio::spawn(async move { sender.enqueue_if_alive(signal("goes-on")).await });
    // Longer than any fixed number of looks, and less than this store may wait.
    pass_time(&world, Duration::from_secs(7)).await;
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 0);
    assert!(!sending.is_finished(), "{:?}", sending.await);
    lock.rollback().await.unwrap();
    assert_eq!(sending.await.unwrap().unwrap(), SendOutcome::Sent);
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 1, "once");
}
