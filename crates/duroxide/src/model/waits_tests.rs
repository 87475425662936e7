//! What an instance waits for, case by case.

use super::*;
use crate::model::{AppErrorKind, ErrorDetails, Event, EventKind, MessageSource};

fn events(kinds: Vec<(Option<u64>, EventKind)>) -> Vec<EventView> {
    let event = |(at, (source, kind)): (usize, (Option<u64>, EventKind))| {
        let mut event = Event::with_event_id(at as u64 + 1, "i", 1, source, kind);
        event.timestamp_ms = 1_000 + at as u64;
        EventView::of(&event, 1_000)
    };
    kinds.into_iter().enumerate().map(event).collect()
}

fn started() -> (Option<u64>, EventKind) {
    let kind = EventKind::OrchestrationStarted {
        name: "Order".into(),
        version: "1.0.0".into(),
        input: "in".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    (None, kind)
}

fn activity(name: &str, tag: Option<&str>) -> (Option<u64>, EventKind) {
    let tag = tag.map(str::to_string);
    (None, EventKind::ActivityScheduled { name: name.into(), input: "7".into(), session_id: None, tag })
}

fn failed(source: u64, message: &str) -> (Option<u64>, EventKind) {
    let kind = AppErrorKind::ActivityFailed;
    let details = ErrorDetails::Application { kind, message: message.into(), retryable: false };
    (Some(source), EventKind::ActivityFailed { details })
}

fn row(activity_id: u64) -> QueuedActivity {
    QueuedActivity {
        instance: "i".into(),
        execution_id: 1,
        activity_id,
        enqueued_at_ms: 1_500,
        ..QueuedActivity::default()
    }
}

fn worker(orchestrations: &[&str], activities: &[&str]) -> WorkerInfo {
    let registered = |name: &&str| crate::model::RegisteredOrchestration::new(*name, vec!["1.0.0".into()]);
    WorkerInfo {
        name: "w1".into(),
        orchestrations: orchestrations.iter().map(registered).collect(),
        activities: activities.iter().map(|name| name.to_string()).collect(),
        tags: crate::model::ServedTags { untagged: true, ..Default::default() },
        turn_slots: 2,
        activity_slots: 2,
        ..WorkerInfo::default()
    }
}

const NOW: u64 = 10_000;

fn sources<'a>(events: &'a [EventView], activities: &'a [QueuedActivity]) -> WaitSources<'a> {
    WaitSources { instance: "i", execution_id: 1, events, activities, now_ms: NOW, ..WaitSources::default() }
}

fn only_activity(waits: &Waits) -> &ActivityWait {
    match &waits.open[..] {
        [Wait { what: WaitFor::Activity(activity), .. }] => activity,
        other => panic!("{other:?}"),
    }
}

#[test]
fn steps_are_open_until_the_event_that_ends_them() {
    let history = events(vec![
        started(),
        activity("Charge", None),
        (None, EventKind::TimerCreated { fire_at_ms: 99_000 }),
        (None, EventKind::ExternalSubscribed { name: "Approved".into() }),
        (None, EventKind::QueueSubscribed { name: "inbox".into() }),
        (
            None,
            EventKind::SubOrchestrationScheduled {
                name: "Ship".into(),
                instance: "sub::6".into(),
                input: String::new(),
            },
        ),
        activity("Mail", None),
        (Some(7), EventKind::ActivityCompleted { result: "ok".into() }),
    ]);
    let rows = [row(2)];
    let children = [("i::sub::6".to_string(), InstanceState::Waiting)];
    let waits = waits(&WaitSources { children: &children, ..sources(&history, &rows) });
    let kinds: Vec<(u64, u64)> = waits.open.iter().map(|wait| (wait.event_id, wait.since_ms)).collect();
    assert_eq!(kinds, [(2, 1_001), (3, 1_002), (4, 1_003), (5, 1_004), (6, 1_005)]);
    assert_eq!(waits.open[1].what, WaitFor::Timer { until_ms: 99_000 });
    assert_eq!(waits.open[2].what, WaitFor::Signal { name: "Approved".into() });
    assert_eq!(waits.open[3].what, WaitFor::Queue { name: "inbox".into() });
    let child = WaitFor::Child {
        instance: "i::sub::6".into(),
        name: "Ship".into(),
        state: Some(InstanceState::Waiting),
    };
    assert_eq!(waits.open[4].what, child);
    assert!(waits.is_complete && waits.blocked.is_none());
}

#[test]
fn a_signal_answers_the_oldest_open_wait_and_a_queue_keeps_its_messages() {
    let signal = |name: &str| (None, EventKind::ExternalEvent { name: name.into(), data: String::new() });
    let wait = |name: &str| (None, EventKind::ExternalSubscribed { name: name.into() });
    let read = |name: &str| (None, EventKind::QueueSubscribed { name: name.into() });
    let message =
        |name: &str| (None, EventKind::QueueEventDelivered { name: name.into(), data: String::new() });
    let history = events(vec![
        started(),
        signal("a"), // too early: nobody receives it
        wait("a"),
        wait("a"),
        wait("b"),
        signal("a"),
        (Some(5), EventKind::ExternalSubscribedCancelled { reason: String::new() }),
        message("q"), // kept for the first read
        read("q"),
        read("q"),
    ]);
    let open: Vec<u64> = waits(&sources(&history, &[])).open.iter().map(|wait| wait.event_id).collect();
    assert_eq!(open, [4, 10]);
}

#[test]
fn an_ended_execution_waits_for_nothing() {
    let history = events(vec![
        started(),
        activity("Charge", None),
        (None, EventKind::OrchestrationCompleted { output: "done".into() }),
    ]);
    assert_eq!(waits(&sources(&history, &[row(2)])).open, []);
}

#[test]
fn queue_rows_tell_how_far_an_activity_has_come() {
    let history = events(vec![started(), activity("Charge", None)]);
    let running = QueuedActivity { attempts: 2, leased_until_ms: Some(NOW + 5_000), ..row(2) };
    let mut holder = worker(&["Order"], &["Charge"]);
    let mut run = RunningActivity::new("i", 1, 2, "Charge");
    run.since_ms = 9_000;
    holder.running.push(run);
    let workers = [holder];
    let seen = |row: Option<QueuedActivity>, messages: &[QueuedMessage]| {
        let rows: Vec<_> = row.into_iter().collect();
        let found = waits(&WaitSources { workers: &workers, messages, ..sources(&history, &rows) });
        only_activity(&found).clone()
    };
    let found = seen(Some(running.clone()), &[]);
    assert_eq!((found.stage, found.attempt), (ActivityStage::Running, 2));
    assert_eq!((found.leased_by.as_deref(), found.leased_until_ms), (Some("w1"), Some(NOW + 5_000)));
    assert_eq!(found.stage_since_ms, Some(9_000));
    // A lease that has run out is nobody's.
    let found = seen(Some(QueuedActivity { leased_until_ms: Some(NOW), ..running }), &[]);
    assert_eq!((found.stage, found.leased_by), (ActivityStage::Queued, None));
    let found = seen(Some(QueuedActivity { delayed_until_ms: Some(NOW + 1), ..row(2) }), &[]);
    assert_eq!((found.stage, found.delayed_until_ms), (ActivityStage::Delayed, Some(NOW + 1)));

    // The store looks at it again at some time; only a time-out is of interest.
    let kept = QueuedActivity { delayed_until_ms: Some(NOW + 9), is_awaited: true, ..row(2) };
    let found = seen(Some(kept.clone()), &[]);
    assert_eq!((found.stage, found.delayed_until_ms), (ActivityStage::Awaited, None));
    let found = seen(Some(QueuedActivity { awaited_until_ms: Some(NOW + 8), ..kept }), &[]);
    assert_eq!((found.stage, found.delayed_until_ms), (ActivityStage::Awaited, Some(NOW + 8)));
    let found = seen(Some(row(2)), &[]);
    assert_eq!((found.stage, found.stage_since_ms, found.attempt), (ActivityStage::Queued, Some(1_500), 0));
    let done = QueuedMessage {
        source: Some(MessageSource { execution_id: 1, event_id: 2 }),
        enqueued_at_ms: 9_500,
        ..QueuedMessage::default()
    };
    let found = seen(None, &[done]);
    assert_eq!((found.stage, found.stage_since_ms), (ActivityStage::Finished, Some(9_500)));
    assert_eq!(seen(None, &[]).stage, ActivityStage::Missing);
}

#[test]
fn a_retried_activity_tells_its_earlier_failures_and_the_last_error() {
    let history = events(vec![
        started(),
        activity("Charge", None),
        failed(2, "card refused"),
        activity("Charge", None),
        failed(4, "bank closed"),
        activity("Charge", None),
    ]);
    let found = waits(&sources(&history, &[row(6)]));
    let found = only_activity(&found);
    assert_eq!((found.earlier_failures, found.last_error.as_deref()), (2, Some("bank closed")));
}

#[test]
fn a_long_history_shows_older_activities_and_timers_by_their_queue_rows() {
    let history = events(vec![started(), activity("Charge", None)]);
    let mut newest = history.clone();
    newest.iter_mut().for_each(|event| event.event_id += 9_000);
    let rows = [QueuedActivity { name: "Old".into(), ..row(17) }, row(9_002)];
    let timer = QueuedMessage {
        kind: "TimerFired".into(),
        source: Some(MessageSource { execution_id: 1, event_id: 5 }),
        delayed_until_ms: Some(77_000),
        ..QueuedMessage::default()
    };
    let found = waits(&WaitSources { messages: &[timer], ..sources(&newest, &rows) });
    let open: Vec<u64> = found.open.iter().map(|wait| wait.event_id).collect();
    assert_eq!((open, found.is_complete), (vec![5, 17, 9_002], false));
}

#[test]
fn an_instance_that_the_store_blocked_says_so_before_anything_else() {
    let history = events(vec![started(), activity("Charge", None)]);
    let found = waits(&WaitSources { blocked: Some(("too large", 5)), ..sources(&history, &[row(2)]) });
    let blocked = found.blocked.unwrap();
    assert_eq!(blocked.reason, BlockedReason::Unstorable { message: "too large".into() });
    assert_eq!((blocked.since_ms, blocked.next_try_ms), (5, None));
}

#[test]
fn an_instance_that_a_runtime_blocked_says_what_is_wrong_with_its_code() {
    let history = events(vec![started()]);
    let told = |cause| {
        let reason = BlockReason {
            cause,
            name: "Order".into(),
            version: "1.0.0".into(),
            build: "b1".into(),
            text: "event 5".into(),
        };
        let stored = reason.stored();
        waits(&WaitSources { blocked: Some((&stored, 5)), ..sources(&history, &[]) }).blocked.unwrap().reason
    };
    let message = || "event 5".to_string();
    assert_eq!(told(BlockCause::Mismatch), BlockedReason::Mismatch { message: message() });
    assert_eq!(told(BlockCause::ForeignWait), BlockedReason::ForeignWait { message: message() });
    let unregistered =
        BlockedReason::UnregisteredOrchestration { name: "Order".into(), version: Some("1.0.0".into()) };
    assert_eq!(told(BlockCause::Unregistered), unregistered);
}

#[test]
fn an_orchestration_that_no_live_worker_has_registered_is_blocked_if_it_has_messages() {
    let history = events(vec![started()]);
    let message = QueuedMessage { enqueued_at_ms: 3_000, ..QueuedMessage::default() };
    let ask = |version: Option<&'static str>, workers: &[WorkerInfo], messages: &[QueuedMessage]| {
        let orchestration = Some(("Order", version));
        waits(&WaitSources { orchestration, workers, messages, ..sources(&history, &[]) }).blocked
    };
    let messages = [message];
    assert_eq!(ask(Some("1.0.0"), &[], &messages), None, "nobody is alive: nothing is wrong with it");
    assert_eq!(ask(Some("1.0.0"), &[worker(&["Order"], &[])], &messages), None);
    assert_eq!(ask(Some("2.0.0"), &[worker(&["Order"], &[])], &[]), None, "no message waits");
    let blocked = ask(Some("2.0.0"), &[worker(&["Order"], &[])], &messages).unwrap();
    assert_eq!(blocked.since_ms, 3_000);
    assert!(blocked.reason.sentence().contains("version 2.0.0 of orchestration 'Order'"));
    assert!(ask(None, &[worker(&["Other"], &[])], &messages).is_some());
}

