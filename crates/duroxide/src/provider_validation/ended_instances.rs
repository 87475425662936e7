//! Messages in the queue of an instance that ends: no execution will read them, so the store removes them.

use super::ProviderFactory;
use super::support::*;
use crate::model::WorkItem;

/// A day from now.
fn tomorrow(store: &Store<'_>) -> u64 {
    store.now_ms() + 24 * 60 * 60 * 1_000
}

async fn queued_messages(store: &Store<'_>) -> usize {
    let depths = store.admin().get_queue_depths().await.expect("get_queue_depths should work");
    depths.orchestrator_queue
}

/// A timer that lost a race goes with its instance: queue depths no longer count it, and it wakes no dispatcher a day
/// later.
pub async fn a_timer_of_an_ended_instance_goes_with_it(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for status in ["Completed", "Failed"] {
        let due = tomorrow(&store);
        store.start_and_ack(status, Commit::creating(status).message(timer(status, 2, due))).await;
        assert_eq!(queued_messages(&store).await, 1, "the timer should wait");
        // The last turn sets another.
        let last = Commit::default().status(status).message(timer(status, 3, due));
        store.next_turn(status, last).await;
        assert_eq!(queued_messages(&store).await, 0, "no timer of a {status} instance should be left");
        if let Some(extended) = store.extended() {
            let signal = extended.work_signal(crate::providers::WorkQueue::Orchestrator);
            assert_eq!(signal.next_due_ms().filter(|at| *at >= due), None, "nobody should be woken for it");
        }
    }
}

/// Messages that arrive during the last turn go with the instance, because no execution reads them; other instances
/// keep theirs.
pub async fn messages_for_an_ended_instance_go_with_it(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("other").await;
    store.create("i").await;
    store.send(raised("i", "last", "")).await;
    let turn = store.turn_of("i").await;
    for message in [
        raised("i", "late", ""),
        queue_message("i", "inbox", "late"),
        completed("i", 2, "late"),
        cancel("i"),
        raised("other", "go", ""),
    ] {
        store.send(message).await;
    }
    store.ack(&turn, Commit::default().status("Completed").message(raised("other", "done", ""))).await;
    assert_eq!(queued_messages(&store).await, 2, "the other instance's messages should stay");
    assert_eq!(store.turn_of("other").await.item.messages.len(), 2);
    store.expect_no_turn("nothing is left for an instance that has ended").await;
}

/// A start for a taken id stays, because its sender waits for the answer.
pub async fn a_start_for_an_ended_instance_stays(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("i").await;
    store.send(raised("i", "last", "")).await;
    let turn = store.turn_of("i").await;
    store.start("i").await;
    store.send(raised("i", "late", "")).await;
    store.ack(&turn, Commit::default().status("Failed")).await;
    let turn = store.turn_of("i").await;
    assert!(
        matches!(turn.item.messages[..], [WorkItem::StartOrchestration { .. }]),
        "{:?}",
        turn.item.messages
    );
}

/// Messages sent after the end are delivered as usual.
pub async fn messages_after_the_end_are_delivered(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_status("i", "Completed").await;
    store.send(raised("i", "late", "")).await;
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages.len(), 1);
    // An ack without a status ends nothing.
    store.send(queue_message("i", "inbox", "later")).await;
    store.ack(&turn, Commit::default()).await;
    assert_eq!(store.turn_of("i").await.item.messages.len(), 1);
}

/// An execution that continues as new leaves its timers and completions behind. Signals and messages are for the next
/// one.
pub async fn a_continued_execution_leaves_its_timers_behind(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let due = tomorrow(&store);
    store.start_and_ack("i", Commit::creating("i").message(timer("i", 2, due))).await;
    store.send(raised("i", "last", "")).await;
    let turn = store.turn_of("i").await;
    for message in [raised("i", "late", ""), completed("i", 3, "late"), queue_message("i", "inbox", "m")] {
        store.send(message).await;
    }
    let commit = Commit::default().status("ContinuedAsNew").message(continue_as_new("i"));
    store.ack(&turn, commit.message(timer("i", 4, due))).await;
    assert_eq!(queued_messages(&store).await, 3, "the timers and the completion should be gone");
    let turn = store.turn_of("i").await;
    assert!(
        matches!(
            turn.item.messages[..],
            [WorkItem::ExternalRaised { .. }, WorkItem::QueueMessage { .. }, WorkItem::ContinueAsNew { .. }]
        ),
        "the rest should come in order: {:?}",
        turn.item.messages
    );
}

/// The end of an older execution takes no messages from the current one.
pub async fn the_end_of_an_older_execution_takes_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("i").await;
    let second = Commit::beginning("i", 2);
    let due = tomorrow(&store);
    store.next_turn("i", Commit { messages: vec![timer("i", 2, due)], ..second }).await;
    store.next_turn("i", Commit::default().status("Completed")).await;
    assert_eq!(queued_messages(&store).await, 1, "execution 2 goes on, and its timer waits");
}

/// The commit that ends an instance takes all its activities with it, if it names those that the store lists: queued ones,
/// one that a worker has leased, one of a session and one that waits behind that. Other instances keep theirs.
pub async fn activities_of_an_ended_instance_go_with_it(factory: &dyn ProviderFactory) {
    for status in ["Completed", "Failed"] {
        let store = Store::new(factory).await;
        let Some(inspector) = store.extended().and_then(|extended| extended.as_inspector()) else { return };
        let other = format!("other than {status}");
        let in_session = |id| session_activity(status, id, "s");
        store
            .create_with_work(
                status,
                vec![activity(status, 2), in_session(3), in_session(4), activity(status, 5)],
            )
            .await;
        store.create_with_work(&other, vec![activity(&other, 2)]).await;
        let leased = store.work().await;
        assert_eq!(leased.id(), 2);
        let listed = inspector.list_activities(status, 100).await.expect("list_activities should work");
        let cancelled: Vec<_> =
            listed.iter().map(|listed| scheduled(&listed.instance, listed.activity_id)).collect();
        assert_eq!(cancelled.len(), 4, "{listed:?}");
        store.next_turn(status, Commit { cancelled, ..Commit::default() }.status(status)).await;
        let left = inspector.list_activities(status, 100).await.expect("list_activities should work");
        assert!(left.is_empty(), "{status}: {left:?}");
        let depths = store.admin().get_queue_depths().await.expect("get_queue_depths should work");
        assert_eq!((depths.worker_queue, depths.orchestrator_queue), (1, 0), "{status}");
        let work = store.work().await;
        assert_eq!(work.item, activity(&other, 2), "the other instance keeps its own");
        store.expect_no_work("all others are gone").await;
    }
}

/// The store removes the activities that the last commit names, and no others: code may have left some to run on.
pub async fn activities_that_nobody_cancels_outlive_their_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2), activity("i", 3)]).await;
    let last = Commit { cancelled: vec![scheduled("i", 2)], ..Commit::default() };
    store.next_turn("i", last.status("Completed")).await;
    assert_eq!(store.work().await.id(), 3, "the one that was not cancelled should stay");
    store.expect_no_work("the other was cancelled").await;
}
