//! A server with faults, stores on it, and work for them.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, ExecutionMetadata, Provider, SystemClock, WorkItem};
use duroxide::{Client, Event, EventKind};
use duroxide_pg::PostgresProvider;

use super::cluster::{Cluster, Kind};
use super::database::connect;
use super::load;
use super::proxy::Proxy;

/// Nothing here takes long; a test that waits for so long has failed.
const FAILURE_BOUND: Duration = Duration::from_secs(60);

/// A server of its own, which stores reach through a proxy that can cut connections, or directly.
pub struct World {
    pub cluster: Cluster,
    pub proxy: Proxy,
    pub schema: String,
}

impl World {
    pub async fn new(settings: &[&str]) -> Self {
        let cluster = Cluster::own(Kind::Durable, settings);
        let proxy = Proxy::new(cluster.port()).await;
        Self { cluster, proxy, schema: super::fresh_schema() }
    }

    /// Opens a store through the proxy, which can cut its connections.
    pub async fn store(&self) -> Arc<PostgresProvider> {
        self.open(&self.cluster.url_through(self.proxy.port())).await
    }

    /// Opens a store that reaches the server directly.
    pub async fn sound_store(&self) -> Arc<PostgresProvider> {
        self.open(&self.cluster.url()).await
    }

    pub async fn open(&self, url: &str) -> Arc<PostgresProvider> {
        let builder = PostgresProvider::builder().schema(&self.schema).retry_for(Duration::from_secs(20));
        Arc::new(builder.open(url).await.unwrap())
    }

    /// Opens a connection apart from any store.
    pub async fn connect(&self) -> tokio_postgres::Client {
        let client = connect(&self.cluster.url()).await;
        client.batch_execute(&format!("SET search_path TO {}", self.schema)).await.unwrap();
        client
    }

    /// Runs jobs for as long as faults happen, and checks that all went right.
    pub async fn survive(&self, faults: impl AsyncFn()) {
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
        self.check_rows(jobs.get()).await;
    }

    /// Checks that only the histories of ended jobs are left, and that the totals count them right.
    async fn check_rows(&self, jobs: usize) {
        for table in ["orchestrator_queue", "worker_queue", "instance_locks", "quarantine"] {
            assert_eq!(self.number(&format!("SELECT count(*) FROM {table}")).await, 0, "rows in {table}");
        }
        let client = Client::new(self.sound_store().await);
        let metrics = client.get_system_metrics().await.unwrap();
        let counted = (metrics.total_instances, metrics.completed_instances, metrics.running_instances);
        assert_eq!(counted, (jobs as u64, jobs as u64, 0));
        let events = self.number("SELECT count(*) FROM history").await;
        assert_eq!(metrics.total_events, events.unsigned_abs());
    }

    /// Runs a query that returns a number.
    pub async fn number(&self, sql: &str) -> i64 {
        self.connect().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Runs statements behind the store's back.
    pub async fn run(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap();
    }

    /// Waits until the server has everything on its disk that was committed until now, also without a sync.
    pub async fn write_log_to_disk(&self) {
        self.run("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'test', '')").await;
    }

    /// Makes triggers that hold up the statement that fires them, until the test opens the gate.
    pub async fn close_gate(&self, triggers: &[&str]) {
        let gate = "
            CREATE TABLE IF NOT EXISTS gate (closed boolean NOT NULL);
            TRUNCATE gate;
            INSERT INTO gate VALUES (true);
            CREATE OR REPLACE FUNCTION pass_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                WHILE (SELECT closed FROM gate) LOOP PERFORM pg_sleep(0.005); END LOOP;
                RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
            END $$;";
        self.run(gate).await;
        for trigger in triggers {
            self.run(&format!("CREATE {trigger} FOR EACH ROW EXECUTE FUNCTION pass_the_gate()")).await;
        }
    }

    pub async fn open_gate(&self) {
        self.run("UPDATE gate SET closed = false").await;
    }

    /// Waits until the gate holds up a statement.
    pub async fn until_held_up(&self) {
        self.until(
            "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND state = 'active')",
        )
        .await;
    }

    /// Waits until a condition holds in the database.
    pub async fn until(&self, condition: &str) {
        until(&self.connect().await, condition).await;
    }
}

/// Waits until a condition holds in a database.
pub async fn until(database: &tokio_postgres::Client, condition: &str) {
    let deadline = SystemClock.monotonic() + FAILURE_BOUND;
    let sql = format!("SELECT ({condition})::int::bigint");
    while database.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(SystemClock.monotonic() < deadline, "not so: {condition}");
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
}

/// Runs a turn of a new instance.
pub async fn take_turn(store: &PostgresProvider, instance: &str) {
    store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (_, token, _) =
        store.fetch_orchestration_item(Duration::from_secs(30), Duration::ZERO, None).await.unwrap().unwrap();
    let events = vec![started_event(instance)];
    store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]).await.unwrap();
    assert_eq!(store.read(instance).await.unwrap().len(), 1);
}

pub fn start(instance: &str) -> WorkItem {
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

pub fn signal(instance: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "n".into(), data: String::new() }
}

pub fn activity(instance: &str) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: 1,
        id: 2,
        name: "Pay".into(),
        input: "{}".into(),
        session_id: None,
        tag: None,
    }
}

pub fn completion(instance: &str) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.into(), execution_id: 1, id: 2, result: "{}".into() }
}

pub fn started_event(instance: &str) -> Event {
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

pub fn metadata() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".into()),
        orchestration_version: Some("1.0.0".into()),
        ..Default::default()
    }
}
