//! Messages that may come before the start: the store parks them if their sender wants that, takes them along with the
//! start, or drops and lists them.
//!
//! And messages that go only to an instance that can take them.
//!
//! A store that cannot do one of these says so and passes.

use std::time::Duration;

use super::ProviderFactory;
use super::support::{
    Commit, Store, assert_refused, cancel, completed, named_with_status, queue_message, raised, start_item,
    started,
};
use crate::model::WorkItem;
use crate::providers::{
    DEFAULT_PARKING_TIME, DeliveryOutcome, DroppedMessage, DroppedMessages, ExtendedProvider, ProviderError,
    SendOutcome, refusal,
};

const A_MINUTE: Duration = Duration::from_secs(60);

/// Enqueues a message that may wait; `false` if the store cannot do that.
async fn park(extended: &dyn ExtendedProvider, message: WorkItem) -> bool {
    match extended.enqueue_or_park(message).await {
        Ok(()) => true,
        Err(error) if refusal::is_not_supported(&error) => false,
        Err(error) => panic!("enqueue_or_park should work: {error}"),
    }
}

async fn send_along(
    extended: &dyn ExtendedProvider,
    instance: &str,
    data: &str,
) -> Result<DeliveryOutcome, ProviderError> {
    let message = queue_message(instance, "inbox", data);
    extended.enqueue_start_with_message(start_item(instance), message).await
}

/// Sends a message along with a start; `None` if the store cannot do that.
async fn deliver(extended: &dyn ExtendedProvider, instance: &str, data: &str) -> Option<DeliveryOutcome> {
    match send_along(extended, instance, data).await {
        Ok(outcome) => Some(outcome),
        Err(error) if refusal::is_not_supported(&error) => None,
        Err(error) => panic!("enqueue_start_with_message should work: {error}"),
    }
}

async fn dropped(extended: &dyn ExtendedProvider, limit: usize) -> DroppedMessages {
    extended.list_dropped(limit).await.expect("list_dropped should work")
}

/// A queue message that may wait does so like a signal, and comes with the start in its place.
pub async fn a_parked_queue_message_comes_with_the_start(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let (first, second) = (queue_message("early", "inbox", "1"), queue_message("early", "inbox", "2"));
    if !park(extended, first.clone()).await {
        return;
    }
    store.expect_no_turn("the instance does not exist").await;
    let parked = extended.list_parked(10).await.expect("list_parked should work");
    assert_eq!(parked.len(), 1, "the message should be parked; got {parked:?}");
    assert_eq!(parked[0].instance, "early");
    store.send(raised("early", "n", "")).await;
    store.expect_no_turn("the instance does not exist").await;
    park(extended, second.clone()).await;

    store.start("early").await;
    let third = queue_message("early", "inbox", "3");
    store.send(third.clone()).await;
    let turn = store.turn_of("early").await;
    let expected = [first, raised("early", "n", ""), second, start_item("early"), third];
    assert_eq!(turn.item.messages, expected, "all messages should come, in the order of their enqueue");
    assert_eq!(turn.attempts, 1, "waiting should not count as an attempt");
    store.ack(&turn, Commit::creating("early")).await;
    store.expect_no_turn("all messages were acked").await;
    assert_eq!(dropped(extended, 10).await, DroppedMessages::default(), "nothing should be dropped");
}

/// To an instance that exists, a message that may wait is like any other.
pub async fn a_message_that_may_wait_is_delivered_at_once_if_it_can_be(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("i").await;
    let message = queue_message("i", "inbox", "m");
    if !park(extended, message.clone()).await {
        return;
    }
    assert_eq!(store.turn_of("i").await.item.messages, [message]);
}

/// Only messages from senders can be parked.
pub async fn only_signals_and_queue_messages_may_wait(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    if !park(extended, raised("early", "n", "")).await {
        return;
    }
    assert!(park(extended, cancel("early")).await);
    for other in [start_item("early"), completed("early", 2, "")] {
        assert_refused(extended.enqueue_or_park(other).await, "what cannot overtake the start");
    }
}

/// The store drops a message that waited for too long, and lists it as dropped instead of parked.
pub async fn an_expired_message_is_listed_as_dropped(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let Some(clock) = factory.clock() else { return };
    if !park(extended, queue_message("ghost", "inbox", "m")).await {
        return;
    }
    store.expect_no_turn("the instance does not exist").await;
    clock.advance(DEFAULT_PARKING_TIME - A_MINUTE);
    store.expect_no_turn("the instance does not exist").await;
    assert_eq!(dropped(extended, 10).await.total, 0, "the message should wait for a day");
    clock.advance(A_MINUTE * 2);
    store.expect_no_turn("the instance does not exist").await;
    let parked = extended.list_parked(10).await.expect("list_parked should work");
    assert!(parked.is_empty(), "after a day it should wait no longer; got {parked:?}");
    let list = dropped(extended, 10).await;
    assert_eq!((list.total, list.newest.len()), (1, 1), "it should be listed; got {list:?}");
    assert_eq!(list.newest[0].instance, "ghost");
}

