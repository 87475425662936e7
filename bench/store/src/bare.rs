//! The same rows without a store: plain SQL on one connection, in transactions of a given number of operations.
//!
//! The tables, indexes and triggers are the store's own, for it made the file. What the loop leaves out is what a store
//! is for: it never looks anything up, checks nothing, encodes nothing, and nobody waits for an answer.

use std::path::Path;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use rusqlite::{Connection, params};

use crate::cpu::CpuTime;
use crate::life::instance_id;
use crate::stats::now;
use crate::{Outcome, life};

const LEASE_MS: i64 = 30_000;
/// As long as a token of the store.
pub const TOKEN: &str = "lock_0123456789abcdef0123456789abcdef_order-0000-000000";
pub const OWNER: &str = "0123456789abcdef";

/// The settings that the store has for its connection.
pub const SETTINGS: &str =
    "PRAGMA journal_mode = wal; PRAGMA synchronous = full; PRAGMA wal_autocheckpoint = 4000;
    PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -16384; PRAGMA temp_store = 2;";

/// What the loop got done.
#[derive(Debug, Clone, Copy, Default)]
pub struct BareCounts {
    pub steps: u64,
    pub operations: u64,
    pub commits: u64,
    pub elapsed: Duration,
    pub cpu: Duration,
}

/// Where a caller of the loop is; the order of the variants is the order of its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Enqueue,
    LeaseTurn,
    AckTurn,
    LeaseWork,
    AckWork,
}

/// One of the callers that the loop plays in turn.
struct Caller {
    number: usize,
    started: u64,
    instance: String,
    turn: u64,
    phase: Phase,
    message_id: i64,
    work_id: i64,
}

