//! A dispatcher that waits hears of the activity that has its session's turn.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{ExtendedProvider, Provider, SessionFetchConfig, TagFilter, WorkItem, WorkQueue};
use support::{StoreFile, activity, soon};

const LEASE: Duration = Duration::from_secs(5);

async fn take(store: &SqliteProvider) -> Option<(u64, String)> {
    let owner = SessionFetchConfig { owner_id: "A".into(), lock_timeout: Duration::from_secs(300) };
    let taken = store.fetch_work_item(LEASE, Duration::ZERO, Some(&owner), &TagFilter::Any).await.unwrap();
    taken.map(|(item, token, _)| match item {
        WorkItem::ActivityExecute { id, .. } => (id, token),
        other => panic!("{other:?}"),
    })
}

#[tokio::test]
async fn an_activity_that_is_put_off_passes_its_turn_on_aloud() {
    let file = StoreFile::new();
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
    // Its lease runs out. Somebody who takes no sessions sees that, so that it has the turn of its session again.
    file.clock.advance(LEASE + Duration::from_secs(1));
    let nothing = store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    assert!(nothing.is_none());

    let mut signal = store.work_signal(WorkQueue::Worker);
    signal.mark_seen();
    store.abandon_work_item(&token, Some(Duration::from_secs(3_600)), false).await.unwrap();
    soon(signal.wait()).await;
    assert_eq!(take(&store).await.expect("the next has its turn").0, 2);
}
