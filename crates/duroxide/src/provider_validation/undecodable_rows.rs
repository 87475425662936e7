//! A store sets rows aside that do not decode: it keeps and lists them, and they hold up no others.

use super::ProviderFactory;
use super::support::{Commit, Store, activity, raised, start_item};
use crate::providers::{
    ExtendedProvider, QuarantineEntry, QuarantinePurge, QuarantineRetry, QuarantinedRow, WorkQueue,
};

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

async fn entries(extended: &dyn ExtendedProvider) -> Vec<QuarantineEntry> {
    extended.list_quarantine(0, 10).await.expect("list_quarantine should work")
}

async fn retry(extended: &dyn ExtendedProvider, ids: &[u64]) -> Vec<QuarantineRetry> {
    extended.retry_quarantined(ids).await.expect("retry_quarantined should work")
}

/// A store that has the extension and whose rows can be damaged can put them back; one that cannot says so.
async fn can_retry(store: &Store<'_>) -> bool {
    match store.extended() {
        Some(extended) => extended.list_quarantine(0, 1).await.is_ok(),
        None => false,
    }
}

/// A message that was repaired is delivered once, after what came meanwhile, and as if for the first time.
pub async fn repaired_message_is_delivered(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("i").await;
    store.send(raised("i", "n", "damaged")).await;
    if !factory.corrupt_messages("i").await || !can_retry(&store).await {
        return;
    }
    store.expect_no_turn("the damaged message cannot be delivered").await;
    let Some(extended) = store.extended() else { return };
    let [entry] = &entries(extended).await[..] else { panic!("the message should be set aside") };
    let repaired = raised("i", "n", "repaired");
    let text = serde_json::to_string(&repaired).expect("a message encodes");
    let kept = retry(extended, &[entry.id]).await;
    assert!(matches!(&kept[..], [QuarantineRetry::Kept { .. }]), "it still does not decode; got {kept:?}");
    store.expect_no_turn("it is still set aside").await;
    if !factory.repair_quarantined("i", &text).await {
        return;
    }
    store.send(raised("i", "n", "sound")).await;
    let unknown = entry.id + 1_000;
    let answers = retry(extended, &[unknown, entry.id, entry.id]).await;
    use QuarantineRetry::{Enqueued, NotFound};
    assert_eq!(answers, [NotFound, Enqueued, NotFound], "a row should be put back once");
    assert!(entries(extended).await.is_empty(), "it should have left the quarantine");
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages, [raised("i", "n", "sound"), repaired], "it should be at the end");
    assert_eq!(turn.attempts, 1, "it counts as never delivered");
}

/// An activity that was repaired runs.
pub async fn repaired_activity_is_handed_out(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    if !factory.corrupt_work_items("i").await || !can_retry(&store).await {
        return;
    }
    store.expect_no_work("the damaged activity cannot be handed out").await;
    let Some(extended) = store.extended() else { return };
    let [entry] = &entries(extended).await[..] else { panic!("the activity should be set aside") };
    let text = serde_json::to_string(&raised("i", "n", "")).expect("a message encodes");
    if !factory.repair_quarantined("i", &text).await {
        return;
    }
    let kept = retry(extended, &[entry.id]).await;
    assert!(matches!(&kept[..], [QuarantineRetry::Kept { .. }]), "it is no activity; got {kept:?}");
    let text = serde_json::to_string(&activity("i", 7)).expect("an activity encodes");
    factory.repair_quarantined("i", &text).await;
    assert_eq!(retry(extended, &[entry.id]).await, [QuarantineRetry::Enqueued]);
    assert_eq!(store.work().await.id(), 7, "the repaired activity should be handed out");
    assert!(entries(extended).await.is_empty(), "it should have left the quarantine");
}

/// Rows are removed from quarantine by their ids and by their age, and listed page by page.
pub async fn quarantined_rows_are_purged(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for id in 1..=4 {
        store.send_work(activity("i", id)).await;
    }
    if !factory.corrupt_work_items("i").await || !can_retry(&store).await {
        return;
    }
    store.expect_no_work("the damaged activities cannot be handed out").await;
    let Some(extended) = store.extended() else { return };
    let ids: Vec<u64> = entries(extended).await.iter().map(|entry| entry.id).collect();
    assert!(ids.len() == 4 && ids.is_sorted(), "all should be listed in order; got {ids:?}");
    let page = extended.list_quarantine(ids[0], 2).await.expect("list_quarantine should work");
    assert_eq!(page.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids[1..3], "a page follows an id");
    let purge = async |purge| extended.purge_quarantined(purge).await.expect("purge_quarantined should work");
    let some = [ids[1], ids[1] + 1_000];
    assert_eq!(purge(QuarantinePurge::Ids(&some)).await, 1, "by its id");
    assert_eq!(purge(QuarantinePurge::SetAsideBefore(1)).await, 0, "none is so old");
    assert_eq!(entries(extended).await.len(), 3);
    let later = entries(extended).await[0].row.quarantined_at + 1_000;
    assert_eq!(purge(QuarantinePurge::SetAsideBefore(later)).await, 3, "all are older than that");
    assert!(entries(extended).await.is_empty(), "nothing should be left");
    assert_eq!(retry(extended, &ids).await, vec![QuarantineRetry::NotFound; 4], "what was removed is gone");
}
