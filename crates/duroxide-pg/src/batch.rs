//! A batch: requests of the same kind share a statement, with an array for each column.

use duroxide::providers::{DeliveryOutcome, ProviderError, StartOutcome, refusal};
use tokio::sync::oneshot;
use tokio_postgres::Row;

use crate::columns::{
    ClaimColumns, DeliveryColumns, Mark, MessageColumns, StartColumns, TurnColumns, WorkAckColumns,
    WorkColumns,
};
use crate::encode::{NewActivity, NewMessage, TurnCommit};
use crate::error::{Failure, QueryError};
use crate::fetch::{Activities, Fetched, InstanceOrder, Instances, StoredWork, WorkOrder};
use crate::gather::{Claimed, Order};
use crate::give_backs::LeaseReturner;
use crate::jobs::{Call, Job, Pending, Reply, ResultToCommit, StartWithMessage, TurnStored, TurnToCommit};
use crate::pipeline::{Sent, in_order};
use crate::server_identity::incarnation;
use crate::session::Session;
use crate::shared::{DueSignal, Effects, Shared, clamp};
use crate::waiting_dispatchers::{WaitingDispatcher, WaitingDispatchers};

/// Requests that share a transaction.
#[derive(Default)]
pub(crate) struct Batch {
    turns: Vec<Pending<TurnToCommit, TurnStored>>,
    acks: Vec<Pending<ResultToCommit>>,
    messages: Vec<Pending<NewMessage>>,
    activities: Vec<Pending<NewActivity>>,
    starts: Vec<Pending<NewMessage, StartOutcome>>,
    deliveries: Vec<Pending<StartWithMessage, DeliveryOutcome>>,
    calls: Vec<Box<dyn Call>>,
    syncs: Vec<Reply<()>>,
    /// The activities that callers order along with their turns, as far as they want the same kind.
    work_order: Option<WorkOrder>,
    /// The instances that callers order along with their results, or that a waiting dispatcher gets along with
    /// messages.
    instance_order: Option<InstanceOrder>,
    /// Receives the instances that were leased for a waiting dispatcher.
    waiting: Option<oneshot::Sender<Fetched>>,
}

/// The outcomes of the requests of a batch, by their positions.
#[derive(Default)]
pub(crate) struct Verdicts {
    /// 0 committed, otherwise why not; see `ack_turns_2`.
    pub(crate) turns: Option<Vec<i32>>,
    /// The instance's incarnation; for a turn refused because one of its events was there already, that event.
    pub(crate) turn_details: Vec<Option<i64>>,
    /// The number of the server that committed the batch.
    pub(crate) server: u64,
    /// The commit was on the server's disk when the server answered.
    pub(crate) is_synced: bool,
    /// Results whose activity the caller no longer held, counted from 1.
    pub(crate) refused_work: Vec<i32>,
    /// Starts whose id was taken, counted from 1.
    pub(crate) taken_starts: Vec<i32>,
    /// The outcomes of messages that bring a start along; see `start_with_messages_1`.
    pub(crate) deliveries: Vec<i32>,
    /// Activities leased along with turns; `None` if callers have to ask for themselves.
    pub(crate) work: Option<Activities>,
    /// Instances leased along with results, messages or starts.
    pub(crate) instances: Option<Instances>,
}

/// Adds an order to the joint order, if both are of the same kind.
fn join<O: Order>(joint: &mut Option<O>, order: &O) {
    *joint = match joint.take() {
        None => Some(order.clone()),
        Some(joint) if joint.key() == order.key() => {
            let max = joint.max().saturating_add(order.max());
            Some(joint.for_all(max))
        }
        Some(joint) => Some(joint),
    };
}

