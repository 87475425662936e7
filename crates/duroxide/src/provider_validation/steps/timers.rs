//! A step that is caused by a timer that is due.

use super::super::support::{Commit, Store, raised, status, timer};
use super::super::{EventKind, ProviderFactory};
use super::{Held, able, conflicts, opening, store_one, stored};
use crate::model::WorkItem;
use crate::providers::{ExtendedProvider, StepCause};

/// Makes an instance with a timer.
async fn sleeping(store: &Store<'_>, extended: &dyn ExtendedProvider, instance: &str) -> (Held, WorkItem) {
    let fire_at_ms = store.now_ms() + u64::try_from(store.lease().as_millis()).unwrap_or(u64::MAX);
    let timer = timer(instance, 2, fire_at_ms);
    let mut commit = Commit { work: Vec::new(), messages: vec![timer.clone()], ..opening(instance) };
    commit.events[1].kind = EventKind::TimerCreated { fire_at_ms };
    store.start_and_ack(instance, commit).await;
    let metadata = extended.read_metadata(instance).await.expect("read_metadata should work");
    let incarnation = metadata.expect("it exists").incarnation;
    (Held { instance: instance.into(), incarnation, execution_id: 1, last_event_id: 2 }, timer)
}

fn woken(instance: &str) -> Commit {
    let kind = EventKind::TimerFired { fire_at_ms: 0 };
    let fired = crate::model::Event::with_event_id(3, instance, 1, Some(2), kind);
    Commit { events: vec![fired], metadata: status("Completed"), ..Commit::default() }
}

/// A timer that is due is taken out of the queue by the turn that it causes, and not before.
pub async fn a_due_timer_is_stored_with_its_turn(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.timers) else { return };
    let (held, timer) = sleeping(&store, extended, "i").await;
    conflicts(store_one(extended, StepCause::Timer(&timer), &held, &woken("i"), None).await, "it is not due");
    store.outlive_lease().await;
    stored(store_one(extended, StepCause::Timer(&timer), &held, &woken("i"), None).await);
    store.expect_no_turn("the timer was taken").await;
    conflicts(store_one(extended, StepCause::Timer(&timer), &held, &woken("i"), None).await, "it is gone");
}

/// A timer comes in its order among the messages of its instance, so it alone may be there.
pub async fn a_timer_that_is_not_alone_goes_the_long_way(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.timers) else { return };
    let (held, timer) = sleeping(&store, extended, "i").await;
    store.outlive_lease().await;
    let other = super::super::support::timer("i", 9, 1);
    conflicts(store_one(extended, StepCause::Timer(&other), &held, &woken("i"), None).await, "no such timer");
    store.send(raised("i", "n", "")).await;
    conflicts(store_one(extended, StepCause::Timer(&timer), &held, &woken("i"), None).await, "not alone");
    assert_eq!(store.turn_of("i").await.item.messages, [timer, raised("i", "n", "")]);
}
