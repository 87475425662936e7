//! Turns of leased instances: `ack_turns_3`.

use duroxide::providers::{ProviderError, refusal};
use tokio_postgres::Row;

use super::leases::{join, note_effects, read_work};
use super::turn_columns::TurnColumns;
use super::{BatchMemory, Param, Reading, Sending, Statement, params};
use crate::encode::TurnCommit;
use crate::error::Failure;
use crate::fetch::{Activities, WorkOrder};
use crate::gather::{Claimed, Order};
use crate::jobs::{Job, Pending, TurnStored, TurnToCommit};
use crate::pipeline::Sent;
use crate::server_identity::incarnation;
use crate::shared::{Shared, clamp};

const SQL: &str = "SELECT * FROM ack_turns_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41,
    $42, $43, $44, $45, $46, $47, $48, $49, $50, $51)";

/// What became of a turn, as the function answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verdict {
    #[default]
    Committed,
    /// The token is not that of the lease.
    NotHeld,
    LeaseExpired,
    /// An event of it is there already.
    EventTaken,
}

impl Verdict {
    fn read(code: i32) -> Self {
        match code {
            0 => Self::Committed,
            1 => Self::NotHeld,
            2 => Self::LeaseExpired,
            _ => Self::EventTaken,
        }
    }
}

/// Turns that share a statement.
pub(crate) struct Turns {
    turns: Vec<Pending<TurnToCommit, TurnStored>>,
    /// The activities that callers order along with their turns, as far as they want the same kind.
    order: Option<WorkOrder>,
    /// The outcome of each turn, with the instance's incarnation or the event that was taken.
    verdicts: Vec<(Verdict, u64)>,
    server: u64,
    /// Activities leased along; `None` if callers have to ask for themselves.
    work: Option<Activities>,
}

#[derive(Default)]
struct Columns<'a> {
    careful: bool,
    token: Vec<&'a str>,
    waited: Vec<i64>,
    turns: TurnColumns<'a>,
    claim_max: i32,
    claim_ms: i64,
    claim_routes: Option<&'a [String]>,
    claim_seed: &'a str,
}

impl<'a> Columns<'a> {
    fn new(statement: &'a Turns, shared: &Shared, careful: bool) -> Self {
        let mut columns = Self { careful, ..Self::default() };
        for Pending { request, arrived, .. } in &statement.turns {
            columns.token.push(&request.turn.token);
            columns.waited.push(shared.time.waited_ms(*arrived));
            columns.turns.push(&request.turn);
        }
        if let Some(order) = &statement.order {
            columns.claim_max = order.stored_max();
            columns.claim_ms = order.lease_ms;
            columns.claim_routes = order.routes.as_deref();
            columns.claim_seed = &order.seed;
        }
        columns
    }

    fn params(&self) -> Vec<Param<'_>> {
        let mut all = params![
            p_careful: self.careful,
            p_token: self.token,
            p_instance: self.turns.instance,
            p_waited_ms: self.waited,
        ];
        all.extend(self.turns.about());
        all.extend(self.turns.parts());
        all.extend(params![
            p_claim_max: self.claim_max,
            p_claim_ms: self.claim_ms,
            p_claim_routes: self.claim_routes,
            p_claim_seed: self.claim_seed,
        ]);
        all
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signature() -> super::Signature {
    super::Signature::of(SQL, Columns::default().params())
}

impl Turns {
    pub(super) fn new(turn: Pending<TurnToCommit, TurnStored>) -> Self {
        let order = turn.request.claim.clone();
        Self { turns: vec![turn], order, verdicts: Vec::new(), server: 0, work: None }
    }

    fn has(&self, instance: &str) -> bool {
        self.turns.iter().any(|turn| turn.request.turn.instance == instance)
    }

    fn verdict(&self, position: usize) -> (Verdict, u64) {
        self.verdicts.get(position).copied().unwrap_or_default()
    }

    /// Adds the effects that the turns themselves show.
    fn add_effects(&self, reading: &mut Reading<'_>) {
        for (position, turn) in self.turns.iter().enumerate() {
            if self.verdict(position).0 == Verdict::Committed {
                add_effects(&turn.request.turn, reading);
            }
        }
    }
}

/// Adds the effects that a turn itself shows.
pub(super) fn add_effects(turn: &TurnCommit, reading: &mut Reading<'_>) {
    reading.effects.work_ready |= !turn.cancelled.is_empty();
    if turn.is_visible() {
        reading.effects.changed_instances.push(crate::text::original(turn.instance.clone()));
    }
}

/// Notes about when the leases of activities end: dispatchers have to look then.
pub(super) fn note_ends(reading: &Reading<'_>, order: &WorkOrder) {
    let shared = &reading.returner.shared;
    let end = clamp(shared.time.clock().now_ms()).saturating_add(order.lease_ms);
    shared.work_ready.may_be_due_at(Some(end));
}

impl Statement for Turns {
    fn rank(&self) -> usize {
        0
    }