/// Texts of the right length; the store would encode them.
pub struct Texts {
    start: String,
    completion: String,
    pub activity: String,
    first_turn: Vec<(&'static str, String)>,
    middle_turn: Vec<(&'static str, String)>,
    last_turn: Vec<(&'static str, String)>,
    version: (i64, i64, i64),
}

/// What the steps of the loop look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As the load's: three events a turn, with payloads.
    Load,
    /// As those of an orchestration whose activities do nothing: two events a turn, no payload.
    NoOp,
}

impl Texts {
    pub fn new(steps: u64, kind: Kind) -> Outcome<Self> {
        let instance = instance_id("", 0, 0);
        let events = |number| -> Outcome<Vec<(&'static str, String)>> {
            let mut turn = life::turn(&instance, number, steps);
            if kind == Kind::NoOp {
                turn.events.remove(1);
            }
            let name = |kind| duroxide::providers::inspect::event_type(kind);
            turn.events.iter().map(|e| Ok((name(&e.kind), fit(serde_json::to_string(e)?, kind)))).collect()
        };
        let version = duroxide::current_build_version();
        Ok(Self {
            start: fit(serde_json::to_string(&life::start(&instance))?, kind),
            completion: fit(serde_json::to_string(&life::completion(&instance, 3))?, kind),
            activity: fit(serde_json::to_string(&life::activity(&instance, 3))?, kind),
            first_turn: events(0)?,
            middle_turn: events(1.min(steps))?,
            last_turn: events(steps)?,
            version: (
                i64::try_from(version.major)?,
                i64::try_from(version.minor)?,
                i64::try_from(version.patch)?,
            ),
        })
    }

    /// The events of a turn: the first, the last, or one between them.
    pub fn of_turn(&self, is_first: bool, is_last: bool) -> &[(&'static str, String)] {
        match (is_first, is_last) {
            (true, _) => &self.first_turn,
            (_, true) => &self.last_turn,
            _ => &self.middle_turn,
        }
    }
}

/// The text of a row, with or without its payload.
fn fit(text: String, kind: Kind) -> String {
    match kind {
        Kind::Load => text,
        Kind::NoOp => text.replace(&life::payload(), ""),
    }
}

/// The loop on one file.
pub struct Bare {
    connection: Connection,
    callers: Vec<Caller>,
    next_caller: usize,
    steps: u64,
    texts: Texts,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    started: i64,
    ended: i64,
    events: i64,
}

impl Bare {
    /// Opens a file that the store has made.
    pub fn open(file: &Path, callers: usize, steps: u64, kind: Kind) -> Outcome<Self> {
        let connection = Connection::open(file)?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.execute_batch(SETTINGS)?;
        let caller = |number| Caller {
            number,
            started: 0,
            instance: String::new(),
            turn: 0,
            phase: Phase::Enqueue,
            message_id: 0,
            work_id: 0,
        };
        let mut bare = Self {
            connection,
            callers: (0..callers).map(caller).collect(),
            next_caller: 0,
            steps,
            texts: Texts::new(steps, kind)?,
            totals: Totals::default(),
        };
        bare.spread_out()?;
        Ok(bare)
    }

    /// Brings the callers to different places in their lives, so that every batch has operations of every kind.
    fn spread_out(&mut self) -> Outcome<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let cycle = 4 * self.steps + 3;
        for index in 0..self.callers.len() {
            for _ in 0..(index as u64 * 7) % cycle {
                self.operation(index)?;
            }
        }
        self.commit()
    }

    /// Runs for a time, with `batch` operations in a transaction.
    pub fn run(&mut self, batch: usize, duration: Duration) -> Outcome<BareCounts> {
        let mut counts = BareCounts::default();
        let (began, cpu) = (now(), CpuTime::read());
        while counts.elapsed < duration {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            for _ in 0..batch {
                let index = self.next_caller;
                self.next_caller = (index + 1) % self.callers.len();
                counts.steps += u64::from(self.callers[index].phase == Phase::AckWork);
                self.operation(index)?;
            }
            self.commit()?;
            counts.operations += batch as u64;
            counts.commits += 1;
            counts.elapsed = now() - began;
        }
        counts.cpu = CpuTime::read().since(&cpu).all;
        Ok(counts)
    }

    fn commit(&mut self) -> Outcome<()> {
        let totals = std::mem::take(&mut self.totals);
        self.connection
            .prepare_cached(
                "UPDATE totals SET instances = instances + ?1, executions = executions + ?1, events = events + ?2,
                    running_instances = running_instances + ?1 - ?3, completed_instances = completed_instances + ?3",
            )?
            .execute([totals.started, totals.events, totals.ended])?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Does what a caller has to do next.
    fn operation(&mut self, index: usize) -> Outcome<()> {
        let caller = &mut self.callers[index];
        let (sql, texts) = (&self.connection, &self.texts);
        let now_ms = i64::try_from(SystemClock.now_ms())?;
        caller.phase = match caller.phase {
            Phase::Enqueue => {
                caller.started += 1;
                caller.turn = 0;
                caller.instance = instance_id("", caller.number, caller.started);
                caller.message_id = insert_message(sql, &caller.instance, "start", now_ms, &texts.start)?;
                Phase::LeaseTurn
            }
            Phase::LeaseTurn => {
                sql.prepare_cached(
                    "UPDATE instance_schedule SET ready_seq = NULL, due_at = ?3, parked = 0, lock_token = ?2,
                        locked_until = ?3, locked_at = ?4, batch_visible_at = ?4, batch_last_id = ?5, owner = ?6
                     WHERE instance_id = ?1",
                )?
                .execute(params![caller.instance, TOKEN, now_ms + LEASE_MS, now_ms, caller.message_id, OWNER])?;
                Phase::AckTurn
            }
            Phase::AckTurn => ack_turn(sql, caller, self.steps, texts, now_ms, &mut self.totals)?,
            Phase::LeaseWork => {
                sql.prepare_cached(
                    "UPDATE worker_queue SET lock_token = ?2, locked_until = ?3, due_at = ?3,
                        owner = ?4, attempt_count = attempt_count + 1 WHERE id = ?1",
                )?
                .execute(params![caller.work_id, TOKEN, now_ms + LEASE_MS, OWNER])?;
                Phase::AckWork
            }
            Phase::AckWork => {
                sql.prepare_cached("DELETE FROM worker_queue WHERE id = ?1")?.execute([caller.work_id])?;
                caller.message_id =
                    insert_message(sql, &caller.instance, "completion", now_ms, &texts.completion)?;
                Phase::LeaseTurn
            }
        };
        Ok(())
    }
}

fn insert_message(sql: &Connection, instance: &str, class: &str, now_ms: i64, text: &str) -> Outcome<i64> {
    sql.prepare_cached(
        "INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
         VALUES (?1, ?2, 0, ?3, ?4)",
    )?
    .execute(params![instance, class, now_ms, text])?;
    Ok(sql.last_insert_rowid())
}

fn ack_turn(
    sql: &Connection,
    caller: &mut Caller,
    steps: u64,
    texts: &Texts,
    now_ms: i64,
    totals: &mut Totals,
) -> Outcome<Phase> {
    let instance = caller.instance.as_str();
    let (is_first, is_last) = (caller.turn == 0, caller.turn == steps);
    let events = texts.of_turn(is_first, is_last);
    let mut event_id = i64::try_from(caller.turn)? * i64::try_from(events.len())?;
    for (event_type, text) in events {
        event_id += 1;
        sql.prepare_cached(
            "INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
             VALUES (?1, 1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![instance, event_id, event_type, now_ms, text])?;
        totals.events += 1;
    }
    if is_first {
        create_instance(sql, instance, texts, now_ms)?;
        totals.started += 1;
    } else {
        sql.prepare_cached("UPDATE instances SET updated_at = ?2 WHERE instance_id = ?1")?
            .execute(params![instance, now_ms])?;
    }
    sql.prepare_cached("DELETE FROM orchestrator_queue WHERE id = ?1")?.execute([caller.message_id])?;
    sql.prepare_cached("DELETE FROM instance_schedule WHERE instance_id = ?1")?.execute([instance])?;
    caller.turn += 1;
    if is_last {
        sql.prepare_cached(
            "UPDATE executions SET status = 'Completed', output = ?2, completed_at = ?3
             WHERE instance_id = ?1 AND execution_id = 1",
        )?
        .execute(params![instance, life::payload(), now_ms])?;
        totals.ended += 1;
        return Ok(Phase::Enqueue);
    }
    sql.prepare_cached(
        "INSERT INTO worker_queue (instance_id, execution_id, activity_id, created_at, work_item)
         VALUES (?1, 1, ?2, ?3, ?4)",
    )?
    .execute(params![instance, event_id, now_ms, texts.activity])?;
    caller.work_id = sql.last_insert_rowid();
    Ok(Phase::LeaseWork)
}

fn create_instance(sql: &Connection, instance: &str, texts: &Texts, now_ms: i64) -> Outcome<()> {
    let (major, minor, patch) = texts.version;
    sql.prepare_cached(
        "INSERT INTO executions (instance_id, execution_id, started_at, duroxide_version_major,
            duroxide_version_minor, duroxide_version_patch) VALUES (?1, 1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![instance, now_ms, major, minor, patch])?;
    sql.prepare_cached(
        "INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at,
            pinned_version) VALUES (?1, ?2, ?3, ?4, ?4, ?5)",
    )?
    .execute(params![instance, life::NAME, life::VERSION, now_ms, format!("{major}.{minor}.{patch}")])?;
    Ok(())
}
