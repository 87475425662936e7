//! `corrupt`: damaged texts, histories, rows and files. Nothing panics, nothing vanishes without a word, and instances
//! beside a damaged one go on.
//!
//! Of eight seeds, five damage texts and histories (cheap, so each does a thousand), two damage a row of a file in use, in any
//! column of any table, and one damages bytes of a file. `corrupt-pg` damages rows on a server. Each kind has a figure of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, WorkItem};
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, ActivityRegistry, Client, Event, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus, RuntimeOptions,
};
use duroxide_pg::PostgresProvider;
use rusqlite::Connection;
use rusqlite::types::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::panics::{self, caught};
use crate::report::{Figures, Trial};
use crate::shared::database::{Database, connect};
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

/// The harness on a server.
pub const ON_A_SERVER: Harness = Harness {
    name: "corrupt-pg",
    about: "damaged rows on a PostgreSQL server: nothing silent, no panic, neighbours go on",
    trial: on_a_server,
    twin_trials: 4,
    ci: Tier { trials: 6, time_limit: Duration::from_secs(10) },
    nightly: Tier { trials: 4_000, time_limit: Duration::from_secs(60 * 60) },
    ..HARNESS
};

const TEXTS_OF_A_TRIAL: u64 = 1_000;
/// How long neighbours of a damaged row may take.
const SOON: Duration = Duration::from_secs(20);
/// How long a damaged instance gets to end or to be reported.
const A_WHILE: Duration = Duration::from_millis(1_500);

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let mut dice = Random::new(seed);
    match seed % 8 {
        _ if twin.is_some() => watched(|| rows(&mut dice, true)),
        0..=4 => watched(|| (texts(&mut dice), Figures::from([("texts", TEXTS_OF_A_TRIAL)]))),
        5 | 6 => watched(|| rows(&mut dice, false)),
        _ => watched(|| (file(&mut dice), Figures::from([("files", 1)]))),
    }
}

fn on_a_server(seed: u64, twin: Option<&str>) -> Trial {
    let mut dice = Random::new(seed);
    watched(|| rows_on_a_server(&mut dice, twin.is_some()))
}

