//! The number of a process's connections, and their names.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::ProviderAdmin;
use duroxide_pg::PostgresProvider;
use support::database::connect;
use support::load;
use support::world::{World, take_turn};

/// Nothing here takes long.
const FAILURE_BOUND: Duration = Duration::from_secs(30);

/// Returns the names of the stores' connections, as the server shows them, sorted.
async fn connections(world: &World) -> Vec<String> {
    let sql =
        "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'duroxide%' ORDER BY 1";
    let rows = connect(&world.cluster.url()).await.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_has_five_connections_and_a_client_three() {
    let world = World::new(&[]).await;
    let builder =
        PostgresProvider::builder().schema(&world.schema).close_idle_after(Duration::from_millis(200));
    let worker = Arc::new(builder.open(&world.cluster.url()).await.unwrap());
    let runtime = load::runtime(worker.clone()).await;
    let client = Client::new(worker.clone());
    load::start(&client, 0, 50).await;
    for number in 0..50 {
        client.wait_for_orchestration(&format!("job-{number}"), FAILURE_BOUND).await.unwrap();
    }
    // Jobs whose steps are stored whole need no messages.
    client.raise_event("job-0", "n", "").await.unwrap();
    // A runtime that starts lists the instances that it cannot serve.
    world
        .until("NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'duroxide listings')")
        .await;
    let expected =
        ["duroxide commits", "duroxide leases", "duroxide messages", "duroxide reads", "duroxide renewals"];
    assert_eq!(connections(&world).await, expected);

    let (url, schema) = (world.cluster.url(), world.schema.clone());
    let builder = PostgresProvider::builder().schema(schema);
    let outside = Client::new(Arc::new(builder.open(&format!("{url}?application_name=web")).await.unwrap()));
    outside.start_orchestration("outside", "Job", "0").await.unwrap();
    outside.wait_for_orchestration("outside", FAILURE_BOUND).await.unwrap();
    let of_client = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'web (%'";
    assert_eq!(world.number(of_client).await, 3);
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_for_what_takes_long_are_there_while_they_are_needed() {
    let world = World::new(&[]).await;
    let builder =
        PostgresProvider::builder().schema(&world.schema).close_idle_after(Duration::from_millis(200));
    let store = builder.open(&world.cluster.url()).await.unwrap();
    for _ in 0..2 {
        take_turn(&store, "i").await;
        assert_eq!(store.list_instances().await.unwrap(), ["i"]);
        store.delete_instances_atomic(&["i".into()], true).await.unwrap();
        let there = connections(&world).await;
        assert!(there.contains(&"duroxide removals".to_string()), "{there:?}");
        let is_gone = "NOT EXISTS (SELECT 1 FROM pg_stat_activity
            WHERE application_name IN ('duroxide listings', 'duroxide removals'))";
        world.until(is_gone).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_and_name_of_the_url_are_kept() {
    let world = World::new(&[]).await;
    let url = format!("{}?application_name=shop&options=-c%20work_mem%3D7MB", world.cluster.url());
    let store = world.open(&url).await;
    take_turn(&store, "i").await;
    assert_eq!(
        store.query_number("SELECT (current_setting('work_mem') = '7MB')::int::bigint").await.unwrap(),
        1
    );
    let named = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shop (%)'";
    world.until(&format!("({named}) = 5")).await;
}
