//! What only a server at the other end of a wire can get wrong: connections that are cut, also in the middle of a commit,
//! servers that crash, locks that are held, connections that are not to be had. Nothing is lost, nothing is done twice,
//! and everything goes on by itself.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{
    Clock, ExecutionMetadata, ExtendedProvider, Provider, StartOutcome, SystemClock, WorkItem, WorkQueue,
};
use duroxide::{Client, Event, EventKind};
use duroxide_pg::PostgresProvider;
use support::cluster::{Cluster, Kind};
use support::load;
use support::proxy::{NextCommit, Proxy};

const LEASE: Duration = Duration::from_secs(30);
/// Nothing here takes long; whoever waits for so long waits in vain.
const FAILURE_BOUND: Duration = Duration::from_secs(60);

/// A server of its own, a way to it that can be cut, and one that cannot.
struct World {
    cluster: Cluster,
    proxy: Proxy,
    schema: String,
}

impl World {
    async fn new(settings: &[&str]) -> Self {
        let cluster = Cluster::own(Kind::Durable, settings);
        let proxy = Proxy::new(cluster.port()).await;
        Self { cluster, proxy, schema: support::fresh_schema() }
    }

    /// A store whose way to the server can be cut.
    async fn store(&self) -> Arc<PostgresProvider> {
        self.open(&self.cluster.url_through(self.proxy.port())).await
    }

    /// A store whose way cannot.
    async fn sound_store(&self) -> Arc<PostgresProvider> {
        self.open(&self.cluster.url()).await
    }

    async fn open(&self, url: &str) -> Arc<PostgresProvider> {
        let builder = PostgresProvider::builder().schema(&self.schema).retry_for(Duration::from_secs(20));
        Arc::new(builder.open(url).await.unwrap())
    }

    /// A connection that knows nothing of the store.
    async fn connect(&self) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.cluster.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Runs jobs for as long as faults happen, and checks that all went right.
    async fn survive(&self, faults: impl AsyncFn()) {
        let store = self.store().await;
        let runtime = load::runtime(store.clone()).await;
        let client = Client::new(store);
        let over = std::cell::Cell::new(false);
        let jobs = std::cell::Cell::new(0);
        tokio::join!(
            async {
                faults().await;
                over.set(true);
            },
            async {
                while !over.get() {
                    load::start(&client, jobs.get(), 1).await;
                    jobs.set(jobs.get() + 1);
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
            }
        );
        load::check(&Client::new(self.sound_store().await), jobs.get()).await;
        eprintln!("{} jobs", jobs.get());
        runtime.shutdown(None).await;
    }
}

fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Order".into(),
        input: "{}".into(),
        version: Some("1.0.0".into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

fn started_event(instance: &str) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "Order".into(),
        version: "1.0.0".into(),
        input: "{}".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event::with_event_id(1, instance, 1, None, kind)
}

fn metadata() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".into()),
        orchestration_version: Some("1.0.0".into()),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_meets_a_broken_wire_is_made_once() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let mut spoiled = 0;
    for how in [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf] {
        let instance = format!("{how:?}");
        let mut spoil = || {
            world.proxy.spoil_next_commit(how);
            spoiled += 1;
        };
        spoil();
        let outcome = store.enqueue_start_if_absent(start(&instance)).await.unwrap();
        assert_eq!(outcome, StartOutcome::New, "{how:?}");
        spoil();
        let outcome = store.enqueue_start_if_absent(start(&instance)).await.unwrap();
        assert_eq!(outcome, StartOutcome::Existing, "{how:?}");

        let (item, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        assert_eq!((item.instance.as_str(), item.messages.len()), (instance.as_str(), 1), "{how:?}");
        spoil();
        let events = vec![started_event(&instance)];
        let ack = store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]);
        ack.await.unwrap();
        assert_eq!(store.read(&instance).await.unwrap().len(), 1, "{how:?}");

