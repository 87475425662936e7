//! Steps: turns that are stored together with their cause, in one transaction.
//!
//! The instance of such a turn is not leased. So the transaction first looks whether the instance is still what the
//! caller holds in memory. The activities of the turn are entered as leased if the caller has room for them.

use rusqlite::params;

use super::SqliteProvider;
use super::claims::held_lease;
use super::error::StoreError;
use super::inbox::JobClass;
use super::leasing::Leased;
use super::schedule::{self, LeaseChange};
use super::shared::clamp_ms;
use super::turns::{self, TurnCommit};
use super::work::{self, StoredWork, WorkOrder};
use super::write_transaction::WriteTransaction;
use super::{history, leased_messages, messages};
use crate::model::{ActivityRecord, whole_ms};
use crate::providers::rows::{ActivityRow, MessageRow, lease_token, row_number};
use crate::providers::{
    LONGEST_OVERTAKING, ProviderError, StepCause, StepOutcome, StepSupport, StepToStore, StoredStep,
    WorkClaim, WorkRequest, refusal,
};

const STORE: &str = "store_step";

/// The steps that this store takes. More turns in one commit would keep other callers waiting.
pub(super) const SUPPORT: StepSupport =
    StepSupport { results: true, starts: true, timers: true, turns: 16, in_order: true };

/// A step, encoded.
struct StepCommit {
    cause: Cause,
    turns: Vec<HeldTurn>,
    /// When the call came in: the store honours leases that were live then, however long the queue is.
    arrived_ms: i64,
    order: Option<WorkOrder>,
}

enum Cause {
    Lease,
    /// The tokens of the finished activities.
    Results(Vec<String>),
    Start,
    Timer(MessageRow),
}

/// A turn, and the instance as the caller holds it.
struct HeldTurn {
    instance: String,
    incarnation: i64,
    execution_id: i64,
    last_event_id: i64,
    turn: TurnCommit,
}

/// A step that is written.
struct Written {
    incarnations: Vec<i64>,
    /// The new activities that are entered as leased: by turn and by place in it, with their tokens.
    handed_over: Vec<((usize, usize), String)>,
}

impl SqliteProvider {
    /// Stores a step, and claims activities, its new ones among them.
    pub(super) async fn store_step_and_claim(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        let commit = self.encode_step(&step, claim)?;
        let order = claim.and_then(order);
        let nothing: Leased<StoredWork> = Leased::nothing(self.writer.give_backs());
        let store = move |tx: &mut WriteTransaction<'_, '_>| {
            let mut leased = nothing;
            let written = match commit.is_checked_first() {
                true => write(tx, &commit),
                false => tx.atomically(|tx| write(tx, &commit)),
            };
            let written = match written {
                Ok(written) => Some(written),
                Err(StoreError::StepConflict) => None,
                Err(error) => return Err(error),
            };
            leased.note(
                written.iter().flat_map(|written| &written.handed_over).map(|(_, token)| token.clone()),
            );
            Ok((written, leased))
        };
        let claim = move |tx: &mut WriteTransaction<'_, '_>,
                          stored: &mut (Option<Written>, Leased<StoredWork>)| {
            let (Some(written), Some(mut order)) = (&stored.0, order) else { return Ok(()) };
            order.max -= written.handed_over.len().min(order.max);
            stored.1.take(tx, (order.max > 0).then_some(&order))
        };
        let (written, leased) = self.writer.submit_and_claim(STORE, JobClass::Data, store, claim).await?;
        let Some(Written { incarnations, handed_over }) = written else { return Ok(StepOutcome::Conflict) };
        let new = handed_over.into_iter().map(|((turn, place), lock_token)| {
            let turn = &step.turns[turn].turn;
            let item = turn.worker_items[place].clone();
            let entry = lease_token::leased_by(&lock_token).and_then(|id| id.parse().ok()).unwrap_or(0);
            let options = turn.options_of(&item).cloned().map(Box::new);
            let record = ActivityRecord { entry, options, progress: None };
            WorkClaim { item, lock_token, attempt_count: 1, record }
        });
        let mut claims: Vec<WorkClaim> = new.collect();
        claims.extend(self.hand_over(STORE, leased).await);
        let incarnations =
            incarnations.into_iter().map(|number| u64::try_from(number).unwrap_or(0)).collect();
        Ok(StepOutcome::Stored(StoredStep { incarnations, claims }))
    }

