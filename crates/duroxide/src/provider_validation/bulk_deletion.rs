//! Deleting many instances by a filter.

use super::ProviderFactory;
use super::scenario::*;
use super::support::*;
use crate::providers::InstanceFilter;

fn by_ids(instances: &[&str]) -> InstanceFilter {
    InstanceFilter { instance_ids: Some(ids(instances)), ..InstanceFilter::default() }
}

/// Deletes by this filter and returns how many instances it deleted.
async fn delete(store: &Store<'_>, filter: InstanceFilter) -> u64 {
    let deleted = store.admin().delete_instance_bulk(filter).await;
    deleted.expect("delete_instance_bulk should work").instances_deleted
}

/// A list deletes only the listed instances; unknown ids do not count; an empty filter deletes all finished instances.
pub async fn test_delete_instance_bulk_filter_combinations<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let all = ["bulk-1", "bulk-2", "bulk-3", "bulk-4", "bulk-5"];
    for instance in all {
        store.create_with_status(instance, "Completed").await;
    }

    let deleted = delete(&store, by_ids(&["bulk-1", "bulk-2"])).await;
    assert_eq!(deleted, 2, "exactly the two listed instances should go");
    store.expect_gone(&all[..2]).await;
    store.expect_present(&all[2..]).await;

    let deleted = delete(&store, by_ids(&["nobody", "nothing"])).await;
    assert_eq!(deleted, 0, "unknown ids should delete nothing");

    let deleted = delete(&store, InstanceFilter::default()).await;
    assert!(deleted >= 3, "an empty filter should take the three that were left, not {deleted}");
    store.expect_gone(&all).await;
}

/// A bulk deletion skips running instances, and the limit bounds one call.
pub async fn test_delete_instance_bulk_safety_and_limits<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for instance in ["done-1", "done-2"] {
        store.create_with_status(instance, "Completed").await;
    }
    for instance in ["running-1", "running-2"] {
        store.create(instance).await;
    }
    let deleted = delete(&store, by_ids(&["done-1", "done-2", "running-1", "running-2"])).await;
    assert_eq!(deleted, 2, "only the completed instances should go");
    store.expect_present(&["running-1", "running-2"]).await;

    for instance in ["more-1", "more-2", "more-3", "more-4"] {
        store.create_with_status(instance, "Completed").await;
    }
    for expected in [2, 2, 0] {
        let at_most_two = InstanceFilter { limit: Some(2), ..InstanceFilter::default() };
        let deleted = delete(&store, at_most_two).await;
        assert_eq!(deleted, expected, "four instances should go in steps of two");
    }
}

/// `completed_before` compares with the time at which the instance ended.
pub async fn test_delete_instance_bulk_completed_before_filter<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let before = store.now_ms();
    store.pass(ms(10)).await;
    for instance in ["old-1", "old-2"] {
        store.create_with_status(instance, "Completed").await;
    }
    store.pass(ms(10)).await;
    let after = store.now_ms();

    let ended_before =
        |cut_off| InstanceFilter { completed_before: Some(cut_off), ..by_ids(&["old-1", "old-2"]) };
    let deleted = delete(&store, ended_before(before)).await;
    assert_eq!(deleted, 0, "a cut-off before the instances ended should delete nothing");
    store.expect_present(&["old-1", "old-2"]).await;

    let deleted = delete(&store, ended_before(after)).await;
    assert_eq!(deleted, 2, "a cut-off after the instances ended should delete both");
    store.expect_gone(&["old-1", "old-2"]).await;
}

/// Each root takes its descendants along, and the result counts all of them.
pub async fn test_delete_instance_bulk_cascades_to_children<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let families: [(&str, &[&str]); 3] =
        [("root-1", &["child-1a"]), ("root-2", &["child-2a", "child-2b", "child-2c"]), ("root-3", &[])];
    for (root, children) in families {
        store.create_with_status(root, "Completed").await;
        for child in children {
            store.create_finished_child(child, root).await;
        }
    }
    let deleted = delete(&store, by_ids(&["root-1", "root-2", "root-3"])).await;
    assert_eq!(deleted, 7, "three roots and four children should go");
    for (root, children) in families {
        store.expect_gone(&[root]).await;
        store.expect_gone(children).await;
    }
}
