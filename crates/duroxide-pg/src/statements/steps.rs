//! Steps: turns that are stored together with their causes, without a lease: `store_steps_1`. A lone one of a common kind has a
//! function of its own; see `lone_steps`.
//!
//! Steps of several turns go in rounds, a call of `store_round_1` for each: first the first turns of all steps, then the second
//! ones, and so on, in one transaction.

use tokio_postgres::Row;

use super::leases::{WorkClaimParams, join, note_effects, read_work};
use super::lone_steps::{Lone, LoneColumns, OF_ANOTHER_SERVER};
use super::turn_columns::TurnColumns;
use super::turns::{add_effects, event_taken, note_ends};
use super::{BatchMemory, Param, Reading, Sending, Statement, params};
use crate::encode::TurnCommit;
use crate::error::Failure;
use crate::fetch::{Activities, StoredWork, WorkOrder};
use crate::gather::{Claimed, Order};
use crate::jobs::{HeldTurn, Job, Pending, StepStored, StepToCommit};
use crate::pipeline::{Sent, in_order};
use crate::server_identity::{incarnation, stored_incarnation};
use crate::shared::Shared;

const SQL: &str = "SELECT * FROM store_steps_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41,
    $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59)";

const ROUND_SQL: &str = "SELECT * FROM store_round_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41,
    $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61)";

/// The code with which a round fails if a turn of it does not fit. Nothing of the transaction remains.
const LATER_TURN_REFUSED: &str = "DX002";

/// What became of a step, as the function answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verdict {
    #[default]
    Stored,
    /// An event of it is there already.
    EventTaken,
    /// The instance is not what the caller took it for, or a result's activity is not held.
    Conflict,
}

impl Verdict {
    fn read(code: i32) -> Self {
        match code {
            0 => Self::Stored,
            3 => Self::EventTaken,
            _ => Self::Conflict,
        }
    }
}

/// Steps that share a statement.
pub(crate) struct Steps {
    steps: Vec<Pending<StepToCommit, StepStored>>,
    /// The activities that callers order along with their steps, as far as they want the same kind.
    order: Option<WorkOrder>,
    verdicts: Vec<Verdict>,
    /// What the function tells beside the verdict of each step: for each of its turns, the instance's incarnation.
    details: Vec<Vec<u64>>,
    server: u64,
    work: Option<Activities>,
}

#[derive(Default)]
struct Columns<'a> {
    careful: bool,
    round: i32,
    /// For each turn, the position of its step.
    step: Vec<i32>,
    held: Vec<i64>,
    held_execution: Vec<i64>,
    held_event: Vec<i64>,
    timer: Vec<Option<&'a str>>,
    steps: TurnColumns<'a>,
    are_plain: bool,
    result_step: Vec<i32>,
    result_id: Vec<i64>,
    result_token: Vec<&'a str>,
    result_waited: Vec<i64>,
    claim: WorkClaimParams<'a>,
}

impl<'a> Columns<'a> {
    fn new(statement: &'a Steps, shared: &Shared, server: u64, careful: bool, round: usize) -> Self {
        let round_number = i32::try_from(round + 1).unwrap_or(i32::MAX);
        let order = statement.order.as_ref();
        let share = order.map_or(0, |order| statement.share_of_round(order, round));
        let claim = WorkClaimParams::new(order, i32::try_from(share).unwrap_or(i32::MAX));
        let mut columns = Self { careful, round: round_number, are_plain: true, claim, ..Self::default() };
        for (place, held) in statement.round(round) {
            let cause = statement.steps.get(place).filter(|_| round == 0).map(|step| &step.request);
            columns.step.push(i32::try_from(place + 1).unwrap_or(i32::MAX));
            columns.held.push(stored_incarnation(server, held.incarnation).unwrap_or(OF_ANOTHER_SERVER));
            columns.held_execution.push(held.execution_id);
            columns.held_event.push(held.last_event_id);
            columns.timer.push(cause.and_then(|cause| cause.timer.as_deref()));
            columns.are_plain &= held.is_plain();
            columns.steps.push(&held.turn);
        }
        if round == 0 {
            columns.push_results(statement, shared);
        }
        columns
    }

    fn push_results(&mut self, statement: &'a Steps, shared: &Shared) {
        let mut results = Vec::new();
        for (place, Pending { request, arrived, .. }) in (1..).zip(&statement.steps) {
            let waited = shared.time.waited_ms(*arrived);
            results.extend(request.results.iter().map(|(id, token)| (*id, place, token.as_str(), waited)));
        }
        // In the order in which others lock them.
        results.sort_unstable();
        for (id, step, token, waited) in results {
            self.result_step.push(step);
            self.result_id.push(id);
            self.result_token.push(token);
            self.result_waited.push(waited);
        }
    }

