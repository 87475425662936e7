//! What a sequential step costs the server, counted in its write-ahead log: rows, index entries, bytes. (That a step is one commit
//! has a test in `steps.rs`.)
//!
//! The server is the test's own, and nothing else writes to it. `bench/README.md` states the counts.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use crate::steps::{go_on_with, open_with, stored, work};
use crate::support::world::World;
use duroxide::providers::WorkRequest;

const STEPS: u32 = 200;
/// What `a_sequential_step_costs_few_rows_and_bytes` has counted. Bytes depend a little on where page splits fall.
const LOG_BYTES: f64 = 1_810.0;

/// What steps write to. A process that is slow also lists the activities that it has not begun, which is no part of a step.
const TABLES: &str = "'instances', 'executions', 'history', 'worker_queue', 'orchestrator_queue', 'arrivals', 'instance_schedule', 'committers'";

/// Counts the records of each kind between two places in the log, and their bytes, as far as they are about these tables.
async fn records(world: &World, from: &str, to: &str) -> (BTreeMap<String, i64>, i64) {
    world.write_log_to_disk().await;
    world.run("CREATE EXTENSION IF NOT EXISTS pg_walinspect").await;
    let sql = format!(
        "WITH files AS (
            SELECT pg_relation_filenode(t.oid)::text AS file FROM pg_class c
            JOIN LATERAL (SELECT c.oid UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = c.oid) t ON true
            WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname IN ({TABLES}))
        SELECT resource_manager || '/' || record_type, count(*), sum(record_length)::bigint
        FROM pg_get_wal_records_info('{from}', '{to}')
        WHERE substring(block_ref from 'rel [0-9]+/[0-9]+/([0-9]+)') IN (SELECT file FROM files) GROUP BY 1",
        schema = world.schema
    );
    let rows = world.connect().await.query(&sql, &[]).await.unwrap();
    let bytes = rows.iter().map(|row| row.get::<_, i64>(2)).sum();
    (rows.iter().map(|row| (row.get(0), row.get(1))).collect(), bytes)
}

async fn place_in_log(world: &World) -> String {
    let sql = "SELECT pg_current_wal_insert_lsn()::text";
    world.connect().await.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequential_step_costs_few_rows_and_bytes() {
    let world = World::new(&["autovacuum = off", "full_page_writes = off", "checkpoint_timeout = 1d"]).await;
    let store = world.sound_store().await;
    if world.number("SELECT current_setting('server_version_num')::bigint").await < 150_000 {
        // It does not tell of the records of its log yet.
        return;
    }
    // As a runtime does, which reserves room for the activities of the turn.
    let claim = WorkRequest { max: 1, ..work() };
    let mut step = stored(open_with(&store, "i", &claim).await);
    // All connections are there, and all statements are prepared.
    for _ in 0..20 {
        step = stored(go_on_with(&store, "i", &step, &claim).await);
    }
    let from = place_in_log(&world).await;
    for _ in 0..STEPS {
        step = stored(go_on_with(&store, "i", &step, &claim).await);
    }
    let to = place_in_log(&world).await;

    let (records, bytes) = records(&world, &from, &to).await;
    let per_step = bytes as f64 / f64::from(STEPS);
    println!("{per_step} bytes of log a step: {records:?}");
    let count = |kinds: &[&str]| kinds.iter().filter_map(|kind| records.get(*kind)).sum::<i64>();
    let steps = i64::from(STEPS);
    // Two events, the activity, and the instance's place, which is there for the time of the transaction.
    assert_eq!(count(&["Heap/INSERT", "Heap/INSERT+INIT"]), 4 * steps, "{records:?}");
    // The instance, and the committer's note of the batch.
    assert_eq!(count(&["Heap/UPDATE", "Heap/UPDATE+INIT", "Heap/HOT_UPDATE"]), 2 * steps, "{records:?}");
    // The activity before, and the place.
    assert_eq!(count(&["Heap/DELETE"]), 2 * steps, "{records:?}");
    let entries = count(&["Btree/INSERT_LEAF", "Btree/INSERT_POST", "Btree/SPLIT_L", "Btree/SPLIT_R"]);
    // Two of events, three of the activity, one of the place; and those of updates that found no room on their page.
    assert!((6 * steps..=7 * steps).contains(&entries), "{entries} index entries: {records:?}");
    let is_as_counted = (LOG_BYTES * 0.85..=LOG_BYTES * 1.15).contains(&per_step);
    assert!(is_as_counted, "{per_step} bytes of log a step: {records:?}");
}
