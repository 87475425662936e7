//! Cheap reads, and starts that happen once.

use std::time::Duration;

use super::support::{
    Commit, Store, activity, activity_scheduled, assert_refused, cancel, event, named, raised, start_item,
    started,
};
use super::{Event, EventKind, ExecutionMetadata, ProviderFactory};
use crate::providers::{AwaitedInstance, AwaitedLook, InstanceMetadata, RunningInstances, StartOutcome};

/// The store describes an instance without its history.
pub async fn metadata_describes_an_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let unknown = extended.read_metadata("nobody").await.expect("read_metadata should work");
    assert_eq!(unknown, None, "an unknown instance has no metadata");

    store.create("parent").await;
    let metadata = ExecutionMetadata {
        status: Some("Completed".to_string()),
        output: Some("result".to_string()),
        parent_instance_id: Some("parent".to_string()),
        ..named()
    };
    let custom = event("child", 2, EventKind::CustomStatusUpdated { status: Some("half".into()) });
    let commit = Commit { events: vec![started("child", 1), custom], metadata, ..Commit::default() };
    store.start_and_ack("child", commit).await;

    let child = extended.read_metadata("child").await.expect("read_metadata should work");
    let child = child.expect("the instance exists");
    assert_eq!(child.instance_id, "child");
    assert_eq!(child.orchestration_name, "TestOrch");
    assert_eq!(child.orchestration_version, "1.0.0");
    assert_eq!(child.parent_instance_id.as_deref(), Some("parent"));
    assert_eq!(child.current_execution_id, 1);
    assert_eq!(child.status, "Completed");
    assert_eq!(child.output.as_deref(), Some("result"));
    assert_eq!(child.custom_status.as_deref(), Some("half"));
    assert_eq!(child.custom_status_version, 1);
    assert!(child.created_at > 0 && child.updated_at >= child.created_at, "times are set; got {child:?}");

    let info = store.admin().get_instance_info("child").await.expect("get_instance_info should work");
    assert_eq!((info.created_at, info.updated_at), (child.created_at, child.updated_at), "both reads agree");
}

/// From the start to the first turn the store describes an instance as pending, while management does not know it yet.
pub async fn a_queued_start_is_described_as_pending(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let described = async || extended.read_metadata("queued").await.expect("read_metadata should work");
    let before = extended.clock().now_ms();
    store.start("queued").await;
    let pending = described().await.expect("a queued start should be described");
    assert_eq!(pending.status, InstanceMetadata::PENDING);
    assert_eq!(pending.instance_id, "queued");
    assert_eq!(pending.orchestration_name, "TestOrch", "the name should be the one that the start asks for");
    assert_eq!(pending.incarnation, 0, "it has no incarnation yet");
    let a_minute = 60_000;
    assert!(pending.created_at + a_minute > before, "it began when it was enqueued; got {pending:?}");
    assert!(store.admin().get_instance_info("queued").await.is_err(), "a queued start makes no instance");

    let turn = store.turn_of("queued").await;
    assert_eq!(described().await.as_ref(), Some(&pending), "also while its first turn is taken");
    store.ack(&turn, Commit::creating("queued")).await;
    let running = described().await.expect("the instance exists");
    assert_eq!(running.status, "Running", "the first turn ends it");
    store.start("queued").await;
    assert_eq!(described().await, Some(running), "a second start changes nothing");
}

/// Messages do not make an instance pending; only a start does.
pub async fn a_message_alone_is_not_pending(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send(raised("signalled", "n", "")).await;
    let described = async || extended.read_metadata("signalled").await.expect("read_metadata should work");
    assert_eq!(described().await, None, "a signal starts nothing");
    store.expect_no_turn("the instance does not exist").await;
    assert_eq!(described().await, None, "nor does a parked one");
    store.send_delayed(start_item("signalled"), Duration::from_secs(60)).await;
    let status = described().await.map(|described| described.status);
    assert_eq!(status.as_deref(), Some(InstanceMetadata::PENDING), "a delayed start is pending too");
}

