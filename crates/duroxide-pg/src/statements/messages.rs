//! Messages for instances: `enqueue_messages_3`.

use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::leases::{ClaimParams, read_instances};
use super::turn_columns::MessageColumns;
use super::{BatchMemory, Param, Reading, Sending, Statement, params};
use crate::encode::NewMessage;
use crate::error::Failure;
use crate::fetch::{Fetched, InstanceOrder, Instances};
use crate::gather::{Claimed, Order};
use crate::jobs::{Job, Pending};
use crate::pipeline::Sent;
use crate::shared::Shared;
use crate::waiting_dispatchers::{WaitingDispatcher, WaitingDispatchers};

const SQL: &str =
    "SELECT * FROM enqueue_messages_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

/// A dispatcher of this process that waits, and what is leased for it along with messages or starts.
#[derive(Default)]
pub(super) struct ForWaiting {
    pub(super) order: Option<InstanceOrder>,
    filled: Option<oneshot::Sender<Fetched>>,
    pub(super) instances: Option<Instances>,
}

impl ForWaiting {
    pub(super) fn take(waiting: &WaitingDispatchers) -> Self {
        match waiting.take() {
            Some(WaitingDispatcher { order, filled, .. }) => {
                Self { order: Some(order), filled: Some(filled), instances: None }
            }
            None => Self::default(),
        }
    }

    pub(super) fn seed(&self) -> Option<(&str, i64)> {
        self.order.as_ref().map(|order| (order.seed.as_str(), order.lease_ms))
    }

    /// Tells whether an instance was leased for the dispatcher.
    pub(super) fn include(&self, instance: &str) -> bool {
        self.instances.as_ref().is_some_and(|instances| instances.include(instance))
    }

    pub(super) fn hand_out(&mut self) {
        let max = self.order.take().map_or(0, |order| order.max());
        if let (Some(filled), Some(instances)) = (self.filled.take(), self.instances.as_mut()) {
            // If the dispatcher has gone away meanwhile, dropping its share gives the leases back.
            let _ = filled.send(instances.share(max));
        }
    }
}

/// Messages that share a statement.
pub(crate) struct Messages {
    messages: Vec<Pending<NewMessage>>,
    waiting: ForWaiting,
}

#[derive(Default)]
struct Columns<'a> {
    messages: MessageColumns<'a>,
    claim: ClaimParams<'a>,
}

impl<'a> Columns<'a> {
    fn new(statement: &'a Messages, shared: &Shared) -> Self {
        let claim = ClaimParams::new(statement.waiting.order.as_ref(), shared);
        let mut columns = Self { claim, ..Self::default() };
        statement.messages.iter().for_each(|message| columns.messages.push(&message.request));
        columns
    }

    fn params(&self) -> Vec<Param<'_>> {
        let messages = &self.messages;
        let mut all = params![
            p_instance: messages.instance,
            p_class: messages.class,
            p_delay_ms: messages.delay,
            p_due: messages.due,
            p_item: messages.item,
            p_parent: messages.parent,
        ];
        all.extend(self.claim.params());
        all
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signature() -> super::Signature {
    super::Signature::of(SQL, Columns::default().params())
}

impl Messages {
    pub(super) fn new(message: Pending<NewMessage>) -> Self {
        Self { messages: vec![message], waiting: ForWaiting::default() }
    }
}

impl Statement for Messages {
    fn rank(&self) -> usize {
        3
    }

    fn sql(&self) -> Vec<&'static str> {
        vec![SQL]
    }

    fn len(&self) -> usize {
        self.messages.len()
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::Message(_))
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        let Job::Message(message) = job else { return Some(job) };
        self.messages.push(message);
        None
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move { sending.call(SQL, Columns::new(self, sending.shared).params()).await })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        let Some((about, rows)) = rows.split_last() else { return };
        let next_due: Option<i64> = about.get("next_due");
        reading.effects.next_due = reading.effects.next_due.into_iter().chain(next_due).min();
        reading.effects.instances_touched |= next_due.is_some();
        self.waiting.instances = read_instances(rows, about, reading);
    }

    fn recall(&mut self, _memory: &BatchMemory, _reading: &mut Reading<'_>) {}

    fn seed(&self) -> Option<(&str, i64)> {
        self.waiting.seed()
    }

    fn without_claims(&mut self) {
        self.waiting = ForWaiting::default();
    }

    fn serve(&mut self, waiting: &WaitingDispatchers) {
        if self.messages.iter().any(|message| message.request.delay_ms == 0) {
            self.waiting = ForWaiting::take(waiting);
        }
    }

    fn awaited(&self) -> usize {
        self.messages.iter().filter(|message| self.waiting.include(&message.request.instance)).count()
    }

    fn hand_out(&mut self) {
        self.waiting.hand_out();
    }

    fn answer(self: Box<Self>) {
        self.messages.into_iter().for_each(|message| message.reply.give(Ok(())));
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.messages.into_iter().for_each(|message| message.reply.give(Err(failure.clone().into())));
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.messages.into_iter().map(Job::Message).collect()
    }
}
