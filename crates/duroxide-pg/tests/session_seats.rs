//! Calls that waited for the database until another claim had seen their lease run out.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, ManualClock, Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide_pg::PostgresProvider;
use support::database::Database;

const LEASE: Duration = Duration::from_secs(5);

async fn take(store: &PostgresProvider, session: bool) -> Option<(u64, String)> {
    let owner = SessionFetchConfig { owner_id: "A".into(), lock_timeout: Duration::from_secs(300) };
    let owner = session.then_some(&owner);
    let taken = store.fetch_work_item(LEASE, Duration::ZERO, owner, &TagFilter::Any).await.unwrap();
    taken.map(|(item, token, _)| match item {
        WorkItem::ActivityExecute { id, .. } => (id, token),
        other => panic!("{other:?}"),
    })
}

/// Takes the first of two activities of a session, lets the lease run out, and lets a claim without sessions see that.
/// Then calls one of the store's functions, as if the call had arrived in time; its arguments are the time, the
/// activity's row, and its token.
async fn next_after(call: &str) -> Option<u64> {
    let database = Database::new().await;
    let clock = Arc::new(ManualClock::default());
    let store = PostgresProvider::builder().clock(clock.clone()).open(database.url()).await.unwrap();
    for id in [1, 2] {
        let (session_id, name) = (Some("s".to_string()), "Charge".to_string());
        let (instance, input) = ("i".to_string(), String::new());
        let tag = None;
        let item = WorkItem::ActivityExecute { instance, execution_id: 1, id, name, input, session_id, tag };
        store.enqueue_for_worker(item).await.unwrap();
    }
    let (id, token) = take(&store, true).await.unwrap();
    assert_eq!(id, 1);
    clock.advance(LEASE + Duration::from_secs(1));
    assert!(take(&store, false).await.is_none());
    let call = call
        .replace("NOW", &clock.now_ms().to_string())
        .replace("ROW", "(SELECT min(id) FROM worker_queue)")
        .replace("TOKEN", &format!("'{token}'"));
    store.execute_sql(&call).await.unwrap();
    take(&store, true).await.map(|(id, _)| id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_waited_leaves_the_next_activity_its_turn() {
    assert_eq!(next_after("SELECT renew_work_1(NOW, ROW, TOKEN, 3000, 5000)").await, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_waited_leaves_the_next_activity_its_turn() {
    // The builds before migration 26 call the first one.
    for function in ["store_results_1", "store_results_2"] {
        let call = "(NOW, NULL, NULL, NULL, ARRAY[ROW], ARRAY[TOKEN], ARRAY[3000], ARRAY[NULL], ARRAY[NULL], ARRAY[NULL], \
            0, 0, 0, NULL, NULL, NULL)";
        assert_eq!(next_after(&format!("SELECT {function}{call}")).await, Some(2), "{function}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activity_that_is_set_aside_late_leaves_the_next_its_turn() {
    let call = "SELECT quarantine_work_1(NOW, ARRAY[ROW], ARRAY['damaged' || left(TOKEN, 0)])";
    assert_eq!(next_after(call).await, Some(2));
}
