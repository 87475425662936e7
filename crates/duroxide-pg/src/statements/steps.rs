//! Steps: turns that are stored together with their causes, without a lease: `store_steps_1`, and `store_step_1` for a lone one
//! of the most common kind.

use duroxide::providers::LONGEST_OVERTAKING;
use tokio_postgres::Row;

use super::leases::join;
use super::turn_columns::TurnColumns;
use super::turns::{add_effects, event_taken, note_ends};
use super::{BatchMemory, Param, Reading, Sending, Statement, params};
use crate::encode::NewActivity;
use crate::error::Failure;
use crate::fetch::{Activities, StoredWork, WorkOrder};
use crate::gather::{Claimed, Order};
use crate::jobs::{Job, Pending, StepStored, StepToCommit};
use crate::pipeline::Sent;
use crate::server_identity::{incarnation, stored_incarnation};
use crate::shared::{Shared, whole_ms};

const SQL: &str = "SELECT * FROM store_steps_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41,
    $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59)";

const LONE_SQL: &str =
    "SELECT * FROM store_step_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22)";

/// No instance has it: what the caller holds is of another server.
const OF_ANOTHER_SERVER: i64 = -1;

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
    /// The outcome of each step, with the instance's incarnation.
    verdicts: Vec<(Verdict, u64)>,
    server: u64,
    work: Option<Activities>,
}

#[derive(Default)]
struct Columns<'a> {
    careful: bool,
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
    claim_max: i32,
    claim_ms: i64,
    claim_routes: Option<&'a [String]>,
    claim_seed: &'a str,
    overtaking_ms: i64,
}

impl<'a> Columns<'a> {
    fn new(statement: &'a Steps, shared: &Shared, server: u64, careful: bool) -> Self {
        let overtaking_ms = whole_ms(LONGEST_OVERTAKING);
        let mut columns = Self { careful, are_plain: true, overtaking_ms, ..Self::default() };
        let mut results = Vec::new();
        for (place, Pending { request, arrived, .. }) in (1..).zip(&statement.steps) {
            columns.held.push(stored_incarnation(server, request.incarnation).unwrap_or(OF_ANOTHER_SERVER));
            columns.held_execution.push(request.execution_id);
            columns.held_event.push(request.last_event_id);
            columns.timer.push(request.timer.as_deref());
            columns.are_plain &= request.is_plain();
            columns.steps.push(&request.turn);
            let waited = shared.time.waited_ms(*arrived);
            results.extend(request.results.iter().map(|(id, token)| (*id, place, token.as_str(), waited)));
        }
        // In the order in which others lock them.
        results.sort_unstable();
        for (id, step, token, waited) in results {
            columns.result_step.push(step);
            columns.result_id.push(id);
            columns.result_token.push(token);
            columns.result_waited.push(waited);
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
        all.extend(params![
            p_claim_max: self.claim_max,
            p_claim_ms: self.claim_ms,
            p_claim_routes: self.claim_routes,
            p_claim_seed: self.claim_seed,
            p_overtaking_ms: self.overtaking_ms,
        ]);
        all
    }
}

/// A lone step of the most common kind.
struct Lone<'a> {
    step: &'a Pending<StepToCommit, StepStored>,
    result: &'a (i64, String),
    order: &'a WorkOrder,
}

#[derive(Default)]
struct LoneColumns<'a> {
    instance: &'a str,
    held: i64,
    execution: i64,
    held_event: i64,
    result_id: i64,
    result_token: &'a str,
    result_waited: i64,
    event_id: Vec<i64>,
    event_type: Vec<&'a str>,
    event_data: Vec<&'a str>,
    work_activity: Vec<i64>,
    work_route: Vec<&'a str>,
    work_item: Vec<&'a str>,
    claim_max: i32,
    claim_ms: i64,
    claim_routes: &'a [String],
    claim_seed: &'a str,
    overtaking_ms: i64,
}