/// The store counts a dropped queue message, and lists it with its text, size and time; the newest first.
pub async fn dropped_messages_are_counted_and_listed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let long = "ä".repeat(DroppedMessage::TEXT_KEPT);
    store.send(queue_message("ghost-1", "inbox", "first")).await;
    store.expect_no_turn("the instance does not exist").await;
    store.send(queue_message("ghost-2", "inbox", &long)).await;
    store.expect_no_turn("the instance does not exist").await;

    let list = dropped(extended, 10).await;
    assert_eq!(list.total, 2, "both should be counted");
    let listed: Vec<&str> = list.newest.iter().map(|message| message.instance.as_str()).collect();
    assert_eq!(listed, ["ghost-2", "ghost-1"], "both should be listed, newest first");
    let text = |message: &WorkItem| serde_json::to_string(message).expect("a message encodes");
    let (first, second) =
        (text(&queue_message("ghost-1", "inbox", "first")), text(&queue_message("ghost-2", "inbox", &long)));
    assert_eq!(list.newest[1].raw, first, "a short text should be there as a whole");
    assert_eq!(list.newest[1].size, first.len() as u64);
    let beginning: String = second.chars().take(DroppedMessage::TEXT_KEPT).collect();
    assert!(list.newest[0].raw == beginning, "of a long text its beginning should be there");
    assert_eq!(list.newest[0].size, second.len() as u64, "with the size of the whole");
    let now = extended.clock().now_ms();
    assert!(list.newest[0].dropped_at + 60_000 > now, "with its time; got {}", list.newest[0].dropped_at);
    let one = dropped(extended, 1).await;
    assert_eq!((one.total, &one.newest[..]), (2, &list.newest[..1]), "a limit cuts off the oldest");
}

/// Stale completions, and messages deleted with their instance, are not lost messages.
pub async fn what_nobody_misses_is_not_listed_as_dropped(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send(completed("gone", 2, "r")).await;
    store.expect_no_turn("the instance does not exist").await;
    store.create("deleted").await;
    store.send(queue_message("deleted", "inbox", "m")).await;
    store.admin().delete_instance("deleted", true).await.expect("a forced deletion should work");
    store.expect_no_turn("the instance does not exist").await;
    assert_eq!(dropped(extended, 10).await, DroppedMessages::default());
}

/// The list of dropped messages is bounded in number and in age; their count goes on.
pub async fn the_list_of_dropped_messages_is_bounded(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let count = DroppedMessage::KEPT + 5;
    let messages = (0..count).map(|n| queue_message("ghost", "inbox", &n.to_string())).collect();
    store.start_and_ack("sender", Commit { messages, ..Commit::creating("sender") }).await;
    store.expect_no_turn("the instance does not exist").await;
    let list = dropped(extended, usize::MAX).await;
    assert_eq!((list.total, list.newest.len()), (count as u64, DroppedMessage::KEPT));
    let newest = format!("\"{}\"", count - 1);
    assert!(list.newest[0].raw.contains(&newest), "the oldest should be forgotten; got {:?}", list.newest[0]);

    let Some(clock) = factory.clock() else { return };
    clock.advance(DroppedMessage::KEPT_FOR - A_MINUTE);
    store.send(queue_message("ghost", "inbox", "late")).await;
    store.expect_no_turn("the instance does not exist").await;
    clock.advance(A_MINUTE * 2);
    let list = dropped(extended, usize::MAX).await;
    assert_eq!((list.total, list.newest.len()), (count as u64 + 1, 1), "old ones should be forgotten");
}

/// A message brings the start along if the id is free, and is delivered alone if it is not.
pub async fn a_message_brings_the_start_along(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let message = |data: &str| queue_message("i", "inbox", data);
    let Some(outcome) = deliver(extended, "i", "1").await else { return };
    assert_eq!(outcome, DeliveryOutcome::Started, "the id is free");
    assert_eq!(deliver(extended, "i", "2").await, Some(DeliveryOutcome::Delivered), "a start is queued");
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages, [start_item("i"), message("1"), message("2")]);
    assert_eq!(turn.item.orchestration_name, "TestOrch");
    assert_eq!(deliver(extended, "i", "3").await, Some(DeliveryOutcome::Delivered), "a turn is being taken");
    store.ack(&turn, Commit::creating("i")).await;
    assert_eq!(deliver(extended, "i", "4").await, Some(DeliveryOutcome::Delivered), "the instance runs");
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages, [message("3"), message("4")], "no second start should be enqueued");
}