/// The store reads the newest events of the latest execution, ascending.
pub async fn recent_events_are_the_newest(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("i").await;
    let mut events = vec![started("i", 2)];
    events.extend((2..=5).map(|id| Event { execution_id: 2, ..activity_scheduled("i", id) }));
    store.next_turn("i", Commit { execution_id: 2, events: events.clone(), ..Commit::default() }).await;

    for (limit, expected) in [(0, &[][..]), (2, &events[3..]), (5, &events[..]), (99, &events[..])] {
        let recent = extended.read_recent("i", limit).await.expect("read_recent should work");
        assert_eq!(recent, expected, "the newest {limit} events should be read");
    }
    let unknown = extended.read_recent("nobody", 5).await.expect("read_recent should work");
    assert!(unknown.is_empty(), "an unknown instance has no events; got {unknown:?}");
}

/// The store enqueues a start if the id is free, and not if it is taken in any way.
pub async fn start_if_absent_sees_every_way_to_be_taken(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let start = async |instance: &str| {
        extended.enqueue_start_if_absent(start_item(instance)).await.expect("the call should work")
    };

    assert_eq!(start("i").await, StartOutcome::New, "the id is free");
    assert_eq!(start("i").await, StartOutcome::Existing, "a start is queued");
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages.len(), 1, "only the first start should be enqueued");
    assert_eq!(start("i").await, StartOutcome::Existing, "a start is being worked on");
    store.ack(&turn, Commit::creating("i")).await;
    assert_eq!(start("i").await, StartOutcome::Existing, "the instance has a row");
    store.expect_no_turn("no second start should be enqueued").await;

    store.start_and_ack("nameless", Commit::of_events(vec![started("nameless", 1)])).await;
    assert_eq!(start("nameless").await, StartOutcome::Existing, "the instance has history");

    store.create_with_status("ended", "Completed").await;
    assert_eq!(start("ended").await, StartOutcome::Existing, "a finished instance keeps its id");
    store.admin().delete_instance("ended", false).await.expect("a finished instance can be deleted");
    assert_eq!(start("ended").await, StartOutcome::New, "a deleted instance gives its id back");
    store.turn_of("ended").await;

    store.send_delayed(start_item("later"), std::time::Duration::from_secs(60)).await;
    assert_eq!(start("later").await, StartOutcome::Existing, "a delayed start is queued");
}

/// Signals that wait for an instance do not take its id.
pub async fn start_if_absent_after_a_signal_is_new(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send(raised("early", "n", "")).await;
    store.send_work(activity("early", 1)).await;
    store.expect_no_turn("the instance does not exist").await;
    let outcome = extended.enqueue_start_if_absent(start_item("early")).await.expect("the call should work");
    assert_eq!(outcome, StartOutcome::New, "nobody started the instance");
    let turn = store.turn_of("early").await;
    assert_eq!(turn.item.messages, [raised("early", "n", ""), start_item("early")]);
}

/// The store refuses anything but a start.
pub async fn start_if_absent_takes_starts_only(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for item in [raised("i", "n", ""), cancel("i"), activity("i", 1), super::support::continue_as_new("i")] {
        assert_refused(extended.enqueue_start_if_absent(item).await, "an item that is not a start");
    }
    assert_refused(extended.enqueue_start_if_absent(start_item("")).await, "a start without an id");
    store.expect_no_turn("nothing should be enqueued").await;
    store.expect_no_work("nothing should be enqueued").await;
}

/// Of many concurrent callers, exactly one starts the instance.
pub async fn start_if_absent_is_won_once(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    let mut callers = Vec::new();
    for _ in 0..32 {
        let provider = store.provider.clone();
        callers.push(tokio::spawn(async move {
            let extended = provider.as_extended().expect("the store is an extended one");
            extended.enqueue_start_if_absent(start_item("wanted")).await.expect("the call should work")
        }));
    }
    let mut outcomes = Vec::new();
    for caller in callers {
        outcomes.push(caller.await.unwrap());
    }
    let new = outcomes.iter().filter(|outcome| **outcome == StartOutcome::New).count();
    let existing = outcomes.iter().filter(|outcome| **outcome == StartOutcome::Existing).count();
    assert_eq!((new, existing), (1, 31), "exactly one caller should start the instance; got {outcomes:?}");
    assert_eq!(store.turn_of("wanted").await.item.messages.len(), 1, "one start should be enqueued");
}