    /// The parameters of a round.
    fn round_params(&self) -> Vec<Param<'_>> {
        let mut all = self.params();
        // Behind `p_careful`.
        all.splice(1..1, params![p_round: self.round, p_step: self.step]);
        all
    }

    fn params(&self) -> Vec<Param<'_>> {
        let mut all = params![
            p_careful: self.careful,
            p_instance: self.steps.instance,
            p_held: self.held,
            p_held_execution: self.held_execution,
            p_held_event: self.held_event,
            p_timer: self.timer,
        ];
        all.extend(self.steps.about());
        all.extend(params![
            p_are_plain: self.are_plain,
            p_result_step: self.result_step,
            p_result_id: self.result_id,
            p_result_token: self.result_token,
            p_result_waited_ms: self.result_waited,
        ]);
        all.extend(self.steps.parts());
        all.extend(self.claim.params());
        all
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signatures() -> [super::Signature; 2] {
    let many = super::Signature::of(SQL, Columns::default().params());
    [many, super::Signature::of(ROUND_SQL, Columns::default().round_params())]
}

impl Steps {
    pub(super) fn new(step: Pending<StepToCommit, StepStored>) -> Self {
        let order = step.request.claim.clone();
        let (verdicts, details) = (Vec::new(), Vec::new());
        Self { steps: vec![step], order, verdicts, details, server: 0, work: None }
    }

    /// Returns the step if it is the only one, and of a common kind.
    fn lone(&self) -> Option<Lone<'_>> {
        let [step] = self.steps.as_slice() else { return None };
        Lone::of(step, self.order.as_ref())
    }

    /// How many turns the longest step has.
    fn rounds(&self) -> usize {
        self.steps.iter().map(|step| 1 + step.request.then.len()).max().unwrap_or(0)
    }

    /// The turns of a round, each with the place of its step, in the order in which they take their locks.
    fn round<'a>(&'a self, round: usize) -> Vec<(usize, &'a HeldTurn)> {
        let nth = |(place, step): (usize, &'a Pending<StepToCommit, StepStored>)| {
            Some((place, step.request.turns().nth(round)?))
        };
        let mut turns: Vec<(usize, &HeldTurn)> = self.steps.iter().enumerate().filter_map(nth).collect();
        if round > 0 {
            turns.sort_by(|(_, one), (_, other)| one.turn.instance.cmp(&other.turn.instance));
        }
        turns
    }

    /// How many activities a round leases: its own, as far as the order goes; the last one leases what is left of it.
    fn share_of_round(&self, order: &WorkOrder, round: usize) -> usize {
        // Room for an activity that the caller does not take would go to older ones, before the next round has entered its own.
        let own = |round: usize| {
            let activities = self.round(round).into_iter().flat_map(|(_, held)| &held.turn.activities);
            activities.filter(|activity| order.takes_along(activity)).count()
        };
        let left = (0..round).fold(order.max, |left, earlier| left.saturating_sub(own(earlier)));
        if round + 1 == self.rounds() { left } else { left.min(own(round)) }
    }

    /// Tells whether a turn has to wait for the next batch: one of these steps has a turn of its instance, or a later turn of
    /// an instance to which it sends a message. The message would come first, and that turn would not fit any more.
    fn is_in_the_way_of(&self, turn: &TurnCommit) -> bool {
        let has = |instance: &str| self.steps.iter().any(|step| step.request.has(instance));
        let has_later = |instance: &str| self.steps.iter().any(|step| step.request.has_later(instance));
        has(&turn.instance) || turn.messages.iter().any(|message| has_later(&message.instance))
    }

    fn verdict(&self, position: usize) -> Verdict {
        self.verdicts.get(position).copied().unwrap_or_default()
    }

    fn add_effects(&self, reading: &mut Reading<'_>) {
        for (position, step) in self.steps.iter().enumerate() {
            if self.verdict(position) == Verdict::Stored {
                step.request.turns().for_each(|held| add_effects(&held.turn, reading));
            }
        }
    }

    /// Reads the answer of a round: verdicts in the first one, details, whom to tell. Returns what it has leased.
    fn read_round(&mut self, round: usize, row: &Row, reading: &mut Reading<'_>) -> Vec<StoredWork> {
        let codes: Vec<i32> = row.get("verdicts");
        let details: Vec<Option<i64>> = row.get("details");
        if round == 0 {
            self.verdicts = codes.into_iter().map(Verdict::read).collect();
            self.details = vec![Vec::new(); self.steps.len()];
        }
        let places: Vec<usize> = self.round(round).into_iter().map(|(place, _)| place).collect();
        for (place, detail) in places.into_iter().zip(details) {
            if let Some(known) = self.details.get_mut(place) {
                known.push(detail.unwrap_or(0).unsigned_abs());
            }
        }
        note_effects(row, reading);
        let Some(order) = &self.order else { return Vec::new() };
        let turns = self.round(round);
        let texts = turns.iter().flat_map(|(_, held)| &held.turn.activities);
        read_work(row, &texts.collect::<Vec<_>>(), &order.seed)
    }
}

