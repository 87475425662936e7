//! Steps: turns that are stored together with their cause.

use super::state::{Activity, State};
use crate::model::whole_ms;
use crate::providers::{
    HeldInstance, LONGEST_OVERTAKING, ProviderError, StepCause, StepOutcome, StepSupport, StepToStore,
    StepTurn, StoredStep, WorkClaim, WorkRequest, refusal,
};

const STORE: &str = "store_step";

/// The steps that this store takes.
pub(super) const SUPPORT: StepSupport =
    StepSupport { results: true, starts: true, timers: true, turns: 16, in_order: true };

impl State {
    /// Stores a step, wholly or not at all, and claims activities, its new ones among them.
    pub fn store_step(
        &mut self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
        now: u64,
    ) -> Result<StepOutcome, ProviderError> {
        refusal::check_step(STORE, &step, SUPPORT)?;
        let may_overtake = claim.is_some_and(|request| self.may_be_overtaken(request, now));
        // One turn is checked before it is written. Of several, a later one may turn out not to hold.
        let before = (step.turns.len() > 1).then(|| self.clone());
        let first_new = self.next_id();
        for (number, turn) in step.turns.iter().enumerate() {
            let cause = (number == 0).then_some(step.cause);
            let taken = self.take_turn(turn, cause, now);
            if let Ok(true) = taken {
                continue;
            }
            if let Some(before) = before {
                *self = before;
            }
            return taken.map(|_| StepOutcome::Conflict);
        }
        let incarnation =
            |turn: &StepTurn<'_>| self.instances.get(turn.held.instance).map_or(0, |row| row.incarnation);
        let incarnations = step.turns.iter().map(incarnation).collect();
        let claims = claim
            .map(|request| self.claim_after_step(&step, request, may_overtake.then_some(first_new), now));
        Ok(StepOutcome::Stored(StoredStep { incarnations, claims: claims.unwrap_or_default() }))
    }

    /// Takes one turn; tells whether its conditions held.
    fn take_turn(
        &mut self,
        step_turn: &StepTurn<'_>,
        cause: Option<StepCause<'_>>,
        now: u64,
    ) -> Result<bool, ProviderError> {
        let StepTurn { held, turn } = *step_turn;
        if let Some(StepCause::Lease) = cause {
            let leased = self.turn(turn.lock_token).map(|(instance, _)| instance);
            if leased != Some(held.instance) {
                return Err(refusal::unknown_turn_token(STORE));
            }
            return self.commit_turn(turn, now).map(|_| true);
        }
        if !self.is_as_held(held) || !self.is_idle(held.instance) {
            return Ok(false);
        }
        let Some(consumed) = self.consumed_message(held.instance, cause, now) else { return Ok(false) };
        let rows = self.encode_turn(STORE, held.instance, turn, now)?;
        let mut finished = Vec::new();
        if let Some(StepCause::Results(results)) = cause {
            for result in results {
                match self.held_activity(result.lock_token, now) {
                    Some(position) if !finished.contains(&position) => finished.push(position),
                    _ => return Ok(false),
                }
            }
        }
        finished.sort_unstable();
        for position in finished.into_iter().rev() {
            let activity = self.activities.remove(position);
            self.note_session_activity(activity.session_id.as_deref(), now);
        }
        consumed.map(|position| self.messages.remove(position));
        self.write_turn(held.instance, turn, rows, now);
        Ok(true)
    }

    /// Tells whether the instance is still what the caller holds in memory.
    fn is_as_held(&self, held: HeldInstance<'_>) -> bool {
        let HeldInstance { instance, incarnation, execution_id, last_event_id } = held;
        match self.instances.get(instance) {
            None => {
                incarnation == 0
                    && last_event_id == 0
                    && !self.is_taken(instance)
                    && !self.executions.keys().any(|(owner, _)| owner == instance)
            }
            Some(row) => {
                let last = self.events(instance, execution_id).next_back().map_or(0, |(id, _)| id);
                row.incarnation == incarnation
                    && row.current_execution_id == execution_id
                    && last == last_event_id
            }
        }
    }

    /// Tells whether the instance has no lease, live or not, and is not blocked.
    fn is_idle(&self, instance: &str) -> bool {
        !self.turn_leases.contains_key(instance) && !self.is_blocked(instance)
    }

    /// Finds the message in the queue that the turn takes: none, unless its cause is a timer. `None` if another message
    /// waits.
    fn consumed_message(
        &self,
        instance: &str,
        cause: Option<StepCause<'_>>,
        now: u64,
    ) -> Option<Option<usize>> {
        if self.messages_of(instance).any(|message| message.parked_at.is_some()) {
            return None;
        }
        let visible =
            |at: &usize| self.messages[*at].instance == instance && self.messages[*at].is_visible(now);
        let visible: Vec<usize> = (0..self.messages.len()).filter(visible).collect();
        match (visible.as_slice(), cause) {
            ([only], Some(StepCause::Timer(timer))) => {
                let is_it = self.encode(STORE, timer).is_ok_and(|text| text == self.messages[*only].payload);
                is_it.then_some(Some(*only))
            }
            (_, Some(StepCause::Timer(_))) => None,
            ([], _) => Some(None),
            _ => None,
        }
    }

    /// Tells whether new activities may be handed over before those that are ready.
    fn may_be_overtaken(&mut self, request: &WorkRequest<'_>, now: u64) -> bool {
        self.ready_due_activities(now);
        let request = WorkRequest { session: None, ..request.clone() };
        let oldest = self.activities.iter().find(|activity| self.may_take(activity, &request, now));
        oldest.is_none_or(|oldest| now.saturating_sub(oldest.entered_at) < whole_ms(LONGEST_OVERTAKING))
    }

    /// Claims activities: those of the step first, if they may overtake others, then the oldest. The step's own have an id from
    /// `first_new` on; an older one of the same instance and number may still be in the queue.
    fn claim_after_step(
        &mut self,
        step: &StepToStore<'_>,
        request: &WorkRequest<'_>,
        first_new: Option<u64>,
        now: u64,
    ) -> Vec<WorkClaim> {
        let request = WorkRequest { session: None, ..request.clone() };
        let mut claims = Vec::new();
        if let Some(first_new) = first_new {
            for item in step.turns.iter().flat_map(|turn| turn.turn.worker_items) {
                let Ok(wanted) = self.new_activity(STORE, item, now) else { continue };
                let is_it = |activity: &Activity| {
                    activity.id >= first_new
                        && activity.identity == wanted.identity
                        && activity.session_id == wanted.session_id
                        && activity.tag == wanted.tag
                        && self.may_take(activity, &request, now)
                };
                let position = self.activities.iter().position(is_it);
                if let Some(position) = position.filter(|_| claims.len() < request.max) {
                    claims.push(self.claim_activity(position, item.clone(), &request, now));
                }
            }
        }
        let left = WorkRequest { max: request.max - claims.len(), ..request };
        claims.extend(self.claim_work(&left, now));
        claims
    }
}