/// Runs a trial, in which nothing may panic.
fn watched(trial: impl FnOnce() -> (Vec<Violation>, Figures)) -> Trial {
    panics::watch();
    let before = panics::count();
    let (mut violations, figures) =
        caught(trial).unwrap_or_else(|panic| (vec![panic], Figures::from([("panics", 1)])));
    // A panic on another thread, or in a task, is not caught above.
    if panics::count() > before && violations.is_empty() {
        violations.push(Violation::of_store(Invariant::LoudFailure, "something panicked"));
    }
    Trial::new(violations, figures)
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

/// Texts that were damaged decode to something that encodes and decodes again, or do not; histories replay as the code
/// decides, or do not; nothing panics.
fn texts(dice: &mut Random) -> Vec<Violation> {
    let (code, history) = (code(), history());
    let mut found = Vec::new();
    let mut wrong = |what: &str, bytes: &[u8]| {
        let what = format!("{what}: {}", String::from_utf8_lossy(bytes));
        found.push(Violation::of_store(Invariant::LoudFailure, what));
    };
    for _ in 0..TEXTS_OF_A_TRIAL {
        if dice.below(3) == 0 {
            let message = MESSAGES[dice.below(MESSAGES.len() as u64) as usize];
            let bytes = damaged(message.as_bytes(), dice);
            if !comes_back::<WorkItem>(&bytes) {
                wrong("a message decodes, and is another one when it is encoded and decoded again", &bytes);
            }
            continue;
        }
        let bytes = match dice.below(2) {
            0 => damaged(history.as_bytes(), dice),
            _ => rearranged(&history, dice).into_bytes(),
        };
        if !comes_back::<Vec<Event>>(&bytes) {
            wrong("events decode, and are others when they are encoded and decoded again", &bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let replayed = duroxide::testing::replay([&text], &code);
        if replayed.is_ok_and(|executions| executions > 0) && !is_as_decided(&text) {
            wrong("a history replays, but the code does not decide so", &bytes);
        }
    }
    found
}

/// Tells whether a text does not decode, or decodes to what encodes to a text that decodes to the same.
fn comes_back<T: DeserializeOwned + Serialize + PartialEq>(bytes: &[u8]) -> bool {
    let Ok(decoded) = serde_json::from_slice::<T>(bytes) else { return true };
    let again = serde_json::to_string(&decoded).ok().and_then(|text| serde_json::from_str::<T>(&text).ok());
    again.is_some_and(|again| again == decoded)
}

/// Tells whether what a history asked for is what the code asks for, in this order, as far as the history goes. Of several
/// executions in one text, each is looked at.
fn is_as_decided(text: &str) -> bool {
    let Ok(events) = serde_json::from_str::<Vec<Event>>(text) else { return true };
    let executions: BTreeSet<(&str, u64)> =
        events.iter().map(|event| (event.instance_id.as_str(), event.execution_id)).collect();
    executions.into_iter().all(|execution| {
        let of_execution = |event: &&Event| (event.instance_id.as_str(), event.execution_id) == execution;
        let mut events: Vec<&Event> = events.iter().filter(of_execution).collect();
        // The numbers say in which order a store returns them.
        events.sort_by_key(|event| event.event_id);
        let (mut input, mut asked) = (String::new(), Vec::new());
        for event in events {
            match &event.kind {
                EventKind::OrchestrationStarted { input: text, .. } => input.clone_from(text),
                EventKind::ExternalSubscribed { name } => asked.push(format!("signal {name}")),
                EventKind::QueueSubscribed { name } => asked.push(format!("queue {name}")),
                EventKind::ActivityScheduled { name, input, .. } => asked.push(format!("{name} {input}")),
                EventKind::TimerCreated { .. } => asked.push("timer".to_string()),
                _ => {}
            }
        }
        let decided =
            ["signal go", "queue inbox", &format!("Echo {input}1"), "timer", &format!("Echo {input}2")];
        asked.len() <= decided.len() && asked.iter().zip(decided).all(|(asked, decided)| asked == decided)
    })
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

/// The columns whose damage has to show: it ends the instance or is reported. What is wrong in others, such as a key or a time,
/// may be a row that is not there any more, or not yet: then the instance waits, and nothing else is harmed.
const TEXTS: [(&str, &str); 5] = [
    ("orchestrator_queue", "work_item"),
    ("worker_queue", "work_item"),
    ("history", "event_data"),
    ("instances", "custom_status"),
    ("kv_store", "value"),
];

/// Many tables are empty, and a database refuses much: look for another place so many times.
const MOST_LOOKS: usize = 20;

/// What was damaged.
struct Damage {
    /// The instance of the row; empty if the row is of no instance.
    instance: String,
    /// It has to show.
    is_loud: bool,
    /// The text means something else now, so the output may be another one.
    is_another_text: bool,
    /// For people.
    what: String,
}

/// A value that stands in no row of that column.
fn damaged_value(value: &Value, dice: &mut Random) -> Value {
    let number = [0, -1, 1, 7, i64::MAX, i64::MIN][dice.below(6) as usize];
    match value {
        _ if dice.below(12) == 0 => Value::Null,
        Value::Integer(before) => Value::Integer(match dice.below(3) {
            0 => before.wrapping_add(1),
            1 => before.wrapping_sub(1),
            _ => number,
        }),
        Value::Text(text) => {
            Value::Text(String::from_utf8_lossy(&damaged(text.as_bytes(), dice)).into_owned())
        }
        Value::Blob(bytes) => Value::Blob(damaged(bytes, dice)),
        _ => [Value::Integer(number), Value::Text("x".into())][dice.below(2) as usize].clone(),
    }
}

/// Tells whether a damaged text of a queue or a history still decodes.
fn decodes(table: &str, text: &str) -> bool {
    match table {
        "history" => serde_json::from_str::<Event>(text).is_ok(),
        "orchestrator_queue" | "worker_queue" => serde_json::from_str::<WorkItem>(text).is_ok(),
        // Nothing of the output depends on what stands there.
        _ => false,
    }
}

/// Damages one row of a file with instances in the middle of their work, and lets a runtime go on with it.
fn rows(dice: &mut Random, drops_silently: bool) -> (Vec<Violation>, Figures) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let url = format!("sqlite:{}?mode=rwc", path.display());
        prepare(Arc::new(SqliteProvider::new(&url, None).await.unwrap())).await;
        let connection = Connection::open(&path).unwrap();
        let damage = match drops_silently {
            // A twin of the store that leaves out what it cannot decode.
            true => {
                let delete = "DELETE FROM orchestrator_queue WHERE rowid = (
                    SELECT rowid FROM orchestrator_queue WHERE instance_id = 'victim' LIMIT 1)";
                let deleted = connection.execute(delete, []).unwrap();
                (deleted > 0).then(|| Damage {
                    instance: "victim".into(),
                    is_loud: true,
                    is_another_text: false,
                    what: "a message is gone".into(),
                })
            }
            false => (0..MOST_LOOKS).find_map(|_| damaged_row(&connection, dice)),
        };
        drop(connection);
        let Some(damage) = damage else { return (Vec::new(), Figures::from([("refused_damage", 1)])) };
        let figures = Figures::from([("rows", 1)]);
        match SqliteProvider::new(&url, None).await {
            Ok(store) => (go_on(Arc::new(store), &damage).await, figures),
            // A refusal with a reason is loud.
            Err(_) => (Vec::new(), figures),
        }
    })
}