    fn sql(&self) -> Vec<&'static str> {
        vec![SQL]
    }

    fn len(&self) -> usize {
        self.turns.len()
    }

    fn keeps_out(&self, job: &Job) -> bool {
        match job {
            Job::AckTurn(turn) => self.has(&turn.request.turn.instance),
            Job::Step(step) => step.request.turns().any(|held| self.has(&held.turn.instance)),
            _ => false,
        }
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::AckTurn(_))
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        let Job::AckTurn(turn) = job else { return Some(job) };
        if let Some(order) = &turn.request.claim {
            join(&mut self.order, order);
        }
        self.turns.push(*turn);
        None
    }

    fn sort(&mut self) {
        self.turns.sort_by(|one, other| one.request.turn.instance.cmp(&other.request.turn.instance));
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move {
            let columns = Columns::new(self, sending.shared, sending.careful);
            sending.call(SQL, columns.params()).await
        })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        let [row] = rows.as_slice() else { return };
        let codes: Vec<i32> = row.get("verdicts");
        let details: Vec<Option<i64>> = row.get::<_, Option<_>>("details").unwrap_or_default();
        let details = details.into_iter().map(|detail| detail.unwrap_or(0).unsigned_abs());
        self.verdicts =
            codes.into_iter().map(Verdict::read).zip(details.chain(std::iter::repeat(0))).collect();
        note_effects(row, reading);
        self.server = reading.server;
        // Otherwise something has to be looked at before anything is leased, so callers have to ask for themselves.
        let may_lease = !row.get::<_, bool>("leases_nothing");
        if let Some(order) = self.order.as_ref().filter(|_| may_lease) {
            let texts = self.turns.iter().flat_map(|turn| &turn.request.turn.activities);
            let mut claims = read_work(row, &texts.collect::<Vec<_>>(), &order.seed);
            claims.sort_by_key(|claim| claim.id);
            if !claims.is_empty() {
                note_ends(reading, order);
            }
            self.work = Some(Activities::along(reading.returner, claims));
        }
        self.add_effects(reading);
    }

    fn recall(&mut self, memory: &BatchMemory, reading: &mut Reading<'_>) {
        self.verdicts = memory.turn_verdicts.iter().map(|code| (Verdict::read(*code), 0)).collect();
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
        for (position, turn) in std::mem::take(&mut self.turns).into_iter().enumerate() {
            let (verdict, detail) = self.verdict(position);
            let TurnToCommit { turn: committed, claim } = turn.request;
            if let Some(refusal) = refusal(verdict, detail, &committed) {
                turn.reply.give(Err(refusal.into()));
                continue;
            }
            let incarnation = incarnation(self.server, detail);
            let order = claim.filter(|order| key.as_deref() == Some(order.key().as_str()));
            let work = order.and_then(|order| Some(self.work.as_mut()?.share(order.max)));
            turn.reply.give(Ok(TurnStored { incarnation, work }));
        }
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.turns.into_iter().for_each(|turn| turn.reply.give(Err(failure.clone().into())));
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.turns.into_iter().map(|turn| Job::AckTurn(Box::new(turn))).collect()
    }
}

fn refusal(verdict: Verdict, taken_event: u64, turn: &TurnCommit) -> Option<ProviderError> {
    const OPERATION: &str = "ack_orchestration_item";
    match verdict {
        Verdict::Committed => None,
        Verdict::NotHeld => Some(refusal::unknown_turn_token(OPERATION)),
        Verdict::LeaseExpired => Some(refusal::turn_lease_expired()),
        Verdict::EventTaken => Some(event_taken(OPERATION, taken_event, turn)),
    }
}

pub(super) fn event_taken(operation: &'static str, taken_event: u64, turn: &TurnCommit) -> ProviderError {
    let instance = crate::text::original(turn.instance.clone());
    refusal::duplicate_event(operation, &instance, turn.execution_id.unsigned_abs(), taken_event)
}
