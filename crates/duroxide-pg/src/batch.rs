//! What is committed together: requests of the same kind share a statement, with an array for each column.

use duroxide::providers::{ProviderError, StartOutcome, refusal};
use tokio_postgres::Row;

use crate::columns::{MessageColumns, StartColumns, TurnColumns, WorkAckColumns, WorkColumns};
use crate::encode::{NewActivity, NewMessage, TurnCommit, WorkAck};
use crate::error::Failure;
use crate::jobs::{Call, Job, Pending, Reply};
use crate::pipeline::in_order;
use crate::session::Session;
use crate::shared::{Effects, Shared};

/// Requests that share a transaction.
#[derive(Default)]
pub(crate) struct Batch {
    turns: Vec<Pending<TurnCommit, u64>>,
    acks: Vec<Pending<WorkAck>>,
    messages: Vec<Pending<NewMessage>>,
    activities: Vec<Pending<NewActivity>>,
    starts: Vec<Pending<NewMessage, StartOutcome>>,
    calls: Vec<Box<dyn Call>>,
    syncs: Vec<Reply<()>>,
}

/// What became of the requests of a batch, by their positions.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// 0 committed, otherwise why not; see `ack_turns_1`.
    pub(crate) turns: Option<Vec<i32>>,
    /// The instance's incarnation, or the event that was there already, for turns that were refused because of it.
    pub(crate) turn_details: Vec<Option<i64>>,
    /// Activities that were not held, counted from 1.
    pub(crate) refused_work: Vec<i32>,
    /// Starts of ids that were taken, counted from 1.
    pub(crate) taken_starts: Vec<i32>,
}

