//! Messages with the starts that go with them: `start_with_messages_2`.

use duroxide::providers::DeliveryOutcome;
use tokio_postgres::Row;

use super::{BatchMemory, Param, Reading, Sending, Statement, params};
use crate::error::Failure;
use crate::jobs::{Job, Pending, StartWithMessage};
use crate::pipeline::Sent;

const SQL: &str = "SELECT start_with_messages_2($1, $2, $3, $4, $5, $6, $7, $8)";

/// What became of a message, as the function answers it.
fn outcome(code: Option<&i32>) -> DeliveryOutcome {
    match code {
        Some(1) => DeliveryOutcome::Delivered,
        Some(2) => DeliveryOutcome::Ended,
        _ => DeliveryOutcome::Started,
    }
}

/// Deliveries that share a statement.
pub(crate) struct Deliveries {
    deliveries: Vec<Pending<StartWithMessage, DeliveryOutcome>>,
    outcomes: Vec<i32>,
}

#[derive(Default)]
struct Columns<'a> {
    instance: Vec<&'a str>,
    start: Vec<&'a str>,
    parent: Vec<Option<&'a str>>,
    message: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn new(deliveries: &'a [Pending<StartWithMessage, DeliveryOutcome>]) -> Self {
        let mut columns = Self::default();
        for Pending { request: StartWithMessage { start, message }, .. } in deliveries {
            columns.instance.push(&start.instance);
            columns.start.push(&start.text);
            columns.parent.push(start.parent.as_deref());
            columns.message.push(&message.text);
        }
        columns
    }

    fn params(&self) -> Vec<Param<'_>> {
        params![
            p_instance: self.instance, p_start: self.start, p_parent: self.parent, p_message: self.message,
        ]
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signature() -> super::Signature {
    super::Signature::of(SQL, Columns::default().params())
}

impl Deliveries {
    pub(super) fn new(delivery: Pending<StartWithMessage, DeliveryOutcome>) -> Self {
        Self { deliveries: vec![delivery], outcomes: Vec::new() }
    }
}

impl Statement for Deliveries {
    fn rank(&self) -> usize {
        6
    }

    fn sql(&self) -> Vec<&'static str> {
        vec![SQL]
    }

    fn len(&self) -> usize {
        self.deliveries.len()
    }

    fn keeps_out(&self, job: &Job) -> bool {
        matches!(job, Job::Start(_))
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::StartWithMessage(_))
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        let Job::StartWithMessage(delivery) = job else { return Some(job) };
        self.deliveries.push(delivery);
        None
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move { sending.call(SQL, Columns::new(&self.deliveries).params()).await })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        let Some(row) = rows.first() else { return };
        self.outcomes = row.get::<_, Option<Vec<i32>>>("start_with_messages_2").unwrap_or_default();
        let is_queued = |code: &i32| outcome(Some(code)) != DeliveryOutcome::Ended;
        reading.effects.instances_touched |= self.outcomes.iter().any(is_queued);
    }

    fn recall(&mut self, memory: &BatchMemory, _reading: &mut Reading<'_>) {
        self.outcomes = memory.deliveries.clone();
    }

    fn answer(self: Box<Self>) {
        for (position, delivery) in self.deliveries.into_iter().enumerate() {
            delivery.reply.give(Ok(outcome(self.outcomes.get(position))));
        }
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.deliveries.into_iter().for_each(|delivery| delivery.reply.give(Err(failure.clone().into())));
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.deliveries.into_iter().map(Job::StartWithMessage).collect()
    }
}