#[test]
fn activities_that_nobody_can_run_block_an_instance_unless_something_else_may_wake_it() {
    let ask = |kinds: Vec<(Option<u64>, EventKind)>, workers: &[WorkerInfo], obstacles: &[Obstacle]| {
        let history = events(kinds);
        waits(&WaitSources { workers, obstacles, ..sources(&history, &[row(2)]) })
            .blocked
            .map(|one| one.reason)
    };
    let able = worker(&[], &["Charge"]);
    assert_eq!(ask(vec![started(), activity("Charge", None)], std::slice::from_ref(&able), &[]), None);
    let gpu = BlockedReason::NoWorkerForTag { activity: "Charge".into(), tag: Some("gpu".into()) };
    assert_eq!(
        ask(vec![started(), activity("Charge", Some("gpu"))], std::slice::from_ref(&able), &[]),
        Some(gpu)
    );
    let unknown = BlockedReason::UnregisteredActivity { name: "Mail".into() };
    assert_eq!(ask(vec![started(), activity("Mail", None)], std::slice::from_ref(&able), &[]), Some(unknown));
    let with_timer =
        vec![started(), activity("Mail", None), (None, EventKind::TimerCreated { fire_at_ms: 99_000 })];
    assert_eq!(ask(with_timer, &[able], &[]), None);

    let mut aside = Obstacle::new("i", 1, Some(2), ObstacleKind::Unstorable, "Charge", "row too large");
    aside.next_try_ms = NOW;
    let reason =
        BlockedReason::ActivitySetAside { activity: "Charge".into(), message: "row too large".into() };
    let set_aside = vec![started(), activity("Charge", None)];
    assert_eq!(ask(set_aside.clone(), &[], &[aside.clone()]), Some(reason));
    aside.next_try_ms = 0;
    let forgotten = NOW > Obstacle::FORGOTTEN_AFTER_MS;
    assert_eq!(ask(set_aside, &[], &[aside]).is_none(), forgotten);
}