impl Batch {
    /// Adds a job; gives it back if it has to wait for the next batch, because one lease can be ended only once.
    pub(crate) fn add(&mut self, job: Job) -> Option<Job> {
        match job {
            Job::AckTurn(turn) => {
                let is_same =
                    |other: &Pending<TurnCommit, u64>| other.request.instance == turn.request.instance;
                if self.turns.iter().any(is_same) {
                    return Some(Job::AckTurn(turn));
                }
                self.turns.push(*turn);
            }
            Job::AckWork(ack) => self.acks.push(ack),
            Job::Message(message) => self.messages.push(message),
            Job::Activity(activity) => self.activities.push(activity),
            Job::Start(start) => self.starts.push(start),
            Job::Call(call) => self.calls.push(call),
            Job::Sync(reply) => self.syncs.push(reply),
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.turns.len()
            + self.acks.len()
            + self.messages.len()
            + self.activities.len()
            + self.starts.len()
            + self.calls.len()
            + self.syncs.len()
    }

    /// Takes the batch apart.
    pub(crate) fn into_jobs(self) -> Vec<Job> {
        let turns = self.turns.into_iter().map(|turn| Job::AckTurn(Box::new(turn)));
        let acks = self.acks.into_iter().map(Job::AckWork);
        let messages = self.messages.into_iter().map(Job::Message);
        let activities = self.activities.into_iter().map(Job::Activity);
        let starts = self.starts.into_iter().map(Job::Start);
        let calls = self.calls.into_iter().map(Job::Call);
        let syncs = self.syncs.into_iter().map(Job::Sync);
        turns.chain(acks).chain(messages).chain(activities).chain(starts).chain(calls).chain(syncs).collect()
    }

    /// Prepares the statements that this batch needs, so that they can be sent without waiting for each other.
    pub(crate) async fn prepare(&self, session: &Session) -> Result<(), tokio_postgres::Error> {
        let groups = [
            (TurnColumns::SQL, self.turns.is_empty()),
            (WorkAckColumns::SQL, self.acks.is_empty()),
            (MessageColumns::SQL, self.messages.is_empty()),
            (WorkColumns::SQL, self.activities.is_empty()),
            (StartColumns::SQL, self.starts.is_empty()),
        ];
        let shared = groups.iter().filter(|(_, is_empty)| !is_empty).map(|(sql, _)| *sql);
        for sql in shared.chain(self.calls.iter().map(|call| call.sql())) {
            session.prepare(sql).await?;
        }
        Ok(())
    }

    /// Sends all statements of the batch and waits for their answers. With `careful`, events that are there already are
    /// looked for; otherwise they make the statement fail.
    pub(crate) async fn execute(
        &self,
        session: &Session,
        shared: &Shared,
        committer: &str,
        careful: bool,
    ) -> Vec<Result<Vec<Row>, tokio_postgres::Error>> {
        let now = shared.time.given_ms();
        let turns = TurnColumns::new(&self.turns, shared);
        let acks = WorkAckColumns::new(&self.acks, shared);
        let messages = MessageColumns::new(&self.messages);
        let activities = WorkColumns::new(&self.activities);
        let starts = StartColumns::new(&self.starts);
        let slot = shared.slot;
        let mut statements: Vec<crate::pipeline::Sent<'_>> = Vec::new();
        if !self.turns.is_empty() {
            statements.push(Box::pin(turns.send(session, now, committer, slot, careful)));
        }
        if !self.acks.is_empty() {
            statements.push(Box::pin(acks.send(session, now, committer)));
        }
        if !self.messages.is_empty() {
            statements.push(Box::pin(messages.send(session, now)));
        }
        if !self.activities.is_empty() {
            statements.push(Box::pin(activities.send(session, now)));
        }
        if !self.starts.is_empty() {
            statements.push(Box::pin(starts.send(session, now, committer)));
        }
        for call in &self.calls {
            statements.push(Box::pin(async move { session.query(call.sql(), &call.params()).await }));
        }
        in_order(statements).await
    }

    /// Reads the statements' answers: what was refused, and who has to be told.
    pub(crate) fn read(&mut self, answers: Vec<Vec<Row>>) -> (Verdicts, Effects) {
        let mut answers = answers.into_iter();
        let mut rows =
            |is_empty: bool| if is_empty { Vec::new() } else { answers.next().unwrap_or_default() };
        let mut verdicts = Verdicts::default();
        let mut effects = Effects::default();
        read_turns(&rows(self.turns.is_empty()), &mut verdicts, &mut effects);
        verdicts.refused_work = absent(&rows(self.acks.is_empty()), self.acks.len());
        if let Some(row) = rows(self.messages.is_empty()).first() {
            let next_due: Option<i64> = row.get(1);
            effects.next_due = effects.next_due.into_iter().chain(next_due).min();
        }
        rows(self.activities.is_empty());
        verdicts.taken_starts = absent(&rows(self.starts.is_empty()), self.starts.len());
        for call in &mut self.calls {
            call.note(rows(false), &mut effects);
        }
        self.add_effects(&verdicts, &mut effects);
        (verdicts, effects)
    }

    /// What the requests themselves say about whom to tell.
    pub(crate) fn add_effects(&self, verdicts: &Verdicts, effects: &mut Effects) {
        for (position, turn) in self.turns.iter().enumerate() {
            if verdicts.turn(position) != 0 {
                continue;
            }
            effects.work_ready |= !turn.request.activities.is_empty() || !turn.request.cancelled.is_empty();
            effects.instances_touched |= !turn.request.messages.is_empty();
            if turn.request.is_visible() {
                effects.changed_instances.push(crate::text::original(turn.request.instance.clone()));
            }
        }
        effects.instances_touched |= self.acks.len() > verdicts.refused_work.len()
            || !self.messages.is_empty()
            || self.starts.len() > verdicts.taken_starts.len();
        effects.work_ready |= !self.activities.is_empty();
    }

    /// Answers everybody, after the commit.
    pub(crate) fn answer(self, verdicts: &Verdicts) {
        for (position, turn) in self.turns.into_iter().enumerate() {
            let detail = verdicts.turn_details.get(position).copied().flatten().unwrap_or(0).unsigned_abs();
            let refusal = turn_refusal(verdicts.turn(position), detail, &turn.request);
            turn.reply.give(refusal.map_or(Ok(detail), |refusal| Err(refusal.into())));
        }
        for (place, ack) in (1..).zip(self.acks) {
            let refused = verdicts.refused_work.contains(&place);
            ack.reply.give(if refused { Err(refusal::work_not_held().into()) } else { Ok(()) });
        }
        for (place, start) in (1..).zip(self.starts) {
            let taken = verdicts.taken_starts.contains(&place);
            start.reply.give(Ok(if taken { StartOutcome::Existing } else { StartOutcome::New }));
        }
        self.messages.into_iter().for_each(|message| message.reply.give(Ok(())));
        self.activities.into_iter().for_each(|activity| activity.reply.give(Ok(())));
        self.calls.into_iter().for_each(|call| call.succeed());
        self.syncs.into_iter().for_each(|sync| sync.give(Ok(())));
    }

    /// Tells everybody that nothing was kept.
    pub(crate) fn fail(self, failure: &Failure) {
        let error = || Err(failure.clone().into());
        self.turns.into_iter().for_each(|turn| turn.reply.give(Err(failure.clone().into())));
        self.acks.into_iter().for_each(|ack| ack.reply.give(error()));
        self.messages.into_iter().for_each(|message| message.reply.give(error()));
        self.activities.into_iter().for_each(|activity| activity.reply.give(error()));
        self.starts.into_iter().for_each(|start| start.reply.give(Err(failure.clone().into())));
        self.calls.into_iter().for_each(|call| call.fail(failure));
        self.syncs.into_iter().for_each(|sync| sync.give(error()));
    }
}

impl Verdicts {
    fn turn(&self, position: usize) -> i32 {
        self.turns.as_ref().and_then(|turns| turns.get(position)).copied().unwrap_or(0)
    }
}

fn read_turns(rows: &[Row], verdicts: &mut Verdicts, effects: &mut Effects) {
    let Some((about_all, each)) = rows.split_first() else { return };
    effects.instances_touched |= about_all.get::<_, i32>(1) != 0;
    effects.next_due = about_all.get(2);
    verdicts.turns = Some(each.iter().map(|row| row.get(1)).collect());
    verdicts.turn_details = each.iter().map(|row| row.get(2)).collect();
}

/// The positions that are not among those that were done.
fn absent(done: &[Row], count: usize) -> Vec<i32> {
    if done.len() == count {
        return Vec::new();
    }
    let done: std::collections::HashSet<i32> = done.iter().map(|row| row.get(0)).collect();
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
