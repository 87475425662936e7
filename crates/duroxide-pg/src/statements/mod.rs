//! The statements of a batch, one module each: what it calls, with which parameters, what its answer says, and how the
//! callers hear of it.
//!
//! Requests of one kind share a statement, with an array for each column. The statements call functions that judge each
//! request before they write. Parameters carry their names, which a test compares with the functions' own.

pub(crate) mod activities;
pub(crate) mod calls;
pub(crate) mod deliveries;
mod leases;
mod lone_steps;
pub(crate) mod messages;
pub(crate) mod results;
pub(crate) mod starts;
pub(crate) mod steps;
mod turn_columns;
pub(crate) mod turns;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::{Failure, QueryError};
use crate::functions::{Param, params};
use crate::give_backs::LeaseReturner;
use crate::jobs::Job;
use crate::pipeline::Sent;
use crate::session::Session;
use crate::shared::{Effects, Shared};
use crate::waiting_dispatchers::WaitingDispatchers;

type Answer = Result<Vec<Row>, QueryError>;

/// The batch that a statement belongs to. A statement that is a batch by itself also notes that the batch was made.
#[derive(Clone, Copy)]
pub(crate) struct Mark<'a> {
    pub(crate) committer: &'a str,
    pub(crate) epoch: i64,
    /// `None` if a statement of its own makes the note.
    pub(crate) batch: Option<i64>,
}

/// Where and how to send a statement.
#[derive(Clone, Copy)]
pub(crate) struct Sending<'a> {
    pub(crate) session: &'a Session,
    pub(crate) shared: &'a Shared,
    pub(crate) mark: Mark<'a>,
    /// The server looks at each request for what would make the whole statement fail, and refuses that request.
    pub(crate) careful: bool,
}

impl Sending<'_> {
    /// Calls a function; the time and the batch come before its own parameters.
    async fn call(&self, sql: &'static str, own: Vec<Param<'_>>) -> Answer {
        let Mark { committer, epoch, batch } = self.mark;
        let now = self.shared.time.given_ms();
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&now, &committer, &epoch, &batch];
        values.extend(own.into_iter().map(|(_, value)| value));
        self.session.query(sql, &values).await
    }
}

/// What the answers of a batch lead to.
pub(crate) struct Reading<'a> {
    pub(crate) returner: &'a LeaseReturner,
    /// The number of the server that committed the batch.
    pub(crate) server: u64,
    pub(crate) effects: Effects,
}

/// What the server remembers of the last batch, for a committer that did not hear the answer.
#[derive(Debug, Default)]
pub(crate) struct BatchMemory {
    turn_verdicts: Vec<i32>,
    step_verdicts: Vec<i32>,
    refused_work: Vec<i32>,
    taken_starts: Vec<i32>,
    deliveries: Vec<i32>,
}

impl BatchMemory {
    /// Reads the row of `begin_epoch_4`. Where nothing was refused, as nearly always, it holds nothing.
    pub(crate) fn read(row: &Row) -> Self {
        let list = |name: &str| row.get::<_, Option<Vec<i32>>>(name).unwrap_or_default();
        Self {
            turn_verdicts: list("turn_verdicts"),
            step_verdicts: list("step_verdicts"),
            refused_work: list("refused_work"),
            taken_starts: list("taken_starts"),
            deliveries: list("deliveries"),
        }
    }
}