impl<'a> LoneColumns<'a> {
    fn new(lone: Lone<'a>, shared: &Shared, server: u64) -> Self {
        let StepToCommit { turn, incarnation, last_event_id, .. } = &lone.step.request;
        Self {
            instance: &turn.instance,
            held: stored_incarnation(server, *incarnation).unwrap_or(OF_ANOTHER_SERVER),
            execution: turn.execution_id,
            held_event: *last_event_id,
            result_id: lone.result.0,
            result_token: &lone.result.1,
            result_waited: shared.time.waited_ms(lone.step.arrived),
            event_id: turn.events.iter().map(|event| event.event_id).collect(),
            event_type: turn.events.iter().map(|event| event.event_type).collect(),
            event_data: turn.events.iter().map(|event| event.text.as_str()).collect(),
            work_activity: turn.activities.iter().map(|activity| activity.activity_id).collect(),
            work_route: turn.activities.iter().map(|activity| activity.route.as_str()).collect(),
            work_item: turn.activities.iter().map(|activity| activity.text.as_str()).collect(),
            claim_max: lone.order.stored_max(),
            claim_ms: lone.order.lease_ms,
            claim_routes: lone.order.routes.as_deref().unwrap_or_default(),
            claim_seed: &lone.order.seed,
            overtaking_ms: whole_ms(LONGEST_OVERTAKING),
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        params![
            p_instance: self.instance,
            p_held: self.held,
            p_execution: self.execution,
            p_held_event: self.held_event,
            p_result_id: self.result_id,
            p_result_token: self.result_token,
            p_result_waited_ms: self.result_waited,
            p_event_id: self.event_id,
            p_event_type: self.event_type,
            p_event_data: self.event_data,
            p_work_activity: self.work_activity,
            p_work_route: self.work_route,
            p_work_item: self.work_item,
            p_claim_max: self.claim_max,
            p_claim_ms: self.claim_ms,
            p_claim_routes: self.claim_routes,
            p_claim_seed: self.claim_seed,
            p_overtaking_ms: self.overtaking_ms,
        ]
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signatures() -> [super::Signature; 2] {
    let many = super::Signature::of(SQL, Columns::default().params());
    [many, super::Signature::of(LONE_SQL, LoneColumns::default().params())]
}

impl Steps {
    pub(super) fn new(step: Pending<StepToCommit, StepStored>) -> Self {
        let order = step.request.claim.clone();
        Self { steps: vec![step], order, verdicts: Vec::new(), server: 0, work: None }
    }

    /// Returns the step if it is the only one, and of the most common kind: the result of one activity, and a turn that
    /// changes nothing but history and new activities, which all fit the order.
    fn lone(&self) -> Option<Lone<'_>> {
        let ([step], Some(order)) = (self.steps.as_slice(), &self.order) else { return None };
        let StepToCommit { turn, results, timer, .. } = &step.request;
        let ([result], [route], None) = (results.as_slice(), order.routes.as_deref()?, timer) else {
            return None;
        };
        let is_usual = step.request.is_plain()
            && !turn.values.cleared
            && (turn.values.values.is_empty() && turn.cancelled.is_empty() && turn.messages.is_empty())
            && (1..=order.max).contains(&turn.activities.len());
        let fits = |activity: &NewActivity| {
            let is_own = activity.instance == turn.instance && activity.execution_id == turn.execution_id;
            is_own && activity.session_id.is_none() && activity.route == *route
        };
        (is_usual && turn.activities.iter().all(fits)).then_some(Lone { step, result, order })
    }

    fn has(&self, instance: &str) -> bool {
        self.steps.iter().any(|step| step.request.turn.instance == instance)
    }

    fn verdict(&self, position: usize) -> (Verdict, u64) {
        self.verdicts.get(position).copied().unwrap_or_default()
    }

    fn add_effects(&self, reading: &mut Reading<'_>) {
        for (position, step) in self.steps.iter().enumerate() {
            if self.verdict(position).0 == Verdict::Stored {
                add_effects(&step.request.turn, reading);
            }
        }
    }

    /// Reads the activities that were leased along: new ones, whose texts are here, and older ones.
    fn read_claims(&self, row: &Row, seed: &str) -> Vec<StoredWork> {
        let numbers = |name: &str| row.get::<_, Option<Vec<i64>>>(name).unwrap_or_default();
        let token = |id: i64| format!("lock_{seed}_{id}");
        let texts: Vec<&str> = self
            .steps
            .iter()
            .flat_map(|step| &step.request.turn.activities)
            .map(|activity| activity.text.as_str())
            .collect();
        let places: Vec<i32> = row.get::<_, Option<Vec<i32>>>("places").unwrap_or_default();
        let new = places.into_iter().zip(numbers("ids")).filter_map(|(place, id)| {
            let text = *texts.get(usize::try_from(place).ok()?.checked_sub(1)?)?;
            Some(StoredWork { id, token: token(id), attempts: 1, text: text.to_string() })
        });
        let items: Vec<String> = row.get::<_, Option<Vec<String>>>("old_items").unwrap_or_default();
        let old = numbers("old_ids").into_iter().zip(numbers("old_attempts")).zip(items);
        let old = old.map(|((id, attempts), text)| StoredWork { id, token: token(id), attempts, text });
        new.chain(old).collect()
    }
}

impl Statement for Steps {
    fn rank(&self) -> usize {
        1
    }

    fn sql(&self) -> Vec<&'static str> {
        if self.lone().is_some() { vec![SQL, LONE_SQL] } else { vec![SQL] }
    }

    fn len(&self) -> usize {
        self.steps.len()
    }

    fn keeps_out(&self, job: &Job) -> bool {
        match job {
            Job::AckTurn(turn) => self.has(&turn.request.turn.instance),
            Job::Step(step) => self.has(&step.request.turn.instance),
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
        self.steps.sort_by(|one, other| one.request.turn.instance.cmp(&other.request.turn.instance));
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move {
            if let Some(lone) = self.lone().filter(|_| !sending.careful) {
                let columns = LoneColumns::new(lone, sending.shared, sending.session.server());
                return sending.call(LONE_SQL, columns.params()).await;
            }
            let columns = Columns::new(self, sending.shared, sending.session.server(), sending.careful);
            sending.call(SQL, columns.params()).await
        })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        let Some(row) = rows.first() else { return };
        let codes: Vec<i32> = row.get("verdicts");
        let details: Vec<Option<i64>> = row.get("details");
        let detail = |position: usize| details.get(position).copied().flatten().unwrap_or(0).unsigned_abs();
        self.verdicts = codes
            .into_iter()
            .enumerate()
            .map(|(position, code)| (Verdict::read(code), detail(position)))
            .collect();
        self.server = reading.server;
        reading.effects.instances_touched |= row.get::<_, bool>("some_told");
        reading.effects.work_ready |= row.get::<_, bool>("some_ready");
        let next_due: Option<i64> = row.get("next_due");
        reading.effects.next_due = reading.effects.next_due.into_iter().chain(next_due).min();
        if let Some(order) = &self.order {
            let claims = self.read_claims(row, &order.seed);
            if !claims.is_empty() {
                note_ends(reading, order);
            }
            self.work = Some(Activities::along(reading.returner, claims));
        }
        self.add_effects(reading);
    }

    fn recall(&mut self, memory: &BatchMemory, reading: &mut Reading<'_>) {
        self.verdicts = memory.step_verdicts.iter().map(|code| (Verdict::read(*code), 0)).collect();
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
            let (verdict, detail) = self.verdict(position);
            let StepToCommit { turn, claim, .. } = step.request;
            match verdict {
                Verdict::EventTaken => {
                    step.reply.give(Err(event_taken("store_step", detail, &turn).into()));
                }
                Verdict::Conflict => step.reply.give(Ok(StepStored::Conflict)),
                Verdict::Stored => {
                    let incarnation = incarnation(self.server, detail);
                    let order = claim.filter(|order| key.as_deref() == Some(order.key().as_str()));
                    let work = order.and_then(|order| Some(self.work.as_mut()?.share(order.max)));
                    step.reply.give(Ok(StepStored::Stored { incarnation, work }));
                }
            }
        }
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.steps.into_iter().for_each(|step| step.reply.give(Err(failure.clone().into())));
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.steps.into_iter().map(|step| Job::Step(Box::new(step))).collect()
    }
}
