//! Requests as columns: one array a column, for statements that take many requests at once.

use duroxide::providers::{DeliveryOutcome, StartOutcome};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::encode::{NewActivity, NewMessage, TurnCommit};
use crate::error::QueryError;
use crate::fetch::{InstanceOrder, WorkOrder};
use crate::gather::Order;
use crate::jobs::{Pending, ResultToCommit, StartWithMessage, TurnStored, TurnToCommit};
use crate::session::Session;
use crate::shared::Shared;
use crate::shared_connection::Columns;

type Answer = Result<Vec<Row>, QueryError>;

/// The batch that a statement belongs to. A statement that is a batch by itself also notes that the batch was made.
#[derive(Clone, Copy)]
pub(crate) struct Mark<'a> {
    pub(crate) committer: &'a str,
    pub(crate) epoch: i64,
    /// `None` if a statement of its own makes the note.
    pub(crate) batch: Option<i64>,
}

/// The instances that a statement leases along.
#[derive(Clone, Copy)]
pub(crate) struct ClaimColumns<'a> {
    max: i32,
    lease_ms: i64,
    parking_ms: i64,
    known: Option<&'a [String]>,
    allowed: Option<&'a [String]>,
    seed: &'a str,
}

impl<'a> ClaimColumns<'a> {
    /// Makes the columns of an order; without one the statement leases nothing.
    pub(crate) fn new(order: Option<&'a InstanceOrder>, shared: &Shared) -> Self {
        let classes = order.and_then(|order| order.classes.as_ref());
        Self {
            max: order.map_or(0, InstanceOrder::stored_max),
            lease_ms: order.map_or(0, |order| order.lease_ms),
            parking_ms: shared.parking_ms,
            known: classes.map(|(known, _)| known.as_slice()),
            allowed: classes.map(|(_, allowed)| allowed.as_slice()),
            seed: order.map_or("", |order| order.seed.as_str()),
        }
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.max, &self.lease_ms, &self.parking_ms, &self.known, &self.allowed, &self.seed]
    }
}

/// Runs a statement whose parameters are the time, the batch, columns of its own and, if it leases, the order.
async fn call(
    session: &Session,
    sql: &'static str,
    now: Option<i64>,
    mark: Mark<'_>,
    columns: Columns<'_>,
    claim: Option<ClaimColumns<'_>>,
) -> Answer {
    let Mark { committer, epoch, batch } = mark;
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&now, &committer, &epoch, &batch];
    params.extend(columns);
    params.extend(claim.iter().flat_map(ClaimColumns::params));
    session.query(sql, &params).await
}

/// Activities, as columns.
#[derive(Default)]
pub(crate) struct WorkColumns<'a> {
    instance: Vec<&'a str>,
    execution: Vec<i64>,
    activity: Vec<i64>,
    session: Vec<Option<&'a str>>,
    route: Vec<&'a str>,
    item: Vec<&'a str>,
}

impl<'a> WorkColumns<'a> {
    pub(crate) const SQL: &'static str = "SELECT enqueue_work_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

    pub(crate) fn new(pending: &'a [Pending<NewActivity>]) -> Self {
        let mut columns = Self::default();
        pending.iter().for_each(|pending| columns.push(&pending.request));
        columns
    }

    fn push(&mut self, activity: &'a NewActivity) {
        self.instance.push(&activity.instance);
        self.execution.push(activity.execution_id);
        self.activity.push(activity.activity_id);
        self.session.push(activity.session_id.as_deref());
        self.route.push(&activity.route);
        self.item.push(&activity.text);
    }

    pub(crate) async fn send(&self, session: &Session, now: Option<i64>, mark: Mark<'_>) -> Answer {
        let Self { instance, execution, activity, session: of_session, route, item } = self;
        let columns: Columns<'_> = &[instance, execution, activity, of_session, route, item];
        call(session, Self::SQL, now, mark, columns, None).await
    }
}

/// Messages, as columns.
#[derive(Default)]
pub(crate) struct MessageColumns<'a> {
    instance: Vec<&'a str>,
    class: Vec<&'a str>,
    delay: Vec<i64>,
    due: Vec<i64>,
    item: Vec<&'a str>,
    parent: Vec<Option<&'a str>>,
}

impl<'a> MessageColumns<'a> {
    pub(crate) const SQL: &'static str = "SELECT * FROM enqueue_messages_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

    pub(crate) fn new(pending: &'a [Pending<NewMessage>]) -> Self {
        let mut columns = Self::default();
        pending.iter().for_each(|pending| columns.push(&pending.request));
        columns
    }

    fn push(&mut self, message: &'a NewMessage) {
        self.instance.push(&message.instance);
        self.class.push(message.class);
        self.delay.push(message.delay_ms);
        self.due.push(message.due_at);
        self.item.push(&message.text);
        self.parent.push(message.parent.as_deref());
    }

