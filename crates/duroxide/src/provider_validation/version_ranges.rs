//! Version filters in the corners: large numbers, several ranges, many instances that do not fit.

use super::ProviderFactory;
use super::scenario::*;
use super::support::*;

/// Creates an instance that is pinned to a version and has a signal waiting; other instances may be ahead of it.
async fn seed(store: &Store<'_>, instance: &str, pinned: &str) {
    store.start(instance).await;
    let turn = store.try_turn_with(&versions("9999.0.0", "9999.0.0")).await;
    let turn = turn.expect("an instance that was not pinned yet fits every filter");
    assert_eq!(turn.item.instance, instance, "only the new instance should fit");
    let commit = Commit::creating(instance).pinned(pinned).message(raised(instance, "next", ""));
    store.ack(&turn, commit).await;
}

/// The store compares versions number by number, whatever their size.
pub async fn large_version_numbers_are_compared_by_component(factory: &dyn ProviderFactory) {
    // (pinned, lowest, highest, fits)
    let cases = [
        ("1.1000.0", "2.0.0", "2.0.0", false),
        ("0.1.1000", "0.2.0", "0.2.0", false),
        ("0.1.1000", "0.1.0", "0.1.999", false),
        ("0.1.1000", "0.1.1000", "0.1.1000", true),
        ("1.2000.3", "1.1999.9999", "1.2001.0", true),
        ("2.0.0", "1.0.0", "1.5000.5000", false),
        ("0.999999.999999", "0.0.0", "1.0.0", true),
        ("10.0.0", "9.0.0", "9.9.9", false),
        ("10.0.0", "2.0.0", "11.0.0", true),
    ];
    for (pinned, min, max, fits) in cases {
        let store = Store::new(factory).await;
        seed(&store, "pinned", pinned).await;
        let turn = store.try_turn_with(&versions(min, max)).await;
        assert_eq!(turn.is_some(), fits, "{pinned} against the range {min} to {max}");
    }
}

/// An execution pinned before its instance had a name stays pinned when the name comes.
pub async fn a_version_counts_also_if_the_name_comes_later(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start_and_ack("i", Commit::of_events(vec![started("i", 1)]).pinned("3.0.0")).await;
    store.next_turn("i", Commit { metadata: named(), ..Commit::default() }).await;
    store.send(raised("i", "next", "")).await;
    let turn = store.try_turn_with(&versions("1.0.0", "2.9.9")).await;
    assert!(turn.is_none(), "the execution is pinned to 3.0.0, got {turn:?}");
    assert!(store.try_turn_with(&versions("3.0.0", "3.9.9")).await.is_some(), "3.0.0 should fit");
}

/// All ranges of a filter count, not only the first.
pub async fn every_range_of_a_filter_counts(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for (instance, pinned) in [("one", "1.0.0"), ("two", "2.0.0"), ("three", "3.0.0")] {
        seed(&store, instance, pinned).await;
    }
    let filter = ranges(&[("1.0.0", "1.9.9"), ("3.0.0", "3.9.9")]);
    let mut served = Vec::new();
    while let Some(turn) = store.try_turn_with(&filter).await {
        served.push(turn.item.instance);
    }
    assert_eq!(served, ["one", "three"], "both ranges should be served, in the order of enqueueing");
}

/// Between two executions the version of the ended one decides which dispatcher may begin the next.
pub async fn the_ended_execution_decides_between_executions(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let commit =
        Commit::creating("chain").pinned("1.0.0").status("ContinuedAsNew").message(continue_as_new("chain"));
    store.start_and_ack("chain", commit).await;
    let turn = store.try_turn_with(&versions("2.0.0", "2.9.9")).await;
    assert!(turn.is_none(), "the ended execution is pinned to 1.0.0, got {turn:?}");
    let turn = store.try_turn_with(&versions("1.0.0", "1.9.9")).await;
    assert!(turn.is_some(), "the ended execution is pinned to 1.0.0");
}

/// A skipped instance has had no attempt.
pub async fn a_skipped_instance_makes_no_attempt(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    seed(&store, "skipped", "1.0.0").await;
    for _ in 0..3 {
        assert!(store.try_turn_with(&versions("2.0.0", "2.9.9")).await.is_none(), "it does not fit");
    }
    let turn = store.turn_of("skipped").await;
    assert_eq!(turn.attempts, 1, "only the fetch that returned the instance is an attempt");
}

/// However many instances do not fit, a fetch finds one behind them.
pub async fn many_skipped_instances_do_not_hide_one_behind(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for number in 0..150 {
        let instance = format!("other-{number}");
        seed(&store, &instance, "1.0.0").await;
    }
    seed(&store, "last", "2.0.0").await;
    let turn = store.try_turn_with(&versions("2.0.0", "2.9.9")).await;
    let turn = turn.expect("the one instance that fits should be found");
    assert_eq!(turn.item.instance, "last", "the one instance that fits should be found");
}
