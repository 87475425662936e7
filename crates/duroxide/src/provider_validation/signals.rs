//! A store signals when work may have appeared, so that no caller has to poll.
//!
//! Each check brings the signal to rest, lets one thing happen, and expects the wake-up and the work.

use std::time::Duration;

use super::support::{
    Commit, MARGIN, Store, TURN_LEASE, WORK_LEASE, activity, completed, ms, owner, queue_message, raised,
    session_activity, start_item, status,
};
use super::{EventKind, ProviderFactory};
use crate::model::WorkItem;
use crate::providers::{
    DeliveryOutcome, ExtendedProvider, InstanceRequest, InstanceWatch, SessionFetchConfig, WorkQueue,
    WorkSignal, refusal,
};

/// Far longer than any wake-up takes; a check that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A signal with more spurious wake-ups in a row than this never rests.
const MOST_SPURIOUS_WAKES: usize = 100;

async fn is_pending(future: impl Future) -> bool {
    tokio::select! { biased; _ = future => false, () = std::future::ready(()) => true }
}

/// Brings a signal of the orchestrator queue to rest: nothing to fetch, and nothing to wake for.
async fn resting_turn_signal(store: &Store<'_>, extended: &dyn ExtendedProvider) -> WorkSignal {
    let mut signal = extended.work_signal(WorkQueue::Orchestrator);
    for _ in 0..MOST_SPURIOUS_WAKES {
        signal.mark_seen();
        store.expect_no_turn("the check has not made any work yet").await;
        if is_pending(signal.wait()).await {
            return signal;
        }
    }
    panic!("the orchestrator signal should come to rest when there is nothing to fetch");
}

/// The same for the worker queue, as seen by one owner of sessions.
async fn resting_work_signal(
    store: &Store<'_>,
    extended: &dyn ExtendedProvider,
    session: &SessionFetchConfig,
) -> WorkSignal {
    let mut signal = extended.work_signal(WorkQueue::Worker);
    for _ in 0..MOST_SPURIOUS_WAKES {
        signal.mark_seen();
        let work = store.try_session_work(WORK_LEASE, session).await;
        assert!(work.is_none(), "the check has not made any work yet; got {work:?}");
        if is_pending(signal.wait()).await {
            return signal;
        }
    }
    panic!("the worker signal should come to rest when there is nothing to fetch");
}

async fn assert_wakes(signal: &mut WorkSignal, cause: &str) {
    let woken = tokio::time::timeout(PATIENCE, signal.wait()).await;
    assert!(woken.is_ok(), "the signal should wake: {cause}");
}

async fn assert_changed(watch: &mut InstanceWatch, cause: &str) {
    let woken = tokio::time::timeout(PATIENCE, watch.changed()).await;
    assert!(woken.is_ok(), "the watch should wake: {cause}");
}

fn anybody() -> SessionFetchConfig {
    owner("anybody", WORK_LEASE)
}

/// An enqueued message wakes the orchestrator signal.
pub async fn enqueued_message_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut signal = resting_turn_signal(&store, extended).await;
    store.start("i").await;
    assert_wakes(&mut signal, "a message was enqueued").await;
    store.turn_of("i").await;
}

/// A claim that returns fewer instances than asked for has left none, or the signal wakes for the rest. This holds even
/// if many messages had no instance, and if work fell due in the other queue meanwhile.
pub async fn a_short_claim_wakes_for_what_it_left(factory: &dyn ProviderFactory) {
    const MESSAGES_FOR_NOBODY: u64 = 300;
    const MOST: usize = 1_000;
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send_work(activity("i", 1)).await;
    let work = store.work().await;
    store.start("first").await;
    for number in 0..MESSAGES_FOR_NOBODY {
        store.send(completed(&format!("nobody-{number}"), 1, "")).await;
    }
    store.start("last").await;
    store.abandon_work(&work, Some(ms(50)), true).await;
    store.pass(ms(50) + MARGIN).await;

    let mut signal = extended.work_signal(WorkQueue::Orchestrator);
    let request = InstanceRequest { max: MOST, lock_timeout: TURN_LEASE, filter: None };
    let mut claimed = Vec::new();
    for _ in 0..MOST_SPURIOUS_WAKES {
        signal.mark_seen();
        let claims = extended.claim_instances(&request).await.expect("claim_instances should work");
        let is_short = claims.len() < MOST;
        claimed.extend(claims.into_iter().map(|claim| claim.instance));
        if is_short && is_pending(signal.wait()).await {
            break;
        }
    }
    assert_eq!(claimed, ["first", "last"], "whoever claims until the signal rests has everything");
}