#[test]
fn a_turn_that_met_an_obstacle_tells_it_and_when_it_is_tried_again() {
    let history = events(vec![started()]);
    let mut obstacle = Obstacle::new("i", 1, None, ObstacleKind::Unregistered, "Order", "not registered");
    (obstacle.version, obstacle.since_ms, obstacle.next_try_ms) = (Some("3.0.0".into()), 4_000, NOW + 500);
    let obstacles = [obstacle];
    let messages = [QueuedMessage::default()];
    let told =
        |messages| waits(&WaitSources { obstacles: &obstacles, messages, ..sources(&history, &[]) }).blocked;
    assert_eq!(told(&[]), None, "the turn was taken since");
    let found = told(&messages).unwrap();
    let reason =
        BlockedReason::UnregisteredOrchestration { name: "Order".into(), version: Some("3.0.0".into()) };
    assert_eq!(found, Blocked { reason, since_ms: 4_000, next_try_ms: Some(NOW + 500) });
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(
        (json["kind"].as_str(), json["next_try_ms"].as_u64()),
        (Some("unregistered_orchestration"), Some(NOW + 500))
    );
}

#[test]
fn an_attempt_is_the_one_under_way_or_the_one_to_come() {
    use ActivityStage::{Awaited, Delayed, Queued, Running};
    for (stage, attempt, earlier_failures, number) in [
        (Queued, 0, 0, 1),
        (Running, 1, 0, 1),
        (Delayed, 2, 0, 3),
        (Running, 3, 0, 3),
        (Awaited, 0, 0, 1),
        (Queued, 0, 2, 3),
        (Running, 1, 2, 3),
        (Delayed, 1, 2, 4),
    ] {
        let wait = ActivityWait { stage, attempt, earlier_failures, ..ActivityWait::default() };
        assert_eq!(wait.attempt_number(), number, "{wait:?}");
    }
}
