//! The checker accepts what is sound, and names what is not.

use std::collections::BTreeMap;

use duroxide::providers::QueueDepths;
use duroxide::{Event, EventKind, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};

use super::*;
use crate::shared::program::{Ending, Forecast};

fn started() -> EventKind {
    EventKind::OrchestrationStarted {
        name: "Order".into(),
        version: "1.0.0".into(),
        input: "in".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    }
}

fn activity() -> EventKind {
    EventKind::ActivityScheduled { name: "Work".into(), input: "in".into(), session_id: None, tag: None }
}

fn events(kinds: impl IntoIterator<Item = (Option<u64>, EventKind)>) -> Vec<Event> {
    let event = |(id, (source, kind))| Event {
        timestamp_ms: 99 + id,
        ..Event::with_event_id(id, "i", 1, source, kind)
    };
    (1..).zip(kinds).map(event).collect()
}

/// What the code below records, at the times 100, 101 and so on.
fn sound_history() -> Vec<Event> {
    events([
        (None, started()),
        (None, activity()),
        (Some(2), EventKind::ActivityCompleted { result: "done".into() }),
        (None, EventKind::TimerCreated { fire_at_ms: 104 }),
        (Some(4), EventKind::TimerFired { fire_at_ms: 104 }),
        (None, EventKind::OrchestrationCompleted { output: "done".into() }),
    ])
}

fn code() -> OrchestrationRegistry {
    let run = |ctx: OrchestrationContext, input: String| async move {
        let done = ctx.schedule_activity("Work", input).await?;
        ctx.schedule_timer(std::time::Duration::from_millis(1)).await;
        Ok(done)
    };
    OrchestrationRegistry::builder().register("Order", run).build()
}

fn completed(output: &str) -> OrchestrationStatus {
    OrchestrationStatus::Completed { output: output.into(), custom_status: None, custom_status_version: 0 }
}

fn sound_end() -> Ended {
    Ended {
        statuses: BTreeMap::from([("i".to_string(), completed("done"))]),
        histories: Histories::from([(("i".to_string(), 1), sound_history())]),
        ..Ended::default()
    }
}

fn run(attempt: u32, began_ms: u64) -> Run {
    Run { instance: "i".into(), execution: 1, event: 2, attempt, began_ms: Some(began_ms) }
}

fn sound_trace() -> Trace {
    let mut forecast = Forecast::default();
    forecast.endings.insert("i".into(), Ending::Output("done".into()));
    let mut trace = Trace::default();
    trace.expect(&forecast);
    trace.note_run(run(1, 101));
    trace
}

/// The rules that are broken after a change, in order and each once.
fn broken(change: impl FnOnce(&mut Trace, &mut Ended)) -> Vec<Invariant> {
    let (mut trace, mut ended) = (sound_trace(), sound_end());
    change(&mut trace, &mut ended);
    let mut found: Vec<Invariant> =
        check(&trace, &ended, &code()).into_iter().map(|violation| violation.invariant).collect();
    found.sort();
    found.dedup();
    found
}

fn history(ended: &mut Ended) -> &mut Vec<Event> {
    ended.histories.get_mut(&("i".to_string(), 1)).unwrap()
}

#[test]
fn what_is_sound_breaks_no_rule() {
    assert_eq!(check(&sound_trace(), &sound_end(), &code()), []);
}

#[test]
fn an_acknowledged_start_that_is_gone_is_lost() {
    let gone = broken(|_, ended| *ended = Ended::default());
    assert!(gone.contains(&Invariant::NothingLost), "{gone:?}");
}

#[test]
fn a_wrong_result_and_an_instance_that_does_not_end_are_told_apart() {
    let wrong = broken(|_, ended| drop(ended.statuses.insert("i".into(), completed("other"))));
    assert_eq!(wrong, [Invariant::RightAnswer]);
    let running = OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 };
    let stuck = broken(|_, ended| drop(ended.statuses.insert("i".into(), running)));
    assert_eq!(stuck, [Invariant::Liveness]);
}

#[test]
fn a_second_completion_breaks_the_rule_of_one() {
    let doubled = broken(|_, ended| {
        let again = history(ended)[2].clone();
        history(ended).insert(3, again);
        (1..).zip(history(ended)).for_each(|(id, event)| event.event_id = id);
    });
    assert!(doubled.contains(&Invariant::OneCompletion), "{doubled:?}");
}

