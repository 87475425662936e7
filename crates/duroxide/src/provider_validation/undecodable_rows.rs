//! A store sets rows aside that do not decode: it keeps and lists them, and they hold up no others.

use super::ProviderFactory;
use super::support::{Commit, Store, activity, raised, start_item};
use crate::providers::{ExtendedProvider, QuarantinedRow, WorkQueue};

async fn quarantined(extended: &dyn ExtendedProvider) -> Vec<QuarantinedRow> {
    extended.list_quarantined(10).await.expect("list_quarantined should work")
}

fn assert_is_from(row: &QuarantinedRow, queue: WorkQueue, instance: &str) {
    assert_eq!(row.queue, queue, "the row should say which queue it was in");
    assert_eq!(row.instance.as_deref(), Some(instance), "the row should say which instance it was for");
    assert!(!row.raw.is_empty(), "the row should keep its text");
    assert!(!row.reason.is_empty(), "the row should say why it does not decode");
}

/// A damaged message does not hold up other instances, nor a new start of its own.
pub async fn damaged_message_blocks_nobody(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("damaged").await;
    if !factory.corrupt_messages("damaged").await {
        return;
    }
    store.start("sound").await;
    store.turn_of("sound").await;
    store.expect_no_turn("the damaged message cannot be delivered").await;
    if let Some(extended) = store.extended() {
        let rows = quarantined(extended).await;
        assert_eq!(rows.len(), 1, "the damaged message should be listed once; got {rows:?}");
        assert_is_from(&rows[0], WorkQueue::Orchestrator, "damaged");
    }
    store.start("damaged").await;
    let turn = store.turn_of("damaged").await;
    assert_eq!(turn.item.messages, [start_item("damaged")], "a new start should work");
}

/// A damaged message among sound ones is left out of the turn, but the ack does not lose it.
pub async fn damaged_message_is_left_out_of_the_batch(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("mixed").await;
    store.send(raised("mixed", "n", "damaged")).await;
    if !factory.corrupt_messages("mixed").await {
        return;
    }
    store.send(raised("mixed", "n", "sound")).await;
    let turn = store.turn_of("mixed").await;
    assert_eq!(turn.item.messages, [raised("mixed", "n", "sound")], "sound messages should be delivered");
    assert_eq!(turn.item.history.len(), 1, "the history is sound");
    store.ack(&turn, Commit::default()).await;
    store.expect_no_turn("the sound message was acked").await;
    if let Some(extended) = store.extended() {
        let rows = quarantined(extended).await;
        assert_eq!(rows.len(), 1, "the damaged message should be kept; got {rows:?}");
        assert_is_from(&rows[0], WorkQueue::Orchestrator, "mixed");
    }
}

/// A damaged activity does not hold up the ones behind it.
pub async fn damaged_activity_blocks_nobody(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("damaged", 1)).await;
    if !factory.corrupt_work_items("damaged").await {
        return;
    }
    store.send_work(activity("sound", 2)).await;
    assert_eq!(store.work().await.id(), 2, "the sound activity should be handed out");
    store.expect_no_work("the damaged activity cannot be handed out").await;
    if let Some(extended) = store.extended() {
        let rows = quarantined(extended).await;
        assert_eq!(rows.len(), 1, "the damaged activity should be listed once; got {rows:?}");
        assert_is_from(&rows[0], WorkQueue::Worker, "damaged");
    }
}

/// Batch fetches step over damaged rows too, and the list of them honours its limit.
pub async fn damaged_rows_are_stepped_over_in_batches(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for id in 1..=3 {
        store.send_work(activity("damaged", id)).await;
    }
    if !factory.corrupt_work_items("damaged").await {
        return;
    }
    store.send_work(activity("sound", 4)).await;
    let tag_filter = crate::providers::TagFilter::default();
    let request = crate::providers::WorkRequest {
        max: 2,
        lock_timeout: super::support::WORK_LEASE,
        session: None,
        tag_filter: &tag_filter,
    };
    let claims = extended.claim_work(&request).await.expect("claim_work should work");
    assert_eq!(claims.len(), 1, "the sound activity should be claimed; got {claims:?}");
    assert_eq!(claims[0].item, activity("sound", 4));
    assert_eq!(quarantined(extended).await.len(), 3, "all damaged activities should be listed");
    let first = extended.list_quarantined(1).await.expect("list_quarantined should work");
    assert_eq!(first.len(), 1, "a limit should be respected");
}