/// Messages that wait for the instance come with a start that another message brings along, in their places.
pub async fn parked_messages_come_with_a_start_that_a_message_brings(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send(raised("i", "n", "")).await;
    store.expect_no_turn("the instance does not exist").await;
    let Some(outcome) = deliver(extended, "i", "m").await else { return };
    assert_eq!(outcome, DeliveryOutcome::Started, "a signal does not take the id");
    let expected = [raised("i", "n", ""), start_item("i"), queue_message("i", "inbox", "m")];
    assert_eq!(store.turn_of("i").await.item.messages, expected);
}

/// An instance that has ended accepts no message, and the store says so; one between two executions accepts it.
pub async fn an_ended_instance_takes_no_message(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for status in ["Completed", "Failed"] {
        let metadata = named_with_status(status);
        store.start_and_ack(status, Commit { metadata, ..Commit::creating(status) }).await;
        let Some(outcome) = deliver(extended, status, "m").await else { return };
        assert_eq!(outcome, DeliveryOutcome::Ended, "the instance has ended: {status}");
        store.expect_no_turn("nothing should be enqueued").await;
        store.admin().delete_instance(status, false).await.expect("a deletion should work");
        assert_eq!(deliver(extended, status, "m").await, Some(DeliveryOutcome::Started), "the id is free");
        let turn = store.turn_of(status).await;
        store.ack(&turn, Commit::creating(status)).await;
    }
    let metadata = named_with_status("ContinuedAsNew");
    store.start_and_ack("goes-on", Commit { metadata, ..Commit::creating("goes-on") }).await;
    assert_eq!(deliver(extended, "goes-on", "m").await, Some(DeliveryOutcome::Delivered));
    assert_eq!(store.turn_of("goes-on").await.item.messages, [queue_message("goes-on", "inbox", "m")]);
    store.provider.append_with_execution("by-hand", 1, vec![started("by-hand", 1)]).await.expect("an append");
    assert_eq!(deliver(extended, "by-hand", "m").await, Some(DeliveryOutcome::Delivered), "there is history");
}

/// The store refuses a start and a message that do not go together, and enqueues neither.
pub async fn a_refused_start_with_a_message_leaves_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let send = |start, message| extended.enqueue_start_with_message(start, message);
    let refused = send(start_item("i"), queue_message("other", "inbox", "m")).await;
    if refused.as_ref().is_err_and(refusal::is_not_supported) {
        return;
    }
    assert_refused(refused, "a message for another instance");
    assert_refused(send(start_item("i"), raised("i", "n", "")).await, "a signal");
    assert_refused(send(cancel("i"), queue_message("i", "inbox", "m")).await, "a start that is none");
    assert_refused(send(start_item(""), queue_message("", "inbox", "m")).await, "an empty id");
    store.expect_no_turn("nothing should be enqueued").await;
    assert_eq!(dropped(extended, 10).await.total, 0, "nor dropped");
}

