//! A page of a listing costs a bounded number of rows, whatever it asks for.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use duroxide::providers::{Clock, Count, Inspector, InstanceQuery, ListSort};
use duroxide::{Client, InstanceState};
use support::StoreFile;

/// Forty-five thousand instances that wait; the oldest one has an id of its own.
fn fill(file: &StoreFile) {
    let connection = file.connection();
    connection
        .execute_batch(
            "BEGIN;
             WITH RECURSIVE n (x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < 44999)
             INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, listed_status,
                updated_10s)
             SELECT iif(x = 0, 'needle', 'hay-' || x), 'Order' || (x % 3), '1.0.0', 1000 + x, 1000 + x, 'Running',
                (1000 + x) / 10000 FROM n;
             INSERT INTO executions (instance_id, execution_id, started_at) SELECT instance_id, 1, created_at FROM instances;
             UPDATE totals SET instances = 45000, executions = 45000, running_instances = 45000;
             COMMIT",
        )
        .unwrap();
}

// semantics: LOOK-2
#[tokio::test]
async fn a_page_looks_at_a_bounded_number_of_instances_and_goes_on_behind_them() {
    let file = StoreFile::new();
    let store = file.open().await;
    fill(&file);
    for sort in [ListSort::Created, ListSort::Updated] {
        let mut query = InstanceQuery::new().id_contains("needle").sort(sort);
        let (mut pages, mut found) = (0, Vec::new());
        loop {
            let page = store.list_page(&query).await.unwrap();
            pages += 1;
            found.extend(page.rows.into_iter().map(|row| row.instance));
            match page.next_cursor {
                Some(cursor) => query = query.cursor(cursor),
                None => break,
            }
        }
        assert_eq!((found, pages), (vec!["needle".to_string()], 5), "10,000 instances for each page");
    }
    // From the other end it is the first.
    let query = InstanceQuery::new().id_contains("needle").ascending();
    assert_eq!(store.list_page(&query).await.unwrap().rows.len(), 1);
    // The beginning of an id that few share is found at once, and so are states of which most instances are.
    let query = InstanceQuery::new().id_prefix("need").state(InstanceState::Waiting);
    let page = store.list_page(&query).await.unwrap();
    assert_eq!((page.rows.len(), page.next_cursor), (1, None));
    let page = store.list_page(&InstanceQuery::new().state(InstanceState::Waiting)).await.unwrap();
    assert_eq!(page.rows.len(), 100);
    let client = Client::new(store);
    let count = client.count(&InstanceQuery::new().name("Order1"), 1_000).await.unwrap();
    assert_eq!(count.to_string(), "more than 1000");
    let count = client.count(&InstanceQuery::new().id_contains("needle"), 1_000).await.unwrap();
    assert_eq!(count.to_string(), "1", "as many instances as a count looks at");
}

/// Every waiting instance sleeps for some hours.
fn put_to_sleep(file: &StoreFile, now: u64) {
    file.connection()
        .execute_batch(&format!(
            "BEGIN;
             INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
             SELECT instance_id, 'message', {now} + 3600000 + incarnation, {now}, '{{}}' FROM instances;
             COMMIT"
        ))
        .unwrap();
}

// semantics: LOOK-9
#[tokio::test]
async fn those_who_sleep_hide_nothing_of_what_is_ready() {
    let file = StoreFile::new();
    let store = file.open().await;
    fill(&file);
    let now = file.clock.now_ms();
    put_to_sleep(&file, now);
    let client = Client::new(store.clone());
    for instance in ["hay-7", "hay-8"] {
        client.raise_event(instance, "go", "").await.unwrap();
    }
    let totals = store.state_totals().await.unwrap();
    assert_eq!((totals.running, totals.waiting), (Count::exact(2), Count::exact(44_998)), "{totals:?}");
    let running = store.list_page(&InstanceQuery::new().state(InstanceState::Running)).await.unwrap();
    let ids: Vec<&str> = running.rows.iter().map(|row| row.instance.as_str()).collect();
    assert_eq!(
        (ids, running.next_cursor),
        (vec!["hay-8", "hay-7"], None),
        "without a look at those who sleep"
    );
    let messages = store.queue_states().await.unwrap().remove(0);
    assert_eq!((messages.ready, messages.leased), (Count::exact(2), Count::exact(0)));
    assert_eq!(messages.delayed.to_string(), "more than 10000");
    assert_eq!(messages.oldest_ready_ms, Some(now));
}

/// Twelve thousand starts within two steps of ten seconds, not in the order of their ids; the first one has an id of its own.
fn queue_starts(file: &StoreFile) {
    let start = r#"{"StartOrchestration":{"instance":"' || id || '","orchestration":"Order","input":"","version":null,"parent_instance":null,"parent_id":null,"execution_id":1}}"#;
    file.connection()
        .execute_batch(&format!(
            "BEGIN;
             WITH RECURSIVE n (x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < 11999),
             i (x, id) AS (SELECT x, iif(x = 0, 'needle', 'hay-' || x) FROM n)
             INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
             SELECT id, 'start', 1000000 + x / 6000 * 10000 + x * 7919 % 10000, '{start}' FROM i;
             COMMIT"
        ))
        .unwrap();
}

// semantics: LOOK-2
#[tokio::test]
async fn a_long_queue_of_starts_is_looked_at_in_parts_and_each_is_listed_once() {
    let file = StoreFile::new();
    let store = file.open().await;
    queue_starts(&file);
    let pages = async |query: &InstanceQuery| {
        let (mut query, mut pages, mut ids) = (query.clone(), 0, Vec::new());
        loop {
            let page = store.list_page(&query).await.unwrap();
            pages += 1;
            ids.extend(page.rows.into_iter().map(|row| row.instance));
            match page.next_cursor {
                Some(cursor) => query = query.cursor(cursor),
                None => return (pages, ids),
            }
        }
    };
    for sort in [ListSort::Created, ListSort::Updated] {
        for ascending in [true, false] {
            let mut all = InstanceQuery::new().sort(sort).limit(1_000);
            all.ascending = ascending;
            let (_, mut ids) = pages(&all).await;
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 12_000, "{sort:?}");
            let (count, ids) = pages(&all.id_contains("needle")).await;
            assert_eq!(
                (count, ids),
                (3, vec!["needle".to_string()]),
                "5,000 for each page, and the rest of ten seconds"
            );
        }
    }
    let client = Client::new(store.clone());
    let pending = InstanceQuery::new().state(InstanceState::Pending).name("Order");
    assert_eq!(client.count(&pending, 20_000).await.unwrap(), Count::exact(12_000));
    assert_eq!(client.count(&pending, 11_000).await.unwrap().to_string(), "more than 11000");
}