    fn encode_step(
        &self,
        step: &StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepCommit, ProviderError> {
        refusal::check_step(STORE, step, SUPPORT)?;
        let cause = match step.cause {
            StepCause::Lease => Cause::Lease,
            StepCause::Results(results) => {
                Cause::Results(results.iter().map(|result| result.lock_token.to_string()).collect())
            }
            StepCause::Start(_) => Cause::Start,
            StepCause::Timer(timer) => Cause::Timer(MessageRow::encode(&self.shared.limits, STORE, timer)?),
        };
        let mut turns = Vec::with_capacity(step.turns.len());
        for step_turn in step.turns {
            let held = step_turn.held;
            turns.push(HeldTurn {
                instance: held.instance.to_string(),
                incarnation: row_number(STORE, "incarnation", held.incarnation)?,
                execution_id: row_number(STORE, "execution id", held.execution_id)?,
                last_event_id: row_number(STORE, "event id", held.last_event_id)?,
                turn: self.encode_turn(step_turn.turn)?,
            });
        }
        let order = claim.and_then(order);
        Ok(StepCommit { cause, turns, arrived_ms: self.shared.now_ms(), order })
    }
}

/// Copies a request. A step never claims activities of sessions.
fn order(request: &WorkRequest<'_>) -> Option<WorkOrder> {
    WorkOrder::new(&WorkRequest { session: None, ..request.clone() })
}

impl StepCommit {
    /// Tells whether every check comes before the first write. Otherwise a savepoint is needed.
    fn is_checked_first(&self) -> bool {
        let has_one_cause = match &self.cause {
            Cause::Results(tokens) => tokens.len() == 1,
            Cause::Lease | Cause::Start | Cause::Timer(_) => true,
        };
        has_one_cause && self.turns.len() == 1
    }