#[test]
fn a_step_that_an_ended_instance_waited_for_has_an_end() {
    let open = broken(|trace, ended| {
        let kinds = [
            (None, started()),
            (None, activity()),
            (None, EventKind::OrchestrationCompleted { output: "done".into() }),
        ];
        *history(ended) = events(kinds);
        *trace = Trace::default();
    });
    assert!(open.contains(&Invariant::OneCompletion), "{open:?}");
}

#[test]
fn runs_and_histories_agree() {
    let never_run = broken(|trace, _| *trace = Trace::default());
    assert_eq!(never_run, [Invariant::Ledger]);
    let after_its_end = broken(|trace, _| trace.note_run(run(2, 103)));
    assert_eq!(after_its_end, [Invariant::Ledger]);
    let not_requested = broken(|trace, _| trace.note_run(Run { event: 4, ..run(1, 101) }));
    assert_eq!(not_requested, [Invariant::Ledger]);
    let twice_before_its_end = broken(|trace, _| trace.note_run(run(2, 101)));
    assert_eq!(twice_before_its_end, []);
}

#[test]
fn a_write_of_a_replaced_holder_breaks_the_fence() {
    let mut fences = Fences::default();
    fences.granted("i", "first");
    assert_eq!(fences.accepted("first", "a turn"), None);
    fences.granted("i", "second");
    assert_eq!(fences.accepted("second", "a turn"), None);
    let stale = fences.accepted("first", "a turn").unwrap();
    assert_eq!((stale.invariant, stale.instance.as_str()), (Invariant::Fencing, "i"));
    assert_eq!(fences.accepted("unknown", "a turn"), None);
}

