//! A batch: the statements of one transaction.

use tokio_postgres::Row;

use crate::error::{Failure, QueryError};
use crate::give_backs::LeaseReturner;
use crate::jobs::{Job, Reply};
use crate::pipeline::in_order;
use crate::session::Session;
use crate::shared::Effects;
use crate::statements::{self, BatchMemory, Reading, Sending, Statement};
use crate::waiting_dispatchers::WaitingDispatchers;

/// Requests that share a transaction, as a list of statements in the order in which they take their locks.
#[derive(Default)]
pub(crate) struct Batch {
    statements: Vec<Box<dyn Statement>>,
    /// Callers that have no request, and hear when the batch is durable.
    syncs: Vec<Reply<()>>,
}

impl Batch {
    /// Makes a batch of one.
    pub(crate) fn alone(job: Job) -> Self {
        let mut batch = Self::default();
        // An empty batch takes any job, so nothing comes back.
        let _ = batch.add(job);
        batch
    }

    /// Adds a job. Gives it back if it has to wait for the next batch.
    pub(crate) fn add(&mut self, job: Job) -> Option<Job> {
        if let Job::Sync(reply) = job {
            self.syncs.push(reply);
            return None;
        }
        let mut job = job;
        // A statement of another kind may also keep it out, so all are asked before one takes it.
        let mut taker = None;
        for (place, statement) in self.statements.iter_mut().enumerate() {
            if statement.keeps_out(&job) {
                return Some(job);
            }
            if statement.takes(&job) {
                taker = Some(place);
            }
        }
        if let Some(statement) = taker.and_then(|place| self.statements.get_mut(place)) {
            job = statement.add(job)?;
        }
        if let Some(statement) = statements::new(job) {
            let place = self.statements.partition_point(|other| other.rank() <= statement.rank());
            self.statements.insert(place, statement);
        }
        None
    }

    /// Drops the orders of callers, who then ask for themselves.
    pub(crate) fn without_claims(mut self) -> Self {
        self.statements.iter_mut().for_each(|statement| statement.without_claims());
        self
    }

    /// Puts requests into the order in which the statements take their locks.
    pub(crate) fn sort(&mut self) {
        self.statements.iter_mut().for_each(|statement| statement.sort());
    }

    pub(crate) fn len(&self) -> usize {
        self.statements.iter().map(|statement| statement.len()).sum::<usize>() + self.syncs.len()
    }

    /// If the batch is all messages or all starts, takes the order of a waiting dispatcher, to fill it along with them.
    pub(crate) fn serve(&mut self, waiting: &WaitingDispatchers) {
        if let ([statement], true) = (self.statements.as_mut_slice(), self.syncs.is_empty()) {
            statement.serve(waiting);
        }
    }

    /// Tells whether one of the requests needs a sync at once, because no turn is about to follow and bring one.
    pub(crate) fn is_urgent(&self) -> bool {
        self.statements.iter().map(|statement| statement.awaited()).sum::<usize>() < self.len()
    }

    /// Takes the batch apart.
    pub(crate) fn into_jobs(self) -> Vec<Job> {
        let jobs = self.statements.into_iter().flat_map(|statement| statement.into_jobs());
        jobs.chain(self.syncs.into_iter().map(Job::Sync)).collect()
    }

    /// Tells whether the batch is one statement, which notes the batch itself and needs no transaction around it.
    pub(crate) fn is_one_statement(&self) -> bool {
        matches!(self.statements.as_slice(), [statement] if statement.notes_batch())
    }

    /// Tells whether the batch writes nothing and only makes durable what other connections have committed.
    pub(crate) fn is_only_syncs(&self) -> bool {
        self.statements.is_empty()
    }

    /// Prepares the statements, so that they can be sent without waiting for each other.
    pub(crate) async fn prepare(&self, session: &Session) -> Result<(), QueryError> {
        for sql in self.statements.iter().flat_map(|statement| statement.sql()) {
            session.prepare(sql).await?;
        }
        Ok(())
    }

    /// Returns the seeds of the leases that the batch takes, and how long these last.
    pub(crate) fn seeds_of_claims(&self) -> Vec<(&str, i64)> {
        self.statements.iter().filter_map(|statement| statement.seed()).collect()
    }

    /// Sends all statements and waits for their answers.
    pub(crate) async fn execute(&self, sending: Sending<'_>) -> Vec<Result<Vec<Row>, QueryError>> {
        in_order(self.statements.iter().map(|statement| statement.send(sending)).collect()).await
    }

    /// Takes note of the statements' answers; returns whom to tell.
    pub(crate) fn read(&mut self, returner: &LeaseReturner, server: u64, answers: Vec<Vec<Row>>) -> Effects {
        let mut reading = Reading { returner, server, effects: Effects::default() };
        for (statement, rows) in self.statements.iter_mut().zip(answers) {
            statement.read(rows, &mut reading);
        }
        reading.effects
    }

    /// Takes note of what the server remembers of a batch whose answer was lost. The answer would have told what is due
    /// and when, so all dispatchers look.
    pub(crate) fn recall(&mut self, returner: &LeaseReturner, server: u64, memory: &BatchMemory) -> Effects {
        let effects = Effects { instances_touched: true, work_ready: true, ..Effects::default() };
        let mut reading = Reading { returner, server, effects };
        self.statements.iter_mut().for_each(|statement| statement.recall(memory, &mut reading));
        reading.effects
    }

    /// Hands out what was leased along, which need not be durable for that.
    pub(crate) fn hand_out(&mut self) {
        self.statements.iter_mut().for_each(|statement| statement.hand_out());
    }

    /// Answers all callers, once the batch is durable.
    pub(crate) fn answer(self) {
        self.statements.into_iter().for_each(|statement| statement.answer());
        self.syncs.into_iter().for_each(|sync| sync.give(Ok(())));
    }

    /// Tells all callers that the server kept nothing, or that its outcome is unknown.
    pub(crate) fn fail(self, failure: &Failure) {
        self.statements.into_iter().for_each(|statement| statement.fail(failure));
        self.syncs.into_iter().for_each(|sync| sync.give(Err(failure.clone().into())));
    }
}