    /// Tells whether the step itself removes an activity that it has scheduled.
    fn gives_up(&self, activity: &ActivityRow) -> bool {
        let mut cancelled = self.turns.iter().flat_map(|held| &held.turn.cancelled);
        cancelled.any(|given_up| {
            given_up.instance == activity.instance
                && i64::try_from(given_up.execution_id) == Ok(activity.execution_id)
                && i64::try_from(given_up.activity_id) == Ok(activity.activity_id)
        })
    }
}

/// Writes the turns in their order.
fn write(tx: &mut WriteTransaction<'_, '_>, step: &StepCommit) -> Result<Written, StoreError> {
    let now = tx.now_ms();
    let mut room = own_room(tx, step, now)?;
    let mut written = Written { incarnations: Vec::with_capacity(step.turns.len()), handed_over: Vec::new() };
    for (number, held) in step.turns.iter().enumerate() {
        let cause = if number == 0 { Some(&step.cause) } else { None };
        let begun = begin(tx, held, cause, step.arrived_ms, now)?;
        let updated = turns::write_state(tx, &held.instance, &held.turn, now)?;
        for (place, activity) in held.turn.activities.iter().enumerate() {
            let may_go =
                |order: &&WorkOrder| room > 0 && order.may_take(activity) && !step.gives_up(activity);
            let order = step.order.as_ref().filter(may_go);
            match order {
                Some(order) => {
                    let token = work::insert_leased(tx, activity, now, order.lock_timeout)?;
                    written.handed_over.push(((number, place), token));
                    room -= 1;
                }
                None => work::insert(tx, activity, now)?,
            }
        }
        turns::write_messages(tx, &held.instance, &held.turn, updated.is_current, now, |tx| {
            begun.consume(tx)
        })?;
        if begun.is_scheduled {
            schedule::settle(tx, &held.instance, now, LeaseChange::End)?;
            if let Some(class) = &updated.class {
                schedule::classify(tx, &held.instance, class)?;
            }
        }
        turns::note_changes(tx, &held.instance, &held.turn, &updated);
        written.incarnations.push(updated.incarnation);
    }
    Ok(written)
}

/// How many of its own activities the step may hand over before older ones: none if one of those has waited for long.
fn own_room(tx: &mut WriteTransaction<'_, '_>, step: &StepCommit, now: i64) -> Result<usize, StoreError> {
    let Some(order) = &step.order else { return Ok(0) };
    if step.turns.iter().all(|held| held.turn.activities.is_empty()) {
        return Ok(0);
    }
    let longest = clamp_ms(whole_ms(LONGEST_OVERTAKING));
    let is_patient = work::oldest_ready(tx, &order.tag_filter, now)?
        .is_none_or(|entered_at| now.saturating_sub(entered_at) < longest);
    Ok(if is_patient { order.max } else { 0 })
}

/// A turn whose conditions hold.
struct Begun {
    /// Whether the instance has a row in the schedule.
    is_scheduled: bool,
    instance: String,
    consumed: Consumed,
}

/// The messages in the queue that the turn has taken.
enum Consumed {
    Nothing,
    Leased(leased_messages::LeasedMessages),
    Message(i64),
}

impl Begun {
    fn consume(&self, tx: &WriteTransaction<'_, '_>) -> rusqlite::Result<()> {
        match self.consumed {
            Consumed::Nothing => Ok(()),
            Consumed::Leased(leased) => leased_messages::delete(tx, &self.instance, leased),
            Consumed::Message(id) => messages::delete(tx, [id]),
        }
    }
}

/// Checks the conditions of a turn, and takes the results that caused it out of their queue.
fn begin(
    tx: &mut WriteTransaction<'_, '_>,
    held: &HeldTurn,
    cause: Option<&Cause>,
    arrived_ms: i64,
    now: i64,
) -> Result<Begun, StoreError> {
    let begun = |is_scheduled, consumed| Begun { is_scheduled, instance: held.instance.clone(), consumed };
    if let Some(Cause::Lease) = cause {
        let token = &held.turn.token;
        let lease = held_lease(tx, token)?.filter(|lease| lease.instance == held.instance);
        let lease = lease.ok_or_else(|| refusal::unknown_turn_token(STORE))?;
        if lease.locked_until <= held.turn.arrived_ms {
            return Err(refusal::turn_lease_expired().into());
        }
        history::refuse_duplicates(tx, STORE, &held.instance, held.turn.execution_id, &held.turn.events)?;
        return Ok(begun(true, Consumed::Leased(lease.leased)));
    }
    let stored = stored_state(tx, held)?;
    let timer = match cause {
        Some(Cause::Timer(timer)) => Some(timer),
        _ => None,
    };
    let visible = match stored.may_have_messages(now) || timer.is_some() {
        true => messages::oldest(tx, &held.instance, now)?.messages,
        false => Vec::new(),
    };
    let consumed = match (visible.as_slice(), timer) {
        ([], None) => Consumed::Nothing,
        ([only], Some(timer)) if only.text == timer.text.as_bytes() => Consumed::Message(only.id),
        _ => return Err(StoreError::StepConflict),
    };
    if !stored.is_as_held || stored.is_leased || stored.has_parked {
        return Err(StoreError::StepConflict);
    }
    if held.incarnation == 0 && stored.is_scheduled && messages::has_start(tx, &held.instance)? {
        return Err(StoreError::StepConflict);
    }
    refuse_taken_ids(tx, held)?;
    if let Some(Cause::Results(tokens)) = cause {
        for token in tokens {
            work::end_held(tx, token, arrived_ms, now)?.ok_or(StoreError::StepConflict)?;
        }
    }
    Ok(begun(stored.is_scheduled, consumed))
}

/// Refuses events with ids that are taken. Behind the last event that the caller holds, all are free.
fn refuse_taken_ids(tx: &WriteTransaction<'_, '_>, held: &HeldTurn) -> Result<(), StoreError> {
    let turn = &held.turn;
    let mut last = held.last_event_id;
    let mut follows = |id: i64| std::mem::replace(&mut last, id) < id;
    if turn.execution_id == held.execution_id && turn.events.iter().all(|event| follows(event.event_id)) {
        return Ok(());
    }
    history::refuse_duplicates(tx, STORE, &held.instance, turn.execution_id, &turn.events)
}

/// What is stored of an instance that the caller believes to be idle.
struct StoredState {
    is_as_held: bool,
    is_scheduled: bool,
    /// It has a lease, live or not, or it is blocked.
    is_leased: bool,
    is_ready: bool,
    has_parked: bool,
    due_at: Option<i64>,
}

impl StoredState {
    fn may_have_messages(&self, now: i64) -> bool {
        self.is_ready || self.due_at.is_some_and(|due| due <= now)
    }
}

fn stored_state(tx: &WriteTransaction<'_, '_>, held: &HeldTurn) -> rusqlite::Result<StoredState> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(StoredState {
            is_as_held: row.get::<_, Option<bool>>(0)?.unwrap_or(false),
            is_scheduled: row.get(1)?,
            is_leased: row.get(2)?,
            is_ready: row.get(3)?,
            has_parked: row.get::<_, Option<bool>>(4)?.unwrap_or(false),
            due_at: row.get(5)?,
        })
    };
    let found = match held.incarnation {
        0 => tx.row(
            "SELECT ?2 = 0 AND NOT EXISTS (SELECT 1 FROM instances WHERE instance_id = id)
                AND NOT EXISTS (SELECT 1 FROM history WHERE instance_id = id)
                AND NOT EXISTS (SELECT 1 FROM executions WHERE instance_id = id),
                s.instance_id IS NOT NULL, s.lock_token IS NOT NULL, s.ready_seq IS NOT NULL, s.parked, s.due_at
             FROM (SELECT ?1 AS id) LEFT JOIN instance_schedule s ON s.instance_id = id",
            params![held.instance, held.last_event_id],
            read,
        )?,
        incarnation => tx.row(
            "SELECT i.incarnation = ?2 AND i.current_execution_id = ?3
                AND ifnull((SELECT max(event_id) FROM history WHERE instance_id = ?1 AND execution_id = ?3), 0) = ?4,
                s.instance_id IS NOT NULL, s.lock_token IS NOT NULL, s.ready_seq IS NOT NULL, s.parked, s.due_at
             FROM instances i LEFT JOIN instance_schedule s ON s.instance_id = i.instance_id
             WHERE i.instance_id = ?1",
            params![held.instance, incarnation, held.execution_id, held.last_event_id],
            read,
        )?,
    };
    Ok(found.unwrap_or(StoredState {
        is_as_held: false,
        is_scheduled: false,
        is_leased: false,
        is_ready: false,
        has_parked: false,
        due_at: None,
    }))
}
