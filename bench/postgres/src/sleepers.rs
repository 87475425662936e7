//! Stores full of orchestrations that sleep: one goes to sleep as the runtime would have it, and is copied by SQL.

use std::time::Duration;

use duroxide::providers::{Clock, ExecutionMetadata, Provider, SystemClock, WorkItem, current_build_version};
use duroxide::{Event, EventKind};
use duroxide_pg::PostgresProvider;

use crate::place::{Place, schema};
use crate::{Outcome, life};

const MONTH_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// As long as the names of the copies.
const FIRST: &str = "sleeper-0000000";

/// Opens a store with so many sleepers.
pub async fn store(place: &Place, name: &str, sleepers: u64) -> Outcome<PostgresProvider> {
    let store = place.store(name).await?;
    if sleepers > 0 {
        put_to_sleep(&store).await?;
        copy(place, name, sleepers - 1).await?;
    }
    place.sql.batch_execute("VACUUM ANALYZE").await?;
    place.sql.batch_execute("CHECKPOINT").await?;
    Ok(store)
}

/// Runs the first turn of the first sleeper.
async fn put_to_sleep(store: &PostgresProvider) -> Outcome<()> {
    store.enqueue_for_orchestrator(life::start(FIRST), None).await?;
    let fetched = store.fetch_orchestration_item(LOCK_TIMEOUT, Duration::ZERO, None).await?;
    let (_, token, _) = fetched.ok_or("there is no turn to take")?;
    let fire_at_ms = SystemClock.now_ms() + MONTH_MS;
    let mut events = life::turn(FIRST, 0, 1).events;
    events.truncate(1);
    events.push(Event::with_event_id(
        2,
        FIRST,
        life::EXECUTION,
        None,
        EventKind::TimerCreated { fire_at_ms },
    ));
    let timer =
        WorkItem::TimerFired { instance: FIRST.into(), execution_id: life::EXECUTION, id: 2, fire_at_ms };
    let metadata = ExecutionMetadata {
        orchestration_name: Some(life::NAME.into()),
        orchestration_version: Some(life::VERSION.into()),
        pinned_duroxide_version: Some(current_build_version()),
        ..Default::default()
    };
    let (none, nothing_cancelled) = (Vec::new(), Vec::new());
    let acked = store.ack_orchestration_item(
        &token,
        life::EXECUTION,
        events,
        none,
        vec![timer],
        metadata,
        nothing_cancelled,
    );
    acked.await?;
    // The next fetch finds nothing, and notes when the timer is due.
    match store.fetch_orchestration_item(LOCK_TIMEOUT, Duration::ZERO, None).await? {
        None => Ok(()),
        Some(_) => Err("the sleeper does not sleep".into()),
    }
}

/// Copies every row that the first sleeper has, in whatever table, with other ids and later times.
async fn copy(place: &Place, name: &str, copies: u64) -> Outcome<()> {
    let schema = schema(name);
    let tables = place
        .sql
        .query(
            "SELECT t.table_name::text, array_agg(c.column_name::text ORDER BY c.ordinal_position),
                array_agg(c.data_type::text ORDER BY c.ordinal_position)
             FROM information_schema.tables t JOIN information_schema.columns c USING (table_schema, table_name)
             WHERE t.table_schema = $1 AND t.table_type = 'BASE TABLE' AND c.is_identity = 'NO'
             GROUP BY t.table_name HAVING 'instance_id' = ANY (array_agg(c.column_name::text))",
            &[&schema],
        )
        .await?;
    for row in tables {
        let (table, columns, types): (String, Vec<String>, Vec<String>) =
            (row.get(0), row.get(1), row.get(2));
        let value = |(column, kind): (&String, &String)| match (column.as_str(), kind.as_str()) {
            (_, "text") => format!("replace(f.{column}, '{FIRST}', 'sleeper-' || lpad(i::text, 7, '0'))"),
            ("visible_at" | "due_at", _) => format!("f.{column} + i"),
            _ => format!("f.{column}"),
        };
        let values: Vec<String> = columns.iter().zip(&types).map(value).collect();
        place
            .sql
            .batch_execute(&format!(
                "INSERT INTO {schema}.{table} ({}) SELECT {} FROM {schema}.{table} f, generate_series(1, {copies}) i
                 WHERE f.instance_id = '{FIRST}'",
                columns.join(", "),
                values.join(", ")
            ))
            .await?;
    }
    Ok(())
}
