//! `corrupt`: damaged texts, histories, rows and files. Nothing panics, nothing vanishes without a word, and instances
//! beside a damaged one go on.
//!
//! Of eight seeds, five damage texts and histories (cheap, so each does a thousand), two damage a row of a file in use, and
//! one damages bytes of a file.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, WorkItem};
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, ActivityRegistry, Client, Event, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus, RuntimeOptions,
};
use rusqlite::Connection;

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::panics::{self, caught};
use crate::report::{Figures, Trial};
use crate::shared::random::Random;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "corrupt",
    about: "damaged texts, histories, rows and files: nothing silent, no panic, neighbours go on",
    trial,
    twins: &["drops-undecodable"],
    twin_trials: 4,
    ci: Tier { trials: 120, time_limit: Duration::from_secs(25) },
    nightly: Tier { trials: 40_000, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: false,
};

const TEXTS_OF_A_TRIAL: u64 = 1_000;
/// How long neighbours of a damaged row may take.
const SOON: Duration = Duration::from_secs(20);
/// How long a damaged instance gets to end or to be reported.
const A_WHILE: Duration = Duration::from_millis(1_500);

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    panics::watch();
    let before = panics::count();
    let mut dice = Random::new(seed);
    let (figure, inputs, found) = match seed % 8 {
        _ if twin.is_some() => ("rows", 1, caught(|| rows(&mut dice, true))),
        0..=4 => ("texts", TEXTS_OF_A_TRIAL, caught(|| texts(&mut dice))),
        5 | 6 => ("rows", 1, caught(|| rows(&mut dice, false))),
        _ => ("files", 1, caught(|| file(&mut dice))),
    };
    let mut violations = found.unwrap_or_else(|panic| vec![panic]);
    // A panic on another thread, or in a task, is not caught above.
    if panics::count() > before && violations.is_empty() {
        violations.push(Violation::of_store(Invariant::LoudFailure, "something panicked"));
    }
    Trial::new(violations, Figures::from([("inputs", inputs), (figure, inputs)]))
}

pub(crate) fn code() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Order", |ctx: OrchestrationContext, input: String| async move {
            ctx.set_custom_status("begun");
            ctx.set_kv_value("k", "v");
            // A signal that comes before anybody waits for it is not kept.
            let (go, message) = (ctx.schedule_wait("go"), ctx.dequeue_event("inbox"));
            let first = ctx.schedule_activity("Echo", format!("{input}1")).await?;
            ctx.schedule_timer(Duration::from_millis(1)).await;
            let (go, message) = (go.await, message.await);
            let last = ctx.schedule_activity("Echo", format!("{input}2")).await?;
            Ok(format!("{first} {go} {message} {last}"))
        })
        .build()
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
        .build()
}

/// A history of the code above, as it is stored.
pub(crate) fn history() -> String {
    let started = EventKind::OrchestrationStarted {
        name: "Order".into(),
        version: "1.0.0".into(),
        input: "x".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let echo = |input: &str| EventKind::ActivityScheduled {
        name: "Echo".into(),
        input: input.into(),
        session_id: None,
        tag: None,
    };
    let kinds = [
        (None, started),
        (None, EventKind::CustomStatusUpdated { status: Some("begun".into()) }),
        (None, EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 1 }),
        (None, EventKind::ExternalSubscribed { name: "go".into() }),
        (None, EventKind::QueueSubscribed { name: "inbox".into() }),
        (None, echo("x1")),
        (Some(6), EventKind::ActivityCompleted { result: "x1".into() }),
        (None, EventKind::TimerCreated { fire_at_ms: 2 }),
        (Some(8), EventKind::TimerFired { fire_at_ms: 2 }),
        (None, EventKind::ExternalEvent { name: "go".into(), data: "gone".into() }),
        (None, EventKind::QueueEventDelivered { name: "inbox".into(), data: "m".into() }),
        (None, echo("x2")),
    ];
    let event =
        |(id, (source, kind))| Event { timestamp_ms: 1, ..Event::with_event_id(id, "i", 1, source, kind) };
    let events: Vec<Event> = (1..).zip(kinds).map(event).collect();
    serde_json::to_string(&events).unwrap()
}

const MESSAGES: [&str; 4] = [
    r#"{"StartOrchestration":{"instance":"i","orchestration":"Order","input":"x","version":"1.0.0","execution_id":1}}"#,
    r#"{"ActivityExecute":{"instance":"i","execution_id":1,"id":4,"name":"Echo","input":"x1"}}"#,
    r#"{"TimerFired":{"instance":"i","execution_id":1,"id":6,"fire_at_ms":2}}"#,
    r#"{"QueueMessage":{"instance":"i","name":"inbox","data":"m"}}"#,
];

