//! Which activity heads a session when calls come late: each must become the head in its turn, and be claimed.

use std::time::Duration;

use super::ProviderFactory;
use super::support::*;
use crate::providers::SessionFetchConfig;

const SESSION_LEASE: Duration = Duration::from_secs(300);
const ACTIVITY_LEASE: Duration = Duration::from_secs(5);

async fn enqueue(store: &Store<'_>, id: u64) {
    store.send_work(session_activity("i", id, "s")).await;
}

/// Fetches as this owner; activity `id` must come.
async fn take(store: &Store<'_>, owner: &SessionFetchConfig, id: u64) -> Work {
    let work = store.try_session_work(ACTIVITY_LEASE, owner).await;
    let work = work.unwrap_or_else(|| panic!("activity {id} should have its turn"));
    assert_eq!(work.id(), id, "activity {id} should be next");
    work
}

/// Lets a lease run out. A caller without sessions then fetches: it finds nothing, but makes the store notice the end.
async fn outlive(store: &Store<'_>) {
    store.pass(ACTIVITY_LEASE + MARGIN).await;
    store.expect_no_work("the activities are of a session").await;
}

/// A late renewal, after the store has seen the lease run out, does not keep the session's next activity from its turn.
pub async fn a_late_renewal_leaves_the_next_activity_its_turn(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1).await;
    enqueue(&store, 2).await;
    let owner = owner("A", SESSION_LEASE);
    let mut first = take(&store, &owner, 1).await;
    outlive(&store).await;
    if store.provider.renew_work_item_lock(&first.token, ACTIVITY_LEASE).await.is_err() {
        first = take(&store, &owner, 1).await;
    }
    let second = take(&store, &owner, 2).await;
    store.discard(&first).await;
    store.discard(&second).await;
    enqueue(&store, 3).await;
    take(&store, &owner, 3).await;
}

/// An activity that ends or is given back after the store has seen its lease run out makes room for the next.
pub async fn a_late_end_leaves_the_next_activity_its_turn(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1).await;
    enqueue(&store, 2).await;
    let owner = owner("A", SESSION_LEASE);
    let mut first = take(&store, &owner, 1).await;
    outlive(&store).await;
    if store.provider.ack_work_item(&first.token, None).await.is_err() {
        first = take(&store, &owner, 1).await;
        outlive(&store).await;
        store.abandon_work(&first, Some(ACTIVITY_LEASE), false).await;
    }
    take(&store, &owner, 2).await;
}