impl Batch {
    /// Adds a job. Gives it back if it has to wait for the next batch: one transaction can end a lease only once, and
    /// two statements that lock ids in one batch might take their locks in another order than those of another process.
    pub(crate) fn add(&mut self, job: Job) -> Option<Job> {
        match job {
            Job::AckTurn(turn) => {
                let instance = &turn.request.turn.instance;
                if self.turns.iter().any(|other| other.request.turn.instance == *instance) {
                    return Some(Job::AckTurn(turn));
                }
                if let Some(order) = &turn.request.claim {
                    join(&mut self.work_order, order);
                }
                self.turns.push(*turn);
            }
            Job::AckWork(ack) => {
                if let Some((order, _)) = &ack.request.claim {
                    join(&mut self.instance_order, order);
                }
                self.acks.push(*ack);
            }
            Job::Message(message) => self.messages.push(message),
            Job::Activity(activity) => self.activities.push(activity),
            Job::Start(start) if !self.deliveries.is_empty() => return Some(Job::Start(start)),
            Job::Start(start) => self.starts.push(start),
            Job::StartWithMessage(delivery) if !self.starts.is_empty() => {
                return Some(Job::StartWithMessage(delivery));
            }
            Job::StartWithMessage(delivery) => self.deliveries.push(delivery),
            Job::Call(call) => self.calls.push(call),
            Job::Sync(reply) => self.syncs.push(reply),
        }
        None
    }

    /// Drops the orders: leasing what callers ordered may be what makes the batch fail. They ask for themselves.
    pub(crate) fn without_claims(mut self) -> Self {
        self.work_order = None;
        self.instance_order = None;
        self.waiting = None;
        self
    }

    /// Puts requests into the order in which the statements take their locks.
    pub(crate) fn sort(&mut self) {
        self.turns.sort_by(|one, other| one.request.turn.instance.cmp(&other.request.turn.instance));
        self.acks.sort_by_key(|ack| ack.request.ack.id);
    }

    pub(crate) fn len(&self) -> usize {
        self.turns.len()
            + self.acks.len()
            + self.messages.len()
            + self.activities.len()
            + self.starts.len()
            + self.deliveries.len()
            + self.calls.len()
            + self.syncs.len()
    }

    /// If the batch is all messages or all starts, takes the order of a waiting dispatcher, to fill it along with them.
    pub(crate) fn serve(&mut self, waiting_dispatchers: &WaitingDispatchers) {
        let is_at_once = |message: &Pending<NewMessage>| message.request.delay_ms == 0;
        let is_all = |count: usize| count > 0 && count == self.len();
        let is_all_messages = is_all(self.messages.len()) && self.messages.iter().any(is_at_once);
        if !is_all_messages && !is_all(self.starts.len()) {
            return;
        }
        if let Some(WaitingDispatcher { order, filled, .. }) = waiting_dispatchers.take() {
            self.instance_order = Some(order);
            self.waiting = Some(filled);
        }
    }

    /// Tells whether one of the requests needs a sync at once, because no turn is about to follow and bring one.
    pub(crate) fn is_urgent(&self, verdicts: &Verdicts) -> bool {
        let leased = verdicts.instances.as_ref().filter(|_| self.waiting.is_some());
        let is_leased = |instance: &str| leased.is_some_and(|instances| instances.include(instance));
        let awaited = self.acks.iter().filter(|ack| ack.request.claim.is_some()).count();
        let messages = self.messages.iter().filter(|message| is_leased(&message.request.instance)).count();
        let starts = self.starts.iter().filter(|start| is_leased(&start.request.instance)).count();
        awaited + messages + starts < self.len()
    }

    /// Takes the batch apart.
    pub(crate) fn into_jobs(self) -> Vec<Job> {
        let turns = self.turns.into_iter().map(|turn| Job::AckTurn(Box::new(turn)));
        let acks = self.acks.into_iter().map(|ack| Job::AckWork(Box::new(ack)));
        let messages = self.messages.into_iter().map(Job::Message);
        let activities = self.activities.into_iter().map(Job::Activity);
        let starts = self.starts.into_iter().map(Job::Start);
        let deliveries = self.deliveries.into_iter().map(Job::StartWithMessage);
        let calls = self.calls.into_iter().map(Job::Call);
        let syncs = self.syncs.into_iter().map(Job::Sync);
        let enqueued = messages.chain(activities).chain(starts).chain(deliveries);
        turns.chain(acks).chain(enqueued).chain(calls).chain(syncs).collect()
    }

