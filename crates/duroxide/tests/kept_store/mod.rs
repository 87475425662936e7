//! A store in the middle of its work, as data: [`leave`] writes it, a fixture keeps it for each version of a schema,
//! and [`finish`] checks what a later build makes of it.
//!
//! [`leave`] writes turn by turn, through the published contract, at times to which it sets the clock. So the fixture
//! of a version and the output of this build differ only in their random tokens and the version's own columns.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{
    ExecutionMetadata, ManualClock, Provider, ProviderAdmin, SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, AppErrorKind, Client, ErrorDetails, Event, EventKind, OrchestrationContext,
    OrchestrationRegistry, OrchestrationStatus, RuntimeOptions,
};

/// The time at which the test left the store.
pub const LEFT_MS: u64 = 1_800_000_000_000;
/// When it is opened again: all leases have run out, the long timers have not fired.
pub const OPENED_MS: u64 = LEFT_MS + 3_600_000;
/// When the long timers are due.
pub const TIMERS_DUE_MS: u64 = LEFT_MS + 86_400_000;

const LEASE: Duration = Duration::from_secs(30);
/// Nothing here takes long; a wait of this length is in vain.
const FAILURE_BOUND: Duration = Duration::from_secs(60);
const VERSION: &str = "1.0.0";

/// The changes that a turn writes.
#[derive(Default)]
struct Turn {
    events: Vec<(Option<u64>, EventKind)>,
    activities: Vec<WorkItem>,
    messages: Vec<WorkItem>,
    parent: Option<&'static str>,
    status: Option<&'static str>,
    output: Option<&'static str>,
}

/// Starts an instance and takes its first turn.
async fn begin(store: &dyn Provider, instance: &str, orchestration: &str, input: &str, turn: Turn) {
    store.enqueue_for_orchestrator(start(instance, orchestration, input, None), None).await.unwrap();
    first_turn(store, instance, orchestration, input, turn).await;
}

/// Takes the first turn of the execution that the next message starts.
async fn first_turn(store: &dyn Provider, instance: &str, orchestration: &str, input: &str, mut turn: Turn) {
    let started = EventKind::OrchestrationStarted {
        name: orchestration.into(),
        version: VERSION.into(),
        input: input.into(),
        parent_instance: turn.parent.map(str::to_string),
        parent_id: turn.parent.map(|_| 2),
        parent_execution_id: turn.parent.map(|_| 1),
        carry_forward_events: None,
        initial_custom_status: None,
    };
    turn.events.insert(0, (None, started));
    let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
    let (item, token, _) = fetched.expect("there is a turn");
    assert_eq!(item.instance, instance);
    let execution = match item.messages[0] {
        WorkItem::ContinueAsNew { .. } => item.execution_id + 1,
        _ => item.execution_id,
    };
    let event = |(place, (source, kind)): (usize, (Option<u64>, EventKind))| {
        let mut event = Event::with_event_id(place as u64 + 1, instance, execution, source, kind);
        event.timestamp_ms = LEFT_MS;
        event
    };
    let metadata = ExecutionMetadata {
        status: turn.status.map(str::to_string),
        output: turn.output.map(str::to_string),
        orchestration_name: Some(orchestration.into()),
        orchestration_version: Some(VERSION.into()),
        parent_instance_id: turn.parent.map(str::to_string),
        pinned_duroxide_version: Some("0.1.100".parse().unwrap()),
    };
    let events = turn.events.into_iter().enumerate().map(event).collect();
    store
        .ack_orchestration_item(&token, execution, events, turn.activities, turn.messages, metadata, vec![])
        .await
        .unwrap();
}

fn start(instance: &str, orchestration: &str, input: &str, parent: Option<&str>) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: orchestration.into(),
        input: input.into(),
        version: Some(VERSION.into()),
        parent_instance: parent.map(str::to_string),
        parent_id: parent.map(|_| 2),
        parent_execution_id: parent.map(|_| 1),
        execution_id: 1,
    }
}

fn signal(instance: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "Go".into(), data: data.into() }
}

fn waiting() -> Turn {
    Turn { events: vec![(None, EventKind::ExternalSubscribed { name: "Go".into() })], ..Turn::default() }
}

