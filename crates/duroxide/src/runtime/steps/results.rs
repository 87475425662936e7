//! Results on the short path: the worker that holds a result takes the turn that follows from it.

use std::sync::Arc;

use super::is_held_for_test;
use super::turns::{self, Taken};
use super::under_way::{Entered, Lead, WaitOutcome, WaitingResult};
use crate::model::WorkItem;
use crate::providers::{FinishedActivity, StepCause};
use crate::runtime::core::Core;
use crate::runtime::orchestrator::claim::Claim;
use crate::runtime::orchestrator::turn_capacity;

/// The most results that one turn takes.
const MOST_RESULTS: usize = 256;

/// A result that is stored nowhere yet.
#[derive(Clone)]
pub(crate) struct OfferedResult {
    /// The lease on the activity.
    pub token: String,
    pub completion: Arc<WorkItem>,
}

/// What became of a result.
pub(crate) enum Offered {
    /// The result is stored, together with the turn that it led to.
    Stored,
    /// The result has to go through the queue.
    NotTaken {
        /// The store did not say whether it has it.
        is_perhaps_stored: bool,
    },
}

const NOT_TAKEN: Offered = Offered::NotTaken { is_perhaps_stored: false };

impl OfferedResult {
    pub(super) fn instance(&self) -> &str {
        self.address().0
    }

    pub(super) fn execution_id(&self) -> u64 {
        self.address().1
    }

    fn address(&self) -> (&str, u64) {
        match &*self.completion {
            WorkItem::ActivityCompleted { instance, execution_id, .. }
            | WorkItem::ActivityFailed { instance, execution_id, .. } => (instance, *execution_id),
            _ => ("", 0),
        }
    }
}

/// Offers the first result of an activity to its instance, if that is in memory.
///
/// Only of the first attempt: if the turn kills the process, the attempt counts as one of the activity, and the next one
/// goes the long way, where the attempts of the turn itself are counted.
pub(crate) async fn offer(core: &Arc<Core>, result: OfferedResult, attempt_count: u32) -> Offered {
    if !core.steps.support.results
        || attempt_count != 1
        || core.stop.is_cancelled()
        || is_held_for_test(result.instance())
    {
        return NOT_TAKEN;
    }
    match core.steps.under_way.enter(&core.residents, &result, core.clock.monotonic()) {
        Entered::NotHere => NOT_TAKEN,
        Entered::Lead(lead) => take(core, lead, result).await,
        Entered::Waits(answer) => match answer.await {
            Ok(WaitOutcome::Stored) => Offered::Stored,
            Ok(WaitOutcome::NotTaken) => NOT_TAKEN,
            Ok(WaitOutcome::Lead(lead)) => take(core, lead, result).await,
            // The turn was aborted on its way to the store.
            Err(_) => Offered::NotTaken { is_perhaps_stored: true },
        },
    }
}

/// Takes the next turn of an instance, with this result and those that wait.
async fn take(core: &Arc<Core>, lead: Lead, result: OfferedResult) -> Offered {
    let Lead { resident, claim: hold } = lead;
    let Some(permit) = turn_capacity::reserve(core) else {
        core.residents.keep(result.instance().to_string(), resident, core.clock.monotonic());
        return NOT_TAKEN;
    };
    let Some(slot) = core.turn_capacity.slot_unless(&core.stop).await else { return NOT_TAKEN };
    let mut others = hold.take_waiting(MOST_RESULTS - 1);
    let results: Vec<OfferedResult> =
        std::iter::once(&result).chain(others.iter().map(|other| &other.result)).cloned().collect();
    // If the turn kills the process, that is an attempt of all these activities. The marks come after the wait for a slot,
    // because no code runs during the wait.
    let marks = results.iter().map(|result| core.mark_running(&result.token)).collect();
    let messages = results.iter().map(|result| (*result.completion).clone()).collect();
    let claim = Claim::of_resident(result.instance(), &resident, messages);
    let taken = turns::take_resident(core, claim, resident, hold, slot, marks).await;
    let finished: Vec<FinishedActivity<'_>> = results
        .iter()
        .map(|result| FinishedActivity { lock_token: &result.token, completion: &result.completion })
        .collect();
    let stored = match taken {
        Some(turns) => turns::store(core, StepCause::Results(&finished), turns).await,
        None => Taken::Not { is_perhaps_stored: false },
    };
    drop(permit);
    answer(&mut others, &stored);
    match stored {
        Taken::Stored => Offered::Stored,
        Taken::Not { is_perhaps_stored } => Offered::NotTaken { is_perhaps_stored },
    }
}

/// Tells the other results of a turn what became of them.
fn answer(others: &mut Vec<WaitingResult>, stored: &Taken) {
    for WaitingResult { answer, .. } in others.drain(..) {
        match stored {
            Taken::Stored => drop(answer.send(WaitOutcome::Stored)),
            Taken::Not { is_perhaps_stored: false } => drop(answer.send(WaitOutcome::NotTaken)),
            // Dropping it says that the outcome is unknown.
            Taken::Not { is_perhaps_stored: true } => drop(answer),
        }
    }
}
