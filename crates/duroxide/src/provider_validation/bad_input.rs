//! A store refuses wrong calls for good and leaves nothing behind; it returns odd data unchanged.

use super::support::{
    Commit, Store, activity, assert_refused, completion_of, event, kv_set, raised, start_item, start_named,
    started,
};
use super::{Event, EventKind, ExecutionMetadata, ProviderFactory};
use crate::model::WorkItem;

/// Text that is hard on encodings: a NUL, quotes, escapes, line ends, emoji, and other scripts.
const ODD: &str = "nul\0 'single' \"double\" \\back\\ %s {} $1 ?1 ;--\r\n\t\u{1f980}\u{1f469}\u{200d}\u{1f52c} \u{65e5}\u{672c} \u{202e}rtl \u{feff}";

/// Checks that the store holds nothing at all.
async fn assert_empty(store: &Store<'_>) {
    store.expect_no_turn("refused calls should leave nothing behind").await;
    store.expect_no_work("refused calls should leave nothing behind").await;
    let depths = store.admin().get_queue_depths().await.expect("get_queue_depths should work");
    assert_eq!((depths.orchestrator_queue, depths.worker_queue), (0, 0), "the queues should be empty");
    let metrics = store.admin().get_system_metrics().await.expect("get_system_metrics should work");
    assert_eq!((metrics.total_instances, metrics.total_events), (0, 0), "no instance should be there");
}

/// The token of a turn is not the token of an activity, and the other way round.
pub async fn tokens_of_the_other_kind_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("i").await;
    store.send_work(activity("i", 1)).await;
    let (turn, work) = (store.turn().await, store.work().await);
    assert_refused(store.try_ack(&work.token, Commit::default()).await, "a turn's ack with a work token");
    assert_refused(store.provider.ack_work_item(&turn.token, None).await, "a work ack with a turn's token");
    store.ack(&turn, Commit::creating("i")).await;
    store.complete(&work).await;
}

/// The store refuses empty and huge ids, and leaves nothing behind.
///
/// A store without our extensions may accept them; then it must keep them whole.
pub async fn empty_and_huge_ids_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let strict = store.extended().is_some();
    for instance in [String::new(), "x".repeat(3 * 1024 * 1024)] {
        let start = store.provider.enqueue_for_orchestrator(start_item(&instance), None).await;
        if start.is_ok() && !strict {
            store.turn_of(&instance).await;
            continue;
        }
        assert_refused(start, "a start with such an id");
        let signal = store.provider.enqueue_for_orchestrator(raised(&instance, "n", ""), None).await;
        assert_refused(signal, "a signal with such an id");
        let work = store.provider.enqueue_for_worker(activity(&instance, 1)).await;
        assert_refused(work, "an activity with such an id");
        let append = store.provider.append_with_execution(&instance, 1, vec![started(&instance, 1)]).await;
        assert_refused(append, "events with such an id");
    }
    if strict {
        assert_empty(&store).await;
    }
}

/// The store refuses them in an ack too, which then changes nothing at all.
pub async fn empty_and_huge_ids_are_refused_in_an_ack(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    store.start("i").await;
    let turn = store.turn_of("i").await;
    let huge = "x".repeat(3 * 1024 * 1024);
    for id in ["", &huge] {
        let message = Commit { messages: vec![start_item("ok"), start_item(id)], ..Commit::creating("i") };
        assert_refused(store.try_ack(&turn.token, message).await, "a message with such an id");
        let work = Commit { work: vec![activity("i", 2), activity(id, 3)], ..Commit::creating("i") };
        assert_refused(store.try_ack(&turn.token, work).await, "an activity with such an id");
    }
    assert!(store.history("i").await.is_empty(), "refused acks should write no event");
    store.expect_no_work("refused acks should enqueue no activity").await;
    store.expect_no_turn("refused acks should enqueue no message and keep the lease").await;
    store.ack(&turn, Commit::creating("i")).await;
}

