//! Checks residents against their histories: both must decide alike.

use super::claim::{Claim, StoredHistory};
use super::commit::Commit;
use super::decide::{Decision, InstanceState, Rules, decide};
use super::residents::Resident;
use crate::model::payload::{self, PAYLOAD_TARGET};
use crate::providers::inspect;
use crate::runtime::core::{Core, TARGET};

/// Longer histories go unchecked: the check would take longer than the turns.
const LONGEST_HISTORY: usize = 1000;

/// Takes the turn twice: with the resident, and with an execution made anew from the stored history. If they differ,
/// the one made from the history wins.
pub(super) async fn take_both(
    rules: &Rules<'_>,
    core: &Core,
    claim: Claim,
    resident: Box<Resident>,
) -> (Claim, Decision) {
    let stored = match core.store.as_extended() {
        Some(store) if !claim.token.is_empty() => {
            store.load_history(&claim.token, 0).await.ok().map(StoredHistory::from)
        }
        Some(_) if resident.execution.kv_len() == 0 => without_lease(core, &claim).await,
        _ => None,
    };
    let Some(StoredHistory::Decoded { events, kv }) = stored else {
        return decide(rules, claim, InstanceState::Resident(resident));
    };
    if events.len() > LONGEST_HISTORY {
        return decide(rules, claim, InstanceState::Resident(resident));
    }
    let (_, rebuilt) =
        decide(rules, claim.clone(), InstanceState::Stored(StoredHistory::Decoded { events, kv }));
    let (claim, live) = decide(rules, claim, InstanceState::Resident(resident));
    let (live_text, rebuilt_text) = (describe(&live), describe(&rebuilt));
    if live_text == rebuilt_text {
        return (claim, live);
    }
    tracing::trace!(target: PAYLOAD_TARGET, instance = %claim.instance, resident = live_text,
        rebuilt = rebuilt_text, "a resident and its history disagree");
    tracing::error!(target: TARGET, instance = %claim.instance, resident = payload::summary(&live_text),
        rebuilt = payload::summary(&rebuilt_text),
        "a resident and its history disagree: the orchestration is not deterministic");
    (claim, rebuilt)
}

/// Reads the history of an instance that nobody has leased; `None` if it has values, which only a lease gives, or if
/// it has changed meanwhile.
async fn without_lease(core: &Core, claim: &Claim) -> Option<StoredHistory> {
    let events = core.store.read_with_execution(&claim.instance, claim.execution_id).await.ok()?;
    let is_current = events.last().map(|event| event.event_id) == claim.last_event_id;
    let has_values = !inspect::delta_changes(&events).kv.is_empty();
    (is_current && !has_values).then(|| StoredHistory::Decoded { events, kv: Default::default() })
}

/// The changes of a decision, as text. The turn gives both executions the same time, so that even the times agree.
fn describe(decision: &Decision) -> String {
    match decision {
        Decision::Defer(delay) => format!("defer {delay:?}"),
        Decision::Commit(commit) => {
            let Commit { events, worker_items, orchestrator_items, cancelled_activities, .. } = &**commit;
            format!("{events:?} {worker_items:?} {orchestrator_items:?} {cancelled_activities:?}")
        }
    }
}
