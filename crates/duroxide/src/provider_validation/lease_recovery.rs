//! Expired leases: the holder may take its lease up again as long as no other caller has taken over.
//!
//! A store that cannot tell passes these checks at once.

use std::time::Duration;

use super::ProviderFactory;
use super::support::*;
use crate::providers::{DispatcherCapabilityFilter, LeaseState, TagFilter, WorkQueue};

const TURN: WorkQueue = WorkQueue::Orchestrator;
const WORK: WorkQueue = WorkQueue::Worker;

/// Asks about a lease; `None` if the store cannot tell.
async fn recover(store: &Store<'_>, queue: WorkQueue, token: &str, time: Duration) -> Option<LeaseState> {
    let state = store.extended()?.recover_lease(queue, token, time).await.expect("recover_lease should work");
    (state != LeaseState::Unknown).then_some(state)
}

/// A store with an instance and an activity; both are leased and both leases have run out.
async fn with_expired_leases(factory: &dyn ProviderFactory) -> (Store<'_>, Turn, Work) {
    let store = Store::new(factory).await;
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn_for(store.lease()).await, store.work_for(store.lease()).await);
    store.outlive_lease().await;
    (store, turn, work)
}

/// The expired lease is live again, no other caller gets its work, and the holder can ack it.
pub async fn expired_leases_are_taken_up_again(factory: &dyn ProviderFactory) {
    let (store, turn, work) = with_expired_leases(factory).await;
    let Some(state) = recover(&store, TURN, &turn.token, store.lease()).await else { return };
    assert_eq!(state, LeaseState::Held, "nobody has taken the turn over");
    let state = recover(&store, WORK, &work.token, store.lease()).await;
    assert_eq!(state, Some(LeaseState::Held), "nobody has taken the activity over");
    store.expect_no_turn("the lease was taken up again").await;
    store.expect_no_work("the lease was taken up again").await;
    store.ack(&turn, Commit::creating("i")).await;
    store.complete(&work).await;
    store.turn_of("i").await;
}

/// A fetch that found nothing after a lease had run out has not taken it over.
pub async fn a_vain_fetch_takes_nothing_over(factory: &dyn ProviderFactory) {
    let (store, turn, work) = with_expired_leases(factory).await;
    let nothing = DispatcherCapabilityFilter { supported_duroxide_versions: Vec::new() };
    assert!(store.try_turn_with(&nothing).await.is_none(), "nothing is compatible with this filter");
    assert!(store.try_tagged_work(&TagFilter::tags(["other"])).await.is_none(), "there is no such tag");
    let Some(state) = recover(&store, TURN, &turn.token, store.lease()).await else { return };
    assert_eq!(state, LeaseState::Held, "nobody has taken the turn over");
    let state = recover(&store, WORK, &work.token, store.lease()).await;
    assert_eq!(state, Some(LeaseState::Held), "nobody has taken the activity over");
    store.expect_no_turn("the lease was taken up again").await;
    store.expect_no_work("the lease was taken up again").await;
    // It ends as any other lease does, and its attempts count once.
    store.outlive_lease().await;
    assert_eq!((store.turn_of("i").await.attempts, store.work().await.attempts), (2, 2));
}

/// A lease that another caller has taken over is lost, and asking does not harm the other's lease.
pub async fn leases_that_were_taken_over_are_lost(factory: &dyn ProviderFactory) {
    let (store, turn, work) = with_expired_leases(factory).await;
    let (next_turn, next_work) = (store.turn_of("i").await, store.work().await);
    let Some(state) = recover(&store, TURN, &turn.token, store.lease()).await else { return };
    assert_eq!(state, LeaseState::Lost, "the turn was taken over");
    assert_eq!(recover(&store, WORK, &work.token, store.lease()).await, Some(LeaseState::Lost));
    store.ack(&next_turn, Commit::creating("i")).await;
    store.complete(&next_work).await;
}

/// A lease that was acked or given back, or whose work was removed, is lost; so is an invented one.
pub async fn leases_that_ended_are_lost(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let work = vec![activity("i", 2), activity("i", 3), activity("i", 4)];
    store.create_with_work("i", work).await;
    let (acked, given_back, cancelled) = (store.work().await, store.work().await, store.work().await);
    store.complete(&acked).await;
    let turn = store.turn_of("i").await;
    store.ack(&turn, Commit { cancelled: vec![scheduled("i", cancelled.id())], ..Commit::default() }).await;
    store.abandon_work(&given_back, None, false).await;
    let time = store.lease();
    if recover(&store, TURN, &turn.token, time).await.is_none() {
        return;
    }
    for (queue, token) in [(TURN, &turn.token), (WORK, &acked.token), (WORK, &given_back.token)] {
        assert_eq!(recover(&store, queue, token, time).await, Some(LeaseState::Lost), "{queue:?}");
    }
    assert_eq!(recover(&store, WORK, &cancelled.token, time).await, Some(LeaseState::Lost), "it was removed");
    for queue in [TURN, WORK] {
        assert_eq!(recover(&store, queue, "never given out", time).await, Some(LeaseState::Lost));
    }
    assert_eq!(store.work().await.attempts, 2, "what was given back is there for anybody");
}

/// A live lease is extended, and never shortened.
pub async fn live_leases_are_extended(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let lease = store.lease();
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn_for(lease).await, store.work_for(lease).await);
    if recover(&store, TURN, &turn.token, lease * 2).await.is_none() {
        return;
    }
    for time in [lease * 2, ms(1)] {
        assert_eq!(recover(&store, TURN, &turn.token, time).await, Some(LeaseState::Held));
        assert_eq!(recover(&store, WORK, &work.token, time).await, Some(LeaseState::Held));
    }
    store.outlive_lease().await;
    store.expect_no_turn("the lease was extended past its first end").await;
    store.expect_no_work("the lease was extended past its first end").await;
    store.complete(&work).await;
}
