//! The ids of executions and activities.

use super::ProviderFactory;
use super::support::{Commit, Store, activity, completed, raised, scheduled, started};

/// A fetch returns an instance without a row with the execution whose history it has.
pub async fn instance_without_row_has_its_real_execution(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    // Published stores say 1 here, whichever execution the history belongs to.
    if store.extended().is_none() {
        return;
    }
    store.start_and_ack("i", Commit::of_events(vec![started("i", 1)])).await;
    let second = Commit { execution_id: 2, events: vec![started("i", 2)], ..Commit::default() };
    store.next_turn("i", second).await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.execution_id, 2, "the execution should be that of the history");
    assert_eq!(turn.item.history, store.history_of("i", 2).await, "and the history its own");

    // The execution that follows has no events yet, but the instance has a history: nothing for it may be dropped.
    store.ack(&turn, Commit { execution_id: 3, ..Commit::default() }).await;
    store.send(completed("i", 1, "done")).await;
    let turn = store.turn_of("i").await;
    assert_eq!(
        (turn.item.execution_id, turn.item.messages.len()),
        (3, 1),
        "the completion should be delivered"
    );
}

/// A cancellation names instance, execution and id: an activity that differs in any of them stays.
pub async fn cancellation_goes_by_instance_execution_and_id(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let mut of_another_execution = scheduled("i", 2);
    of_another_execution.execution_id = 2;
    let cancelled = vec![of_another_execution, scheduled("j", 2), scheduled("i", 3)];
    store.next_turn("i", Commit { cancelled, ..Commit::default() }).await;
    assert_eq!(store.work().await.id(), 2, "the activity was not the one that was cancelled");
}
