//! A long queue of starts: pages look at a part of it, and the server counts it.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use duroxide::InstanceState;
use duroxide::providers::{Count, Inspector, InstanceQuery, ListSort};
use duroxide_pg::PostgresProvider;
use support::world::World;

/// Twelve thousand starts within two steps of ten seconds, not in the order of their ids; the first one has an id of its own.
const STARTS: &str = r#"INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
    SELECT i.id, 'start', 1000000 + i.x / 6000 * 10000 + i.x * 7919 % 10000,
        '{"StartOrchestration":{"instance":"' || i.id || '","orchestration":"Order","input":"","version":null,"parent_instance":null,"parent_id":null,"execution_id":1}}'
    FROM (SELECT x, CASE WHEN x = 0 THEN 'needle' ELSE 'hay-' || x END AS id FROM generate_series(0, 11999) x) i"#;

async fn pages(store: &PostgresProvider, query: &InstanceQuery) -> (usize, Vec<String>) {
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
}

// semantics: LOOK-2
#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_of_starts_is_looked_at_in_parts_and_each_is_listed_once() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    world.run(STARTS).await;
    for sort in [ListSort::Created, ListSort::Updated] {
        for ascending in [true, false] {
            let mut all = InstanceQuery::new().sort(sort).limit(1_000);
            all.ascending = ascending;
            let (_, mut ids) = pages(&store, &all).await;
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 12_000, "{sort:?}");
            let (count, ids) = pages(&store, &all.id_contains("needle")).await;
            assert_eq!(ids, ["needle"]);
            // 2,000 for each page, and the rest of ten seconds.
            assert_eq!(count, if sort == ListSort::Created { 7 } else { 3 }, "{sort:?}");
        }
    }
    let pending = InstanceQuery::new().state(InstanceState::Pending).name("Order");
    assert_eq!(store.count(&pending, 20_000).await.unwrap(), Count::exact(12_000));
    assert_eq!(store.count(&pending, 11_000).await.unwrap().to_string(), "more than 11000");
}
