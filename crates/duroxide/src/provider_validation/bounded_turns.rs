//! How many messages a turn gets: as many as fit, in order; the rest stays for the next turn.
//!
//! The checks need a store with small limits, see [`ProviderFactory::create_limited_provider`].

use std::time::Duration;

use super::ProviderFactory;
use super::support::*;
use crate::model::WorkItem;
use crate::providers::{InstanceRequest, StoreLimits, WorkQueue};

/// Long enough for a signal on a busy machine; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes an empty store with these limits on a turn; `None` if the factory cannot make one.
async fn limited(
    factory: &dyn ProviderFactory,
    max_turn_messages: usize,
    max_turn_bytes: usize,
) -> Option<Store<'_>> {
    let limits = StoreLimits { max_turn_messages, max_turn_bytes, ..StoreLimits::default() };
    let provider = factory.create_limited_provider(limits).await?;
    Some(Store { factory, provider })
}

/// A store whose turns get three messages, of any size.
async fn of_three(factory: &dyn ProviderFactory) -> Option<Store<'_>> {
    limited(factory, 3, usize::MAX).await
}

/// Sends signals with these numbers.
async fn signal(store: &Store<'_>, instance: &str, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        store.send(raised(instance, "n", &number.to_string())).await;
    }
}

/// The messages of a turn: the numbers of signals, `start` and `cancel`.
fn texts(turn: &Turn) -> Vec<String> {
    let text = |message: &WorkItem| match message {
        WorkItem::ExternalRaised { data, .. } => data.clone(),
        WorkItem::StartOrchestration { .. } | WorkItem::ContinueAsNew { .. } => "start".to_string(),
        WorkItem::CancelInstance { .. } => "cancel".to_string(),
        WorkItem::TimerFired { .. } => "timer".to_string(),
        other => panic!("{other:?}"),
    };
    turn.item.messages.iter().map(text).collect()
}

/// Fetches a turn of this instance, which must have these messages, delivered for the first time, and commits it.
async fn expect_turn(store: &Store<'_>, instance: &str, messages: &[&str]) {
    let turn = store.turn_of(instance).await;
    assert_eq!(texts(&turn), messages, "the turn should have these messages");
    assert_eq!(turn.attempts, 1, "no message should be delivered twice");
    store.ack(&turn, Commit::default()).await;
}

/// A turn gets up to the limit of messages, each once and in order, and the next turn is ready at once.
pub async fn a_turn_gets_so_many_messages(factory: &dyn ProviderFactory) {
    let Some(store) = of_three(factory).await else { return };
    store.create("i").await;
    signal(&store, "i", 1..=6).await;
    store.send(cancel("i")).await;
    expect_turn(&store, "i", &["1", "2", "3"]).await;
    // Messages that arrive meanwhile come at the end.
    signal(&store, "i", [7]).await;
    expect_turn(&store, "i", &["4", "5", "6"]).await;
    expect_turn(&store, "i", &["cancel", "7"]).await;
    store.expect_no_turn("all messages were delivered").await;
}

/// Messages that became visible late count like others, and keep their places.
pub async fn delayed_messages_are_bounded_too(factory: &dyn ProviderFactory) {
    let Some(store) = of_three(factory).await else { return };
    store.create("i").await;
    for number in 1..=4 {
        store.send_delayed(raised("i", "n", &number.to_string()), ms(1_000)).await;
    }
    signal(&store, "i", [5]).await;
    expect_turn(&store, "i", &["5"]).await;
    signal(&store, "i", [6]).await;
    store.pass(ms(1_000) + MARGIN).await;
    expect_turn(&store, "i", &["1", "2", "3"]).await;
    expect_turn(&store, "i", &["4", "6"]).await;
    store.expect_no_turn("all messages were delivered").await;
}

/// A turn gets messages up to the limit of bytes; a larger message comes alone.
pub async fn a_turn_gets_so_many_bytes(factory: &dyn ProviderFactory) {
    let message = |number: u32, size: usize| raised("i", "n", &format!("{number:0>size$}"));
    let encoded = serde_json::to_string(&message(1, 10)).expect("a message should encode");
    let Some(store) = limited(factory, 100, 2 * encoded.len()).await else { return };
    store.create("i").await;
    for number in 1..=3 {
        store.send(message(number, 10)).await;
    }
    store.send(message(4, 11)).await;
    store.send(message(5, 1_000)).await;
    store.send(message(6, 10)).await;
    for expected in [vec![1, 2], vec![3], vec![4], vec![5], vec![6]] {
        let turn = store.turn_of("i").await;
        let numbers: Vec<u32> = texts(&turn).iter().map(|text| text.parse().expect("a number")).collect();
        assert_eq!(numbers, expected, "a turn should get what fits, exactly");
        store.ack(&turn, Commit::default()).await;
    }
}

/// An instance with a backlog keeps its place: its oldest message decides, as always.
pub async fn an_instance_with_a_backlog_keeps_its_place(factory: &dyn ProviderFactory) {
    let Some(store) = of_three(factory).await else { return };
    store.create("i").await;
    store.create("other").await;
    signal(&store, "i", 1..=3).await;
    signal(&store, "other", [4]).await;
    signal(&store, "i", 5..=6).await;
    expect_turn(&store, "i", &["1", "2", "3"]).await;
    expect_turn(&store, "other", &["4"]).await;
    expect_turn(&store, "i", &["5", "6"]).await;
}