/// A turn that schedules the activity `Greet`.
fn greeting(instance: &str, name: &str, session: Option<&str>, tag: Option<&str>) -> Turn {
    let (session_id, tag) = (session.map(str::to_string), tag.map(str::to_string));
    let (activity, input) = ("Greet".to_string(), name.to_string());
    let scheduled = EventKind::ActivityScheduled {
        name: activity.clone(),
        input: input.clone(),
        session_id: session_id.clone(),
        tag: tag.clone(),
    };
    let execute = WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: 1,
        id: 2,
        name: activity,
        input,
        session_id,
        tag,
    };
    Turn { events: vec![(None, scheduled)], activities: vec![execute], ..Turn::default() }
}

fn timer(instance: &str) -> (EventKind, WorkItem) {
    let fire_at_ms = TIMERS_DUE_MS;
    let fired = WorkItem::TimerFired { instance: instance.into(), execution_id: 1, id: 2, fire_at_ms };
    (EventKind::TimerCreated { fire_at_ms }, fired)
}

fn child_of(parent: &str, orchestration: &str) -> Turn {
    let child = format!("{parent}::sub::2");
    let scheduled = EventKind::SubOrchestrationScheduled {
        name: orchestration.into(),
        instance: "sub::2".into(),
        input: "kid".into(),
    };
    let messages = vec![start(&child, orchestration, "kid", Some(parent))];
    Turn { events: vec![(None, scheduled)], messages, ..Turn::default() }
}

fn set(key: &str, value: &str) -> (Option<u64>, EventKind) {
    let (key, value) = (key.into(), value.into());
    (None, EventKind::KeyValueSet { key, value, last_updated_at_ms: LEFT_MS })
}

/// Leaves a store with work of every kind in it, some of it leased by a process that does not come back.
pub async fn leave(store: &dyn Provider, clock: &ManualClock) {
    clock.set_wall_ms(LEFT_MS);
    finished(store).await;
    begin(store, "signal-1", "WaitForGo", "a", waiting()).await;
    let (created, fired) = timer("timer-1");
    let sleeping = Turn { events: vec![(None, created)], messages: vec![fired], ..Turn::default() };
    begin(store, "timer-1", "Sleeper", "", sleeping).await;
    chain(store).await;
    begin(store, "parent-1", "Parent", "WaitForGo", child_of("parent-1", "WaitForGo")).await;
    let child = Turn { parent: Some("parent-1"), ..waiting() };
    first_turn(store, "parent-1::sub::2", "WaitForGo", "kid", child).await;
    activities(store).await;
    messages(store).await;
}

async fn finished(store: &dyn Provider) {
    let output = || EventKind::OrchestrationCompleted { output: "Hello!".into() };
    let completed =
        |events| Turn { events, status: Some("Completed"), output: Some("Hello!"), ..Turn::default() };
    begin(store, "done-1", "Greeter", "", completed(vec![(None, output())])).await;
    let details = ErrorDetails::Application {
        kind: AppErrorKind::OrchestrationFailed,
        message: "card declined".into(),
        retryable: false,
    };
    let failed = Turn {
        events: vec![(None, EventKind::OrchestrationFailed { details })],
        status: Some("Failed"),
        output: Some("card declined"),
        ..Turn::default()
    };
    begin(store, "failed-1", "Greeter", "", failed).await;
    // It has ended while its timer still runs.
    let (created, fired) = timer("raced-1");
    let raced = completed(vec![(None, created), (None, output())]);
    begin(store, "raced-1", "Raced", "", Turn { messages: vec![fired], ..raced }).await;
}

