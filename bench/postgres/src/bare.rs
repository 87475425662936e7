//! The same rows without a store: plain statements on one connection, in transactions of a given number of operations,
//! sent without waiting for each other's answers.
//!
//! The tables and indexes are the store's own, for it made the schema. What the loop leaves out is what a store is for: it
//! looks nothing up, checks nothing, encodes nothing, and nobody waits for an answer.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use crate::args::Args;
use crate::life::instance_id;
use crate::place::Place;
use crate::report::{Report, Table};
use crate::rows::Rows;
use crate::stats::now;
use crate::{Outcome, life};

const SCHEMA: &str = "bare";
const LEASE_MS: i64 = 30_000;
/// As long as a token of the store.
const TOKEN: &str = "lock_0123456789abcdef0123456789abcdef_order-0000-000000";
/// Callers that are brought to their places in one transaction.
const CALLERS_AT_ONCE: usize = 50;
/// Transactions that are sent before the first of them is answered, so that the server never waits for us.
const UNDER_WAY: usize = 2;

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let batch: usize = args.value("batch", 100)?;
    let duration = Duration::from_secs_f64(args.value("seconds", 5.0)?);
    let steps: u64 = args.value("steps-per-instance", 5)?;
    let callers: usize = args.value("callers", 1_000)?;
    let leases = if args.flag("no-leases") { Leases::Omitted } else { Leases::Written };
    let place = Place::enter(args).await?;
    place.describe(report).await?;
    report.setting("operations in a transaction", batch);
    report.setting("steps per instance", steps);
    report.setting("leases", format!("{leases:?}").to_lowercase());
    // It makes the tables.
    drop(place.store(SCHEMA).await?);
    let sql = place.beside(SCHEMA).await?;
    let rows = Rows::prepare(&sql).await?;
    let texts = Texts::new(steps)?;
    let mut bare = Bare::new(&sql, &rows, &texts, callers, Plan { steps, leases });
    bare.spread_out().await?;
    let elapsed = bare.run(batch, duration).await?;
    let counts = bare.counts;
    let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
    let mut table = Table::new(
        "bare pipelined statements",
        &["orchestrations/s", "steps/s", "operations/s", "statements/s", "commits/s"],
    );
    table.row(vec![
        per_second(counts.ended).into(),
        per_second(counts.steps).into(),
        per_second(counts.operations).into(),
        per_second(counts.statements).into(),
        per_second(counts.commits).into(),
    ]);
    report.table(table);
    place.leave(&[SCHEMA]).await
}

/// Whether the rows are written by which instances and activities are given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leases {
    Written,
    Omitted,
}

#[derive(Clone, Copy)]
struct Plan {
    /// Activities in one instance.
    steps: u64,
    leases: Leases,
}