/// Only messages that were in the turn count an attempt; the rest has had none.
pub async fn only_what_was_in_the_turn_was_attempted(factory: &dyn ProviderFactory) {
    let Some(store) = of_three(factory).await else { return };
    store.create("i").await;
    signal(&store, "i", 1..=5).await;
    let given_back = store.turn_of("i").await;
    store.abandon(&given_back).await;
    let lost = store.turn_for(store.lease()).await;
    assert_eq!((texts(&lost).len(), lost.attempts), (3, 2), "the same messages should come again");
    store.outlive_lease().await;
    let turn = store.turn_of("i").await;
    assert_eq!((texts(&turn).len(), turn.attempts), (3, 3), "the same messages should come again");
    store.abandon_with(&turn, Some(ms(60_000)), false).await;
    // They are hidden now; the others are not.
    expect_turn(&store, "i", &["4", "5"]).await;
    store.pass(ms(60_000) + MARGIN).await;
    let turn = store.turn_of("i").await;
    assert_eq!((texts(&turn), turn.attempts), (vec!["1".into(), "2".into(), "3".into()], 4));
}

/// The start of an instance comes with its first turn, however many messages were sent before; the rest keeps its
/// order.
pub async fn a_start_behind_a_backlog_comes_first(factory: &dyn ProviderFactory) {
    let Some(store) = of_three(factory).await else { return };
    signal(&store, "i", 1..=5).await;
    store.expect_no_turn("there is no such instance").await;
    signal(&store, "i", 6..=7).await;
    store.start("i").await;
    signal(&store, "i", [8]).await;
    let turn = store.turn_of("i").await;
    assert_eq!(texts(&turn), ["1", "2", "start"], "the start should come with the first messages");
    store.ack(&turn, Commit::creating("i")).await;
    expect_turn(&store, "i", &["3", "4", "5"]).await;
    expect_turn(&store, "i", &["6", "7", "8"]).await;
    store.expect_no_turn("all messages were delivered").await;
}

/// The start of the next execution comes with its first turn, however many messages were sent before.
pub async fn a_continuation_behind_a_backlog_comes_first(factory: &dyn ProviderFactory) {
    let Some(store) = of_three(factory).await else { return };
    store.create("i").await;
    signal(&store, "i", 0..=5).await;
    let turn = store.turn_of("i").await;
    let commit = Commit::default().status("ContinuedAsNew").message(continue_as_new("i"));
    store.ack(&turn, commit).await;
    let turn = store.turn_of("i").await;
    assert_eq!(texts(&turn), ["3", "4", "start"], "the start should come with the first messages");
    // Given back and taken again, the turn is the same.
    store.abandon_with(&turn, None, true).await;
    let turn = store.turn_of("i").await;
    assert_eq!((texts(&turn), turn.attempts), (vec!["3".into(), "4".into(), "start".into()], 1));
    store.ack(&turn, Commit::beginning("i", 2)).await;
    expect_turn(&store, "i", &["5"]).await;
    store.expect_no_turn("all messages were delivered").await;
}

/// A claim of several instances stops when it has enough bytes; the others keep their places.
pub async fn a_claim_of_many_is_bounded_too(factory: &dyn ProviderFactory) {
    let encoded = serde_json::to_string(&raised("a", "n", "1")).expect("a message should encode");
    let Some(store) = limited(factory, 100, 2 * encoded.len()).await else { return };
    let Some(extended) = store.extended() else { return };
    let request = InstanceRequest { max: 10, lock_timeout: TURN_LEASE, filter: None };
    for instance in ["a", "b", "c"] {
        store.create(instance).await;
    }
    for instance in ["a", "b", "c"] {
        signal(&store, instance, [1]).await;
    }
    let mut left = extended.work_signal(WorkQueue::Orchestrator);
    for expected in [vec!["a", "b"], vec!["c"]] {
        if expected == ["c"] {
            // Whoever gets fewer than it asked for waits for the signal.
            let woken = tokio::time::timeout(PATIENCE, left.wait()).await;
            assert!(woken.is_ok(), "a claim that left something should say so");
        }
        left.mark_seen();
        let claims = extended.claim_instances(&request).await.expect("claim_instances should work");
        let claimed: Vec<&str> = claims.iter().map(|claim| claim.instance.as_str()).collect();
        assert_eq!(claimed, expected, "a claim should get what fits");
    }
}

/// The store sets damaged messages aside, and delivers those behind them.
pub async fn damaged_messages_do_not_hide_the_rest(factory: &dyn ProviderFactory) {
    let Some(store) = of_three(factory).await else { return };
    store.create("i").await;
    signal(&store, "i", 1..=4).await;
    if !factory.corrupt_messages("i").await {
        return;
    }
    signal(&store, "i", 5..=6).await;
    let turn = store.turn_of("i").await;
    assert_eq!(texts(&turn).first().map(String::as_str), Some("5"), "the first sound message should come");
    store.ack(&turn, Commit::default()).await;
    if texts(&turn).len() == 1 {
        expect_turn(&store, "i", &["6"]).await;
    }
    store.expect_no_turn("all sound messages were delivered").await;
}