#[test]
fn a_history_with_a_gap_a_foreign_event_or_a_wrong_reference_is_noticed() {
    type Change = fn(&mut Vec<Event>);
    let changes: [Change; 7] = [
        |events| drop(events.remove(0)),
        |events| drop(events.remove(3)),
        |events| events[2].source_event_id = Some(4),
        |events| events[2].instance_id = "j".into(),
        |events| events[4].event_id = 9,
        |events| drop(events.pop()),
        |events| {
            let late = Event { event_id: 7, ..events[1].clone() };
            events.push(late);
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let found = broken(|_, ended| change(history(ended)));
        assert!(found.contains(&Invariant::History), "change {number}: {found:?}");
    }
}

#[test]
fn a_history_that_changes_afterwards_is_noticed() {
    let mut earlier = sound_history();
    earlier[2].kind = EventKind::ActivityCompleted { result: "other".into() };
    let found = broken(|trace, _| trace.note_history("i", 1, &earlier));
    assert_eq!(found, [Invariant::History]);
    let grown = broken(|trace, _| trace.note_history("i", 1, &sound_history()[..3]));
    assert_eq!(grown, []);
}

#[test]
fn a_history_that_the_code_would_not_make_does_not_replay() {
    let found = broken(|_, ended| {
        if let EventKind::ActivityScheduled { name, .. } = &mut history(ended)[1].kind {
            *name = "Other".into();
        }
    });
    assert_eq!(found, [Invariant::Replay]);
}

#[test]
fn what_is_left_in_a_queue_is_noticed() {
    let depths = QueueDepths { worker_queue: 1, ..QueueDepths::default() };
    assert_eq!(broken(|_, ended| ended.depths = Some(depths)), [Invariant::CleanQueues]);
}

#[test]
fn rows_set_aside_and_blocked_instances_are_noticed_where_nothing_was_damaged() {
    assert_eq!(broken(|_, ended| ended.quarantined.push("a row".into())), [Invariant::LoudFailure]);
    assert_eq!(broken(|_, ended| ended.blocked.push("an instance".into())), [Invariant::LoudFailure]);
}

#[test]
fn a_timer_that_fires_early_or_for_another_time_is_noticed() {
    let mut early = sound_history();
    early[4].timestamp_ms = 102;
    let found = check_due_times("i", &early);
    assert_eq!((found.len(), found[0].invariant, found[0].event), (1, Invariant::Timers, Some(5)));
    assert_eq!(check_due_times("i", &sound_history()), []);
    let other = broken(|_, ended| history(ended)[4].kind = EventKind::TimerFired { fire_at_ms: 103 });
    assert!(other.contains(&Invariant::Timers), "{other:?}");
}

#[test]
fn messages_out_of_order_and_twice_are_noticed() {
    let arrivals = |data: &[&str]| {
        let (mut trace, mut ended) = (Trace::default(), Ended::default());
        ["a", "b", "c"].iter().for_each(|data| trace.note_sent("i", "inbox", data));
        let arrived = |data: &&str| {
            (None, EventKind::QueueEventDelivered { name: "inbox".into(), data: (*data).into() })
        };
        let kinds = std::iter::once((None, started())).chain(data.iter().map(arrived)).collect::<Vec<_>>();
        ended.histories.insert(("i".into(), 1), events(kinds));
        history::check_queues(&trace, &ended).len()
    };
    assert_eq!((arrivals(&["a", "b", "c"]), arrivals(&["a", "b"]), arrivals(&["b"])), (0, 0, 0));
    assert_eq!((arrivals(&["b", "a"]), arrivals(&["a", "a"]), arrivals(&["x"])), (1, 1, 1));
}

#[test]
fn a_message_that_is_taken_twice_or_left_out_over_executions_is_noticed() {
    let taken = |executions: &[(usize, &[&str])]| {
        let (mut trace, mut ended) = (Trace::default(), Ended::default());
        ["a", "b", "c"].iter().for_each(|data| trace.note_sent("i", "inbox", data));
        for (execution, (takers, data)) in (1..).zip(executions) {
            let asks = (0..*takers).map(|_| (None, EventKind::QueueSubscribed { name: "inbox".into() }));
            let arrived = data.iter().map(|data| {
                (None, EventKind::QueueEventDelivered { name: "inbox".into(), data: (*data).into() })
            });
            let kinds = std::iter::once((None, started())).chain(asks).chain(arrived).collect::<Vec<_>>();
            ended.histories.insert(("i".into(), execution), events(kinds));
        }
        history::check_queues(&trace, &ended).len()
    };
    // What one execution does not take, the next one gets.
    assert_eq!(taken(&[(1, &["a", "b"]), (2, &["b", "c"])]), 0);
    assert_eq!(taken(&[(1, &["a"]), (1, &["a", "b"])]), 1);
    assert_eq!(taken(&[(1, &["a"]), (1, &["c"])]), 1);
}

#[test]
fn more_attempts_than_faults_explain_are_noticed() {
    let tried = |faults: Option<u64>, attempts: &[u32]| {
        broken(|trace, _| {
            attempts.iter().for_each(|attempt| trace.note_run(run(*attempt, 101)));
            faults.into_iter().for_each(|faults| trace.note_faults(faults));
        })
    };
    assert_eq!((tried(Some(0), &[]), tried(Some(1), &[2]), tried(None, &[2])), (vec![], vec![], vec![]));
    assert_eq!(tried(Some(0), &[2]), [Invariant::Ledger]);
    assert_eq!(tried(Some(1), &[2, 2]), [Invariant::Ledger]);
    assert_eq!(tried(Some(1), &[3]), [Invariant::Ledger]);
}

#[test]
fn what_is_held_parked_or_left_in_a_table_is_noticed() {
    assert_eq!(broken(|_, ended| ended.in_queues = 1), [Invariant::CleanQueues]);
    assert_eq!(broken(|_, ended| ended.parked = 1), [Invariant::CleanQueues]);
    let waits_for_another = broken(|trace, ended| {
        let mut forecast = Forecast::default();
        forecast.endings.insert("not there".into(), Ending::Output(String::new()));
        trace.expect(&forecast);
        ended.parked = 1;
    });
    assert_eq!(waits_for_another, [Invariant::NothingLost]);
    let dump = |text: &str| broken(|_, ended| ended.leftovers = Leftovers::of_dump(text));
    for left in [
        "session \"s\" owner=\"w\"",
        "turn \"i\" locked_until=3",
        "event \"i\"/1/1 {}",
        "kv_delta \"i\" \"k\"",
    ] {
        assert_eq!(dump(left), [Invariant::CleanQueues], "{left}");
    }
    assert_eq!(
        dump("instance \"i\" name=\"n\"\nexecution \"i\"/1 status\nevent \"i\"/1/1 {}\nkv_store \"i\" \"k\""),
        []
    );
}

#[test]
fn a_cleanup_that_was_not_done_is_noticed() {
    let with = |label: &str| {
        broken(|trace, _| {
            let mut forecast = Forecast::default();
            forecast.cleanups.insert("i".into(), vec![label.into()]);
            trace.expect(&forecast);
        })
    };
    // The input of the only activity.
    assert_eq!(with("in"), []);
    assert_eq!(with("undo"), [Invariant::RightAnswer]);
}

#[test]
fn a_run_waits_for_what_is_held() {
    assert!(sound_end().is_quiet());
    let mut held = sound_end();
    held.in_queues = 1;
    assert!(!held.is_quiet());
    let mut left = sound_end();
    left.leftovers.add("in sessions", 1);
    assert!(!left.is_quiet());
}

/// An instance that has ended properly, with an activity whose worker holds on to it: the queues that nobody holds are empty.
#[tokio::test]
async fn a_lease_that_is_kept_is_seen_in_every_way_of_counting() {
    use duroxide::providers::{ExtendedProvider, Provider, SystemClock, TagFilter, WorkItem};
    let check = async |store: std::sync::Arc<dyn Provider>, rows: &dyn Fn() -> Leftovers| {
        let item = WorkItem::ActivityExecute {
            instance: "i".into(),
            execution_id: 1,
            id: 2,
            name: "Work".into(),
            input: String::new(),
            session_id: Some("s".into()),
            tag: None,
        };
        store.enqueue_for_worker(item).await.unwrap();
        let lease = std::time::Duration::from_secs(60);
        let session = duroxide::providers::SessionFetchConfig { owner_id: "w".into(), lock_timeout: lease };
        let taken = store.fetch_work_item(lease, lease, Some(&session), &TagFilter::default()).await.unwrap();
        assert!(taken.is_some());
        let client = duroxide::Client::new(store);
        let ended =
            Ended::read(&client, &SystemClock, std::time::Duration::ZERO, async || rows()).await.unwrap();
        assert_eq!(ended.depths.as_ref().map(|depths| depths.worker_queue), Some(0));
        assert_eq!(ended.in_queues, 1);
        assert_eq!(ended.leftovers.rows().len(), 2, "{:?}", ended.leftovers);
        assert!(!ended.is_quiet());
    };
    let memory = std::sync::Arc::new(duroxide::providers::memory::MemoryProvider::new());
    assert!(memory.keeps_attempts());
    check(memory.clone(), &|| Leftovers::of_dump(&memory.dump())).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store.db");
    let url = format!("sqlite:{}?mode=rwc", file.display());
    let sqlite = duroxide::providers::sqlite::SqliteProvider::new(&url, None).await.unwrap();
    check(std::sync::Arc::new(sqlite), &|| Leftovers::of_file(&file)).await;
}

#[test]
fn a_reader_that_sees_an_instance_go_backwards_is_noticed() {
    let mut trace = Trace::default();
    let running = Look { is_known: true, has_ended: false, custom_status_version: 2 };
    trace.note_look("r", "i", running);
    trace.note_look("r", "i", Look { has_ended: true, ..running });
    assert_eq!(trace.violations(), []);
    trace.note_look("r", "i", running);
    trace.note_look("other", "i", Look::default());
    trace.note_look("r", "i", Look { custom_status_version: 1, ..running });
    trace.note_look("r", "i", Look::default());
    let found: Vec<Invariant> = trace.violations().iter().map(|violation| violation.invariant).collect();
    assert_eq!(found, [Invariant::MonotonicReads; 3]);
}

#[test]
fn a_violation_says_which_rule_whose_instance_and_which_event() {
    let violation = Violation::new(Invariant::OneCompletion, "i", "ends 2 a second time").at(7);
    assert_eq!(violation.to_string(), "I3 (OneCompletion) i event 7: ends 2 a second time");
    assert_eq!(Invariant::LoudFailure.code(), "I13");
}
