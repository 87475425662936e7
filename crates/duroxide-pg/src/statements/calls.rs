//! A request that is a statement by itself.

use tokio_postgres::Row;

use super::{BatchMemory, Reading, Sending, Statement};
use crate::error::Failure;
use crate::jobs::{Call, Job};
use crate::pipeline::Sent;

/// A call of one statement, alone in its kind within a batch.
pub(crate) struct OneCall(Box<dyn Call>);

impl OneCall {
    pub(super) fn new(call: Box<dyn Call>) -> Self {
        Self(call)
    }
}

impl Statement for OneCall {
    fn rank(&self) -> usize {
        7
    }

    fn sql(&self) -> Vec<&'static str> {
        vec![self.0.sql()]
    }

    fn len(&self) -> usize {
        1
    }

    fn takes(&self, _job: &Job) -> bool {
        false
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        Some(job)
    }

    fn notes_batch(&self) -> bool {
        false
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move { sending.session.query(self.0.sql(), &self.0.params()).await })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        self.0.note(rows, &mut reading.effects);
    }

    fn recall(&mut self, _memory: &BatchMemory, _reading: &mut Reading<'_>) {}

    fn answer(self: Box<Self>) {
        self.0.succeed();
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.0.fail(failure);
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        vec![Job::Call(self.0)]
    }
}