/// A second execution, with values of both.
async fn chain(store: &dyn Provider) {
    let next = WorkItem::ContinueAsNew {
        instance: "chain-1".into(),
        orchestration: "Chain".into(),
        input: "2".into(),
        version: Some(VERSION.into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![],
        initial_custom_status: None,
    };
    let first = Turn {
        events: vec![
            set("round", "1"),
            set("first", "yes"),
            (None, EventKind::OrchestrationContinuedAsNew { input: "2".into() }),
        ],
        messages: vec![next],
        status: Some("ContinuedAsNew"),
        output: Some("2"),
        ..Turn::default()
    };
    begin(store, "chain-1", "Chain", "1", first).await;
    let wait = (None, EventKind::ExternalSubscribed { name: "Go".into() });
    let second = Turn { events: vec![set("round", "2"), wait], ..Turn::default() };
    first_turn(store, "chain-1", "Chain", "2", second).await;
}

/// Activities: two leased by a process that died, one of them of a session, and the rest queued.
async fn activities(store: &dyn Provider) {
    for (instance, session, tag) in [
        ("leased-activity-1", None, None),
        ("leased-session-1", Some("session"), None),
        ("queued-session-1", Some("session"), None),
        ("queued-activity-1", None, None),
        ("tagged-1", None, Some("gpu")),
    ] {
        let input = format!("{} {}", session.unwrap_or_default(), tag.unwrap_or_default());
        begin(store, instance, "Greeter", &input, greeting(instance, "Ann", session, tag)).await;
    }
    let owner = SessionFetchConfig { owner_id: "dead-node".into(), lock_timeout: LEASE };
    for expected in ["leased-activity-1", "leased-session-1"] {
        let filter = TagFilter::default_only();
        let fetched = store.fetch_work_item(LEASE, Duration::ZERO, Some(&owner), &filter).await.unwrap();
        let (item, ..) = fetched.expect("there is an activity");
        assert!(
            matches!(&item, WorkItem::ActivityExecute { instance, .. } if instance == expected),
            "{item:?}"
        );
    }
}

/// Messages: for a turn whose process died, for an instance that does not exist yet, for a queue; a cancellation, a
/// start, and the start of a child.
async fn messages(store: &dyn Provider) {
    let early = WorkItem::CancelInstance { instance: "later-1".into(), reason: "early".into() };
    store.enqueue_for_orchestrator(early, None).await.unwrap();
    assert!(store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().is_none());

    begin(
        store,
        "inbox-1",
        "Inbox",
        "",
        Turn { events: vec![(None, EventKind::QueueSubscribed { name: "inbox".into() })], ..Turn::default() },
    )
    .await;
    begin(store, "cancel-1", "WaitForGo", "c", waiting()).await;
    begin(store, "leased-turn-1", "WaitForGo", "l", waiting()).await;
    store.enqueue_for_orchestrator(signal("leased-turn-1", "late"), None).await.unwrap();
    let (leased, ..) =
        store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().expect("a turn");
    assert_eq!(leased.instance, "leased-turn-1");

    begin(store, "parent-2", "Parent", "Echo", child_of("parent-2", "Echo")).await;
    let message =
        WorkItem::QueueMessage { instance: "inbox-1".into(), name: "inbox".into(), data: "m1".into() };
    let cancel = WorkItem::CancelInstance { instance: "cancel-1".into(), reason: "asked".into() };
    for item in [message, cancel, start("queued-1", "Echo", "q", None)] {
        store.enqueue_for_orchestrator(item, None).await.unwrap();
    }
}

fn registries() -> (ActivityRegistry, OrchestrationRegistry) {
    let activities = ActivityRegistry::builder()
        .register("Greet", |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("WaitForGo", |ctx: OrchestrationContext, input: String| async move {
            Ok(format!("{input} got {}", ctx.schedule_wait("Go").await))
        })
        .register("Sleeper", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_timer(Duration::from_secs(86_400)).await;
            Ok("woke".to_string())
        })
        .register("Greeter", |ctx: OrchestrationContext, place: String| async move {
            match place.split_once(' ') {
                Some(("session", _)) => ctx.schedule_activity_on_session("Greet", "Ann", "session").await,
                Some((_, "gpu")) => ctx.schedule_activity("Greet", "Ann").with_tag("gpu").await,
                _ => ctx.schedule_activity("Greet", "Ann").await,
            }
        })
        .register("Chain", |ctx: OrchestrationContext, round: String| async move {
            ctx.set_kv_value("round", round);
            let data = ctx.schedule_wait("Go").await;
            Ok(format!("{:?} {:?} {data}", ctx.get_kv_value("first"), ctx.get_kv_value("round")))
        })
        .register("Parent", |ctx: OrchestrationContext, child: String| async move {
            ctx.schedule_sub_orchestration(child, "kid").await.map(|said| format!("child said {said}"))
        })
        .register("Inbox", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.dequeue_event("inbox").await)
        })
        .build();
    (activities, orchestrations)
}