/// Damages a value of any column of any table, of the victim if the row has an owner; `None` if the database would not
/// take it, or there is no such row.
fn damaged_row(connection: &Connection, dice: &mut Random) -> Option<Damage> {
    let names = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let tables = names(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name",
    );
    // Texts are where most is.
    let (table, column) = match dice.below(3) {
        0 => {
            let (table, column) = TEXTS[dice.below(TEXTS.len() as u64) as usize];
            (table.to_string(), column.to_string())
        }
        _ => {
            let table = tables[dice.below(tables.len() as u64) as usize].clone();
            let columns = names(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid"));
            let column = columns[dice.below(columns.len() as u64) as usize].clone();
            (table, column)
        }
    };
    let keys = names(&format!("SELECT name FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk"));
    let has_owner =
        names(&format!("SELECT name FROM pragma_table_info('{table}')")).contains(&"instance_id".to_string());
    let of_victim = if has_owner { "WHERE instance_id = 'victim'" } else { "" };
    let key_list = if keys.is_empty() { "rowid".to_string() } else { keys.join(", ") };
    let count: i64 = connection
        .query_row(&format!("SELECT count(*) FROM {table} {of_victim}"), [], |row| row.get(0))
        .unwrap();
    let offset = dice.below(count.max(1) as u64);
    let select = format!(
        "SELECT {column}, {key_list} FROM {table} {of_victim} ORDER BY {key_list} LIMIT 1 OFFSET {offset}"
    );
    let row: Option<Vec<Value>> = connection
        .query_row(&select, [], |row| {
            (0..row.as_ref().column_count()).map(|column| row.get(column)).collect()
        })
        .ok();
    let row = row?;
    let value = damaged_value(&row[0], dice);
    let place: Vec<String> =
        key_list.split(", ").enumerate().map(|(n, key)| format!("{key} IS ?{}", n + 2)).collect();
    let update = format!("UPDATE {table} SET {column} = ?1 WHERE {}", place.join(" AND "));
    let parameters: Vec<&Value> = std::iter::once(&value).chain(&row[1..]).collect();
    connection.execute(&update, rusqlite::params_from_iter(parameters)).ok()?;
    Some(described(&table, &column, has_owner, &value))
}

fn described(table: &str, column: &str, has_owner: bool, value: &Value) -> Damage {
    let text = if let Value::Text(text) = value { text.as_str() } else { "" };
    let is_text = TEXTS.contains(&(table, column));
    Damage {
        instance: if has_owner { "victim".into() } else { String::new() },
        is_loud: is_text,
        is_another_text: is_text && decodes(table, text),
        what: format!("{table}.{column}: {value:?}"),
    }
}

/// The same on a server.
fn rows_on_a_server(dice: &mut Random, drops_silently: bool) -> (Vec<Violation>, Figures) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::new().await;
        let open = async || PostgresProvider::new(database.url()).await;
        prepare(Arc::new(open().await.unwrap())).await;
        let direct = connect(database.url()).await;
        let damage = match drops_silently {
            true => {
                let delete = "DELETE FROM duroxide.orchestrator_queue WHERE id = (
                    SELECT min(id) FROM duroxide.orchestrator_queue WHERE instance_id = 'victim')";
                let delete = delete.replace("duroxide.", &format!("{}.", schema_of(&direct).await));
                direct.batch_execute(&delete).await.unwrap();
                let what = "a message is gone".to_string();
                Some(Damage { instance: "victim".into(), is_loud: true, is_another_text: false, what })
            }
            false => {
                let mut damage = None;
                for _ in 0..MOST_LOOKS {
                    damage = match damage {
                        None => damaged_row_on_a_server(&direct, dice).await,
                        damage => damage,
                    };
                }
                damage
            }
        };
        let Some(damage) = damage else { return (Vec::new(), Figures::from([("refused_damage", 1)])) };
        let figures = Figures::from([("rows_on_a_server", 1)]);
        match open().await {
            Ok(store) => (go_on(Arc::new(store), &damage).await, figures),
            Err(_) => (Vec::new(), figures),
        }
    })
}

/// The schema of the store in this database.
async fn schema_of(direct: &tokio_postgres::Client) -> String {
    let sql = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'orchestrator_queue'";
    direct.query_one(sql, &[]).await.unwrap().get(0)
}

