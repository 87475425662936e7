//! Turns that follow from a turn at once, and are stored in the same commit.
//!
//! The task that takes a turn looks at the messages that the turn sends. If the task can take the turn of one of them
//! right away, it leaves that message out of the commit and takes the turn next. The other messages go into their
//! queues.

use super::turns::UnstoredTurn;
use super::under_way::Lead;
use crate::model::{Event, WorkItem};
use crate::runtime::core::Core;
use crate::runtime::orchestrator::check;
use crate::runtime::orchestrator::claim::{Claim, StoredHistory};
use crate::runtime::orchestrator::decide::{Decision, InstanceState, Rules};

/// The most turns in one commit, whatever the store would take: other callers wait for this commit.
const MOST_TURNS: usize = 8;

/// Takes the turns that follow from the last one, as long as there are any.
pub(super) async fn take_along(core: &Core, rules: &Rules<'_>, turns: &mut Vec<UnstoredTurn>) {
    let most = core.steps.support.turns.min(MOST_TURNS);
    while turns.len() < most {
        let Some(next) = next(core, rules, turns).await else { return };
        turns.push(next);
    }
}

async fn next(core: &Core, rules: &Rules<'_>, turns: &mut [UnstoredTurn]) -> Option<UnstoredTurn> {
    if let Some(turn) = successor(core, rules, turns).await {
        return Some(turn);
    }
    if let Some(turn) = parent(core, rules, turns).await {
        return Some(turn);
    }
    child(core, rules, turns).await
}

/// The first turn of the execution that continues the last one.
async fn successor(core: &Core, rules: &Rules<'_>, turns: &mut [UnstoredTurn]) -> Option<UnstoredTurn> {
    let last = turns.last_mut()?;
    // A new instance has no incarnation yet by which the store could tell it.
    if last.claim.incarnation == 0 {
        return None;
    }
    let continues = |item: &WorkItem| match item {
        WorkItem::ContinueAsNew { orchestration, version, .. } => {
            rules.missing(orchestration, version.as_deref()).is_none()
        }
        _ => false,
    };
    let place = last.commit.orchestrator_items.iter().position(continues)?;
    let inherited = last.commit.continued.take()?;
    let claim = last.claim_afterwards(vec![last.commit.orchestrator_items[place].clone()]);
    let state = InstanceState::Continued(inherited);
    let (claim, Decision::Commit(commit)) = check::take(rules, core, claim, state, Vec::new()).await else {
        return None;
    };
    last.commit.orchestrator_items.remove(place);
    let hold = last.hold.take();
    Some(UnstoredTurn { claim, commit: *commit, hold, worker_id: last.worker_id.clone() })
}

/// The turn of a parent that waits for the last one's instance, which has ended.
async fn parent(core: &Core, rules: &Rules<'_>, turns: &mut [UnstoredTurn]) -> Option<UnstoredTurn> {
    let (last, before) = turns.split_last_mut()?;
    let [notice] = last.commit.notices.as_slice() else { return None };
    let message = notice.clone().into_message_to_recorded_parent()?;
    let (WorkItem::SubOrchCompleted { parent_instance: to, parent_execution_id: execution_id, .. }
    | WorkItem::SubOrchFailed { parent_instance: to, parent_execution_id: execution_id, .. }) = &message
    else {
        return None;
    };
    let is_addressed = |turn: &UnstoredTurn| turn.commit.sends_to(to);
    if is_addressed(last) || before.iter().any(is_addressed) {
        return None;
    }
    // What the checked turn is taken from, after what the store has.
    let unstored: Vec<Event> = match rules.keeps_first_values {
        true => before
            .iter()
            .filter(|turn| turn.claim.instance == *to && turn.commit.execution_id == *execution_id)
            .flat_map(|turn| turn.commit.events.iter().cloned())
            .collect(),
        false => Vec::new(),
    };
    let (resident, hold, claim) = match before.iter_mut().rev().find(|turn| turn.claim.instance == *to) {
        // It began in this very step.
        Some(turn) if turn.claim.incarnation == 0 || turn.commit.execution_id != *execution_id => {
            return None;
        }
        Some(turn) => {
            let claim = turn.claim_afterwards(vec![message.clone()]);
            (turn.commit.suspended.take()?, turn.hold.take(), claim)
        }
        None => {
            let now = core.clock.monotonic();
            let Lead { resident, claim: hold } =
                core.steps.under_way.enter_alone(&core.residents, to, *execution_id, now)?;
            let claim = Claim::of_resident(to, &resident, vec![message.clone()]);
            (resident, Some(hold), claim)
        }
    };
    let state = InstanceState::Resident(resident);
    match check::take(rules, core, claim, state, unstored).await {
        (claim, Decision::Commit(commit)) => {
            last.commit.notices.clear();
            Some(UnstoredTurn { claim, commit: *commit, hold, worker_id: last.worker_id.clone() })
        }
        // To block the parent takes a lease. The notice goes into its queue.
        (_, Decision::Defer(_) | Decision::Block(_)) => None,
    }
}

/// The first turn of a child that the last turn starts.
async fn child(core: &Core, rules: &Rules<'_>, turns: &mut [UnstoredTurn]) -> Option<UnstoredTurn> {
    let last = turns.last_mut()?;
    let items = &last.commit.orchestrator_items;
    let can_begin = |item: &WorkItem| match item {
        WorkItem::StartOrchestration {
            orchestration, version, instance, parent_instance: Some(_), ..
        } => {
            let sent_to_it = items.iter().filter(|item| addressee(item) == Some(instance)).count();
            sent_to_it == 1 && rules.missing(orchestration, version.as_deref()).is_none()
        }
        _ => false,
    };
    let place = items.iter().position(can_begin)?;
    let start = items[place].clone();
    let WorkItem::StartOrchestration { instance, orchestration, .. } = &start else { return None };
    let claim = Claim::of_new(instance, orchestration, start.clone());
    let state = InstanceState::Stored(StoredHistory::nothing());
    match check::take(rules, core, claim, state, Vec::new()).await {
        (claim, Decision::Commit(commit)) => {
            last.commit.orchestrator_items.remove(place);
            Some(UnstoredTurn { claim, commit: *commit, hold: None, worker_id: last.worker_id.clone() })
        }
        (_, Decision::Defer(_) | Decision::Block(_)) => None,
    }
}

/// The instance that a message is for.
pub(super) fn addressee(message: &WorkItem) -> Option<&String> {
    match message {
        WorkItem::StartOrchestration { instance, .. }
        | WorkItem::ContinueAsNew { instance, .. }
        | WorkItem::TimerFired { instance, .. }
        | WorkItem::CancelInstance { instance, .. }
        | WorkItem::ExternalRaised { instance, .. }
        | WorkItem::QueueMessage { instance, .. }
        | WorkItem::ActivityCompleted { instance, .. }
        | WorkItem::ActivityFailed { instance, .. } => Some(instance),
        WorkItem::SubOrchCompleted { parent_instance, .. }
        | WorkItem::SubOrchFailed { parent_instance, .. } => Some(parent_instance),
        _ => None,
    }
}