        spoil();
        let signal =
            WorkItem::ExternalRaised { instance: instance.clone(), name: "n".into(), data: String::new() };
        store.enqueue_for_orchestrator(signal, None).await.unwrap();
        let (item, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        assert_eq!(item.messages.len(), 1, "{how:?}: the signal is there once");

        // A refusal is heard even if the answer that said so was lost.
        spoil();
        let stale = token.replace("lock_", "lock_0").chars().take(37).collect::<String>() + "_" + &instance;
        let refused = store.ack_orchestration_item(&stale, 1, vec![], vec![], vec![], metadata(), vec![]);
        assert!(!refused.await.unwrap_err().retryable, "{how:?}");
        store.ack_orchestration_item(&token, 1, vec![], vec![], vec![], metadata(), vec![]).await.unwrap();
    }
    assert_eq!(world.proxy.spoiled(), spoiled, "every fault happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_may_be_cut_at_any_time() {
    let world = World::new(&[]).await;
    let cut = async || {
        for n in 0..60_u64 {
            tokio::time::sleep(Duration::from_millis(20 + n * 37 % 60)).await;
            world.proxy.cut();
        }
    };
    world.survive(cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_crash() {
    let world = World::new(&[]).await;
    let crash = async || {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            world.cluster.crash();
        }
    };
    world.survive(crash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_may_be_terminated() {
    let world = World::new(&[]).await;
    let killer = world.connect().await;
    let terminate = async || {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
            killer.batch_execute(sql).await.unwrap();
        }
    };
    world.survive(terminate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_holds_is_waited_for() {
    let world = World::new(&[]).await;
    let mut other = world.connect().await;
    let store = world.sound_store().await;
    let lock = format!("LOCK TABLE {}.instance_schedule IN ACCESS EXCLUSIVE MODE", store.schema_name());
    drop(store);
    let hold = tokio::sync::Mutex::new(&mut other);
    let hold_it = async || {
        let mut other = hold.lock().await;
        let transaction = other.transaction().await.unwrap();
        transaction.batch_execute(&lock).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        transaction.commit().await.unwrap();
    };
    world.survive(hold_it).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_not_to_be_had_are_waited_for() {
    let world = World::new(&["max_connections = 30", "superuser_reserved_connections = 3"]).await;
    world.connect().await.batch_execute("CREATE ROLE greedy LOGIN").await.unwrap();
    let url = world.cluster.url().replace("postgres@", "greedy@");
    let exhaust = async || {
        let mut taken = Vec::new();
        for _ in 0..4 {
            // Everybody has to connect again, and finds all places taken.
            while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
                taken.push((client, tokio::spawn(connection)));
            }
            world.proxy.cut();
            tokio::time::sleep(Duration::from_millis(400)).await;
            taken.clear();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    world.survive(exhaust).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_be_read_only_for_a_while() {
    let world = World::new(&[]).await;
    let operator = world.connect().await;
    let set = async |value: &str| {
        operator.batch_execute("SET default_transaction_read_only = off").await.unwrap();
        operator
            .batch_execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"))
            .await
            .unwrap();
        operator.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    };
    let fail_over = async || {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            set("on").await;
            tokio::time::sleep(Duration::from_millis(800)).await;
            set("off").await;
        }
    };
    world.survive(fail_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_listener_costs_no_more_than_a_poll() {
    let world = World::new(&[]).await;
    let (here, there) = (world.sound_store().await, world.sound_store().await);
    let killer = world.connect().await;
    for round in 0..5 {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query LIKE '%pg_notify%' AND pid <> pg_backend_pid()";
        killer.batch_execute(sql).await.unwrap();
        let mut signal = there.work_signal(WorkQueue::Orchestrator);
        signal.mark_seen();
        let instance = format!("i-{round}");
        here.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        let began = SystemClock.monotonic();
        let fetched = tokio::time::timeout(FAILURE_BOUND, async {
            loop {
                signal.wait().await;
                signal.mark_seen();
                let fetched = there.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
                if let Some((item, ..)) = fetched {
                    return item.instance;
                }
            }
        });
        assert_eq!(fetched.await.expect("it is found by polling"), instance);
        let took = SystemClock.monotonic() - began;
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_a_clear_retryable_error_without_secrets() {
    let world = World::new(&[]).await;
    let builder = PostgresProvider::builder().schema(&world.schema).retry_for(Duration::from_millis(200));
    let url = world.cluster.url_through(world.cluster.port());
    let store = builder.open(&url).await.unwrap();
    world.cluster.stop();
    let enqueued = store.enqueue_for_orchestrator(start("i"), None).await.unwrap_err();
    let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap_err();
    let read = store.read("i").await.unwrap_err();
    for error in [enqueued, fetched, read] {
        assert!(error.retryable, "{error}");
        assert!(!error.to_string().contains("not-a-secret"), "{error}");
    }
    let refused = PostgresProvider::new(&url).await.err().unwrap();
    assert!(!format!("{refused} {refused:?}").contains("not-a-secret"), "{refused}");
    world.cluster.start();
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    let (item, ..) = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!(item.instance, "i");
}