impl Statement for Steps {
    fn rank(&self) -> usize {
        1
    }

    fn sql(&self) -> Vec<&'static str> {
        match self.rounds() {
            // What is tried one by one goes alone.
            0 | 1 => std::iter::once(SQL).chain(self.lone().map(|lone| lone.sql())).collect(),
            _ => vec![ROUND_SQL],
        }
    }

    fn len(&self) -> usize {
        self.steps.len()
    }

    fn keeps_out(&self, job: &Job) -> bool {
        match job {
            Job::AckTurn(turn) => self.is_in_the_way_of(&turn.request.turn),
            Job::Step(step) => step.request.turns().any(|held| self.is_in_the_way_of(&held.turn)),
            _ => false,
        }
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::Step(_))
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        let Job::Step(step) = job else { return Some(job) };
        if let Some(order) = &step.request.claim {
            join(&mut self.order, order);
        }
        self.steps.push(*step);
        None
    }

    fn sort(&mut self) {
        let instance = |step: &Pending<StepToCommit, StepStored>| step.request.first.turn.instance.clone();
        self.steps.sort_by_cached_key(instance);
    }

    fn notes_batch(&self) -> bool {
        self.rounds() <= 1
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move {
            let (shared, server) = (sending.shared, sending.session.server());
            if let Some(lone) = self.lone().filter(|_| !sending.careful) {
                let columns = LoneColumns::new(&lone, shared, server);
                return sending.call(lone.sql(), columns.params(&lone)).await;
            }
            let columns = |round| Columns::new(self, shared, server, sending.careful, round);
            if self.rounds() <= 1 {
                return sending.call(SQL, columns(0).params()).await;
            }
            let rounds: Vec<Columns<'_>> = (0..self.rounds()).map(columns).collect();
            let calls = rounds.iter().map(|round| -> Sent<'_> {
                Box::pin(async move { sending.call(ROUND_SQL, round.round_params()).await })
            });
            let answers = in_order(calls.collect()).await;
            let rows: Result<Vec<Vec<Row>>, _> = answers.into_iter().collect();
            Ok(rows?.into_iter().flatten().collect())
        })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        let mut claims = Vec::new();
        for (round, row) in rows.iter().enumerate() {
            claims.extend(self.read_round(round, row, reading));
        }
        self.server = reading.server;
        if let Some(order) = &self.order {
            if !claims.is_empty() {
                note_ends(reading, order);
            }
            self.work = Some(Activities::along(reading.returner, claims));
        }
        self.add_effects(reading);
    }

    fn recall(&mut self, memory: &BatchMemory, reading: &mut Reading<'_>) {
        self.verdicts = memory.step_verdicts.iter().map(|code| Verdict::read(*code)).collect();
        self.server = reading.server;
        self.add_effects(reading);
    }

    fn seed(&self) -> Option<(&str, i64)> {
        self.order.as_ref().map(|order| (order.seed.as_str(), order.lease_ms))
    }

    fn without_claims(&mut self) {
        self.order = None;
    }

    fn answer(mut self: Box<Self>) {
        let key = self.order.as_ref().map(Order::key);
        for (position, step) in std::mem::take(&mut self.steps).into_iter().enumerate() {
            let details = self.details.get(position).cloned().unwrap_or_default();
            let StepToCommit { first, then, claim, .. } = step.request;
            match self.verdict(position) {
                Verdict::EventTaken => {
                    let event = details.first().copied().unwrap_or(0);
                    step.reply.give(Err(event_taken("store_step", event, &first.turn).into()));
                }
                Verdict::Conflict => step.reply.give(Ok(StepStored::Conflict)),
                Verdict::Stored => {
                    let known = details.into_iter().chain(std::iter::repeat(0)).take(1 + then.len());
                    let incarnations = known.map(|detail| incarnation(self.server, detail)).collect();
                    let order = claim.filter(|order| key.as_deref() == Some(order.key().as_str()));
                    let work = order.and_then(|order| Some(self.work.as_mut()?.share(order.max)));
                    step.reply.give(Ok(StepStored::Stored { incarnations, work }));
                }
            }
        }
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        let is_refused = failure.code.as_ref().is_some_and(|code| code.code() == LATER_TURN_REFUSED);
        for step in self.steps {
            match is_refused && !step.request.then.is_empty() {
                true => step.reply.give(Ok(StepStored::Conflict)),
                false => step.reply.give(Err(failure.clone().into())),
            }
        }
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.steps.into_iter().map(|step| Job::Step(Box::new(step))).collect()
    }
}