/// A start that is enqueued only if it is absent wakes it too.
pub async fn start_if_absent_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut signal = resting_turn_signal(&store, extended).await;
    extended.enqueue_start_if_absent(start_item("i")).await.expect("the start should be enqueued");
    assert_wakes(&mut signal, "a start was enqueued").await;
    store.turn_of("i").await;
}

/// So does a message that brings its start along, if the store supports that.
pub async fn start_with_a_message_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut signal = resting_turn_signal(&store, extended).await;
    let sent = extended.enqueue_start_with_message(start_item("i"), queue_message("i", "inbox", "m")).await;
    if sent.as_ref().is_err_and(refusal::is_not_supported) {
        return;
    }
    assert_eq!(sent.ok(), Some(DeliveryOutcome::Started), "the id is free");
    assert_wakes(&mut signal, "a start was enqueued with a message").await;
    store.turn_of("i").await;
}

/// So does a message that may be parked, if the store supports that.
pub async fn message_that_may_wait_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("i").await;
    let mut signal = resting_turn_signal(&store, extended).await;
    let sent = extended.enqueue_or_park(queue_message("i", "inbox", "m")).await;
    if sent.as_ref().is_err_and(refusal::is_not_supported) {
        return;
    }
    sent.expect("the message should be enqueued");
    assert_wakes(&mut signal, "a message was enqueued").await;
    store.turn_of("i").await;
}

/// An enqueued activity wakes the worker signal.
pub async fn enqueued_activity_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut signal = resting_work_signal(&store, extended, &anybody()).await;
    store.send_work(activity("i", 1)).await;
    assert_wakes(&mut signal, "an activity was enqueued").await;
    store.work().await;
}

/// The activities and messages of an ack wake both signals.
pub async fn items_of_an_ack_wake(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.start("i").await;
    let turn = store.turn_of("i").await;
    let mut turns = resting_turn_signal(&store, extended).await;
    let mut work = resting_work_signal(&store, extended, &anybody()).await;
    let commit = Commit {
        work: vec![activity("i", 2)],
        messages: vec![start_item("another")],
        ..Commit::creating("i")
    };
    store.ack(&turn, commit).await;
    assert_wakes(&mut turns, "an ack enqueued a message").await;
    store.turn_of("another").await;
    assert_wakes(&mut work, "an ack enqueued an activity").await;
    store.work().await;
}

/// The end of a turn wakes the signal if messages arrived meanwhile.
pub async fn released_instance_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.start("i").await;
    let turn = store.turn_of("i").await;
    store.send(raised("i", "meanwhile", "")).await;
    let mut signal = resting_turn_signal(&store, extended).await;
    store.ack(&turn, Commit::creating("i")).await;
    assert_wakes(&mut signal, "an instance with messages was released").await;
    store.turn_of("i").await;
}

/// The completion of an activity wakes the orchestrator signal.
pub async fn completion_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let work = store.work().await;
    let mut signal = resting_turn_signal(&store, extended).await;
    store.complete(&work).await;
    assert_wakes(&mut signal, "a worker reported a completion").await;
    store.turn_of("i").await;
}

/// Giving back a turn or an activity wakes the signal of its queue.
pub async fn abandon_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn().await, store.work().await);
    let mut turns = resting_turn_signal(&store, extended).await;
    let mut activities = resting_work_signal(&store, extended, &anybody()).await;
    store.abandon(&turn).await;
    assert_wakes(&mut turns, "a turn was given back").await;
    store.turn_of("i").await;
    store.abandon_work(&work, None, false).await;
    assert_wakes(&mut activities, "an activity was given back").await;
    store.work().await;
}

/// Work given back with a delay wakes the signal when the delay has passed.
pub async fn abandon_with_delay_wakes_when_due(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn().await, store.work().await);
    store.abandon_with(&turn, Some(ms(500)), false).await;
    store.abandon_work(&work, Some(ms(500)), false).await;
    let mut turns = resting_turn_signal(&store, extended).await;
    let mut activities = resting_work_signal(&store, extended, &anybody()).await;
    store.pass(ms(500) + MARGIN).await;
    assert_wakes(&mut turns, "the delay of a turn has passed").await;
    store.turn_of("i").await;
    assert_wakes(&mut activities, "the delay of an activity has passed").await;
    store.work().await;
}

