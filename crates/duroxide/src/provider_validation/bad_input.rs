//! Wrong calls are refused for good and leave nothing behind; odd data comes back as it was given.

use super::support::{
    Commit, Store, TURN_LEASE, WORK_LEASE, activity, activity_scheduled, assert_refused, completed,
    completion_of, event, kv_set, raised, start_item, start_named, started, status,
};
use super::{Event, EventKind, ExecutionMetadata, ProviderFactory};
use crate::model::WorkItem;

const NO_TOKEN: &str = "no-such-token";

/// What is hard on encodings: a NUL, quotes, escapes, line ends, emoji, and other scripts.
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

/// A token that nobody was given opens nothing.
pub async fn unknown_tokens_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let provider = &store.provider;
    for token in [NO_TOKEN, "", "' OR 1=1 --", "lock_\0"] {
        assert_refused(store.try_ack(token, Commit::creating("i")).await, "an ack of a turn");
        let abandon = provider.abandon_orchestration_item(token, None, true).await;
        assert_refused(abandon, "an abandon of a turn");
        assert_refused(
            provider.renew_orchestration_item_lock(token, TURN_LEASE).await,
            "a renewal of a turn",
        );
        let ack = provider.ack_work_item(token, Some(completed("i", 1, "r"))).await;
        assert_refused(ack, "an ack of an activity");
        assert_refused(provider.ack_work_item(token, None).await, "an ack without completion");
        assert_refused(provider.abandon_work_item(token, None, true).await, "an abandon of an activity");
        assert_refused(provider.renew_work_item_lock(token, WORK_LEASE).await, "a renewal of an activity");
    }
    assert_empty(&store).await;
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

/// Event ids are given by the runtime, once each: 0 and duplicates are refused, wherever the duplicate is.
pub async fn bad_event_ids_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("i").await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_of("i").await;
    let cases = [
        ("id 0", vec![activity_scheduled("i", 2), activity_scheduled("i", 0)]),
        ("an id twice in one delta", vec![activity_scheduled("i", 2), activity_scheduled("i", 2)]),
        ("an id that the history has", vec![activity_scheduled("i", 2), activity_scheduled("i", 1)]),
    ];
    for (what, events) in cases {
        let commit = Commit {
            events: events.clone(),
            work: vec![activity("i", 2)],
            messages: vec![start_item("other")],
            metadata: status("Completed"),
            ..Commit::default()
        };
        assert_refused(store.try_ack(&turn.token, commit).await, what);
        assert_refused(store.provider.append_with_execution("i", 1, events).await, what);
    }
    assert_eq!(store.history("i").await.len(), 1, "refused acks should write no event");
    store.expect_no_work("refused acks should enqueue no activity").await;
    store.expect_no_turn("refused acks should enqueue no message and keep the lease").await;
    let info = store.admin().get_instance_info("i").await.expect("the instance is there");
    assert_eq!(info.status, "Running", "refused acks should not touch the status");
    store.ack(&turn, Commit::of_events(vec![activity_scheduled("i", 2)])).await;
}

/// Items of the other queue are refused by both enqueues.
pub async fn items_of_the_other_queue_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let wrong = store.provider.enqueue_for_orchestrator(activity("i", 1), None).await;
    assert_refused(wrong, "an activity in the orchestrator queue");
    for item in [start_item("i"), raised("i", "n", ""), completed("i", 1, "r")] {
        assert_refused(store.provider.enqueue_for_worker(item).await, "a message in the worker queue");
    }
    assert_empty(&store).await;
}

/// The same in an ack, which then does nothing at all.
pub async fn items_of_the_other_queue_are_refused_in_an_ack(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("i").await;
    let turn = store.turn_of("i").await;
    let in_messages = Commit {
        messages: vec![start_item("other"), activity("i", 2)],
        work: vec![activity("i", 3)],
        ..Commit::creating("i")
    };
    assert_refused(store.try_ack(&turn.token, in_messages).await, "an activity among the messages");
    let in_work = Commit {
        messages: vec![start_item("other")],
        work: vec![activity("i", 3), raised("i", "n", "")],
        ..Commit::creating("i")
    };
    assert_refused(store.try_ack(&turn.token, in_work).await, "a message among the activities");
    assert!(store.history("i").await.is_empty(), "refused acks should write no event");
    store.expect_no_work("refused acks should enqueue no activity").await;
    store.expect_no_turn("refused acks should enqueue no message and keep the lease").await;
    store.ack(&turn, Commit::creating("i")).await;
}

/// A worker may report a completion or a failure, nothing else; the activity stays leased.
pub async fn wrong_completions_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let work = store.work().await;
    for item in [start_item("other"), raised("i", "n", ""), activity("i", 3)] {
        let ack = store.provider.ack_work_item(&work.token, Some(item)).await;
        assert_refused(ack, "a completion that is none");
    }
    store.expect_no_turn("refused acks should enqueue nothing").await;
    store.expect_no_work("refused acks should keep the lease").await;
    store.complete(&work).await;
}

/// Empty and huge ids are refused and leave nothing behind.
///
/// A store without the abilities of ours may take them; then it must take them whole.
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

/// The same in an ack, which then does nothing at all.
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

/// A huge session id or tag is refused as well.
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

/// Sends a text through every place that holds one, and expects it back to the byte.
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

/// NULs, quotes, emoji and what else is hard on encodings come back to the byte; ids may hold most of it.
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

/// Delays and leases beyond what a clock can show are clamped, not wrapped.
pub async fn endless_durations_are_clamped(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let endless = std::time::Duration::MAX;
    store.send_delayed(start_item("never"), endless).await;
    store.expect_no_turn("its time never comes").await;
    store.start("i").await;
    let turn = store.turn_for(endless).await;
    store.provider.renew_orchestration_item_lock(&turn.token, endless).await.expect("a renewal should work");
    store.expect_no_turn("it is leased for ever").await;
    store.abandon_with(&turn, Some(endless), false).await;
    store.expect_no_turn("it is hidden for ever").await;
    store.send_work(activity("i", 1)).await;
    let work = store.work_for(endless).await;
    store.provider.renew_work_item_lock(&work.token, endless).await.expect("a renewal should work");
    store.expect_no_work("it is leased for ever").await;
    store.abandon_work(&work, Some(endless), false).await;
    store.expect_no_work("it is hidden for ever").await;
}