    /// Sends them; leases instances along if there is an order.
    pub(crate) async fn send(
        &self,
        session: &Session,
        now: Option<i64>,
        mark: Mark<'_>,
        claim: ClaimColumns<'_>,
    ) -> Answer {
        let Self { instance, class, delay, due, item, parent } = self;
        let columns: Columns<'_> = &[instance, class, delay, due, item, parent];
        call(session, Self::SQL, now, mark, columns, Some(claim)).await
    }
}

/// Starts, as columns.
pub(crate) struct StartColumns<'a> {
    instance: Vec<&'a str>,
    item: Vec<&'a str>,
    parent: Vec<Option<&'a str>>,
}

impl<'a> StartColumns<'a> {
    pub(crate) const SQL: &'static str =
        "SELECT * FROM enqueue_starts_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

    pub(crate) fn new(pending: &'a [Pending<NewMessage, StartOutcome>]) -> Self {
        Self {
            instance: pending.iter().map(|start| start.request.instance.as_str()).collect(),
            item: pending.iter().map(|start| start.request.text.as_str()).collect(),
            parent: pending.iter().map(|start| start.request.parent.as_deref()).collect(),
        }
    }

    /// Sends them; leases instances along if there is an order.
    pub(crate) async fn send(
        &self,
        session: &Session,
        now: Option<i64>,
        mark: Mark<'_>,
        claim: ClaimColumns<'_>,
    ) -> Answer {
        let Self { instance, item, parent } = self;
        let columns: Columns<'_> = &[instance, item, parent];
        call(session, Self::SQL, now, mark, columns, Some(claim)).await
    }
}

/// Messages with the starts that go with them, as columns.
#[derive(Default)]
pub(crate) struct DeliveryColumns<'a> {
    instance: Vec<&'a str>,
    start: Vec<&'a str>,
    message: Vec<&'a str>,
}

impl<'a> DeliveryColumns<'a> {
    pub(crate) const SQL: &'static str = "SELECT start_with_messages_1($1, $2, $3, $4, $5, $6, $7)";

    pub(crate) fn new(pending: &'a [Pending<StartWithMessage, DeliveryOutcome>]) -> Self {
        let mut columns = Self::default();
        for Pending { request: StartWithMessage { start, message }, .. } in pending {
            columns.instance.push(&start.instance);
            columns.start.push(&start.text);
            columns.message.push(&message.text);
        }
        columns
    }

    pub(crate) async fn send(&self, session: &Session, now: Option<i64>, mark: Mark<'_>) -> Answer {
        let Self { instance, start, message } = self;
        let columns: Columns<'_> = &[instance, start, message];
        call(session, Self::SQL, now, mark, columns, None).await
    }
}

/// Ends of activities, as columns.
#[derive(Default)]
pub(crate) struct WorkAckColumns<'a> {
    id: Vec<i64>,
    token: Vec<&'a str>,
    waited: Vec<i64>,
    instance: Vec<Option<&'a str>>,
    class: Vec<Option<&'a str>>,
    item: Vec<Option<&'a str>>,
}

impl<'a> WorkAckColumns<'a> {
    pub(crate) const SQL: &'static str = "SELECT * FROM store_results_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

    pub(crate) fn new(pending: &'a [Pending<ResultToCommit>], shared: &Shared) -> Self {
        let mut columns = Self::default();
        for Pending { request, arrived, .. } in pending {
            let completion = request.ack.completion.as_ref();
            columns.id.push(request.ack.id);
            columns.token.push(&request.ack.token);
            columns.waited.push(shared.time.waited_ms(*arrived));
            columns.instance.push(completion.map(|message| message.instance.as_str()));
            columns.class.push(completion.map(|message| message.class));
            columns.item.push(completion.map(|message| message.text.as_str()));
        }
        columns
    }

    /// Sends them; leases instances along if there is an order.
    pub(crate) async fn send(
        &self,
        session: &Session,
        now: Option<i64>,
        mark: Mark<'_>,
        claim: ClaimColumns<'_>,
    ) -> Answer {
        let Self { id, token, waited, instance, class, item } = self;
        let columns: Columns<'_> = &[id, token, waited, instance, class, item];
        call(session, Self::SQL, now, mark, columns, Some(claim)).await
    }
}

/// Turns, as columns. Where a turn has several of a kind, each comes with the turn's position.
#[derive(Default)]
pub(crate) struct TurnColumns<'a> {
    token: Vec<&'a str>,
    instance: Vec<&'a str>,
    waited: Vec<i64>,
    execution: Vec<i64>,
    status: Vec<Option<&'a str>>,
    terminal: Vec<bool>,
    output: Vec<Option<&'a str>>,
    name: Vec<Option<&'a str>>,
    version: Vec<Option<&'a str>>,
    parent: Vec<Option<&'a str>>,
    pinned: Vec<Option<&'a str>>,
    major: Vec<Option<i64>>,
    minor: Vec<Option<i64>>,
    patch: Vec<Option<i64>>,
    custom_set: Vec<bool>,
    custom: Vec<Option<&'a str>>,
    values_cleared: Vec<bool>,
    event_turn: Vec<i32>,
    event_id: Vec<i64>,
    event_type: Vec<&'a str>,
    event_data: Vec<&'a str>,
    value_turn: Vec<i32>,
    value_key: Vec<&'a str>,
    value: Vec<Option<&'a str>>,
    value_ms: Vec<Option<i64>>,
    work_turn: Vec<i32>,
    work: WorkColumns<'a>,
    cancel_turn: Vec<i32>,
    cancel_instance: Vec<&'a str>,
    cancel_execution: Vec<i64>,
    cancel_activity: Vec<i64>,
    message_turn: Vec<i32>,
    message: MessageColumns<'a>,
}

