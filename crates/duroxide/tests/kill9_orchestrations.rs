//! Orchestrations of random shape finish with the right result, and no step runs again after the history recorded its
//! end, however often the test kills the worker process (SIGKILL) and starts it again.
//!
//! Programs come from a seed; an interpreter predicts how each ends. The worker is this test binary, started again.
//! `KILL9_INSTANCES`, `KILL9_KILLS` and `KILL9_SEED` scale the run and repeat one. The test counts the moments of kills
//! in the worker's progress, so the seed decides where a kill hits, but not to the instruction.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

mod kill9;

use std::path::Path;
use std::sync::Arc;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Clock, SystemClock};
use duroxide::{Event, EventKind};
use kill9::check::{Entry, Histories, check_history, check_ledger};
use kill9::torture::{CHILD_FILE, CHILD_LEDGER, CHILD_ROUND, Plan, Torture, url};

/// The worker's side: not a test by itself.
#[test]
fn child_works_until_it_is_killed() {
    let Ok(file) = std::env::var(CHILD_FILE) else { return };
    let ledger = std::env::var(CHILD_LEDGER).unwrap();
    let round = std::env::var(CHILD_ROUND).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteProvider::new(&url(&file), None).await.unwrap();
        kill9::worker::work(Arc::new(store), Path::new(&ledger), round, false).await;
    });
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn killed_again_and_again_all_finish_right_and_nothing_recorded_runs_again() {
    let seed = setting("KILL9_SEED", SystemClock.now_ms());
    let plan = Plan {
        instances: setting("KILL9_INSTANCES", 120) as usize,
        kills: setting("KILL9_KILLS", 6) as usize,
        seed,
    };
    eprintln!("{plan:?}");
    match Torture::new(plan).run() {
        Ok(figures) => eprintln!("{figures}"),
        Err(faults) => panic!("{faults}"),
    }
}

/// A history of an activity, a timer and a cancelled activity, made at the times 100, 101 and so on.
fn sound_history() -> Vec<Event> {
    let activity = || EventKind::ActivityScheduled {
        name: "Work".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    let kinds = [
        (None, started()),
        (None, activity()),
        (None, EventKind::TimerCreated { fire_at_ms: 104 }),
        (Some(2), EventKind::ActivityCompleted { result: String::new() }),
        (Some(3), EventKind::TimerFired { fire_at_ms: 104 }),
        (None, activity()),
        (None, EventKind::OrchestrationCompleted { output: String::new() }),
        (Some(6), EventKind::ActivityCancelRequested { reason: String::new() }),
    ];
    let event = |(id, (source, kind))| Event {
        timestamp_ms: 99 + id,
        ..Event::with_event_id(id, "i", 1, source, kind)
    };
    (1..).zip(kinds).map(event).collect()
}

fn started() -> EventKind {
    EventKind::OrchestrationStarted {
        name: "Program".into(),
        version: "1.0.0".into(),
        input: String::new(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    }
}

fn faults(change: impl FnOnce(&mut Vec<Event>)) -> Vec<String> {
    let mut events = sound_history();
    change(&mut events);
    check_history(&("i".into(), 1), &events)
}

#[test]
fn the_checker_accepts_a_sound_history() {
    assert_eq!(faults(|_| {}), Vec::<String>::new());
}

#[test]
fn the_checker_notices_a_history_that_was_tampered_with() {
    type Change = fn(&mut Vec<Event>);
    let changes: [(Change, &str); 8] = [
        (|events| drop(events.remove(0)), "does not begin"),
        (|events| drop(events.remove(4)), "where 5 should be"),
        (|events| events[3].source_event_id = Some(3), "which it cannot"),
        (|events| events[3].source_event_id = Some(6), "which it cannot"),
        (|events| events[4] = Event { event_id: 5, ..events[3].clone() }, "a second time"),
        (|events| events[4].timestamp_ms = 103, "fired at 103"),
        (|events| drop(events.pop()), "has no end"),
        (|events| events[7] = Event { event_id: 8, ..events[2].clone() }, "after the end"),
    ];
    for (change, expected) in changes {
        let faults = faults(change);
        assert!(faults.iter().any(|fault| fault.contains(expected)), "{expected}: {faults:?}");
    }
}

#[test]
fn the_checker_notices_steps_that_ran_when_they_should_not() {
    let histories = Histories::from([(("i".to_string(), 1), sound_history())]);
    let check = |lines: &[&str]| {
        let ledger: Vec<Entry> = lines.iter().map(|line| Entry::parse(line).unwrap()).collect();
        check_ledger(&ledger, &histories).join("\n")
    };
    assert_eq!(check(&["begin 102 i 1 2 1", "end 102 i 1 2 1", "begin 103 i 1 2 2"]), "");
    let again = check(&["begin 102 i 1 2 1", "begin 104 i 1 2 2"]);
    assert!(again.contains("was run again (attempt 2) 1 ms after"), "{again}");
    assert!(check(&[]).contains("was never run"));
    let unknown = check(&["begin 102 i 1 2 1", "begin 102 i 1 3 1"]);
    assert!(unknown.contains("not recorded as requested"), "{unknown}");
}

#[test]
fn the_ledger_does_not_take_half_lines() {
    assert!(Entry::parse("begin 102 i 1 2 1").is_some());
    for half in ["", "begin", "begin 102 i 1 2", "begin 102 i 1 2 1 1", "gin 102 i 1 2 1"] {
        assert!(Entry::parse(half).is_none(), "{half}");
    }
}
