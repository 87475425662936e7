//! Which executions a dispatcher gets, by the version of the framework that started them.

use super::scenario::*;
use super::support::*;
use super::{EventKind, ProviderFactory};
use crate::model::{ErrorDetails, PoisonMessageType};

/// Creates an instance that is pinned to a version and has a signal waiting.
async fn seed(store: &Store<'_>, instance: &str, pinned: &str) {
    let commit = Commit::creating(instance).pinned(pinned).message(raised(instance, "next", ""));
    store.start_and_ack(instance, commit).await;
}

/// Creates an instance without a pinned version that has a signal waiting.
async fn seed_unpinned(store: &Store<'_>, instance: &str) {
    let commit = Commit::creating(instance).message(raised(instance, "next", ""));
    store.start_and_ack(instance, commit).await;
}

/// Fetches with one range and returns the turn, if any.
async fn fetch_in(store: &Store<'_>, min: &str, max: &str) -> Option<Turn> {
    store.try_turn_with(&versions(min, max)).await
}

/// Asserts that one range lets exactly this instance through, and gives it back.
async fn expect_in(store: &Store<'_>, min: &str, max: &str, instance: &str) {
    let turn = fetch_in(store, min, max).await;
    let turn = turn.unwrap_or_else(|| panic!("the range {min} to {max} should let {instance} through"));
    assert_eq!(turn.item.instance, instance, "the range {min} to {max} should let this instance through");
    store.abandon(&turn).await;
}

/// Asserts that one range lets nothing through.
async fn expect_none_in(store: &Store<'_>, min: &str, max: &str) {
    let turn = fetch_in(store, min, max).await;
    assert!(turn.is_none(), "the range {min} to {max} should let nothing through, got {turn:?}");
}

/// Without a filter the store delivers every execution.
pub async fn test_fetch_with_filter_none_returns_any_item<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "1.2.3").await;
    store.turn_of("pinned").await;
}

/// The store delivers an execution whose version lies in the range.
pub async fn test_fetch_with_compatible_filter_returns_item<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "1.2.3").await;
    expect_in(&store, "1.0.0", "1.9.9", "pinned").await;
}

/// The store does not deliver an execution whose version lies outside the range.
pub async fn test_fetch_with_incompatible_filter_skips_item<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "1.2.3").await;
    expect_none_in(&store, "2.0.0", "2.9.9").await;
}

/// A skipped instance does not hide one behind it.
pub async fn test_fetch_filter_skips_incompatible_selects_compatible<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for (instance, pinned) in [("first", "1.0.0"), ("second", "2.0.0")] {
        store.start_and_ack(instance, Commit::creating(instance).pinned(pinned)).await;
    }
    store.send(raised("first", "next", "")).await;
    store.send(raised("second", "next", "")).await;
    expect_in(&store, "2.0.0", "2.9.9", "second").await;
    expect_in(&store, "1.0.0", "1.9.9", "first").await;
}

/// The store does not lease a skipped instance.
pub async fn test_fetch_filter_does_not_lock_skipped_instances<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "1.0.0").await;
    expect_none_in(&store, "2.0.0", "2.9.9").await;
    expect_in(&store, "1.0.0", "1.9.9", "pinned").await;
}

/// An execution without a pinned version fits every range.
pub async fn test_fetch_filter_null_pinned_version_always_compatible<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed_unpinned(&store, "unpinned").await;
    expect_in(&store, "99.0.0", "99.9.9", "unpinned").await;
}

/// Both ends of a range belong to it.
pub async fn test_fetch_filter_boundary_versions<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let range = versions("1.0.0", "1.9.99");
    seed(&store, "lowest", "1.0.0").await;
    let lowest = store.try_turn_with(&range).await.expect("the lower end should belong to the range");
    assert_eq!(lowest.item.instance, "lowest", "the lower end should belong to the range");
    seed(&store, "highest", "1.9.99").await;
    let highest = store.try_turn_with(&range).await.expect("the upper end should belong to the range");
    assert_eq!(highest.item.instance, "highest", "the upper end should belong to the range");

    let other = Store::new(factory).await;
    seed(&other, "beyond", "2.0.0").await;
    expect_none_in(&other, "1.0.0", "1.9.99").await;
    other.turn_of("beyond").await;
}

/// The pinned version comes from the metadata of the ack.
pub async fn test_pinned_version_stored_via_ack_metadata<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "3.1.4").await;
    expect_in(&store, "3.0.0", "3.9.9", "pinned").await;
}

/// An ack without a pinned version keeps the one that is stored.
pub async fn test_pinned_version_immutable_across_ack_cycles<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "1.0.0").await;
    let turn = store.turn_of("pinned").await;
    store.ack(&turn, Commit::default().message(raised("pinned", "again", ""))).await;
    expect_none_in(&store, "2.0.0", "2.9.9").await;
    expect_in(&store, "1.0.0", "1.9.9", "pinned").await;
}

/// The next execution has a pinned version of its own.
pub async fn test_continue_as_new_execution_gets_own_pinned_version<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let first =
        Commit::creating("chain").pinned("1.0.0").status("ContinuedAsNew").message(continue_as_new("chain"));
    store.start_and_ack("chain", first).await;
    let turn = store.turn_of("chain").await;
    let second = Commit::beginning("chain", 2).pinned("2.0.0").message(raised("chain", "next", ""));
    store.ack(&turn, second).await;

    expect_none_in(&store, "1.0.0", "1.9.9").await;
    expect_in(&store, "2.0.0", "2.9.9", "chain").await;
}

/// A filter without ranges supports nothing.
pub async fn test_filter_with_empty_supported_versions_returns_nothing<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "1.0.0").await;
    store.start("unpinned").await;
    let turn = store.try_turn_with(&ranges(&[])).await;
    assert!(turn.is_none(), "a filter without ranges should let nothing through, got {turn:?}");
}

