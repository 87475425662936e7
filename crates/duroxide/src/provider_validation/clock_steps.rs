//! A correction of the wall clock, in either direction, neither hides nor loses work.
//!
//! These checks need a store on a clock that a test can move by hand.

use std::time::Duration;

use super::ProviderFactory;
use super::support::{Commit, Store, activity, raised, start_item};
use crate::providers::{Clock, ManualClock};

const AN_HOUR_MS: u64 = 60 * 60 * 1_000;

fn step_back(clock: &ManualClock) {
    clock.set_wall_ms(clock.now_ms() - AN_HOUR_MS);
}

/// Work that could be fetched before the wall stepped back can be fetched after it.
pub async fn backward_step_hides_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(clock) = factory.clock() else { return };
    store.start("enqueued").await;
    store.send_work(activity("i", 1)).await;
    step_back(&clock);
    store.turn_of("enqueued").await;
    assert_eq!(store.work().await.id(), 1, "the activity should not be hidden");
}

/// The same for work that was given back, and for work that an ack enqueued.
pub async fn backward_step_hides_nothing_that_was_released(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(clock) = factory.clock() else { return };
    let commit = Commit {
        work: vec![activity("i", 2)],
        messages: vec![raised("i", "n", ""), start_item("other")],
        ..Commit::creating("i")
    };
    store.start_and_ack("i", commit).await;
    let (turn, work) = (store.turn_of("i").await, store.work().await);
    store.abandon(&turn).await;
    store.abandon_work(&work, None, false).await;
    step_back(&clock);
    assert_eq!(store.work().await.id(), 2, "the activity should not be hidden");
    let mut found = [store.turn().await.item.instance, store.turn().await.item.instance];
    found.sort();
    assert_eq!(found, ["i", "other"], "no message should be hidden");
}

/// New work after the step can be fetched at once, and comes after the old.
pub async fn order_survives_a_backward_step(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(clock) = factory.clock() else { return };
    store.create("i").await;
    store.send(raised("i", "n", "before")).await;
    store.send_work(activity("i", 1)).await;
    step_back(&clock);
    store.send(raised("i", "n", "after")).await;
    store.send_work(activity("i", 2)).await;
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages, [raised("i", "n", "before"), raised("i", "n", "after")]);
    assert_eq!((store.work().await.id(), store.work().await.id()), (1, 2));
}

/// A message that is hidden again until its delay is over gives its instance no place: others with older messages come first.
pub async fn a_message_that_is_hidden_again_gives_no_place(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(clock) = factory.clock() else { return };
    for instance in ["seen", "i", "older"] {
        store.create(instance).await;
    }
    store.send(raised("seen", "n", "")).await;
    store.send_delayed(raised("i", "n", "delayed"), Duration::from_secs(60)).await;
    clock.advance(Duration::from_secs(60));
    store.send(raised("older", "n", "")).await;
    store.turn_of("seen").await;
    step_back(&clock);
    store.send(raised("i", "n", "new")).await;
    store.turn_of("older").await;
    assert_eq!(store.turn_of("i").await.item.messages, [raised("i", "n", "new")]);
}

/// A delay still ends after a forward step, and due messages stay in order.
pub async fn forward_step_ends_delays(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(clock) = factory.clock() else { return };
    store.send_delayed(start_item("later"), Duration::from_secs(60)).await;
    store.expect_no_turn("the delay has not passed").await;
    clock.set_wall_ms(clock.now_ms() + AN_HOUR_MS);
    clock.advance(Duration::from_secs(60));
    store.turn_of("later").await;
}