impl<'a> TurnColumns<'a> {
    pub(crate) const SQL: &'static str =
        "SELECT * FROM ack_turns_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
            $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41,
            $42, $43, $44, $45, $46, $47, $48, $49, $50, $51)";

    pub(crate) fn new(pending: &'a [Pending<TurnToCommit, TurnStored>], shared: &Shared) -> Self {
        let mut columns = Self::default();
        for (place, turn) in (1..).zip(pending) {
            columns.waited.push(shared.time.waited_ms(turn.arrived));
            columns.push(&turn.request.turn);
            columns.push_parts(place, &turn.request.turn);
        }
        columns
    }

    fn push(&mut self, turn: &'a TurnCommit) {
        self.token.push(&turn.token);
        self.instance.push(&turn.instance);
        self.execution.push(turn.execution_id);
        self.status.push(turn.status.as_deref());
        self.terminal.push(turn.is_terminal);
        self.output.push(turn.output.as_deref());
        self.name.push(turn.name.as_deref());
        self.version.push(turn.version.as_deref());
        self.parent.push(turn.parent.as_deref());
        let pinned = turn.pinned.as_ref();
        let [major, minor, patch] = pinned.map_or([None; 3], |pinned| pinned.numbers.map(Some));
        self.pinned.push(pinned.map(|pinned| pinned.text.as_str()));
        self.major.push(major);
        self.minor.push(minor);
        self.patch.push(patch);
        self.custom_set.push(turn.custom_status.is_some());
        self.custom.push(turn.custom_status.as_ref().and_then(Option::as_deref));
        self.values_cleared.push(turn.values.cleared);
    }

    fn push_parts(&mut self, place: i32, turn: &'a TurnCommit) {
        for event in &turn.events {
            self.event_turn.push(place);
            self.event_id.push(event.event_id);
            self.event_type.push(event.event_type);
            self.event_data.push(&event.text);
        }
        for value in &turn.values.values {
            self.value_turn.push(place);
            self.value_key.push(&value.key);
            self.value.push(value.value.as_deref());
            self.value_ms.push(value.updated_ms);
        }
        for activity in &turn.activities {
            self.work_turn.push(place);
            self.work.push(activity);
        }
        for (instance, execution_id, activity_id) in &turn.cancelled {
            self.cancel_turn.push(place);
            self.cancel_instance.push(instance);
            self.cancel_execution.push(*execution_id);
            self.cancel_activity.push(*activity_id);
        }
        for message in &turn.messages {
            self.message_turn.push(place);
            self.message.push(message);
        }
    }

    /// Sends them; leases activities along if there is an order.
    pub(crate) async fn send(
        &self,
        session: &Session,
        shared: &Shared,
        mark: Mark<'_>,
        careful: bool,
        order: Option<&WorkOrder>,
    ) -> Answer {
        let Mark { committer, epoch, batch } = mark;
        let now = shared.time.given_ms();
        let max = order.map_or(0, WorkOrder::stored_max);
        let lease_ms = order.map_or(0, |order| order.lease_ms);
        let routes = order.and_then(|order| order.routes.as_ref());
        let seed = order.map_or("", |order| order.seed.as_str());
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 51] = [
            &now,
            &committer,
            &epoch,
            &batch,
            &careful,
            &self.token,
            &self.instance,
            &self.waited,
            &self.execution,
            &self.status,
            &self.terminal,
            &self.output,
            &self.name,
            &self.version,
            &self.parent,
            &self.pinned,
            &self.major,
            &self.minor,
            &self.patch,
            &self.custom_set,
            &self.custom,
            &self.values_cleared,
            &self.event_turn,
            &self.event_id,
            &self.event_type,
            &self.event_data,
            &self.value_turn,
            &self.value_key,
            &self.value,
            &self.value_ms,
            &self.work_turn,
            &self.work.instance,
            &self.work.execution,
            &self.work.activity,
            &self.work.session,
            &self.work.route,
            &self.work.item,
            &self.cancel_turn,
            &self.cancel_instance,
            &self.cancel_execution,
            &self.cancel_activity,
            &self.message_turn,
            &self.message.instance,
            &self.message.class,
            &self.message.due,
            &self.message.item,
            &self.message.parent,
            &max,
            &lease_ms,
            &routes,
            &seed,
        ];
        session.query(Self::SQL, &params).await
    }
}
