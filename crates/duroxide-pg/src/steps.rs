//! Steps on their way into the store: a turn, its cause, and the instance as the caller holds it in memory.

use duroxide::providers::rows::row_number;
use duroxide::providers::{
    ProviderError, StepCause, StepOutcome, StepSupport, StepToStore, StoredStep, TagFilter, WorkRequest,
    refusal,
};

use crate::PostgresProvider;
use crate::encode::{self, TurnCommit, leased_work};
use crate::jobs::{Job, StepStored, StepToCommit};
use crate::text::stored;

const OPERATION: &str = "store_step";
pub(crate) const SUPPORT: StepSupport = StepSupport { results: true, starts: true, timers: true, turns: 1 };

impl PostgresProvider {
    /// Commits a step of one turn, and leases the activities that its caller orders along with it.
    pub(crate) async fn commit_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        let Some(request) = self.encode_step(step, claim)? else { return Ok(StepOutcome::Conflict) };
        let job = |step| Job::Step(Box::new(step));
        let (incarnation, work) = match self.commit(&self.committer, OPERATION, request, job).await? {
            StepStored::Conflict => return Ok(StepOutcome::Conflict),
            StepStored::Stored { incarnation, work } => (incarnation, work),
        };
        // The step is stored whatever becomes of this claim.
        let claims = match work {
            Some(work) => self.take_work(OPERATION, work).await.unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(StepOutcome::Stored(StoredStep { incarnations: vec![incarnation], claims }))
    }

    /// Encodes a step; `None` if it is in conflict with what tokens say by themselves.
    fn encode_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<Option<StepToCommit>, ProviderError> {
        let limits = &self.shared.limits;
        refusal::check_step(OPERATION, &step, SUPPORT)?;
        let [only] = step.turns else { return Err(refusal::not_supported(OPERATION)) };
        let held = only.held;
        limits.check_instance(OPERATION, held.instance)?;
        let instance = stored(held.instance);
        let turn = TurnCommit::of(limits, OPERATION, &instance, only.turn)?;
        let execution_id = row_number(OPERATION, "execution id", held.execution_id)?;
        let last_event_id = row_number(OPERATION, "event id", held.last_event_id)?;
        let is_taken = |id: &i64| turn.execution_id == execution_id && *id <= last_event_id;
        if let Some(taken) = turn.events.iter().map(|event| event.event_id).find(is_taken) {
            let taken = taken.unsigned_abs();
            return Err(refusal::duplicate_event(OPERATION, held.instance, only.turn.execution_id, taken));
        }
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
            StepCause::Start(_) | StepCause::Lease => {}
        }
        let claim = claim.filter(|request| *request.tag_filter != TagFilter::None);
        let claim = claim.map(|request| self.work_order(request));
        let incarnation = held.incarnation;
        Ok(Some(StepToCommit { turn, incarnation, execution_id, last_event_id, results, timer, claim }))
    }
}
