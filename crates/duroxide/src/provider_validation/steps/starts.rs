//! A step that is caused by a start.

use std::time::Duration;

use super::super::ProviderFactory;
use super::super::support::{Commit, Store, raised, start_item, started, status};
use super::{Held, able, conflicts, ids, opening, store_one, store_result, stored, work};
use crate::providers::{StartOutcome, StepCause, StepOutcome};

/// The start and the first turn are one commit.
pub async fn a_start_is_stored_with_its_first_turn(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.starts) else { return };
    let start = start_item("i");
    let cause = StepCause::Start(&start);
    let step = stored(store_one(extended, cause, &Held::free("i"), &opening("i"), Some(&work(1))).await);
    assert_eq!(ids(&step.claims), [2]);
    assert_ne!(step.incarnations, [0], "the instance exists");
    store.expect_no_turn("the start entered no queue").await;
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work").expect("it exists");
    assert_eq!((metadata.status.as_str(), metadata.incarnation), ("Running", step.incarnations[0]));
    let held = Held { incarnation: step.incarnations[0], last_event_id: 2, ..Held::free("i") };
    if extended.step_support().results {
        stored(store_result(extended, &step.claims[0], &held, &super::going_on("i", 2), None).await);
    }
    let again = extended.enqueue_start_if_absent(start_item("i")).await;
    assert_eq!(again.expect("enqueue_start_if_absent should work"), StartOutcome::Existing);
}

/// An instance may end in the commit that starts it.
pub async fn an_instance_may_end_with_its_start(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.starts) else { return };
    let start = start_item("i");
    let mut metadata = Commit::creating("i").metadata;
    metadata.status = status("Completed").status;
    let commit = Commit { metadata, ..Commit::creating("i") };
    stored(store_one(extended, StepCause::Start(&start), &Held::free("i"), &commit, None).await);
    store.expect_no_turn("it is over").await;
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work").expect("it exists");
    assert_eq!(metadata.status, "Completed");
}

/// A taken id has no second first turn: by a row, by history, by a start in the queue, by messages that wait for it.
pub async fn a_start_needs_a_free_id(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.starts) else { return };
    store.create("row").await;
    let appended = store.provider.append_with_execution("history", 1, vec![started("history", 1)]).await;
    appended.expect("append_with_execution should work");
    store.start("queued").await;
    store.send_delayed(start_item("delayed"), Duration::from_secs(3_600)).await;
    store.send(raised("told", "n", "")).await;
    for instance in ["row", "history", "queued", "delayed", "told"] {
        let (start, commit) = (start_item(instance), opening(instance));
        let outcome =
            store_one(extended, StepCause::Start(&start), &Held::free(instance), &commit, None).await;
        conflicts(outcome, instance);
    }
    let turn = store.turn_of("queued").await;
    store.ack(&turn, Commit::default()).await;
    store.expect_no_turn("only one start was queued").await;
    // The message for it is parked now.
    let (start, commit) = (start_item("told"), opening("told"));
    let outcome = store_one(extended, StepCause::Start(&start), &Held::free("told"), &commit, None).await;
    conflicts(outcome, "a message for it is parked");
    let (start, commit) = (start_item("free"), opening("free"));
    let held = Held::free("free").after(1);
    let outcome = store_one(extended, StepCause::Start(&start), &held, &commit, None).await;
    // A store may also refuse it for good: the first turn has the event that the caller says to hold.
    assert!(!matches!(outcome, Ok(StepOutcome::Stored(_))), "the caller holds an event that is not there");
    store.expect_no_work("no first turn was stored").await;
}

/// Of several starts of one id at the same time, one is stored.
pub async fn starts_of_one_id_exclude_each_other(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.starts) else { return };
    let (start, held, commit) = (start_item("i"), Held::free("i"), opening("i"));
    let (one, two, queued) = tokio::join!(
        store_one(extended, StepCause::Start(&start), &held, &commit, None),
        store_one(extended, StepCause::Start(&start), &held, &commit, None),
        extended.enqueue_start_if_absent(start_item("i")),
    );
    let mut winners = usize::from(matches!(queued, Ok(StartOutcome::New)));
    for outcome in [one, two] {
        winners += usize::from(matches!(outcome, Ok(StepOutcome::Stored(_))));
    }
    assert_eq!(winners, 1, "an id is started once");
}