/// Opens the store that [`leave`] has left: its record is complete, and its running instances go on to their end.
pub async fn finish(store: Arc<dyn Provider>, clock: &ManualClock) {
    recorded(&*store).await;
    let (activities, orchestrations) = registries();
    let options = RuntimeOptions { worker_tag_filter: TagFilter::Any, ..Default::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store.clone());
    for instance in ["signal-1", "chain-1", "parent-1::sub::2"] {
        client.raise_event(instance, "Go", "x").await.unwrap();
    }
    client.start_orchestration("later-1", "WaitForGo", "l").await.unwrap();
    for (instance, output) in [
        ("signal-1", "a got x"),
        ("chain-1", "Some(\"yes\") Some(\"2\") x"),
        ("parent-1::sub::2", "kid got x"),
        ("parent-1", "child said kid got x"),
        ("leased-activity-1", "Hello, Ann!"),
        ("leased-session-1", "Hello, Ann!"),
        ("queued-session-1", "Hello, Ann!"),
        ("queued-activity-1", "Hello, Ann!"),
        ("tagged-1", "Hello, Ann!"),
        ("inbox-1", "m1"),
        ("leased-turn-1", "l got late"),
        ("parent-2", "child said kid"),
        ("parent-2::sub::2", "kid"),
        ("queued-1", "q"),
    ] {
        assert_output(&client, instance, output).await;
    }
    for (instance, reason) in [("cancel-1", "asked"), ("later-1", "early")] {
        let ended = end(&client, instance).await;
        assert!(
            matches!(&ended, OrchestrationStatus::Failed { details, .. }
            if details.display_message() == format!("canceled: {reason}")),
            "{ended:?}"
        );
    }
    let sleeping = client.get_orchestration_status("timer-1").await.unwrap();
    assert!(matches!(sleeping, OrchestrationStatus::Running { .. }), "{sleeping:?}");
    clock.advance(Duration::from_millis(TIMERS_DUE_MS - OPENED_MS));
    assert_output(&client, "timer-1", "woke").await;
    runtime.shutdown(None).await;
}

async fn end(client: &Client, instance: &str) -> OrchestrationStatus {
    // The store's time stands still, so nothing but the machine's tells that something does not come.
    let ended = client.wait_for_orchestration(instance, LEASE);
    let ended = tokio::time::timeout(FAILURE_BOUND, ended).await;
    ended.unwrap_or_else(|_| panic!("{instance} does not end")).unwrap()
}

async fn assert_output(client: &Client, instance: &str, expected: &str) {
    let ended = end(client, instance).await;
    assert!(
        matches!(&ended, OrchestrationStatus::Completed { output, .. } if output == expected),
        "{instance}: {ended:?}"
    );
}

/// The reads before anything goes on.
async fn recorded(store: &dyn Provider) {
    let admin = store.as_management_capability().expect("an admin");
    let metrics = ProviderAdmin::get_system_metrics(admin).await.unwrap();
    assert_eq!((metrics.total_instances, metrics.total_executions), (17, 18));
    assert_eq!(
        (metrics.running_instances, metrics.completed_instances, metrics.failed_instances),
        (14, 2, 1)
    );
    for (instance, status, output) in [
        ("done-1", "Completed", Some("Hello!")),
        ("failed-1", "Failed", Some("card declined")),
        ("raced-1", "Completed", Some("Hello!")),
        ("signal-1", "Running", None),
    ] {
        let found = admin.get_instance_info(instance).await.unwrap();
        assert_eq!((found.status.as_str(), found.output.as_deref()), (status, output), "{instance}");
    }
    let child = admin.get_instance_info("parent-1::sub::2").await.unwrap();
    assert_eq!(child.parent_instance_id.as_deref(), Some("parent-1"));
    let values = store.get_kv_all_values("chain-1").await.unwrap();
    assert_eq!((values["round"].as_str(), values["first"].as_str()), ("2", "yes"));
    let parked = store.as_extended().expect("extended").list_parked(10).await.unwrap();
    assert_eq!(parked.iter().map(|row| row.instance.as_str()).collect::<Vec<_>>(), ["later-1"]);
    let events: usize = store.read("chain-1").await.unwrap().len();
    assert_eq!(events, 3);
}