/// Texts that were damaged decode or do not; histories replay or do not; nothing panics.
fn texts(dice: &mut Random) -> Vec<Violation> {
    let (code, history) = (code(), history());
    for _ in 0..TEXTS_OF_A_TRIAL {
        if dice.below(3) == 0 {
            let message = MESSAGES[dice.below(MESSAGES.len() as u64) as usize];
            let _ = serde_json::from_slice::<WorkItem>(&damaged(message.as_bytes(), dice));
            continue;
        }
        let bytes = match dice.below(2) {
            0 => damaged(history.as_bytes(), dice),
            _ => rearranged(&history, dice).into_bytes(),
        };
        let _ = serde_json::from_slice::<Vec<Event>>(&bytes);
        let _ = duroxide::testing::replay([String::from_utf8_lossy(&bytes)], &code);
    }
    Vec::new()
}

/// Damages some bytes: flips, cuts, doubles, exchanges numbers.
pub(crate) fn damaged(bytes: &[u8], dice: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + dice.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = dice.below(bytes.len() as u64) as usize;
        match dice.below(6) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes.truncate(at),
            2 => bytes[at] = dice.below(256) as u8,
            3 => {
                let end = (at + dice.below(40) as usize).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let end = (at + dice.below(40) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let numbers: [&[u8]; 4] = [b"-1", b"18446744073709551616", b"1e400", b"null"];
                bytes.splice(at..at, numbers[dice.below(4) as usize].iter().copied());
            }
        }
    }
    bytes
}

/// Leaves every event whole, and gets their order, number, references or fields wrong.
fn rearranged(history: &str, dice: &mut Random) -> String {
    let mut events: Vec<serde_json::Value> = serde_json::from_str(history).unwrap();
    for _ in 0..1 + dice.below(3) {
        let (one, other) =
            (dice.below(events.len() as u64) as usize, dice.below(events.len() as u64) as usize);
        match dice.below(6) {
            0 => events.swap(one, other),
            1 if events.len() > 1 => drop(events.remove(one)),
            2 => {
                let copy = events[one].clone();
                events.insert(other, copy);
            }
            3 => events[one]["source_event_id"] = dice.below(20).into(),
            4 => events[one]["event_id"] = [0, 1, 7, u64::MAX][dice.below(4) as usize].into(),
            _ => {
                let kind = events[other]["type"].clone();
                events[one]["type"] = kind;
            }
        }
    }
    serde_json::to_string(&events).unwrap()
}

/// The columns whose damage has to show, and the instance of a row.
const COLUMNS: [(&str, &str); 4] = [
    ("orchestrator_queue", "work_item"),
    ("worker_queue", "work_item"),
    ("history", "event_data"),
    ("instances", "custom_status"),
];

/// Damages one row of a file with instances in the middle of their work, and lets a runtime go on with it.
fn rows(dice: &mut Random, drops_silently: bool) -> Vec<Violation> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let url = format!("sqlite:{}?mode=rwc", path.display());
        prepare(&url).await;
        let (table, column) = match drops_silently {
            true => COLUMNS[0],
            false => COLUMNS[dice.below(COLUMNS.len() as u64) as usize],
        };
        let connection = Connection::open(&path).unwrap();
        let victim: Option<(i64, String, Vec<u8>)> = connection
            .query_row(
                &format!(
                    "SELECT rowid, instance_id, CAST({column} AS BLOB) FROM {table} WHERE instance_id = 'victim' \
                     LIMIT 1 OFFSET {}",
                    dice.below(2)
                ),
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .ok();
        let Some((row, instance, bytes)) = victim else { return Vec::new() };
        let bytes = damaged(&bytes, dice);
        match drops_silently {
            // A twin of the store that leaves out what it cannot decode.
            true => connection.execute(&format!("DELETE FROM {table} WHERE rowid = ?1"), [row]).unwrap(),
            false => connection
                .execute(
                    &format!("UPDATE {table} SET {column} = CAST(?1 AS TEXT) WHERE rowid = ?2"),
                    rusqlite::params![bytes, row],
                )
                .unwrap(),
        };
        drop(connection);
        go_on(&url, &instance, &format!("{table}.{column}: {}", String::from_utf8_lossy(&bytes))).await
    })
}