/// The store counts running instances by orchestration and version, however many newer ones there are, each up to a
/// bound; ended ones do not count.
pub async fn running_instances_are_counted_by_orchestration(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let count = async |up_to| extended.count_running(up_to).await.expect("count_running should work");
    let Some(none) = count(10).await else { return };
    assert_eq!(none, []);
    for (instance, name, version, status) in [
        ("oldest", "Old", "1.0.0", "Running"),
        ("a1", "B", "1.0.0", "Running"),
        ("a2", "B", "1.0.0", "Running"),
        ("a3", "B", "2.0.0", "Running"),
        ("a4", "B", "2.0.0", "Completed"),
        ("a5", "A", "1.0.0", "ContinuedAsNew"),
        ("a6", "A", "1.0.0", "Failed"),
    ] {
        let metadata = ExecutionMetadata {
            orchestration_name: Some(name.to_string()),
            orchestration_version: Some(version.to_string()),
            status: Some(status.to_string()).filter(|status| status != "Running"),
            ..ExecutionMetadata::default()
        };
        let commit = Commit { events: vec![started(instance, 1)], metadata, ..Commit::default() };
        store.start_and_ack(instance, commit).await;
    }
    let of = |name: &str, version: &str, instances| RunningInstances {
        orchestration_name: name.to_string(),
        orchestration_version: version.to_string(),
        instances,
    };
    let all = [of("B", "1.0.0", 2), of("B", "2.0.0", 1), of("Old", "1.0.0", 1)];
    assert_eq!(count(10).await, Some(all.to_vec()));
    let bounded = [of("B", "1.0.0", 1), of("B", "2.0.0", 1), of("Old", "1.0.0", 1)];
    assert_eq!(count(1).await, Some(bounded.to_vec()), "the bound is that of each orchestration and version");
}

/// A look at many instances at once finds those that have ended or have a new custom status, and nothing else.
pub async fn awaited_instances_are_looked_at_together(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let ending = |status: &str| ExecutionMetadata {
        status: Some(status.to_string()),
        output: Some(format!("output of {status}")),
        ..named()
    };
    for (instance, status) in [("done", "Completed"), ("failed", "Failed")] {
        let commit =
            Commit { events: vec![started(instance, 1)], metadata: ending(status), ..Commit::default() };
        store.start_and_ack(instance, commit).await;
    }
    store.create("running").await;
    let custom = event("telling", 2, EventKind::CustomStatusUpdated { status: Some("half".into()) });
    let commit =
        Commit { events: vec![started("telling", 1), custom], metadata: named(), ..Commit::default() };
    store.start_and_ack("telling", commit).await;
    store.start("queued").await;

    let asked = [
        ("done", None),
        ("nobody", None),
        ("running", Some(0)),
        ("telling", Some(0)),
        ("telling", Some(1)),
        ("telling", None),
        ("failed", Some(0)),
        ("queued", Some(0)),
        ("done", Some(7)),
    ];
    let awaited =
        asked.map(|(instance, custom_status_after)| AwaitedInstance { instance, custom_status_after });
    let looks = extended.read_awaited(&awaited).await.expect("read_awaited should work");
    assert_eq!(looks.len(), asked.len(), "every instance should get an answer");
    let described = async |instance: &str| {
        let metadata = extended.read_metadata(instance).await.expect("read_metadata should work");
        AwaitedLook::News(Box::new(metadata.expect("the instance exists")))
    };
    for ((instance, seen), look) in asked.into_iter().zip(looks) {
        let expected = match (instance, seen) {
            ("done" | "failed", _) | ("telling", Some(0)) => described(instance).await,
            _ => AwaitedLook::Waiting,
        };
        // A store may leave it to the waiter to find out.
        let is_left_open = expected == AwaitedLook::Waiting && look == AwaitedLook::Unclear;
        assert!(
            look == expected || is_left_open,
            "{instance} after {seen:?}: {look:?} instead of {expected:?}"
        );
    }
}
