//! The limit: how fast the fewest rows can be written that could carry the promises.
//!
//! `bare` writes the store's own rows, so it cannot show that a store with fewer rows would be faster. This loop has tables of
//! its own and writes, for orchestrations of sequential steps that do nothing:
//!
//! | in one transaction | rows |
//! |---|---|
//! | a start and its first turn | the instance, two events, the activity as leased |
//! | a result and the turn that it causes | two events, the activity's row with the next activity in it |
//! | the last result and the last turn | two events, the instance's end, the activity's row removed |
//!
//! The history must be complete, other processes on the file must see who holds which activity, and a client must find an
//! instance by its id: with fewer rows than these, one of the promises would not hold. Every transaction is synced. The loop
//! looks nothing up, checks nothing and encodes nothing, and there are no turns and no activities to run.

use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use rusqlite::{Connection, params};

use crate::args::Args;
use crate::bare::{Kind, OWNER, SETTINGS, TOKEN, Texts};
use crate::life::{self, instance_id};
use crate::report::{Report, Table};
use crate::stats::{now, ratio};
use crate::{Outcome, machine, new_report};

const LEASE_MS: i64 = 30_000;

const TABLES: &str = "
    CREATE TABLE instances (
        instance_id TEXT PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, created_at INTEGER NOT NULL,
        completed_at INTEGER, output TEXT
    ) WITHOUT ROWID;
    CREATE TABLE history (
        instance_id TEXT, execution_id INTEGER, event_id INTEGER, event_data TEXT NOT NULL,
        PRIMARY KEY (instance_id, execution_id, event_id)
    ) WITHOUT ROWID;
    CREATE TABLE activities (
        id INTEGER PRIMARY KEY, instance_id TEXT NOT NULL, activity_id INTEGER NOT NULL, work_item TEXT NOT NULL,
        lock_token TEXT, locked_until INTEGER, owner TEXT
    );";

/// An orchestration in flight: how many of its turns are stored.
struct Flight {
    number: usize,
    started: u64,
    instance: String,
    turn: u64,
}

/// What the loop got done.
#[derive(Default)]
struct Counts {
    orchestrations: u64,
    turns: u64,
    commits: u64,
    elapsed: Duration,
}

/// Runs it for a time: orchestrations of `--steps-per-instance` steps, `--callers` in flight, `--batch` turns in a
/// transaction.
pub fn run(args: &Args) -> Outcome<Report> {
    let flights: usize = args.value("callers", 1_000)?;
    let steps: u64 = args.value("steps-per-instance", 5)?;
    let batch: u64 = args.value("batch", 60)?;
    let duration = Duration::from_secs_f64(args.value("seconds", 5.0)?);
    let dir = args.work_dir()?;
    let connection = Connection::open(dir.path().join("limit.db"))?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch(SETTINGS)?;
    connection.execute_batch(TABLES)?;

    let mut report = new_report(args);
    machine::describe(&mut report, dir.path())?;
    report.setting("in flight", flights);
    report.setting("turns in a transaction", batch);

    let counts = measure(&connection, flights, steps, batch, duration)?;
    let mut table = Table::new(
        "limit",
        &["orchestrations/s", "us per step", "turns per commit", "commits", "orchestrations"],
    );
    let per_second = ratio(counts.orchestrations as f64, counts.elapsed.as_secs_f64());
    table.row(vec![
        per_second.into(),
        ratio(1e6, per_second * steps as f64).into(),
        ratio(counts.turns as f64, counts.commits as f64).into(),
        counts.commits.into(),
        counts.orchestrations.into(),
    ]);
    report.table(table);
    Ok(report)
}

fn measure(sql: &Connection, flights: usize, steps: u64, batch: u64, duration: Duration) -> Outcome<Counts> {
    let texts = Texts::new(steps, Kind::NoOp)?;
    let mut flights: Vec<Flight> =
        (0..flights).map(|number| Flight { number, started: 0, instance: String::new(), turn: 0 }).collect();
    let (mut counts, mut next) = (Counts::default(), 0);
    let began = now();
    while counts.elapsed < duration {
        sql.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for _ in 0..batch {
            let place = next;
            next = (next + 1) % flights.len();
            let flight = &mut flights[place];
            store_turn(sql, flight, steps, &texts)?;
            counts.orchestrations += u64::from(flight.turn > steps);
            if flight.turn > steps {
                flight.turn = 0;
            }
        }
        sql.prepare_cached("COMMIT")?.execute([])?;
        counts.turns += batch;
        counts.commits += 1;
        counts.elapsed = now() - began;
    }
    Ok(counts)
}

/// Writes the rows of one turn, and of the result or the start that caused it.
fn store_turn(sql: &Connection, flight: &mut Flight, steps: u64, texts: &Texts) -> Outcome<()> {
    let now_ms = i64::try_from(SystemClock.now_ms())?;
    let activity = i64::try_from(flight.number)?;
    let (is_first, is_last) = (flight.turn == 0, flight.turn == steps);
    if is_first {
        flight.started += 1;
        flight.instance = instance_id("", flight.number, flight.started);
        sql.prepare_cached(
            "INSERT INTO instances (instance_id, name, version, created_at) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![flight.instance, life::NAME, life::VERSION, now_ms])?;
    }
    let events = texts.of_turn(is_first, is_last);
    let mut event_id = i64::try_from(flight.turn)? * i64::try_from(events.len())?;
    for (_, text) in events {
        event_id += 1;
        sql.prepare_cached(
            "INSERT INTO history (instance_id, execution_id, event_id, event_data) VALUES (?1, 1, ?2, ?3)",
        )?
        .execute(params![flight.instance, event_id, text])?;
    }
    if is_first {
        sql.prepare_cached(
            "INSERT INTO activities (id, instance_id, activity_id, work_item, lock_token, locked_until, owner)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            activity,
            flight.instance,
            event_id,
            texts.activity,
            TOKEN,
            now_ms + LEASE_MS,
            OWNER
        ])?;
    } else if is_last {
        sql.prepare_cached("DELETE FROM activities WHERE id = ?1")?.execute([activity])?;
        sql.prepare_cached("UPDATE instances SET completed_at = ?2, output = '' WHERE instance_id = ?1")?
            .execute(params![flight.instance, now_ms])?;
    } else {
        sql.prepare_cached(
            "UPDATE activities SET activity_id = ?2, work_item = ?3, lock_token = ?4, locked_until = ?5 WHERE id = ?1",
        )?
        .execute(params![activity, event_id, texts.activity, TOKEN, now_ms + LEASE_MS])?;
    }
    flight.turn += 1;
    Ok(())
}