    /// Returns the statements that several requests share.
    fn shared_statements(&self) -> impl Iterator<Item = &'static str> {
        let groups = [
            (TurnColumns::SQL, self.turns.is_empty()),
            (WorkAckColumns::SQL, self.acks.is_empty()),
            (MessageColumns::SQL, self.messages.is_empty()),
            (WorkColumns::SQL, self.activities.is_empty()),
            (StartColumns::SQL, self.starts.is_empty()),
            (DeliveryColumns::SQL, self.deliveries.is_empty()),
        ];
        groups.into_iter().filter(|(_, is_empty)| !is_empty).map(|(sql, _)| sql)
    }

    /// Tells whether the batch is one statement, which notes the batch itself and needs no transaction around it.
    pub(crate) fn is_one_statement(&self) -> bool {
        self.calls.is_empty() && self.shared_statements().count() == 1
    }

    /// Tells whether the batch writes nothing and only makes durable what other connections have committed.
    pub(crate) fn is_only_syncs(&self) -> bool {
        self.syncs.len() == self.len()
    }

    /// Prepares the statements that this batch needs, so that they can be sent without waiting for each other.
    pub(crate) async fn prepare(&self, session: &Session) -> Result<(), QueryError> {
        for sql in self.shared_statements().chain(self.calls.iter().map(|call| call.sql())) {
            session.prepare(sql).await?;
        }
        Ok(())
    }

    /// Returns the seeds of the leases that the batch takes, and how long these last.
    pub(crate) fn seeds_of_claims(&self) -> Vec<(&str, i64)> {
        let work = self.work_order.as_ref().map(|order| (order.seed.as_str(), order.lease_ms));
        let instances = self.instance_order.as_ref().map(|order| (order.seed.as_str(), order.lease_ms));
        work.into_iter().chain(instances).collect()
    }

    /// Sends all statements of the batch and waits for their answers. With `careful`, the server looks for events that
    /// are there already and refuses their turns; otherwise such an event makes the statement fail.
    pub(crate) async fn execute(
        &self,
        session: &Session,
        shared: &Shared,
        mark: Mark<'_>,
        careful: bool,
    ) -> Vec<Result<Vec<Row>, QueryError>> {
        let now = shared.time.given_ms();
        let turns = TurnColumns::new(&self.turns, shared);
        let acks = WorkAckColumns::new(&self.acks, shared);
        let messages = MessageColumns::new(&self.messages);
        let activities = WorkColumns::new(&self.activities);
        let starts = StartColumns::new(&self.starts);
        let deliveries = DeliveryColumns::new(&self.deliveries);
        let work = self.work_order.as_ref();
        let order = self.instance_order.as_ref();
        let claim = ClaimColumns::new(order, shared);
        // Only one of the statements leases instances.
        let claim_for_waiting = ClaimColumns::new(order.filter(|_| self.waiting.is_some()), shared);
        let mut statements: Vec<Sent<'_>> = Vec::new();
        if !self.turns.is_empty() {
            statements.push(Box::pin(turns.send(session, shared, mark, careful, work)));
        }
        if !self.acks.is_empty() {
            statements.push(Box::pin(acks.send(session, now, mark, claim)));
        }
        if !self.messages.is_empty() {
            statements.push(Box::pin(messages.send(session, now, mark, claim_for_waiting)));
        }
        if !self.activities.is_empty() {
            statements.push(Box::pin(activities.send(session, now, mark)));
        }
        if !self.starts.is_empty() {
            statements.push(Box::pin(starts.send(session, now, mark, claim_for_waiting)));
        }
        if !self.deliveries.is_empty() {
            statements.push(Box::pin(deliveries.send(session, now, mark)));
        }
        for call in &self.calls {
            statements.push(Box::pin(async move { session.query(call.sql(), &call.params()).await }));
        }
        in_order(statements).await
    }

    /// Reads the statements' answers: what the server refused, what it leased, and whom to tell.
    pub(crate) fn read(&mut self, returner: &LeaseReturner, answers: Vec<Vec<Row>>) -> (Verdicts, Effects) {
        let mut answers = answers.into_iter();
        let mut rows =
            |is_empty: bool| if is_empty { Vec::new() } else { answers.next().unwrap_or_default() };
        let mut verdicts = Verdicts::default();
        let mut effects = Effects::default();
        self.read_turns(returner, &rows(self.turns.is_empty()), &mut verdicts, &mut effects);
        self.read_results(returner, &rows(self.acks.is_empty()), &mut verdicts, &mut effects);
        self.read_messages(returner, &rows(self.messages.is_empty()), &mut verdicts, &mut effects);
        rows(self.activities.is_empty());
        self.read_starts(returner, &rows(self.starts.is_empty()), &mut verdicts, &mut effects);
        if let Some(row) = rows(self.deliveries.is_empty()).first() {
            verdicts.deliveries = row.get::<_, Option<Vec<i32>>>(0).unwrap_or_default();
            effects.instances_touched |= verdicts.deliveries.iter().any(|outcome| *outcome < 2);
        }
        for call in &mut self.calls {
            call.note(rows(false), &mut effects);
        }
        self.add_effects(&verdicts, &mut effects);
        (verdicts, effects)
    }

    fn read_turns(
        &self,
        returner: &LeaseReturner,
        rows: &[Row],
        verdicts: &mut Verdicts,
        effects: &mut Effects,
    ) {
        let Some((about, rows)) = rows.split_last() else { return };
        let notes: i32 = about.get(1);
        effects.instances_touched |= notes & 1 != 0;
        effects.work_ready |= notes & 2 != 0;
        effects.next_due = about.get(2);
        let (mut turns, mut claims) = (Vec::new(), Vec::new());
        let mut texts = self.turns.iter().flat_map(|turn| &turn.request.turn.activities);
        let mut next_text = 1;
        for row in rows {
            if let Some(verdict) = row.get(1) {
                turns.push(verdict);
                verdicts.turn_details.push(row.get(2));
                continue;
            }
            // The server returns an activity of this batch without its text, and such activities in the order of their
            // places.
            let own = row.get::<_, Option<i32>>(0).and_then(|place| {
                let skipped = usize::try_from(place - next_text).unwrap_or(0);
                next_text = place + 1;
                texts.nth(skipped).map(|activity| activity.text.clone())
            });
            let text = own.or_else(|| row.get(5)).unwrap_or_default();
            claims.push(StoredWork { id: row.get(2), token: row.get(3), attempts: row.get(4), text });
        }
        verdicts.turns = Some(turns);
        claims.sort_by_key(|claim: &StoredWork| claim.id);
        if let Some(order) = self.work_order.as_ref().filter(|_| notes & 4 == 0) {
            if !claims.is_empty() {
                // About when their leases end: dispatchers have to look then.
                let shared = &returner.shared;
                let end = clamp(shared.time.clock().now_ms()).saturating_add(order.lease_ms);
                shared.work_ready.may_be_due_at(Some(end));
            }
            verdicts.work = Some(Activities::along(returner, claims));
        }
    }

    fn read_results(
        &self,
        returner: &LeaseReturner,
        rows: &[Row],
        verdicts: &mut Verdicts,
        effects: &mut Effects,
    ) {
        let Some((about, rows)) = rows.split_last() else { return };
        let done: Vec<i32> = about.get::<_, Option<Vec<i32>>>(20).unwrap_or_default();
        verdicts.refused_work = absent(done.into_iter(), self.acks.len());
        read_instances(returner, rows, about, verdicts, effects);
    }

    fn read_messages(
        &self,
        returner: &LeaseReturner,
        rows: &[Row],
        verdicts: &mut Verdicts,
        effects: &mut Effects,
    ) {
        let Some((about, rows)) = rows.split_last() else { return };
        let next_due: Option<i64> = about.get(13);
        effects.next_due = effects.next_due.into_iter().chain(next_due).min();
        effects.instances_touched |= next_due.is_some();
        read_instances(returner, rows, about, verdicts, effects);
    }

    fn read_starts(
        &self,
        returner: &LeaseReturner,
        rows: &[Row],
        verdicts: &mut Verdicts,
        effects: &mut Effects,
    ) {
        let Some((about, rows)) = rows.split_last() else { return };
        let enqueued: Vec<i32> = about.get::<_, Option<Vec<i32>>>(20).unwrap_or_default();
        verdicts.taken_starts = absent(enqueued.into_iter(), self.starts.len());
        read_instances(returner, rows, about, verdicts, effects);
    }

    /// Adds the effects that the requests themselves show.
    fn add_effects(&self, verdicts: &Verdicts, effects: &mut Effects) {
        for (position, turn) in self.turns.iter().enumerate() {
            if verdicts.turn(position) != 0 {
                continue;
            }
            let turn = &turn.request.turn;
            effects.work_ready |= !turn.cancelled.is_empty();
            if turn.is_visible() {
                effects.changed_instances.push(crate::text::original(turn.instance.clone()));
            }
        }
        effects.work_ready |= !self.activities.is_empty();
    }

    /// Returns the effects of a batch whose answer was lost. The answer would have told what is due and when, so all
    /// dispatchers look.
    pub(crate) fn all_effects(&self, verdicts: &Verdicts) -> Effects {
        let mut effects = Effects { instances_touched: true, work_ready: true, ..Effects::default() };
        self.add_effects(verdicts, &mut effects);
        effects
    }

    /// Hands out the instances leased along with results and messages, which need not be durable for that.
    pub(crate) fn hand_out(&mut self, verdicts: &mut Verdicts) {
        let order = self.instance_order.take();
        if let (Some(filled), Some(instances)) = (self.waiting.take(), verdicts.instances.as_mut()) {
            // If the dispatcher has gone away meanwhile, dropping its share gives the leases back.
            let _ = filled.send(instances.share(order.as_ref().map_or(0, Order::max)));
        }
        let key = order.map(|order| order.key());
        for (place, ack) in (1..).zip(&mut self.acks) {
            let Some((order, reply)) = ack.request.claim.take() else { continue };
            if verdicts.refused_work.contains(&place) {
                reply.give(Err(refusal::work_not_held().into()));
                continue;
            }
            let is_shared = key.as_deref() == Some(order.key().as_str());
            let instances = verdicts.instances.as_mut().filter(|_| is_shared);
            reply.give(Ok(instances.map(|instances| instances.share(order.max))));
        }
    }

    /// Answers all callers, once the batch is durable.
    pub(crate) fn answer(self, mut verdicts: Verdicts) {
        let key = self.work_order.map(|order| order.key());
        for (position, turn) in self.turns.into_iter().enumerate() {
            let detail = verdicts.turn_details.get(position).copied().flatten().unwrap_or(0).unsigned_abs();
            let TurnToCommit { turn: committed, claim } = turn.request;
            if let Some(refusal) = turn_refusal(verdicts.turn(position), detail, &committed) {
                turn.reply.give(Err(refusal.into()));
                continue;
            }
            let incarnation = incarnation(verdicts.server, detail);
            let work = claim.filter(|order| key.as_deref() == Some(order.key().as_str()));
            let work = work.and_then(|order| Some(verdicts.work.as_mut()?.share(order.max)));
            turn.reply.give(Ok(TurnStored { incarnation, work }));
        }
        for (place, ack) in (1..).zip(self.acks) {
            let refused = verdicts.refused_work.contains(&place);
            ack.reply.give(if refused { Err(refusal::work_not_held().into()) } else { Ok(()) });
        }
        for (place, start) in (1..).zip(self.starts) {
            let taken = verdicts.taken_starts.contains(&place);
            start.reply.give(Ok(if taken { StartOutcome::Existing } else { StartOutcome::New }));
        }
        for (position, delivery) in self.deliveries.into_iter().enumerate() {
            delivery.reply.give(Ok(match verdicts.deliveries.get(position) {
                Some(1) => DeliveryOutcome::Delivered,
                Some(2) => DeliveryOutcome::Ended,
                _ => DeliveryOutcome::Started,
            }));
        }
        self.messages.into_iter().for_each(|message| message.reply.give(Ok(())));
        self.activities.into_iter().for_each(|activity| activity.reply.give(Ok(())));
        self.calls.into_iter().for_each(|call| call.succeed());
        self.syncs.into_iter().for_each(|sync| sync.give(Ok(())));
    }

    /// Tells all callers that the server kept nothing, or that its outcome is unknown.
    pub(crate) fn fail(self, failure: &Failure) {
        let error = || Err(failure.clone().into());
        self.turns.into_iter().for_each(|turn| turn.reply.give(Err(failure.clone().into())));
        for ack in self.acks {
            if let Some((_, reply)) = ack.request.claim {
                reply.give(Err(failure.clone().into()));
            }
            ack.reply.give(error());
        }
        self.messages.into_iter().for_each(|message| message.reply.give(error()));
        self.activities.into_iter().for_each(|activity| activity.reply.give(error()));
        self.starts.into_iter().for_each(|start| start.reply.give(Err(failure.clone().into())));
        self.deliveries.into_iter().for_each(|delivery| delivery.reply.give(Err(failure.clone().into())));
        self.calls.into_iter().for_each(|call| call.fail(failure));
        self.syncs.into_iter().for_each(|sync| sync.give(error()));
    }
}