/// The store refuses a huge session id or tag as well.
pub async fn huge_sessions_and_tags_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    let huge = "x".repeat(3 * 1024 * 1024);
    let session = super::support::session_activity("i", 1, &huge);
    assert_refused(store.provider.enqueue_for_worker(session).await, "a huge session id");
    let tag = super::support::tagged_activity("i", 1, &huge);
    assert_refused(store.provider.enqueue_for_worker(tag).await, "a huge tag");
    assert_empty(&store).await;
}

fn start_with_input(instance: &str, text: &str) -> WorkItem {
    let mut start = start_named(instance, text, Some(text));
    if let WorkItem::StartOrchestration { input, .. } = &mut start {
        *input = text.to_string();
    }
    start
}

fn activity_with_input(instance: &str, text: &str) -> WorkItem {
    let mut work = activity(instance, 2);
    if let WorkItem::ActivityExecute { input, name, .. } = &mut work {
        *input = text.to_string();
        *name = text.to_string();
    }
    work
}

/// Sends a text through every field that holds one, and expects it back to the byte.
async fn round_trip(store: &Store<'_>, instance: &str, text: &str) {
    store.send(start_with_input(instance, text)).await;
    let turn = store.turn_of(instance).await;
    assert_eq!(turn.item.messages, [start_with_input(instance, text)], "the start should come back whole");

    let events: Vec<Event> = vec![
        started(instance, 1),
        event(instance, 2, EventKind::ExternalEvent { name: text.to_string(), data: text.to_string() }),
        event(instance, 3, kv_set("key", text)),
        event(instance, 4, EventKind::CustomStatusUpdated { status: Some(text.to_string()) }),
    ];
    let metadata = ExecutionMetadata {
        status: Some("Running".to_string()),
        output: Some(text.to_string()),
        orchestration_name: Some("Odd".to_string()),
        orchestration_version: Some("1.0.0".to_string()),
        ..ExecutionMetadata::default()
    };
    let commit = Commit {
        events: events.clone(),
        work: vec![activity_with_input(instance, text)],
        messages: vec![raised(instance, text, text)],
        metadata,
        ..Commit::default()
    };
    store.ack(&turn, commit).await;

    assert_eq!(store.history(instance).await, events, "the events should come back whole");
    let value = store.provider.get_kv_value(instance, "key").await.expect("get_kv_value should work");
    assert_eq!(value.as_deref(), Some(text), "the value should come back whole");
    let custom = store.provider.get_custom_status(instance, 0).await.expect("get_custom_status should work");
    assert_eq!(custom, Some((Some(text.to_string()), 1)), "the custom status should come back whole");
    let info = store.admin().get_instance_info(instance).await.expect("the instance is there");
    assert_eq!(info.output.as_deref(), Some(text), "the output should come back whole");

    let work = store.work().await;
    assert_eq!(work.item, activity_with_input(instance, text), "the activity should come back whole");
    let done = completion_of(&work.item, text);
    store.provider.ack_work_item(&work.token, Some(done.clone())).await.expect("the ack should work");
    let turn = store.turn_of(instance).await;
    assert_eq!(turn.item.messages, [raised(instance, text, text), done], "messages should come back whole");
    assert_eq!(turn.item.history, events, "a fetch should return the events whole");
    store.ack(&turn, Commit::default()).await;
}

/// NULs, quotes, emoji and other text that is hard on encodings come back to the byte; ids may hold most of it.
pub async fn odd_payloads_come_back(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    round_trip(&store, "plain-id", ODD).await;
    let odd_id = "it's \"odd\" %s \\ ;-- \u{1f980} \u{65e5}\u{672c} ::sub::1";
    round_trip(&store, odd_id, ODD).await;
    let listed = store.admin().list_instances().await.expect("list_instances should work");
    assert!(listed.iter().any(|id| id == odd_id), "an odd id should be listed as it is; got {listed:?}");
}

/// A payload of a megabyte comes back to the byte; so does an empty one.
pub async fn large_and_empty_payloads_come_back(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    round_trip(&store, "empty", "").await;
    let megabyte = "0123456789abcdef".repeat(64 * 1024);
    round_trip(&store, "large", &megabyte).await;
}
