//! The rows of `committers`: each open store has some, and a store that is closed or gone leaves nothing but its
//! totals.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::Provider;
use duroxide_pg::PostgresProvider;
use support::database::{Database, connect};
use support::load;
use support::proxy::NextCommit;
use support::world::{World, signal, until};

/// Rows of processes that are gone, each with totals.
const GONE: &str = "
    INSERT INTO committers (committer, seen_at, begun_at, instances, completed_instances)
    SELECT 'gone-' || n, now() - interval '25 hours', now() - interval '26 hours', 1, 1 FROM generate_series(1, 2500) n;";
/// Rows of processes that still run: some for long, some since just now.
const THERE: &str = "
    INSERT INTO committers (committer, begun_at)
    SELECT 'there-' || n, now() - interval '1 month' * (n % 2) FROM generate_series(1, 2000) n;
    ANALYZE committers;";

async fn instances(store: &Arc<PostgresProvider>) -> u64 {
    Client::new(store.clone()).get_system_metrics().await.unwrap().total_instances
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_were_closed_leave_no_rows_and_lose_no_totals() {
    let database = Database::new().await;
    let operator = connect(database.url()).await;
    for round in 0..10 {
        let store = Arc::new(PostgresProvider::new(database.url()).await.unwrap());
        let runtime = load::runtime(store.clone()).await;
        let client = Client::new(store.clone());
        load::start(&client, round, 1).await;
        load::check(&client, round + 1).await;
        runtime.shutdown(None).await;
        assert_eq!(instances(&store).await, round as u64 + 1);
        drop((client, store));
        until(&operator, "NOT EXISTS (SELECT 1 FROM committers)").await;
    }
    let store = Arc::new(PostgresProvider::new(database.url()).await.unwrap());
    assert_eq!(instances(&store).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_are_gone_are_forgotten_within_days_and_their_totals_are_not() {
    let database = Database::new().await;
    let operator = connect(database.url()).await;
    let store = Arc::new(PostgresProvider::new(database.url()).await.unwrap());
    operator.batch_execute(GONE).await.unwrap();
    operator.batch_execute(THERE).await.unwrap();
    assert_eq!(instances(&store).await, 2_500);
    let gone = "EXISTS (SELECT 1 FROM committers WHERE committer LIKE 'gone-%')";
    // Each new connection removes a bounded number of rows.
    for _ in 0..3 {
        assert!(operator.query_one(&format!("SELECT {gone}"), &[]).await.unwrap().get::<_, bool>(0));
        operator.query("SELECT begin_epoch_3('another')", &[]).await.unwrap();
    }
    until(&operator, &format!("NOT {gone}")).await;
    until(&operator, "(SELECT count(*) FROM committers WHERE committer LIKE 'there-%') = 2000").await;
    assert_eq!(instances(&store).await, 2_500);
}

#[tokio::test(flavor = "multi_thread")]
async fn beginning_an_epoch_scans_no_table() {
    let database = Database::new().await;
    let mut operator = connect(database.url()).await;
    operator.batch_execute(THERE).await.unwrap();
    for function in ["begin_epoch_1", "begin_epoch_2", "begin_epoch_3"] {
        let transaction = operator.transaction().await.unwrap();
        transaction.query(&format!("SELECT {function}('me')"), &[]).await.unwrap();
        let scans = "SELECT seq_scan, idx_scan FROM pg_stat_xact_user_tables WHERE relname = 'committers'";
        let scans = transaction.query_one(scans, &[]).await.unwrap();
        assert_eq!(scans.get::<_, i64>(0), 0, "{function}");
        assert!(scans.get::<_, i64>(1) > 0, "{function}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_forgotten_goes_on() {
    let database = Database::new().await;
    let operator = connect(database.url()).await;
    let builder = PostgresProvider::builder().forgotten_after(Duration::ZERO);
    let store = builder.open(database.url()).await.unwrap();
    store.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    until(&operator, "(SELECT count(*) FROM committers) = 2").await;
    let later =
        "UPDATE committers SET seen_at = now() - interval '2 days', begun_at = now() - interval '2 days'";
    operator.batch_execute(later).await.unwrap();
    let epoch: i64 = operator.query_one("SELECT max(epoch) FROM committers", &[]).await.unwrap().get(0);
    operator.batch_execute("SELECT begin_epoch_3('another')").await.unwrap();
    until(&operator, "(SELECT array_agg(committer) FROM committers) = '{another}'").await;
    store.enqueue_for_orchestrator(signal("b"), None).await.unwrap();
    assert_eq!(store.query_number("SELECT count(*) FROM orchestrator_queue").await.unwrap(), 2, "each once");
    let next: i64 = operator.query_one("SELECT max(epoch) FROM committers", &[]).await.unwrap().get(0);
    assert!(next > epoch, "no epoch is that of two connections");
}

/// Makes the server forget each committer that connects again.
const FORGETFUL: &str = "
    ALTER FUNCTION begin_epoch_3(text) RENAME TO begin_epoch_really;
    CREATE FUNCTION begin_epoch_3(p_committer text, OUT epoch bigint, OUT batch bigint, OUT turn_verdicts integer[],
        OUT refused_work integer[], OUT taken_starts integer[], OUT deliveries integer[], OUT is_new boolean)
    LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM committers WHERE committer = p_committer;
        SELECT r.* INTO epoch, batch, turn_verdicts, refused_work, taken_starts, deliveries, is_new
        FROM begin_epoch_really(p_committer) r;
    END $$;";

#[tokio::test(flavor = "multi_thread")]
async fn who_was_forgotten_does_not_repeat_what_may_have_been_committed() {
    let world = World::new(&[]).await;
    let builder = PostgresProvider::builder().schema(&world.schema).forgotten_after(Duration::ZERO);
    let store = builder.open(&world.cluster.url_through(world.proxy.port())).await.unwrap();
    store.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    world.run(FORGETFUL).await;
    world.proxy.spoil_next_commit(NextCommit::LoseAnswer);
    let error = store.enqueue_for_orchestrator(signal("b"), None).await.unwrap_err();
    assert!(error.retryable && error.to_string().contains("may or may not have been committed"), "{error}");
    assert_eq!(
        world.number("SELECT count(*) FROM orchestrator_queue WHERE instance_id = 'b'").await,
        1,
        "once"
    );
    store.enqueue_for_orchestrator(signal("c"), None).await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 3);
}
