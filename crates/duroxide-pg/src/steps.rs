//! Steps on their way into the store: turns, the cause of the first, and the instances as the caller holds them in memory.

use duroxide::providers::rows::row_number;
use duroxide::providers::{
    ProviderError, ScheduledActivityIdentifier, StepCause, StepOutcome, StepSupport, StepToStore, StepTurn,
    StoredStep, TagFilter, WorkItem, WorkRequest, refusal,
};

use crate::PostgresProvider;
use crate::encode::{self, TurnCommit, leased_work};
use crate::jobs::{HeldTurn, Job, StepStored, StepToCommit};
use crate::text::stored;

const OPERATION: &str = "store_step";
/// The steps that this store takes. Each turn after the first is a call of its own in the same transaction.
pub(crate) const SUPPORT: StepSupport =
    StepSupport { results: true, starts: true, timers: true, turns: 8, in_order: false };

impl PostgresProvider {
    /// Commits a step, and leases the activities that its caller orders along with it.
    pub(crate) async fn commit_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        let Some(request) = self.encode_step(step, claim)? else { return Ok(StepOutcome::Conflict) };
        let job = |step| Job::Step(Box::new(step));
        let (incarnations, work) = match self.commit(&self.committer, OPERATION, request, job).await? {
            StepStored::Conflict => return Ok(StepOutcome::Conflict),
            StepStored::Stored { incarnations, work } => (incarnations, work),
        };
        // The step is stored whatever becomes of this claim.
        let mut claims = match work {
            Some(work) => self.take_work(OPERATION, work).await.unwrap_or_default(),
            None => Vec::new(),
        };
        // An activity that a later turn has given up is gone already.
        let given_up = step.turns.iter().skip(1).flat_map(|later| later.turn.cancelled_activities);
        for gone in given_up {
            claims.retain(|claim| !is_of(&claim.item, gone));
        }
        Ok(StepOutcome::Stored(StoredStep { incarnations, claims }))
    }

    /// Encodes a step; `None` if it is in conflict with what tokens say by themselves.
    fn encode_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<Option<StepToCommit>, ProviderError> {
        let limits = &self.shared.limits;
        refusal::check_step(OPERATION, &step, SUPPORT)?;
        let (mut results, mut timer): (Vec<(i64, String)>, _) = (Vec::new(), None);
        match step.cause {
            StepCause::Results(finished) => {
                for token in finished.iter().map(|one| one.lock_token) {
                    let Some(id) = leased_work(token) else { return Ok(None) };
                    // One activity has one result.
                    if results.iter().any(|(other, _)| *other == id) {
                        return Ok(None);
                    }
                    results.push((id, token.to_string()));
                }
            }
            StepCause::Timer(item) => timer = Some(encode::message(limits, OPERATION, item)?.text),
            StepCause::Start(_) => {}
            StepCause::Lease => return Err(refusal::not_supported(OPERATION)),
        }
        let [first, then @ ..] = step.turns else { return Err(refusal::not_supported(OPERATION)) };
        let first = self.encode_held(first)?;
        let then = then.iter().map(|turn| self.encode_held(turn)).collect::<Result<_, _>>()?;
        let claim = claim.filter(|request| *request.tag_filter != TagFilter::None);
        let claim = claim.map(|request| self.work_order(request));
        Ok(Some(StepToCommit { first, then, results, timer, claim }))
    }

    fn encode_held(&self, step_turn: &StepTurn<'_>) -> Result<HeldTurn, ProviderError> {
        let StepTurn { held, turn } = *step_turn;
        let limits = &self.shared.limits;
        limits.check_instance(OPERATION, held.instance)?;
        let encoded = TurnCommit::of(limits, OPERATION, &stored(held.instance), turn)?;
        let execution_id = row_number(OPERATION, "execution id", held.execution_id)?;
        let last_event_id = row_number(OPERATION, "event id", held.last_event_id)?;
        let is_taken = |id: &i64| encoded.execution_id == execution_id && *id <= last_event_id;
        if let Some(taken) = encoded.events.iter().map(|event| event.event_id).find(is_taken) {
            let taken = taken.unsigned_abs();
            return Err(refusal::duplicate_event(OPERATION, held.instance, turn.execution_id, taken));
        }
        Ok(HeldTurn { turn: encoded, incarnation: held.incarnation, execution_id, last_event_id })
    }
}

fn is_of(item: &WorkItem, activity: &ScheduledActivityIdentifier) -> bool {
    matches!(item, WorkItem::ActivityExecute { instance, execution_id, id, .. }
        if (instance, *execution_id, *id) == (&activity.instance, activity.execution_id, activity.activity_id))
}