/// A filtered fetch leases like any other.
pub async fn test_concurrent_filtered_fetch_no_double_lock<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "pinned", "1.0.0").await;
    let held = fetch_in(&store, "1.0.0", "1.9.9").await;
    assert!(held.is_some(), "the first fetch should take the instance");
    expect_none_in(&store, "1.0.0", "1.9.9").await;
}

/// A later ack can pin an execution that was not.
pub async fn test_ack_stores_pinned_version_via_metadata_update<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed_unpinned(&store, "late").await;
    let turn = store.turn_of("late").await;
    store.ack(&turn, Commit::default().pinned("1.2.3").message(raised("late", "again", ""))).await;
    expect_none_in(&store, "2.0.0", "2.9.9").await;
    expect_in(&store, "1.0.0", "1.9.9", "late").await;
}

/// A pinned version in an ack replaces the one that is stored.
pub async fn test_provider_updates_pinned_version_when_told<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "moved", "1.0.0").await;
    let turn = store.turn_of("moved").await;
    store.ack(&turn, Commit::default().pinned("2.0.0").message(raised("moved", "again", ""))).await;
    expect_in(&store, "2.0.0", "2.0.0", "moved").await;
    expect_none_in(&store, "1.0.0", "1.0.0").await;
}

/// The store reports an undecodable history only to a dispatcher that may have the execution.
pub async fn test_fetch_corrupted_history_filtered_vs_unfiltered<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "corrupt", "1.0.0").await;
    factory.corrupt_instance_history("corrupt").await;

    expect_none_in(&store, "2.0.0", "2.9.9").await;
    let turn = store.turn_of("corrupt").await;
    assert!(turn.item.history_error.is_some(), "a history that does not decode should be reported");
    assert!(turn.item.history.is_empty(), "a history that does not decode should not be delivered in part");
}

/// Fetches and gives back `cycles` times; each time the history must not decode.
async fn fetch_undecodable(store: &Store<'_>, cycles: u32) {
    for _ in 0..cycles {
        let turn = store.turn_for(ms(50)).await;
        assert!(turn.item.history_error.is_some(), "a history that does not decode should be reported");
        store.abandon(&turn).await;
    }
}

/// A fetch of a history that does not decode counts as an attempt.
pub async fn test_fetch_deserialization_error_increments_attempt_count<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "corrupt", "1.0.0").await;
    factory.corrupt_instance_history("corrupt").await;
    fetch_undecodable(&store, 2).await;
    let attempts = factory.get_max_attempt_count("corrupt").await;
    assert!(attempts >= 2, "two fetches should count as two attempts, not {attempts}");
}

/// The attempts of a history that does not decode go on rising, so that the runtime can give up.
pub async fn test_fetch_deserialization_error_eventually_reaches_poison<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "corrupt", "1.0.0").await;
    factory.corrupt_instance_history("corrupt").await;
    fetch_undecodable(&store, 5).await;
    let attempts = factory.get_max_attempt_count("corrupt").await;
    assert!(attempts >= 5, "five fetches should count as five attempts, not {attempts}");
}

/// The filter decides before the store reads the history.
pub async fn test_fetch_filter_applied_before_history_deserialization<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "future", "99.0.0").await;
    factory.corrupt_instance_history("future").await;
    expect_none_in(&store, "1.0.0", "2.0.0").await;
    let turn = store.turn_of("future").await;
    assert!(turn.item.history_error.is_some(), "without a filter the broken history should be reported");
}

/// With several ranges the first one counts; a store may honour the others too, oldest message first.
pub async fn test_fetch_single_range_only_uses_first_range<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for (instance, pinned) in [("first", "1.0.0"), ("second", "3.0.0")] {
        store.start_and_ack(instance, Commit::creating(instance).pinned(pinned)).await;
    }
    store.send(raised("first", "next", "")).await;
    store.send(raised("second", "next", "")).await;

    let filter = ranges(&[("1.0.0", "1.9.9"), ("3.0.0", "3.9.9")]);
    let turn = store.try_turn_with(&filter).await.expect("the first range should count");
    assert_eq!(turn.item.instance, "first", "the instance of the first range is the oldest");
    store.abandon(&turn).await;
    if let Some(again) = store.try_turn_with(&filter).await {
        assert_eq!(again.item.instance, "first", "the instance that was given back is still the oldest");
    }
}

/// An ack appends to an undecodable history without reading it.
pub async fn test_ack_appends_event_to_corrupted_history<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    seed(&store, "corrupt", "1.0.0").await;
    factory.corrupt_instance_history("corrupt").await;
    let turn = store.turn_of("corrupt").await;
    let reason = turn.item.history_error.clone().expect("a history that does not decode should be reported");

    let details = ErrorDetails::Poison {
        attempt_count: 11,
        max_attempts: 10,
        message_type: PoisonMessageType::FailedDeserialization {
            instance: "corrupt".to_string(),
            execution_id: turn.item.execution_id,
            error: reason.clone(),
        },
        message: reason,
    };
    let output = details.display_message();
    let failed = event("corrupt", 99_999, EventKind::OrchestrationFailed { details });
    let mut commit = Commit::of_events(vec![failed]).status("Failed");
    commit.metadata.output = Some(output);
    store.ack(&turn, commit).await;

    let info = store.admin().get_instance_info("corrupt").await.expect("get_instance_info should work");
    assert_eq!(info.status, "Failed", "the ack should set the status");
    let output = info.output.unwrap_or_default();
    assert!(output.contains("deserialization failed"), "the output should say why it failed: {output}");
}