/// The end of a lease wakes the signal of its queue.
pub async fn expired_lease_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    store.turn_for(store.lease()).await;
    store.work_for(store.lease()).await;
    let mut turns = resting_turn_signal(&store, extended).await;
    let mut activities = resting_work_signal(&store, extended, &anybody()).await;
    store.outlive_lease().await;
    assert_wakes(&mut turns, "the lease of a turn ran out").await;
    store.turn_of("i").await;
    assert_wakes(&mut activities, "the lease of an activity ran out").await;
    store.work().await;
}

/// A delayed message wakes the signal when it is due.
pub async fn due_message_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send_delayed(start_item("i"), ms(500)).await;
    let mut signal = resting_turn_signal(&store, extended).await;
    store.pass(ms(500) + MARGIN).await;
    assert_wakes(&mut signal, "a delayed message is due").await;
    store.turn_of("i").await;
}

/// A timer that an ack set wakes the signal when it is due.
pub async fn due_timer_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let fire_at_ms = extended.clock().now_ms() + 500;
    let fired = WorkItem::TimerFired { instance: "i".into(), execution_id: 1, id: 2, fire_at_ms };
    store.start_and_ack("i", Commit { messages: vec![fired], ..Commit::creating("i") }).await;
    let mut signal = resting_turn_signal(&store, extended).await;
    store.pass(ms(500) + MARGIN).await;
    assert_wakes(&mut signal, "a timer is due").await;
    store.turn_of("i").await;
}

/// The end of a session wakes the workers that may now take its activities.
pub async fn freed_session_wakes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send_work(session_activity("i", 1, "s")).await;
    let first = owner("first", store.lease());
    let work = store.try_session_work(WORK_LEASE, &first).await.expect("the session is free");
    store.complete(&work).await;
    store.send_work(session_activity("i", 2, "s")).await;
    let mut signal = resting_work_signal(&store, extended, &anybody()).await;
    store.outlive_lease().await;
    assert_wakes(&mut signal, "a session with work was freed").await;
    let work = store.try_session_work(WORK_LEASE, &anybody()).await;
    assert!(work.is_some(), "the freed session should be anybody's");
}

/// Messages of a leased instance, and activities that no worker here serves, keep no signal awake.
pub async fn signals_rest_while_nothing_can_be_fetched(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.start("leased").await;
    store.turn_of("leased").await;
    store.send(raised("leased", "waiting", "")).await;
    store.send_work(super::support::tagged_activity("i", 1, "gpu")).await;
    store.send_work(session_activity("i", 2, "taken")).await;
    let other = owner("other", WORK_LEASE);
    store.try_session_work(WORK_LEASE, &other).await.expect("the session is free");
    store.send_work(session_activity("i", 3, "taken")).await;
    resting_turn_signal(&store, extended).await;
    resting_work_signal(&store, extended, &anybody()).await;
}

/// An ack wakes the watchers of its instance, and no others.
pub async fn watch_wakes_on_ack(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut watch = extended.watch_instance("i");
    store.create("i").await;
    assert_changed(&mut watch, "the instance was created").await;

    let custom = super::support::event("i", 2, EventKind::CustomStatusUpdated { status: Some("50%".into()) });
    store.next_turn("i", Commit::of_events(vec![custom])).await;
    assert_changed(&mut watch, "the custom status was set").await;
    let seen = store.provider.get_custom_status("i", 0).await.expect("get_custom_status should work");
    assert_eq!(seen, Some((Some("50%".to_string()), 1)), "who was woken should see the change");

    store.next_turn("i", Commit { metadata: status("Completed"), ..Commit::default() }).await;
    assert_changed(&mut watch, "the instance completed").await;
}

/// A deletion wakes the watchers of the instance.
pub async fn watch_wakes_on_delete(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create_with_status("i", "Completed").await;
    let mut watch = extended.watch_instance("i");
    store.admin().delete_instance("i", false).await.expect("a finished instance can be deleted");
    assert_changed(&mut watch, "the instance was deleted").await;
}
