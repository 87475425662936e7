//! Starts of instances whose ids must be free: `enqueue_starts_3`.

use duroxide::providers::StartOutcome;
use tokio_postgres::Row;

use super::leases::{ClaimParams, read_instances};
use super::messages::ForWaiting;
use super::{BatchMemory, Param, Reading, Sending, Statement, absent, params};
use crate::encode::NewMessage;
use crate::error::Failure;
use crate::jobs::{Job, Pending};
use crate::pipeline::Sent;
use crate::shared::Shared;
use crate::waiting_dispatchers::WaitingDispatchers;

const SQL: &str = "SELECT * FROM enqueue_starts_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/// Starts that share a statement.
pub(crate) struct Starts {
    starts: Vec<Pending<NewMessage, StartOutcome>>,
    waiting: ForWaiting,
    /// Starts whose id was taken, counted from 1.
    taken: Vec<i32>,
}

#[derive(Default)]
struct Columns<'a> {
    instance: Vec<&'a str>,
    item: Vec<&'a str>,
    parent: Vec<Option<&'a str>>,
    claim: ClaimParams<'a>,
}

impl<'a> Columns<'a> {
    fn new(statement: &'a Starts, shared: &Shared) -> Self {
        let starts = || statement.starts.iter().map(|start| &start.request);
        Self {
            instance: starts().map(|start| start.instance.as_str()).collect(),
            item: starts().map(|start| start.text.as_str()).collect(),
            parent: starts().map(|start| start.parent.as_deref()).collect(),
            claim: ClaimParams::new(statement.waiting.order.as_ref(), shared),
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        let mut all = params![p_instance: self.instance, p_item: self.item, p_parent: self.parent];
        all.extend(self.claim.params());
        all
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signature() -> super::Signature {
    super::Signature::of(SQL, Columns::default().params())
}

impl Starts {
    pub(super) fn new(start: Pending<NewMessage, StartOutcome>) -> Self {
        Self { starts: vec![start], waiting: ForWaiting::default(), taken: Vec::new() }
    }
}

impl Statement for Starts {
    fn rank(&self) -> usize {
        5
    }

    fn sql(&self) -> Vec<&'static str> {
        vec![SQL]
    }

    fn len(&self) -> usize {
        self.starts.len()
    }

    fn keeps_out(&self, job: &Job) -> bool {
        matches!(job, Job::StartWithMessage(_))
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::Start(_))
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        let Job::Start(start) = job else { return Some(job) };
        self.starts.push(start);
        None
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move { sending.call(SQL, Columns::new(self, sending.shared).params()).await })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        let Some((about, rows)) = rows.split_last() else { return };
        let enqueued: Vec<i32> = about.get::<_, Option<Vec<i32>>>("done").unwrap_or_default();
        self.taken = absent(&enqueued, self.starts.len());
        self.waiting.instances = read_instances(rows, about, reading);
    }

    fn recall(&mut self, memory: &BatchMemory, _reading: &mut Reading<'_>) {
        self.taken = memory.taken_starts.clone();
    }

    fn seed(&self) -> Option<(&str, i64)> {
        self.waiting.seed()
    }

    fn without_claims(&mut self) {
        self.waiting = ForWaiting::default();
    }

    fn serve(&mut self, waiting: &WaitingDispatchers) {
        self.waiting = ForWaiting::take(waiting);
    }

    fn awaited(&self) -> usize {
        self.starts.iter().filter(|start| self.waiting.include(&start.request.instance)).count()
    }

    fn hand_out(&mut self) {
        self.waiting.hand_out();
    }

    fn answer(self: Box<Self>) {
        for (place, start) in (1..).zip(self.starts) {
            let is_taken = self.taken.contains(&place);
            start.reply.give(Ok(if is_taken { StartOutcome::Existing } else { StartOutcome::New }));
        }
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.starts.into_iter().for_each(|start| start.reply.give(Err(failure.clone().into())));
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.starts.into_iter().map(Job::Start).collect()
    }
}
