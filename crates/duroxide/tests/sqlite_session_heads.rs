//! Calls that reached one process in time and the file too late: another process had seen the lease run out meanwhile.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::pin::pin;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, ProviderError, SessionFetchConfig, TagFilter, WorkItem};
use support::{StoreFile, activity, soon};

const LEASE: Duration = Duration::from_secs(5);

/// Takes the next activity of the session; `None` if none has its turn.
async fn take(store: &SqliteProvider) -> Option<(u64, String)> {
    let owner = SessionFetchConfig { owner_id: "A".into(), lock_timeout: Duration::from_secs(300) };
    let taken = store.fetch_work_item(LEASE, Duration::ZERO, Some(&owner), &TagFilter::Any).await.unwrap();
    taken.map(|(item, token, _)| match item {
        WorkItem::ActivityExecute { id, .. } => (id, token),
        other => panic!("{other:?}"),
    })
}

/// Makes a call that comes in time, but is held up until another process has seen the lease run out.
async fn late<T>(file: &StoreFile, call: impl Future<Output = Result<T, ProviderError>>) -> T {
    let other = file.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut call = pin!(call);
    std::future::poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending(), "the file is locked");
        std::task::Poll::Ready(())
    })
    .await;
    file.clock.advance(LEASE + Duration::from_secs(1));
    // A claim by the other process does this with an activity whose lease has run out.
    other
        .execute_batch("UPDATE worker_queue SET due_at = NULL, ready_for = 'A' WHERE activity_id = 1; COMMIT")
        .unwrap();
    soon(call).await.unwrap()
}

/// A store with two activities of one session, of which the first is taken.
async fn store_with_two(file: &StoreFile) -> (std::sync::Arc<SqliteProvider>, String) {
    let store = file.open().await;
    for id in [1, 2] {
        let mut item = activity("i", id);
        if let WorkItem::ActivityExecute { session_id, .. } = &mut item {
            *session_id = Some("s".into());
        }
        store.enqueue_for_worker(item).await.unwrap();
    }
    let (id, token) = take(&store).await.unwrap();
    assert_eq!(id, 1);
    (store, token)
}

#[tokio::test]
async fn a_renewal_that_is_held_up_leaves_the_next_activity_its_turn() {
    let file = StoreFile::new();
    let (store, token) = store_with_two(&file).await;
    late(&file, store.renew_work_item_lock(&token, LEASE)).await;
    let (id, second) = take(&store).await.expect("the next has its turn");
    assert_eq!(id, 2);
    store.ack_work_item(&second, None).await.unwrap();
    store.ack_work_item(&token, None).await.unwrap();
    assert!(take(&store).await.is_none());
}

#[tokio::test]
async fn a_result_that_is_held_up_leaves_the_next_activity_its_turn() {
    let file = StoreFile::new();
    let (store, token) = store_with_two(&file).await;
    late(&file, store.ack_work_item(&token, None)).await;
    assert_eq!(take(&store).await.expect("the next has its turn").0, 2);
}