/// Requests that share a statement.
pub(crate) trait Statement: Send + Sync {
    /// The place of this kind in a transaction. Statements take their locks in this order.
    fn rank(&self) -> usize;
    /// The statements that `send` may send: they are prepared before, because a transaction is sent without waiting.
    fn sql(&self) -> Vec<&'static str>;
    /// How many requests there are.
    fn len(&self) -> usize;
    /// Tells whether a job has to wait for the next batch: one transaction can end a lease only once, and two
    /// statements that lock ids in one batch might take their locks in another order than those of another process.
    fn keeps_out(&self, job: &Job) -> bool {
        let _ = job;
        false
    }
    /// Tells whether a job is of this kind.
    fn takes(&self, job: &Job) -> bool;
    /// Adds a job of this kind; gives any other back.
    fn add(&mut self, job: Job) -> Option<Job>;
    /// Puts requests into the order in which the statement takes its locks.
    fn sort(&mut self) {}
    /// Tells whether the function notes the batch by itself, so that it needs no transaction around it.
    fn notes_batch(&self) -> bool {
        true
    }
    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a>;
    /// Takes note of the answer.
    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>);
    /// Takes note of what the server remembers of the batch, instead of the answer.
    fn recall(&mut self, memory: &BatchMemory, reading: &mut Reading<'_>);
    /// Returns the seed and the length of the leases that the statement takes along, if any.
    fn seed(&self) -> Option<(&str, i64)> {
        None
    }
    /// Drops what callers ordered to be leased along, because leasing it may be what makes the batch fail. The callers then
    /// claim by themselves.
    fn without_claims(&mut self) {}
    /// Takes the order of a waiting dispatcher, to fill it along with these requests, which are the whole batch.
    fn serve(&mut self, waiting: &WaitingDispatchers) {
        let _ = waiting;
    }
    /// How many requests lead to a turn of this process, whose commit brings the sync that they wait for.
    fn awaited(&self) -> usize {
        0
    }
    /// Hands out what was leased along, which need not be durable for that.
    fn hand_out(&mut self) {}
    /// Answers the callers, once the batch is durable.
    fn answer(self: Box<Self>);
    fn fail(self: Box<Self>, failure: &Failure);
    fn into_jobs(self: Box<Self>) -> Vec<Job>;
}

/// Makes a statement of its own of a job that is no sync.
pub(crate) fn new(job: Job) -> Option<Box<dyn Statement>> {
    Some(match job {
        Job::AckTurn(turn) => Box::new(turns::Turns::new(*turn)),
        Job::Step(step) => Box::new(steps::Steps::new(*step)),
        Job::AckWork(result) => Box::new(results::Results::new(*result)),
        Job::Message(message) => Box::new(messages::Messages::new(message)),
        Job::Activity(activity) => Box::new(activities::NewActivities::new(activity)),
        Job::Start(start) => Box::new(starts::Starts::new(start)),
        Job::StartWithMessage(delivery) => Box::new(deliveries::Deliveries::new(delivery)),
        Job::Call(call) => Box::new(calls::OneCall::new(call)),
        Job::Sync(_) => return None,
    })
}

/// Returns the positions, counted from 1, that are not among those that were done.
fn absent(done: &[i32], count: usize) -> Vec<i32> {
    if done.len() == count {
        return Vec::new();
    }
    let done: std::collections::HashSet<&i32> = done.iter().collect();
    (1..).take(count).filter(|place| !done.contains(place)).collect()
}

/// A function as this crate calls it, for the test that compares it with the one in the database.
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The function's name.
    pub function: String,
    /// Names and types of its parameters, in their order.
    pub params: Vec<(String, String)>,
}

#[cfg(feature = "test-hooks")]
impl Signature {
    fn of(sql: &str, own: Vec<Param<'_>>) -> Self {
        let name = sql.trim_start_matches("SELECT ").trim_start_matches("* FROM ");
        let function = name.split('(').next().unwrap_or_default().to_string();
        let (now, committer, epoch, batch) = (None::<i64>, "", 0_i64, None::<i64>);
        let mut params: Vec<Param<'_>> =
            params![p_now: now, p_committer: committer, p_epoch: epoch, p_batch: batch];
        params.extend(own);
        let describe = |(name, value): &Param<'_>| {
            (name.to_string(), crate::proof::wire_type(*value).name().trim_start_matches('_').to_string())
        };
        // The number of placeholders is the number of parameters.
        assert_eq!(sql.matches('$').count(), params.len(), "{sql}");
        Self { function, params: params.iter().map(describe).collect() }
    }
}

/// Returns the functions that batches call.
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub fn signatures() -> Vec<Signature> {
    let mut all = vec![
        turns::signature(),
        results::signature(),
        messages::signature(),
        activities::signature(),
        starts::signature(),
        deliveries::signature(),
    ];
    all.extend(steps::signatures());
    all.extend(lone_steps::signatures());
    all
}
