//! Change data capture: a publication of all tables does not keep the store from changing any of them.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::PruneOptions;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};
use duroxide_pg::PostgresProvider;
use support::cluster::{Cluster, Kind};
use support::database::connect;

const FAILURE_BOUND: Duration = Duration::from_secs(60);

/// Changes values in every way, over several executions.
async fn change_values(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let round: u32 = input.parse().map_err(|_| "no number")?;
    ctx.set_kv_value("kept", format!("of round {round}"));
    ctx.set_kv_value("cleared", "soon");
    ctx.set_kv_value("long ".repeat(1_000), input);
    ctx.schedule_timer(Duration::from_millis(1)).await;
    ctx.set_kv_value("kept", format!("of round {round}, again"));
    ctx.clear_kv_value("cleared");
    if round == 2 {
        ctx.clear_all_kv_values();
        ctx.set_kv_value("kept", "last");
    }
    ctx.schedule_timer(Duration::from_millis(1)).await;
    match round {
        4 => Ok(ctx.get_kv_value("kept").unwrap_or_default()),
        _ => ctx.continue_as_new((round + 1).to_string()).await,
    }
}

// semantics: PG-25
#[tokio::test(flavor = "multi_thread")]
async fn everything_can_be_changed_while_all_tables_are_published() {
    let cluster = Cluster::own(Kind::Forgetful, &["wal_level = logical"]);
    let operator = connect(&cluster.url()).await;
    operator.batch_execute("CREATE PUBLICATION everything FOR ALL TABLES").await.unwrap();
    let schema = support::fresh_schema();
    let store = PostgresProvider::new_with_schema(&cluster.url(), Some(&schema)).await.unwrap();
    let store = Arc::new(store);
    let orchestrations = OrchestrationRegistry::builder().register("Change", change_values).build();
    let runtime =
        Runtime::start_with_store(store.clone(), ActivityRegistry::builder().build(), orchestrations).await;
    let client = Client::new(store.clone());
    for instance in ["kept", "deleted"] {
        client.start_orchestration(instance, "Change", "1").await.unwrap();
        // The store parks an event for an instance that does not exist.
        client.raise_event("nobody", "Go", "").await.unwrap();
        let status = client.wait_for_orchestration(instance, FAILURE_BOUND).await.unwrap();
        let is_right = |output: &str| output == "of round 4, again";
        assert!(
            matches!(&status, OrchestrationStatus::Completed { output, .. } if is_right(output)),
            "{status:?}"
        );
    }
    assert_eq!(client.get_kv_value("kept", "kept").await.unwrap().as_deref(), Some("of round 4, again"));
    let options = PruneOptions { keep_last: Some(1), ..PruneOptions::default() };
    assert_eq!(client.prune_executions("kept", options).await.unwrap().executions_deleted, 3);
    assert_eq!(client.delete_instance("deleted", false).await.unwrap().instances_deleted, 1);
    runtime.shutdown(None).await;

    let without = "SELECT coalesce(string_agg(relname, ', '), 'none') FROM pg_class c JOIN pg_namespace n
        ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'
            AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)";
    let without: String = operator.query_one(without, &[&schema]).await.unwrap().get(0);
    assert_eq!(without, "none", "every table has a primary key");
}
