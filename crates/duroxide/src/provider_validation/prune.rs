//! Removes old executions of long-lived instances.

use super::ProviderFactory;
use super::scenario::*;
use super::support::*;
use crate::providers::{InstanceFilter, PruneOptions, PruneResult};

fn keep_last(count: u32) -> PruneOptions {
    PruneOptions { keep_last: Some(count), ..PruneOptions::default() }
}

async fn prune(store: &Store<'_>, instance: &str, options: PruneOptions) -> PruneResult {
    store.admin().prune_executions(instance, options).await.expect("prune_executions should work")
}

async fn prune_bulk(store: &Store<'_>, instances: &[&str], options: PruneOptions) -> PruneResult {
    let filter = InstanceFilter { instance_ids: Some(ids(instances)), ..InstanceFilter::default() };
    store.admin().prune_executions_bulk(filter, options).await.expect("prune_executions_bulk should work")
}

/// `keep_last` keeps the newest; without options, pruning keeps only the current execution.
pub async fn test_prune_options_combinations<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_chain("four", 4, "Completed").await;
    let result = prune(&store, "four", keep_last(2)).await;
    assert_eq!(result.instances_processed, 1, "one instance should be looked at");
    assert_eq!(store.executions("four").await, [3, 4], "the two newest executions should remain");

    store.create_chain("three", 3, "Completed").await;
    prune(&store, "three", PruneOptions::default()).await;
    assert_eq!(store.executions("three").await, [3], "without options only the current one should remain");
}

/// Pruning never removes the current execution, and an unknown instance is an error.
pub async fn test_prune_safety<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_chain("chain", 3, "Completed").await;
    prune(&store, "chain", keep_last(0)).await;
    assert_eq!(store.executions("chain").await, [3], "the current execution should remain");

    let unknown = store.admin().prune_executions("nobody", keep_last(1)).await;
    assert!(unknown.is_err(), "an unknown instance should be an error, not {unknown:?}");

    let cases = [("none", PruneOptions::default()), ("zero", keep_last(0)), ("one", keep_last(1))];
    for (instance, options) in cases {
        store.create_chain(instance, 4, "Completed").await;
        let result = prune(&store, instance, options).await;
        assert!(result.executions_deleted >= 3, "three executions of {instance} should go: {result:?}");
        assert_eq!(store.executions(instance).await, [4], "{instance} should keep its current execution");
    }
}

/// Pruning touches only the selected instances.
pub async fn test_prune_bulk<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for instance in ["first", "second", "third"] {
        store.create_chain(instance, 4, "Completed").await;
    }
    let result = prune_bulk(&store, &["first", "second"], keep_last(1)).await;
    assert_eq!(result.instances_processed, 2, "the two selected instances should be looked at");
    assert!(result.executions_deleted >= 4, "old executions of both should go: {result:?}");
    assert_eq!(store.executions("first").await.len(), 1, "the first instance should keep one execution");
    assert_eq!(store.executions("second").await.len(), 1, "the second instance should keep one execution");
    assert_eq!(store.executions("third").await.len(), 4, "the third instance should be left alone");
}

/// Pruning a running chain does not touch its running execution.
pub async fn test_prune_bulk_includes_running_instances<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_chain("runner", 3, "Running").await;
    let info =
        async || store.admin().get_instance_info("runner").await.expect("the instance should be there");
    let before = info().await;
    assert_eq!((before.status.as_str(), before.current_execution_id), ("Running", 3), "the chain should run");

    let result = prune_bulk(&store, &["runner"], keep_last(1)).await;
    assert_eq!(result.instances_processed, 1, "the running instance should be looked at");
    assert_eq!(result.executions_deleted, 2, "its two ended executions should go");
    assert_eq!(store.executions("runner").await, [3], "the running execution should remain");
    assert_eq!(info().await.status, "Running", "the instance should go on running");
}
