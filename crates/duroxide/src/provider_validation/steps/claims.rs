//! The activities that a step hands over.

use super::super::ProviderFactory;
use super::super::support::{Commit, Store, activity, scheduled, session_activity, tagged_activity};
use super::{able, activity_completed, going_on, ids, running, store_result, stored, work};
use crate::model::WorkItem;
use crate::providers::{LONGEST_OVERTAKING, TagFilter, WorkRequest};

fn scheduling(instance: &str, work: Vec<WorkItem>) -> Commit {
    Commit { events: vec![activity_completed(instance, 3, 2)], work, ..Commit::default() }
}

/// For a moment, the activities of a step come before older ones. What is left of the room goes to those.
pub async fn a_step_hands_its_own_activities_over_first(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    // The time between two calls counts, so it must stand still.
    if factory.clock().is_none() {
        return;
    }
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send_work(activity("other", 7)).await;
    store.send_work(activity("other", 8)).await;
    let step = stored(store_result(extended, &first, &held, &going_on("i", 2), Some(&work(2))).await);
    assert_eq!(ids(&step.claims), [4, 7]);
    assert_eq!(store.work().await.id(), 8);
}

/// An activity that has waited for long is not overtaken any more.
pub async fn a_step_does_not_overtake_for_long(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send_work(activity("other", 7)).await;
    store.pass(LONGEST_OVERTAKING).await;
    store.send_work(activity("other", 8)).await;
    let step = stored(store_result(extended, &first, &held, &going_on("i", 2), Some(&work(2))).await);
    assert_eq!(ids(&step.claims), [7, 8], "first in, first out");
    let own = store.work().await;
    assert_eq!((own.id(), own.attempts), (4, 1));
}

/// If one waits that may not be overtaken, and there is room for all, a step's own activity comes last.
pub async fn a_step_that_may_not_overtake_hands_over_its_own_last(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send_work(activity("other", 7)).await;
    store.pass(LONGEST_OVERTAKING).await;
    let step = stored(store_result(extended, &first, &held, &going_on("i", 2), Some(&work(2))).await);
    assert_eq!(ids(&step.claims), [7, 4], "first in, first out");
    assert_eq!(step.claims[1].attempt_count, 1);
    store.expect_no_work("all are claimed").await;
}

/// A step hands over only what the caller may run, and no more than it asks for.
pub async fn a_step_hands_over_only_what_the_caller_may_run(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    let new = vec![
        tagged_activity("i", 4, "gpu"),
        session_activity("i", 5, "s"),
        activity("i", 6),
        tagged_activity("i", 7, "cpu"),
        activity("i", 8),
    ];
    let tag_filter = &TagFilter::default_and(["cpu"]);
    let request = WorkRequest { tag_filter, ..work(2) };
    let step = stored(store_result(extended, &first, &held, &scheduling("i", new), Some(&request)).await);
    assert_eq!(ids(&step.claims), [6, 7]);
    assert_eq!(store.work().await.id(), 8);
    let gpu = store.try_tagged_work(&TagFilter::tags(["gpu"])).await.expect("the other tag is left");
    assert_eq!((gpu.id(), gpu.attempts), (4, 1));
}

/// A step knows its own activities by their entries: an older one in the queue may have the same number.
pub async fn a_step_does_not_take_an_older_activity_for_its_own(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    let older = store.provider.enqueue_for_worker(activity("i", 5)).await;
    older.expect("enqueue_for_worker should work");
    let commit = scheduling("i", vec![session_activity("i", 5, "s")]);
    let step = stored(store_result(extended, &first, &held, &commit, Some(&work(2))).await);
    let items: Vec<&WorkItem> = step.claims.iter().map(|claim| &claim.item).collect();
    assert_eq!(items, [&activity("i", 5)], "activities of sessions are not handed over in a step");
}

/// An activity that the same turn cancels is neither handed over nor there.
pub async fn a_step_does_not_hand_over_what_it_cancels(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    let mut commit = scheduling("i", vec![activity("i", 4), activity("i", 5)]);
    commit.cancelled = vec![scheduled("i", 4)];
    let step = stored(store_result(extended, &first, &held, &commit, Some(&work(2))).await);
    assert_eq!(ids(&step.claims), [5]);
    store.expect_no_work("the other was cancelled").await;
}
