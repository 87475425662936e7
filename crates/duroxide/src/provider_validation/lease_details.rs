//! Renewals of turns, and expired leases that no other caller has taken over.

use super::ProviderFactory;
use super::support::{Commit, MARGIN, Store, activity, assert_refused, ms, start_item};

/// A renewed turn outlives its first lease, and can be acked then.
pub async fn renewed_turn_outlives_its_first_lease(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let lease = store.lease();
    store.start("i").await;
    let turn = store.turn_for(lease).await;
    store.pass(lease * 6 / 10).await;
    let renewed = store.provider.renew_orchestration_item_lock(&turn.token, lease).await;
    renewed.expect("a live lease should be renewable");
    store.pass(lease * 6 / 10).await;
    store.expect_no_turn("the lease was extended past its first end").await;
    store.ack(&turn, Commit::creating("i")).await;
}

/// A renewed lease ends as well.
pub async fn renewed_turn_expires(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let lease = store.lease();
    store.start("i").await;
    let turn = store.turn_for(lease).await;
    store.provider.renew_orchestration_item_lock(&turn.token, lease).await.expect("it should be renewable");
    store.outlive_lease().await;
    store.turn_of("i").await;
    assert_refused(store.try_ack(&turn.token, Commit::default()).await, "an ack after a takeover");
}

/// Extensions of less than a second are honoured.
pub async fn sub_second_renewals_count(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn_for(ms(600)).await, store.work_for(ms(600)).await);
    store.pass(ms(300)).await;
    store.provider.renew_orchestration_item_lock(&turn.token, ms(700)).await.expect("it should be renewable");
    store.provider.renew_work_item_lock(&work.token, ms(700)).await.expect("it should be renewable");
    store.pass(ms(400)).await;
    store.expect_no_turn("the turn was extended by 700 ms, 400 ms ago").await;
    store.expect_no_work("the activity was extended by 700 ms, 400 ms ago").await;
    store.pass(ms(300) + MARGIN).await;
    store.turn_of("i").await;
    store.work().await;
}

/// A holder can give back an expired lease until another caller takes over.
pub async fn expired_leases_can_be_abandoned(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn_for(store.lease()).await, store.work_for(store.lease()).await);
    store.outlive_lease().await;
    store.abandon_with(&turn, None, true).await;
    store.abandon_work(&work, None, true).await;

    let (next, next_work) = (store.turn_for(store.lease()).await, store.work_for(store.lease()).await);
    assert_eq!((next.attempts, next_work.attempts), (1, 1), "the attempts were taken back");
    store.outlive_lease().await;
    store.turn_of("i").await;
    store.work().await;
    let late = store.provider.abandon_orchestration_item(&next.token, None, false).await;
    assert_refused(late, "an abandon of a turn after a takeover");
    let late = store.provider.abandon_work_item(&next_work.token, None, false).await;
    assert_refused(late, "an abandon of an activity after a takeover");
}

/// A lease is live until the very millisecond in which it ends, and dead in it.
pub async fn leases_end_on_the_millisecond(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    // Only a clock that stands still in between can tell.
    let Some(clock) = factory.clock() else { return };
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn_for(ms(1_000)).await, store.work_for(ms(1_000)).await);
    clock.advance(ms(999));
    store.expect_no_turn("the lease has a millisecond left").await;
    store.expect_no_work("the lease has a millisecond left").await;
    clock.advance(ms(1));
    assert_refused(store.try_ack(&turn.token, Commit::creating("i")).await, "an ack at the end of the lease");
    let renewed = store.provider.renew_work_item_lock(&work.token, ms(1_000)).await;
    assert_refused(renewed, "a renewal at the end of the lease");
    store.turn_of("i").await;
    store.work().await;
}

/// A delayed message is visible in the very millisecond in which its delay ends, and not before.
pub async fn delays_end_on_the_millisecond(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(clock) = factory.clock() else { return };
    store.send_delayed(start_item("i"), ms(1_000)).await;
    store.send_work(activity("i", 1)).await;
    let work = store.work().await;
    store.abandon_work(&work, Some(ms(1_000)), false).await;
    clock.advance(ms(999));
    store.expect_no_turn("the delay has a millisecond left").await;
    store.expect_no_work("the delay has a millisecond left").await;
    clock.advance(ms(1));
    store.turn_of("i").await;
    store.work().await;
}