impl Verdicts {
    fn turn(&self, position: usize) -> i32 {
        self.turns.as_ref().and_then(|turns| turns.get(position)).copied().unwrap_or(0)
    }
}

/// Reads the instances leased along with the statement; without an order, reads whether dispatchers have to look.
fn read_instances(
    returner: &LeaseReturner,
    rows: &[Row],
    about: &Row,
    verdicts: &mut Verdicts,
    effects: &mut Effects,
) {
    if rows.is_empty() {
        effects.instances_touched |= about.get::<_, Option<bool>>(19).unwrap_or(false);
    } else {
        let instances = Instances::read(returner, rows, DueSignal::may_be_due_at);
        effects.instances_touched |= instances.in_line;
        verdicts.instances = Some(instances);
    }
}

/// Returns the positions that are not among those that were done.
fn absent(done: impl ExactSizeIterator<Item = i32>, count: usize) -> Vec<i32> {
    if done.len() == count {
        return Vec::new();
    }
    let done: std::collections::HashSet<i32> = done.collect();
    (1..).take(count).filter(|place| !done.contains(place)).collect()
}

fn turn_refusal(verdict: i32, taken_event: u64, turn: &TurnCommit) -> Option<ProviderError> {
    const OPERATION: &str = "ack_orchestration_item";
    match verdict {
        0 => None,
        1 => Some(refusal::unknown_turn_token(OPERATION)),
        2 => Some(refusal::turn_lease_expired()),
        _ => {
            let instance = crate::text::original(turn.instance.clone());
            let execution_id = turn.execution_id.unsigned_abs();
            Some(refusal::duplicate_event(OPERATION, &instance, execution_id, taken_event))
        }
    }
}