/// Two instances in the middle of their work, with messages that wait.
async fn prepare(url: &str) {
    let store = Arc::new(SqliteProvider::new(url, None).await.unwrap());
    let client = Client::new(store.clone());
    let options = RuntimeOptions { worker_concurrency: 0, ..RuntimeOptions::default() };
    let runtime = Runtime::start_with_options(store, activities(), code(), options).await;
    for instance in ["victim", "neighbour"] {
        client.start_orchestration(instance, "Order", "x").await.unwrap();
        let begun = client.wait_for_status_change(instance, 0, Duration::from_millis(5), SOON).await;
        assert!(matches!(begun, Ok(OrchestrationStatus::Running { .. })), "{begun:?}");
    }
    runtime.shutdown(Some(0)).await;
    for instance in ["victim", "neighbour"] {
        client.enqueue_event(instance, "inbox", "m").await.unwrap();
        client.raise_event(instance, "go", "gone").await.unwrap();
    }
}

/// Lets a runtime go on with a damaged file: the neighbour ends, and the victim ends or somebody says why not.
async fn go_on(url: &str, victim: &str, damage: &str) -> Vec<Violation> {
    let loud =
        |what: String| Violation::new(Invariant::LoudFailure, victim, format!("{what}; damaged: {damage}"));
    let store = match SqliteProvider::new(url, None).await {
        Ok(store) => Arc::new(store),
        // A refusal with a reason is loud.
        Err(_) => return Vec::new(),
    };
    let client = Client::new(store.clone());
    let options = RuntimeOptions { max_attempts: 3, ..RuntimeOptions::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities(), code(), options).await;
    let mut found = Vec::new();
    let neighbour = client.wait_for_orchestration("neighbour", SOON).await;
    if !matches!(&neighbour, Ok(OrchestrationStatus::Completed { output, .. }) if output == "x1 gone m x2") {
        let (depths, waits) = (client.get_queue_depths().await, client.waits("neighbour").await);
        let aside = client.list_quarantined(0, 10).await;
        let blocked = client.list_blocked_instances(10).await;
        found.push(loud(format!(
            "the neighbour did not go on: {neighbour:?}, {depths:?}, {waits:?}, set aside {aside:?}, {blocked:?}"
        )));
    }
    let ended = client.wait_for_orchestration(victim, A_WHILE).await;
    let is_told = match &ended {
        Ok(OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. }) => true,
        Ok(_) => false,
        // It does not end in time: then it must be said why.
        Err(duroxide::ClientError::Timeout) => {
            let aside = client.list_quarantined(0, 10).await.map_or(1, |rows| rows.len());
            let blocked = client.list_blocked_instances(10).await.map_or(1, |rows| rows.len());
            aside + blocked > 0 || store.read(victim).await.is_err()
        }
        Err(_) => true,
    };
    if !is_told {
        found.push(loud(format!("neither ends nor is reported: {ended:?}")));
    }
    runtime.shutdown(Some(0)).await;
    found
}

/// Damages bytes of a file: whatever the store says, it does not panic, and it does not hang.
fn file(dice: &mut Random) -> Vec<Violation> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let url = format!("sqlite:{}?mode=rwc", path.display());
        prepare(&url).await;
        let mut bytes = std::fs::read(&path).unwrap();
        for _ in 0..1 + dice.below(30) {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = dice.below(256) as u8;
        }
        if dice.below(5) == 0 {
            bytes.truncate(dice.below(bytes.len() as u64) as usize);
        }
        std::fs::write(&path, bytes).unwrap();
        let Ok(store) = SqliteProvider::new(&url, None).await else { return Vec::new() };
        let client = Client::new(Arc::new(store));
        let work = async {
            let _ = client.list_all_instances().await;
            let _ = client.get_orchestration_status("victim").await;
            let _ = client.read_execution_history("victim", 1).await;
            let _ = client.start_orchestration("new", "Order", "x").await;
            let _ = client.get_queue_depths().await;
        };
        match tokio::time::timeout(SOON, work).await {
            Ok(()) => Vec::new(),
            Err(_) => vec![Violation::of_store(Invariant::LoudFailure, "a call on a damaged file hangs")],
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_that_is_damaged_is_sound_at_first() {
        assert_eq!(duroxide::testing::replay([history()], &code()).unwrap(), 1);
        MESSAGES.iter().for_each(|message| drop(serde_json::from_str::<WorkItem>(message).unwrap()));
    }
}
