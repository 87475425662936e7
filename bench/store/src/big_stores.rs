//! Stores with a lot in them that a fetch must not notice, made with bulk SQL in the store's own tables.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Clock, Provider, SystemClock, WorkItem};

use crate::load::open;
use crate::stats::now;
use crate::{Outcome, life};

const MONTH_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
const HOUR: Duration = Duration::from_secs(60 * 60);

/// What a store is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filling {
    Nothing,
    SleepingTimers,
    MessagesOfLeased,
    Finished,
    OtherTag,
    UnknownInstances,
}

/// The stores that are measured: name, filling, number.
pub const STORES: [(&str, Filling, u64); 7] = [
    ("empty", Filling::Nothing, 0),
    ("timers-1k", Filling::SleepingTimers, 1_000),
    ("timers-1m", Filling::SleepingTimers, 1_000_000),
    ("leased-100k", Filling::MessagesOfLeased, 100_000),
    ("finished-1m", Filling::Finished, 1_000_000),
    ("other-tag-100k", Filling::OtherTag, 100_000),
    ("unknown-100k", Filling::UnknownInstances, 100_000),
];

/// A store and how long the first fetch took, which may have to tidy up.
pub struct Filled {
    pub store: Arc<SqliteProvider>,
    pub first_fetch: Duration,
}

pub async fn make(dir: &Path, name: &str, filling: Filling, rows: u64) -> Outcome<Filled> {
    let store = open(&dir.join(format!("{name}.db"))).await?;
    if filling == Filling::MessagesOfLeased {
        store.enqueue_for_orchestrator(life::start("busy"), None).await?;
        store.fetch_orchestration_item(24 * HOUR, Duration::ZERO, None).await?.ok_or("nothing to lease")?;
    }
    for sql in statements(filling, rows)? {
        store.execute_sql(&sql).await?;
    }
    store.checkpoint().await?;
    let began = now();
    if store.fetch_orchestration_item(HOUR, Duration::ZERO, None).await?.is_some() {
        return Err(format!("{name}: a fetch found something in a store where nothing is ready").into());
    }
    let first_fetch = now() - began;
    store.checkpoint().await?;
    Ok(Filled { store, first_fetch })
}

/// The SQL that fills a store with `rows` of something.
fn statements(filling: Filling, rows: u64) -> Outcome<Vec<String>> {
    let now_ms = SystemClock.now_ms();
    let counting =
        format!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let messages = |instance: &str, class: &str, visible_at: &str, item: &WorkItem| -> Outcome<String> {
        let text = quoted(&serde_json::to_string(item)?);
        Ok(format!(
            "{counting} INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
             SELECT {instance}, '{class}', {visible_at}, {now_ms}, {text} FROM n"
        ))
    };
    Ok(match filling {
        Filling::Nothing => Vec::new(),
        Filling::SleepingTimers => {
            let mut sql = instances(&counting, now_ms, "Running");
            let due = now_ms + MONTH_MS;
            let timer = WorkItem::TimerFired {
                instance: "sleeper-0000000".into(),
                execution_id: life::EXECUTION,
                id: 2,
                fire_at_ms: due,
            };
            sql.push(messages(INSTANCE, "completion", &format!("{due} + i"), &timer)?);
            sql
        }
        Filling::MessagesOfLeased => vec![messages("'busy'", "signal", "0", &signal("busy"))?],
        Filling::UnknownInstances => vec![messages(INSTANCE, "signal", "0", &signal("sleeper-0000000"))?],
        Filling::Finished => {
            let mut sql = instances(&counting, now_ms, "Completed");
            sql.extend(events(&counting, now_ms)?);
            sql
        }
        Filling::OtherTag => {
            let mut item = life::activity("sleeper-0000000", 3);
            if let WorkItem::ActivityExecute { tag, .. } = &mut item {
                *tag = Some("gpu".into());
            }
            let text = quoted(&serde_json::to_string(&item)?);
            vec![format!(
                "{counting} INSERT INTO worker_queue
                    (instance_id, execution_id, activity_id, tag, created_at, work_item)
                 SELECT {INSTANCE}, 1, 3, 'gpu', {now_ms}, {text} FROM n"
            )]
        }
    })
}

/// The id of the `i`th instance, in SQL.
const INSTANCE: &str = "printf('sleeper-%07d', i)";

fn instances(counting: &str, now_ms: u64, status: &str) -> Vec<String> {
    let version = duroxide::current_build_version();
    vec![
        format!(
            "{counting} INSERT INTO instances (instance_id, orchestration_name, orchestration_version,
                created_at, updated_at, pinned_version)
             SELECT {INSTANCE}, '{}', '{}', {now_ms}, {now_ms}, '{version}' FROM n",
            life::NAME,
            life::VERSION
        ),
        format!(
            "{counting} INSERT INTO executions (instance_id, execution_id, status, started_at)
             SELECT {INSTANCE}, 1, '{status}', {now_ms} FROM n"
        ),
    ]
}

/// A turn's worth of history for every instance.
fn events(counting: &str, now_ms: u64) -> Outcome<Vec<String>> {
    let turn = life::turn("sleeper-0000000", 0, 0);
    let rows = turn
        .events
        .iter()
        .map(|event| {
            let event_type = duroxide::providers::inspect::event_type(&event.kind);
            let text = quoted(&serde_json::to_string(event)?);
            Ok(format!("({}, '{event_type}', {text})", event.event_id))
        })
        .collect::<Outcome<Vec<_>>>()?
        .join(", ");
    Ok(vec![format!(
        "{counting}, e (id, type, text) AS (VALUES {rows})
         INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
         SELECT {INSTANCE}, 1, e.id, e.type, {now_ms}, e.text FROM n CROSS JOIN e"
    )])
}

fn signal(instance: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "approval".into(), data: life::payload() }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