async fn damaged_row_on_a_server(direct: &tokio_postgres::Client, dice: &mut Random) -> Option<Damage> {
    let schema = schema_of(direct).await;
    let sql = "SELECT c.table_name::text, c.column_name::text, c.data_type::text,
            EXISTS (SELECT 1 FROM information_schema.columns o WHERE o.table_schema = c.table_schema
                AND o.table_name = c.table_name AND o.column_name = 'instance_id')
        FROM information_schema.columns c
        JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
        WHERE c.table_schema = $1 AND t.table_type = 'BASE TABLE' ORDER BY c.table_name, c.ordinal_position";
    let columns = direct.query(sql, &[&schema]).await.unwrap();
    let row = &columns[dice.below(columns.len() as u64) as usize];
    let (mut table, mut column, mut kind, mut has_owner): (String, String, String, bool) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    if dice.below(2) == 0 {
        let (text_table, text_column) = TEXTS[dice.below(TEXTS.len() as u64) as usize];
        (table, column, kind, has_owner) = (text_table.into(), text_column.into(), "text".into(), true);
    }
    let of_victim = if has_owner { "WHERE instance_id = 'victim'" } else { "" };
    let count = format!("SELECT count(*) FROM {schema}.{table} {of_victim}");
    let count: i64 = direct.query_one(&count, &[]).await.unwrap().get(0);
    let offset = dice.below(count.max(1) as u64);
    let select = format!(
        "SELECT {column}::text, ctid::text FROM {schema}.{table} {of_victim} ORDER BY ctid LIMIT 1 OFFSET {offset}"
    );
    let row = direct.query_opt(&select, &[]).await.unwrap()?;
    let before: Option<String> = row.get(0);
    let place: String = row.get(1);
    let before = match (kind.as_str(), before) {
        ("bigint" | "integer", Some(text)) => Value::Integer(text.parse().unwrap_or(0)),
        (_, Some(text)) => Value::Text(text),
        (_, None) => Value::Null,
    };
    let value = damaged_value(&before, dice);
    let text = match &value {
        Value::Null => None,
        Value::Integer(number) => Some(number.to_string()),
        // The server keeps no NUL in a text.
        Value::Text(text) => Some(text.replace('\0', "?")),
        other => unreachable!("{other:?} was never read"),
    };
    let update =
        format!("UPDATE {schema}.{table} SET {column} = ($1::text)::{kind} WHERE ctid = ($2::text)::tid");
    direct.execute(&update, &[&text, &place]).await.ok()?;
    Some(described(&table, &column, has_owner, &value))
}

/// Two instances in the middle of their work, with messages that wait.
async fn prepare(store: Arc<dyn Provider>) {
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

/// Lets a runtime go on with a damaged store: the neighbour ends, and the victim ends as it should, or somebody says why not.
async fn go_on(store: Arc<dyn Provider>, damage: &Damage) -> Vec<Violation> {
    const OUTPUT: &str = "x1 gone m x2";
    let loud = |what: String| {
        Violation::new(Invariant::LoudFailure, &damage.instance, format!("{what}; damaged: {}", damage.what))
    };
    let client = Client::new(store.clone());
    let options = RuntimeOptions { max_attempts: 3, ..RuntimeOptions::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities(), code(), options).await;
    let mut found = Vec::new();
    let neighbour = client.wait_for_orchestration("neighbour", SOON).await;
    // Of a row that is of no instance, the neighbour may have its part; then it must not end wrongly.
    let is_right = match &neighbour {
        Ok(OrchestrationStatus::Completed { output, .. }) => output == OUTPUT,
        _ => damage.instance.is_empty(),
    };
    if !is_right {
        let (depths, waits) = (client.get_queue_depths().await, client.waits("neighbour").await);
        let aside = client.list_quarantined(0, 10).await;
        let blocked = client.list_blocked_instances(10).await;
        found.push(loud(format!(
            "the neighbour did not go on: {neighbour:?}, {depths:?}, {waits:?}, set aside {aside:?}, {blocked:?}"
        )));
    }
    let victim = if damage.instance.is_empty() { "victim" } else { damage.instance.as_str() };
    let ended = client.wait_for_orchestration(victim, A_WHILE).await;
    let is_told = match &ended {
        Ok(OrchestrationStatus::Completed { output, .. }) => damage.is_another_text || output == OUTPUT,
        Ok(OrchestrationStatus::Failed { .. }) => true,
        Ok(_) => false,
        // It does not end in time: then it must be said why.
        Err(duroxide::ClientError::Timeout) if damage.is_loud && !damage.is_another_text => {
            let aside = client.list_quarantined(0, 10).await.map_or(1, |rows| rows.len());
            let blocked = client.list_blocked_instances(10).await.map_or(1, |rows| rows.len());
            aside + blocked > 0 || store.read(victim).await.is_err()
        }
        Err(_) => true,
    };
    if !is_told {
        found.push(loud(format!("ends wrongly, or neither ends nor is reported: {ended:?}")));
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
        prepare(Arc::new(SqliteProvider::new(&url, None).await.unwrap())).await;
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