#[derive(Default)]
struct Counts {
    ended: u64,
    steps: u64,
    operations: u64,
    statements: u64,
    commits: u64,
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

/// Texts as long as those of an orchestration whose activities do nothing; the store would encode them.
struct Texts {
    start: String,
    completion: String,
    activity: String,
    first_turn: Vec<(&'static str, String)>,
    middle_turn: Vec<(&'static str, String)>,
    last_turn: Vec<(&'static str, String)>,
    version: [i64; 3],
    pinned: String,
}

impl Texts {
    fn new(steps: u64) -> Outcome<Self> {
        let instance = instance_id("", 0, 0);
        let fit = |text: String| text.replace(&life::payload(), "");
        let events = |number| -> Outcome<Vec<(&'static str, String)>> {
            let mut turn = life::turn(&instance, number, steps);
            // The one that only stands for something more.
            turn.events.remove(1);
            let name = |kind| duroxide::providers::inspect::event_type(kind);
            turn.events.iter().map(|e| Ok((name(&e.kind), fit(serde_json::to_string(e)?)))).collect()
        };
        let version = duroxide::providers::current_build_version();
        Ok(Self {
            start: fit(serde_json::to_string(&life::start(&instance))?),
            completion: fit(serde_json::to_string(&life::completion(&instance, 3))?),
            activity: fit(serde_json::to_string(&life::activity(&instance, 3))?),
            first_turn: events(0)?,
            middle_turn: events(1.min(steps))?,
            last_turn: events(steps)?,
            version: [version.major.try_into()?, version.minor.try_into()?, version.patch.try_into()?],
            pinned: version.to_string(),
        })
    }
}

/// A value on its way.
type Value<'a> = Box<dyn ToSql + Sync + Send + 'a>;

macro_rules! values {
    ($($value:expr),*) => { vec![$(Box::new($value) as Value<'_>),*] };
}

/// A statement that was sent, and whose answer is still to come.
type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// A transaction on its way: statements are sent as they are added, and their answers come in the same order.
struct Transaction<'a> {
    sql: &'a Client,
    answers: Vec<Answer<'a>>,
}

impl<'a> Transaction<'a> {
    async fn begin(sql: &'a Client) -> Outcome<Self> {
        let mut transaction = Self { sql, answers: Vec::new() };
        transaction.send(Box::pin(sql.batch_execute("BEGIN"))).await?;
        Ok(transaction)
    }

    async fn row(&mut self, statement: &'a Statement, values: Vec<Value<'a>>) -> Outcome<()> {
        let sql = self.sql;
        self.send(Box::pin(async move { sql.execute_raw(statement, values).await.map(drop) })).await
    }

    async fn commit(&mut self) -> Outcome<()> {
        self.send(Box::pin(self.sql.batch_execute("COMMIT"))).await
    }

    /// A statement is sent when its future is first polled.
    async fn send(&mut self, mut answer: Answer<'a>) -> Outcome<()> {
        match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
            Poll::Pending => self.answers.push(answer),
            Poll::Ready(answered) => answered?,
        }
        Ok(())
    }

    async fn finish(self) -> Outcome<()> {
        for answer in self.answers {
            answer.await?;
        }
        Ok(())
    }
}

/// The loop on one schema.
struct Bare<'a> {
    sql: &'a Client,
    rows: &'a Rows,
    texts: &'a Texts,
    callers: Vec<Caller>,
    next_caller: usize,
    steps: u64,
    leases: Leases,
    last_id: i64,
    counts: Counts,
    pending: Pending,
}

/// What the transaction has to note at its end.
#[derive(Default)]
struct Pending {
    started: i64,
    ended: i64,
    events: i64,
    touched: Vec<String>,
}

impl<'a> Bare<'a> {
    fn new(sql: &'a Client, rows: &'a Rows, texts: &'a Texts, callers: usize, plan: Plan) -> Self {
        let caller = |number| Caller {
            number,
            started: 0,
            instance: String::new(),
            turn: 0,
            phase: Phase::Enqueue,
            message_id: 0,
            work_id: 0,
        };
        Self {
            sql,
            rows,
            texts,
            callers: (0..callers).map(caller).collect(),
            next_caller: 0,
            steps: plan.steps,
            leases: plan.leases,
            last_id: 0,
            counts: Counts::default(),
            pending: Pending::default(),
        }
    }

    /// Brings the callers to different places in their lives, so that every batch has operations of every kind.
    async fn spread_out(&mut self) -> Outcome<()> {
        self.sql.batch_execute("INSERT INTO committers (committer) VALUES ('bare')").await?;
        let cycle = 4 * self.steps + 3;
        for first in (0..self.callers.len()).step_by(CALLERS_AT_ONCE) {
            let mut transaction = Transaction::begin(self.sql).await?;
            for index in first..self.callers.len().min(first + CALLERS_AT_ONCE) {
                for _ in 0..(index as u64 * 7) % cycle {
                    self.operation(&mut transaction, index).await?;
                }
            }
            self.commit(&mut transaction).await?;
            transaction.finish().await?;
        }
        Ok(())
    }

    /// Runs for a time, with `batch` operations in a transaction.
    async fn run(&mut self, batch: usize, duration: Duration) -> Outcome<Duration> {
        self.counts = Counts::default();
        let mut under_way = VecDeque::new();
        let began = now();
        while now() - began < duration {
            let mut transaction = Transaction::begin(self.sql).await?;
            for _ in 0..batch {
                let index = self.next_caller;
                self.next_caller = (index + 1) % self.callers.len();
                self.operation(&mut transaction, index).await?;
            }
            self.commit(&mut transaction).await?;
            under_way.push_back(transaction);
            if under_way.len() >= UNDER_WAY
                && let Some(oldest) = under_way.pop_front()
            {
                oldest.finish().await?;
            }
        }
        for transaction in under_way {
            transaction.finish().await?;
        }
        Ok(now() - began)
    }

    /// Ends a transaction as the store does: with a note of whom to look at, which replaces the last one, and of which batch
    /// it was, with the totals.
    async fn commit(&mut self, transaction: &mut Transaction<'a>) -> Outcome<()> {
        let Pending { started, ended, events, touched } = std::mem::take(&mut self.pending);
        let number = self.next_id();
        if self.leases == Leases::Written && !touched.is_empty() {
            transaction.row(&self.rows.arrivals, values![number, touched]).await?;
            transaction.row(&self.rows.arrivals_gone, values![number]).await?;
        }
        transaction.row(&self.rows.committer, values![number, started, events, ended]).await?;
        transaction.commit().await?;
        self.counts.statements += transaction.answers.len() as u64;
        self.counts.commits += 1;
        Ok(())
    }

    fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// Does what a caller has to do next.
    async fn operation(&mut self, transaction: &mut Transaction<'a>, index: usize) -> Outcome<()> {
        let now_ms = i64::try_from(SystemClock.now_ms())?;
        self.counts.operations += 1;
        let next = match self.callers[index].phase {
            Phase::Enqueue => {
                let caller = &mut self.callers[index];
                caller.started += 1;
                caller.turn = 0;
                caller.instance = instance_id("", caller.number, caller.started);
                self.enqueue(transaction, index, "start", now_ms).await?;
                Phase::LeaseTurn
            }
            Phase::LeaseTurn => {
                let caller = &self.callers[index];
                if self.leases == Leases::Written {
                    let (id, until) = (caller.message_id, now_ms + LEASE_MS);
                    let pinned = self.texts.pinned.as_str();
                    let placed = values![caller.instance.clone(), pinned, id];
                    transaction.row(&self.rows.placed, placed).await?;
                    let leased = values![caller.instance.clone(), TOKEN, until, now_ms, id];
                    transaction.row(&self.rows.turn_leased, leased).await?;
                }
                Phase::AckTurn
            }
            Phase::AckTurn => self.ack_turn(transaction, index, now_ms).await?,
            Phase::LeaseWork => {
                if self.leases == Leases::Written {
                    let leased = values![self.callers[index].work_id, TOKEN, now_ms + LEASE_MS];
                    transaction.row(&self.rows.activity_leased, leased).await?;
                }
                Phase::AckWork
            }
            Phase::AckWork => {
                transaction.row(&self.rows.activity_gone, values![self.callers[index].work_id]).await?;
                self.enqueue(transaction, index, "completion", now_ms).await?;
                self.counts.steps += 1;
                Phase::LeaseTurn
            }
        };
        self.callers[index].phase = next;
        Ok(())
    }

    /// Enqueues the message that leads to a caller's next turn.
    async fn enqueue(
        &mut self,
        transaction: &mut Transaction<'a>,
        index: usize,
        class: &'static str,
        now_ms: i64,
    ) -> Outcome<()> {
        let id = self.next_id();
        let text = if class == "start" { &self.texts.start } else { &self.texts.completion };
        let caller = &mut self.callers[index];
        caller.message_id = id;
        self.pending.touched.push(caller.instance.clone());
        let message = values![id, caller.instance.clone(), class, now_ms, text.as_str()];
        transaction.row(&self.rows.message, message).await
    }

    async fn ack_turn(
        &mut self,
        transaction: &mut Transaction<'a>,
        index: usize,
        now_ms: i64,
    ) -> Outcome<Phase> {
        let (rows, texts, work_id) = (self.rows, self.texts, self.next_id());
        let caller = &mut self.callers[index];
        let instance = || caller.instance.clone();
        let (is_first, is_last) = (caller.turn == 0, caller.turn == self.steps);
        let events = match (is_first, is_last) {
            (true, _) => &texts.first_turn,
            (_, true) => &texts.last_turn,
            _ => &texts.middle_turn,
        };
        let mut event_id = i64::try_from(caller.turn)? * i64::try_from(events.len())?;
        for (event_type, text) in events {
            event_id += 1;
            self.pending.events += 1;
            let event = values![instance(), event_id, *event_type, now_ms, text.as_str()];
            transaction.row(&rows.event, event).await?;
        }
        if is_first {
            let [major, minor, patch] = texts.version;
            let pinned = texts.pinned.as_str();
            transaction.row(&rows.execution, values![instance(), now_ms, major, minor, patch]).await?;
            let new = values![instance(), life::NAME, life::VERSION, now_ms, pinned];
            transaction.row(&rows.instance, new).await?;
            self.pending.started += 1;
        } else {
            transaction.row(&rows.instance_changed, values![instance(), now_ms]).await?;
        }
        transaction.row(&rows.message_gone, values![caller.message_id]).await?;
        if self.leases == Leases::Written {
            transaction.row(&rows.turn_over, values![instance()]).await?;
        }
        if is_last {
            transaction.row(&rows.execution_ended, values![instance(), "5", now_ms]).await?;
            self.pending.ended += 1;
            self.counts.ended += 1;
            return Ok(Phase::Enqueue);
        }
        let activity = values![work_id, instance(), event_id, now_ms, texts.activity.as_str()];
        transaction.row(&rows.activity, activity).await?;
        caller.turn += 1;
        caller.work_id = work_id;
        Ok(Phase::LeaseWork)
    }
}
