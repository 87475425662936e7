//! Files of earlier versions: the store opens and migrates each, and its instances go on to their end.
//!
//! There is a file for every version of the schema. `fixtures/README.md` tells how they were made.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::kept_store;
use crate::sqlite_store as support;

use duroxide::providers::{Count, Inspector, InstanceQuery};
use kept_store::OPENED_MS;
use support::StoreFile;

/// A copy of a fixture, and the time at which it is opened.
fn kept(name: &str) -> StoreFile {
    let file = StoreFile::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    std::fs::copy(format!("{fixtures}/{name}"), file.path()).unwrap();
    file.clock.set_wall_ms(OPENED_MS);
    file
}

/// The definitions of all tables, indexes, triggers and views.
fn schema(file: &StoreFile) -> Vec<String> {
    file.texts("SELECT type || ' ' || name || ': ' || ifnull(sql, '') FROM sqlite_schema ORDER BY 1")
}

const KEPT: [&str; 3] = ["schema-1.db", "schema-6.db", "schema-7.db"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_in_a_file_of_an_earlier_version_goes_on_to_its_end() {
    for name in KEPT {
        let file = kept(name);
        kept_store::finish(file.open().await, &file.clock).await;
        file.assert_sound();
        assert_eq!(file.number("SELECT count(*) FROM quarantine"), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_in_a_file_of_this_version_goes_on_to_its_end() {
    let file = StoreFile::new();
    let store = file.open().await;
    kept_store::leave(&*store, &file.clock).await;
    if let Some(path) = std::env::var_os("KEEP_STORE_FILE") {
        file.connection().execute("VACUUM INTO ?1", [path.to_str()]).unwrap();
    }
    drop(store);
    file.clock.set_wall_ms(OPENED_MS);
    kept_store::finish(file.open().await, &file.clock).await;
}

#[tokio::test]
async fn a_migrated_file_lists_its_instances_as_they_are() {
    for name in KEPT {
        let file = kept(name);
        let store = file.open().await;
        let instances = file.number("SELECT count(*) FROM instances");
        let right = file.number(
            "SELECT count(*) FROM instances i
             JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
             LEFT JOIN instances p ON p.instance_id = i.parent_instance_id
             WHERE i.updated_10s = i.updated_at / 10000
                AND (i.listed_status = e.status OR i.listed_status = 'Cancelled' AND e.output LIKE 'canceled: %')
                AND i.root_instance_id IS coalesce(p.root_instance_id, i.parent_instance_id)",
        );
        assert!(instances > 0 && right == instances, "{name}: {right} of {instances}");
        let cancelled = file.number("SELECT count(*) FROM instances WHERE listed_status = 'Cancelled'");
        let totals = store.state_totals().await.unwrap();
        assert_eq!(totals.cancelled, Count::exact(cancelled.unsigned_abs()), "{name}");
        let page = store.list_page(&InstanceQuery::new().limit(1_000)).await.unwrap();
        let rows = page.rows.iter().filter(|row| row.incarnation > 0).count();
        assert_eq!((rows as i64, page.next_cursor), (instances, None), "{name}");
    }
}

#[tokio::test]
async fn a_migrated_file_has_the_schema_of_a_new_one() {
    let new = StoreFile::new();
    drop(new.open().await);
    for name in KEPT {
        let file = kept(name);
        drop(file.open().await);
        assert_eq!(schema(&file), schema(&new), "{name}");
        assert_eq!(file.number("PRAGMA user_version"), new.number("PRAGMA user_version"), "{name}");
    }
}