/// Of many concurrent callers one starts the instance, and all messages arrive, each once.
pub async fn of_many_messages_at_once_one_brings_the_start(factory: &dyn ProviderFactory) {
    const CALLERS: usize = 16;
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    if deliver(extended, "probe", "m").await.is_none() {
        return;
    }
    let probe = store.turn_of("probe").await;
    store.ack(&probe, Commit::creating("probe")).await;
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let provider = store.provider.clone();
            tokio::spawn(async move {
                let extended = provider.as_extended().expect("the store has the extension");
                send_along(extended, "i", &n.to_string()).await.expect("the call should work")
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for caller in callers {
        outcomes.push(caller.await.expect("a caller should not panic"));
    }
    let started = outcomes.iter().filter(|outcome| **outcome == DeliveryOutcome::Started).count();
    let delivered = outcomes.iter().filter(|outcome| **outcome == DeliveryOutcome::Delivered).count();
    assert_eq!((started, delivered), (1, CALLERS - 1), "one should start it; got {outcomes:?}");
    let messages = store.turn_of("i").await.item.messages;
    assert_eq!(messages.iter().filter(|message| **message == start_item("i")).count(), 1, "{messages:?}");
    for n in 0..CALLERS {
        let message = queue_message("i", "inbox", &n.to_string());
        assert_eq!(messages.iter().filter(|found| **found == message).count(), 1, "{messages:?}");
    }
}

/// Sends a message to an instance that can take it; `None` if the store cannot do that.
async fn send(extended: &dyn ExtendedProvider, message: WorkItem) -> Option<SendOutcome> {
    match extended.enqueue_if_alive(message).await {
        Ok(outcome) => Some(outcome),
        Err(error) if refusal::is_not_supported(&error) => None,
        Err(error) => panic!("enqueue_if_alive should work: {error}"),
    }
}

/// A message goes to an instance that runs, or whose start is queued. Otherwise the store keeps nothing of it, and says why.
pub async fn a_message_goes_only_to_an_instance_that_can_take_it(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let message = |instance: &str, data: &str| queue_message(instance, "inbox", data);
    for nobody in [message("i", "0"), raised("i", "n", "0"), cancel("i")] {
        let Some(outcome) = send(extended, nobody).await else { return };
        assert_eq!(outcome, SendOutcome::NotFound, "there is no instance");
    }
    store.expect_no_turn("nothing should be enqueued").await;
    assert!(extended.list_parked(10).await.expect("list_parked should work").is_empty(), "nor parked");
    assert_eq!(dropped(extended, 10).await.total, 0, "nor dropped");

    store.start("i").await;
    assert_eq!(send(extended, message("i", "1")).await, Some(SendOutcome::Sent), "a start is queued");
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages, [start_item("i"), message("i", "1")]);
    assert_eq!(send(extended, raised("i", "n", "2")).await, Some(SendOutcome::Sent), "a turn is being taken");
    store.ack(&turn, Commit::creating("i")).await;
    assert_eq!(send(extended, message("i", "3")).await, Some(SendOutcome::Sent), "the instance runs");
    assert_eq!(store.turn_of("i").await.item.messages, [raised("i", "n", "2"), message("i", "3")]);

    for status in ["Completed", "Failed"] {
        let metadata = named_with_status(status);
        store.start_and_ack(status, Commit { metadata, ..Commit::creating(status) }).await;
        assert_eq!(send(extended, message(status, "m")).await, Some(SendOutcome::Ended), "{status}");
        store.expect_no_turn("nothing should be enqueued").await;
        store.admin().delete_instance(status, false).await.expect("a deletion should work");
        assert_eq!(send(extended, message(status, "m")).await, Some(SendOutcome::NotFound), "it is gone");
    }
    let metadata = named_with_status("ContinuedAsNew");
    store.start_and_ack("goes-on", Commit { metadata, ..Commit::creating("goes-on") }).await;
    assert_eq!(send(extended, message("goes-on", "m")).await, Some(SendOutcome::Sent));
    store.provider.append_with_execution("by-hand", 1, vec![started("by-hand", 1)]).await.expect("an append");
    assert_eq!(send(extended, message("by-hand", "m")).await, Some(SendOutcome::Sent), "there is history");
}

/// Only messages from senders are sent to whoever can take them.
pub async fn only_signals_and_queue_messages_look_first(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    if send(extended, cancel("i")).await.is_none() {
        return;
    }
    store.create("i").await;
    for other in [start_item("i"), completed("i", 2, "")] {
        assert_refused(extended.enqueue_if_alive(other).await.map(drop), "it is no message of a sender");
    }
    assert_refused(extended.enqueue_if_alive(raised("", "n", "")).await.map(drop), "an empty id");
    store.expect_no_turn("nothing should be enqueued").await;
}

/// A message that is sent while its instance ends comes before the end, and goes with it, or is not sent.
pub async fn a_message_comes_before_the_end_or_not_at_all(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    if send(extended, cancel("probe")).await.is_none() {
        return;
    }
    for n in 0..20 {
        let instance = format!("i-{n}");
        let message = |data: &str| queue_message(&instance, "inbox", data);
        // Every other one ends in its first turn.
        let creates = n % 2 == 0;
        if creates {
            store.start(&instance).await;
        } else {
            store.create(&instance).await;
            store.send(raised(&instance, "n", "")).await;
        }
        let turn = store.turn_of(&instance).await;
        let commit = if creates { Commit::creating(&instance) } else { Commit::default() };
        let end = Commit { metadata: named_with_status("Completed"), ..commit };
        let (one, other, ()) =
            tokio::join!(send(extended, message("1")), send(extended, message("2")), store.ack(&turn, end));
        for outcome in [one, other] {
            assert_ne!(outcome, Some(SendOutcome::NotFound), "the instance was there all the time");
        }
        assert_eq!(send(extended, message("3")).await, Some(SendOutcome::Ended));
        store.expect_no_turn("what came before the end should go with it").await;
    }
}
