//! Lone steps of the common kinds, each with a function of its own that needs fewer statements than `store_steps_1`:
//!
//! | kind | function |
//! |---|---|
//! | an instance starts and schedules activities | `store_start_1` |
//! | the result of an activity, and the turn schedules activities | `store_step_1` |
//! | the result of an activity, and the turn ends the instance | `store_end_1` |
//!
//! An orchestration that takes one step after another is made of these. They answer as `store_steps_1` does, and call it if the store
//! finds anything unusual.

use duroxide::providers::inspect;

use super::leases::WorkClaimParams;
use super::{Param, params};
use crate::encode::{NewActivity, TurnCommit};
use crate::fetch::WorkOrder;
use crate::gather::Order;
use crate::jobs::{HeldTurn, Pending, StepStored, StepToCommit};
use crate::server_identity::stored_incarnation;
use crate::shared::Shared;

const START_SQL: &str =
    "SELECT * FROM store_start_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22, $23)";

const MIDDLE_SQL: &str =
    "SELECT * FROM store_step_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22)";

const END_SQL: &str =
    "SELECT * FROM store_end_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21)";

/// No instance has it: what the caller holds is of another server.
pub(super) const OF_ANOTHER_SERVER: i64 = -1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Start,
    Middle,
    End,
}

/// A lone step of one of the common kinds.
pub(super) struct Lone<'a> {
    kind: Kind,
    step: &'a Pending<StepToCommit, StepStored>,
    order: Option<&'a WorkOrder>,
}

impl<'a> Lone<'a> {
    /// Returns the step, if it is of a common kind and the order is for one route.
    pub(super) fn of(
        step: &'a Pending<StepToCommit, StepStored>,
        order: Option<&'a WorkOrder>,
    ) -> Option<Self> {
        let StepToCommit { first, then, results, timer, .. } = &step.request;
        let turn = &first.turn;
        let is_simple = timer.is_none()
            && then.is_empty()
            && !turn.values.cleared
            && (turn.values.values.is_empty() && turn.cancelled.is_empty() && turn.messages.is_empty())
            && turn.custom_status.is_none();
        let one_route = order.map(|order| order.routes.as_deref());
        let route = match one_route {
            None => None,
            Some(Some([route])) => Some(route.as_str()),
            Some(_) => return None,
        };
        let kind = match results.len() {
            0 if is_start(first) => Kind::Start,
            1 if first.is_plain() => Kind::Middle,
            1 if is_end(first) => Kind::End,
            _ => return None,
        };
        let has_fitting_work = || {
            let max = order.map_or(0, |order| order.max);
            (1..=max).contains(&turn.activities.len())
                && turn.activities.iter().all(|activity| is_for(activity, turn, route))
        };
        let is_usual = match kind {
            Kind::Start | Kind::Middle => has_fitting_work(),
            Kind::End => turn.activities.is_empty(),
        };
        (is_simple && is_usual).then_some(Self { kind, step, order })
    }

    pub(super) fn sql(&self) -> &'static str {
        match self.kind {
            Kind::Start => START_SQL,
            Kind::Middle => MIDDLE_SQL,
            Kind::End => END_SQL,
        }
    }
}

/// Tells whether the turn makes an instance that has no parent and goes on.
fn is_start(held: &HeldTurn) -> bool {
    let turn = &held.turn;
    (held.incarnation, held.last_event_id, held.execution_id) == (0, 0, turn.execution_id)
        && turn.name.is_some()
        && turn.version.is_some()
        && (&turn.status, &turn.parent) == (&None, &None)
        && !turn.is_terminal
}

/// Tells whether the turn ends its instance, and changes nothing else about it.
fn is_end(held: &HeldTurn) -> bool {
    let turn = &held.turn;
    held.incarnation != 0
        && turn.execution_id == held.execution_id
        && turn.is_terminal
        && turn.status.as_deref().is_some_and(inspect::is_terminal_status)
        && (&turn.name, &turn.version) == (&None, &None)
        && turn.pinned.is_none()
}

/// Tells whether an activity is the turn's own and can be leased at once by a claim for this route.
fn is_for(activity: &NewActivity, turn: &TurnCommit, route: Option<&str>) -> bool {
    activity.instance == turn.instance
        && activity.execution_id == turn.execution_id
        && activity.session_id.is_none()
        && Some(activity.route.as_str()) == route
}

