//! When messages become visible, in which order they come, and leases that only ever grow.

use std::time::Duration;

use super::support::*;
use super::{EventKind, ProviderFactory};
use crate::providers::{TagFilter, WorkItem};

/// The names of the signals among these messages, in order.
fn signals(messages: &[WorkItem]) -> Vec<&str> {
    messages
        .iter()
        .filter_map(|message| match message {
            WorkItem::ExternalRaised { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect()
}

/// The instance whose oldest visible message was enqueued first comes first, whenever it became visible.
pub async fn the_oldest_message_comes_first_whenever_it_became_visible(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("early").await;
    store.create("late").await;
    store.send_delayed(raised("early", "x", ""), ms(50)).await;
    store.send(raised("late", "x", "")).await;
    store.pass(ms(100)).await;
    store.turn_of("early").await;
    store.turn_of("late").await;
}

/// Messages of one instance come in the order of enqueueing, not in the order in which they became visible.
pub async fn a_batch_keeps_the_order_of_enqueueing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("ordered").await;
    store.send(raised("ordered", "first", "")).await;
    let turn = store.turn_of("ordered").await;
    store.abandon_with(&turn, Some(ms(50)), false).await;
    store.send_delayed(raised("ordered", "second", ""), ms(20)).await;
    store.send(raised("ordered", "third", "")).await;
    store.pass(ms(100)).await;
    let turn = store.turn_of("ordered").await;
    assert_eq!(signals(&turn.item.messages), ["first", "second", "third"], "the order of enqueueing");
}

/// The store delivers equal messages as separate messages.
pub async fn equal_messages_are_all_delivered(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("twice").await;
    for _ in 0..2 {
        store.send(raised("twice", "same", "same")).await;
        store.send(completed("twice", 2, "same")).await;
        store.send(start_item("twice")).await;
    }
    let turn = store.turn_of("twice").await;
    assert_eq!(turn.item.messages.len(), 6, "a store should not decide what is a duplicate");
}

/// A timer that is enqueued directly is not delivered before it is due, nor before its delay has passed.
pub async fn a_timer_waits_for_the_later_of_due_time_and_delay(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("timer").await;
    let due = store.now_ms() + 60_000;
    store.send(timer("timer", 2, due)).await;
    store.expect_no_turn("the timer is due in a minute").await;
    store.send_delayed(timer("timer", 3, 0), ms(50)).await;
    store.expect_no_turn("the other timer is delayed").await;
    store.pass(ms(100)).await;
    let turn = store.turn_of("timer").await;
    assert_eq!(turn.item.messages, [timer("timer", 3, 0)], "the delay of the overdue timer has passed");
}

/// A timer of a turn is delivered when it is due, with the messages that arrived meanwhile.
pub async fn a_timer_of_a_turn_is_delivered_when_due(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let due = store.now_ms() + 300;
    store.start_and_ack("timer", Commit::creating("timer").message(timer("timer", 2, due))).await;
    store.expect_no_turn("the timer is not due").await;
    store.pass(ms(400)).await;
    let turn = store.turn_of("timer").await;
    assert_eq!(turn.item.messages, [timer("timer", 2, due)], "the timer is due");
}

/// A duration beyond the end of time lasts as long as time does.
pub async fn endless_durations_do_not_wrap(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("endless").await;
    store.send_delayed(raised("endless", "never", ""), Duration::MAX).await;
    store.expect_no_turn("the signal is delayed for ever").await;
    store.send(timer("endless", 2, u64::MAX)).await;
    store.expect_no_turn("the timer is never due").await;

    store.send(raised("endless", "now", "")).await;
    let turn = store.turn_for(Duration::MAX).await;
    store.expect_no_turn("the turn is leased for ever").await;
    let renewed = store.provider.renew_orchestration_item_lock(&turn.token, Duration::MAX).await;
    renewed.expect("a live lease should be renewable");
    store.expect_no_turn("the turn is leased for ever").await;
    store.abandon_with(&turn, Some(Duration::MAX), false).await;
    store.expect_no_turn("the turn was given back for ever").await;

    store.send_work(activity("endless", 3)).await;
    let work = store.work_for(Duration::MAX).await;
    let renewed = store.provider.renew_work_item_lock(&work.token, Duration::MAX).await;
    renewed.expect("a live lease should be renewable");
    store.expect_no_work("the activity is leased for ever").await;
    store.abandon_work(&work, Some(Duration::MAX), false).await;
    store.expect_no_work("the activity was given back for ever").await;
}

/// A renewal for less time than a lease has left does not shorten the lease.
pub async fn a_renewal_never_shortens_a_lease(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("leased").await;
    store.send_work(activity("leased", 2)).await;
    let (turn, work) = (store.turn().await, store.work().await);
    let renewed = store.provider.renew_orchestration_item_lock(&turn.token, ms(50)).await;
    renewed.expect("a live lease should be renewable");
    let renewed = store.provider.renew_work_item_lock(&work.token, ms(50)).await;
    renewed.expect("a live lease should be renewable");
    store.pass(ms(200)).await;

    store.expect_no_turn("the lease of the turn was not shortened").await;
    store.expect_no_work("the lease of the activity was not shortened").await;
    store.ack(&turn, Commit::creating("leased")).await;
    store.complete(&work).await;
}

/// Event ids may have gaps and come in any order; a history is read in the order of ids.
pub async fn a_history_is_ordered_by_event_id(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let numbers = [99_999, 7, 1_000, 10, 2];
    let mut commit = Commit::creating("gaps");
    commit.events.extend(numbers.map(|id| event("gaps", id, EventKind::TimerCreated { fire_at_ms: id })));
    store.start_and_ack("gaps", commit.clone()).await;

    let mut expected = commit.events;
    expected.sort_by_key(|event| event.event_id);
    assert_eq!(store.history("gaps").await, expected, "read should return the events by id");
    assert_eq!(store.history_of("gaps", 1).await, expected, "read_with_execution should return the same");
    store.send(raised("gaps", "look", "")).await;
    assert_eq!(store.turn_of("gaps").await.item.history, expected, "a turn should be given the same");
}

/// The store keeps an event as the caller made it, under the instance and execution of the turn.
pub async fn events_are_stored_under_the_turn_as_they_are(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let mut stranger = started("somebody-else", 7);
    stranger.timestamp_ms = 42;
    stranger.duroxide_version = "0.0.1-from.elsewhere+build".to_string();
    stranger.source_event_id = Some(u64::MAX >> 1);
    let commit = Commit { metadata: named(), ..Commit::of_events(vec![stranger.clone()]) };
    store.start_and_ack("mine", commit).await;
    assert_eq!(store.history("mine").await, [stranger], "every field should come back as it was given");
    assert!(store.history("somebody-else").await.is_empty(), "the turn decides where events are stored");
}

/// Cleaning up sessions does not depend on the given idle time.
pub async fn cleanup_ignores_the_idle_time(factory: &dyn ProviderFactory) {
    for idle_timeout in [Duration::ZERO, Duration::from_secs(3_600)] {
        let store = Store::new(factory).await;
        store.send_work(session_activity("any", 1, "s")).await;
        let work = store.try_session_work(WORK_LEASE, &owner("A", ms(50))).await;
        store.discard(&work.expect("a free session can be claimed")).await;
        store.pass(ms(100)).await;
        let removed = store.provider.cleanup_orphaned_sessions(idle_timeout).await;
        assert_eq!(removed, Ok(1), "an expired session without activities is removed");
    }
}

/// A session item must satisfy both its session and its tag.
pub async fn session_and_tag_are_both_required(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity_for("both", 1, Some("s"), Some("gpu"))).await;
    let provider = &*store.provider;
    let (a, gpu) = (owner("A", TURN_LEASE), TagFilter::tags(["gpu"]));
    let untagged = fetch_work(provider, WORK_LEASE, Some(&a), &TagFilter::DefaultOnly).await;
    assert!(untagged.is_none(), "the tag is not served, got {untagged:?}");
    let sessionless = fetch_work(provider, WORK_LEASE, None, &gpu).await;
    assert!(sessionless.is_none(), "sessions are not served, got {sessionless:?}");
    let both = fetch_work(provider, WORK_LEASE, Some(&a), &gpu).await;
    assert_eq!(both.map(|work| work.attempts), Some(1), "both are served, and nothing was counted before");
}

/// Only the end of an execution settles its values: a failure does, a turn with the status `Running` does not.
pub async fn only_an_end_settles_values(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for (status, settled) in [("Running", 0), ("Failed", 1), ("Completed", 1), ("ContinuedAsNew", 1)] {
        store.create(status).await;
        let commit = Commit::appending(status, 1, 2, [kv_set("k", "v")]).status(status);
        store.next_turn(status, commit).await;
        store.send(raised(status, "look", "")).await;
        let turn = store.turn_of(status).await;
        assert_eq!(turn.item.kv_snapshot.len(), settled, "values that a turn is given after {status}");
        let seen = store.provider.get_kv_value(status, "k").await;
        assert_eq!(seen, Ok(Some("v".to_string())), "a reader sees the value after {status}");
    }
}