/// What the functions are told.
#[derive(Default)]
pub(super) struct LoneColumns<'a> {
    instance: &'a str,
    held: i64,
    execution: i64,
    held_event: i64,
    name: Option<&'a str>,
    version: Option<&'a str>,
    pinned: Option<&'a str>,
    pinned_numbers: [Option<i64>; 3],
    result_id: i64,
    result_token: &'a str,
    result_waited: i64,
    status: Option<&'a str>,
    output: Option<&'a str>,
    event_id: Vec<i64>,
    event_type: Vec<&'a str>,
    event_data: Vec<&'a str>,
    work_activity: Vec<i64>,
    work_route: Vec<&'a str>,
    work_item: Vec<&'a str>,
    claim: WorkClaimParams<'a>,
}

impl<'a> LoneColumns<'a> {
    pub(super) fn new(lone: &Lone<'a>, shared: &Shared, server: u64) -> Self {
        let HeldTurn { turn, incarnation, last_event_id, .. } = &lone.step.request.first;
        let (result_id, result_token) =
            lone.step.request.results.first().map_or((0, ""), |(id, token)| (*id, token.as_str()));
        let order = lone.order;
        let pinned = turn.pinned.as_ref();
        Self {
            instance: &turn.instance,
            held: stored_incarnation(server, *incarnation).unwrap_or(OF_ANOTHER_SERVER),
            execution: turn.execution_id,
            held_event: *last_event_id,
            name: turn.name.as_deref(),
            version: turn.version.as_deref(),
            pinned: pinned.map(|pinned| pinned.text.as_str()),
            pinned_numbers: pinned.map_or([None; 3], |pinned| pinned.numbers.map(Some)),
            result_id,
            result_token,
            result_waited: shared.time.waited_ms(lone.step.arrived),
            status: turn.status.as_deref(),
            output: turn.output.as_deref(),
            event_id: turn.events.iter().map(|event| event.event_id).collect(),
            event_type: turn.events.iter().map(|event| event.event_type).collect(),
            event_data: turn.events.iter().map(|event| event.text.as_str()).collect(),
            work_activity: turn.activities.iter().map(|activity| activity.activity_id).collect(),
            work_route: turn.activities.iter().map(|activity| activity.route.as_str()).collect(),
            work_item: turn.activities.iter().map(|activity| activity.text.as_str()).collect(),
            claim: WorkClaimParams::new(order, order.map_or(0, Order::stored_max)),
        }
    }

    pub(super) fn params(&self, lone: &Lone<'_>) -> Vec<Param<'_>> {
        self.params_of(lone.kind)
    }

    fn params_of(&self, kind: Kind) -> Vec<Param<'_>> {
        let [major, minor, patch] = &self.pinned_numbers;
        let mut all = match kind {
            Kind::Start => params![
                p_instance: self.instance,
                p_execution: self.execution,
                p_name: self.name,
                p_version: self.version,
                p_pinned: self.pinned,
                p_major: *major,
                p_minor: *minor,
                p_patch: *patch,
            ],
            Kind::Middle | Kind::End => params![
                p_instance: self.instance,
                p_held: self.held,
                p_execution: self.execution,
                p_held_event: self.held_event,
                p_result_id: self.result_id,
                p_result_token: self.result_token,
                p_result_waited_ms: self.result_waited,
            ],
        };
        if kind == Kind::End {
            all.extend(params![p_status: self.status, p_output: self.output]);
        }
        all.extend(params![
            p_event_id: self.event_id,
            p_event_type: self.event_type,
            p_event_data: self.event_data,
        ]);
        if kind != Kind::End {
            all.extend(params![
                p_work_activity: self.work_activity,
                p_work_route: self.work_route,
                p_work_item: self.work_item,
            ]);
        }
        all.extend(self.claim.params());
        all
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signatures() -> [super::Signature; 3] {
    [(START_SQL, Kind::Start), (MIDDLE_SQL, Kind::Middle), (END_SQL, Kind::End)]
        .map(|(sql, kind)| super::Signature::of(sql, LoneColumns::default().params_of(kind)))
}
