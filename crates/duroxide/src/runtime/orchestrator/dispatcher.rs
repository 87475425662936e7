//! The orchestration dispatcher: claims instances, begins their turns, and waits for a reason to ask for more.
//!
//! One dispatcher asks a store that leases many instances at once. It claims somewhat more than there are free slots: a
//! turn loads its history while it waits for one. A store that leases one at a time may make each claim wait for work.
//! There each slot has a dispatcher, which holds the slot while it asks, so that it leases nothing that could not begin
//! at once.

use std::sync::Arc;

use super::turn::LeasedClaim;
use super::turn_capacity::{self, TurnSlot};
use crate::providers::{InstanceClaim, ProviderError, WorkQueue, WorkSignal};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::{AfterFailure, FetchBackoff, longest_silence};
use crate::runtime::steps::{self, TimersFirst};

/// What a dispatcher has room for.
struct Room {
    wanted: usize,
    /// The slot of the only instance that is wanted, on a store that leases one at a time.
    slot: Option<TurnSlot>,
}

/// Claims instances and starts their turns until the runtime stops.
pub(super) async fn run(core: Arc<Core>) {
    let mut signal = core.store.extension().work_signal(WorkQueue::Orchestrator);
    let mut backoff = FetchBackoff::default();
    let mut timers = TimersFirst::default();
    loop {
        let Some(room) = room(&core).await else { return };
        timers.let_go(&core).await;
        signal.mark_seen();
        match claim(&core, room.wanted).await {
            Ok(claims) => {
                backoff.reset();
                let nothing_is_left = claims.len() < room.wanted;
                timers.note_claim(nothing_is_left);
                begin_all(&core, claims, room.slot).await;
                if nothing_is_left {
                    wait_for_more(&core, &mut signal, &mut timers).await;
                }
            }
            Err(error) => {
                let AfterFailure { pause, is_news } = backoff.after(&error, core.clock.monotonic());
                if is_news {
                    tracing::warn!(target: TARGET, %error, retryable = error.retryable, "claiming instances failed");
                }
                drop(room);
                tokio::select! {
                    () = core.stop.cancelled() => return,
                    () = core.clock.sleep(pause) => {}
                }
            }
        }
    }
}

/// Waits until a turn could begin, and tells how many to claim; `None` when the runtime stops.
async fn room(core: &Core) -> Option<Room> {
    if !core.store.leases_one_at_a_time() {
        return wanted(core).await.map(|wanted| Room { wanted, slot: None });
    }
    tokio::select! {
        biased;
        () = core.stop.cancelled() => None,
        slot = core.turn_capacity.slot() => slot.map(|slot| Room { wanted: 1, slot: Some(slot) }),
    }
}

/// Waits until a turn could be under way, and tells how many to claim; `None` when the runtime stops.
async fn wanted(core: &Core) -> Option<usize> {
    tokio::select! {
        biased;
        () = core.stop.cancelled() => None,
        () = core.turn_capacity.any_free() => Some(core.turn_capacity.wanted(core.options.orchestration_concurrency)),
    }
}

/// Begins turns, the first of them in `slot` if there is one.
async fn begin_all(core: &Arc<Core>, claims: Vec<InstanceClaim>, mut slot: Option<TurnSlot>) {
    if !claims.is_empty() {
        core.metrics().record_orch_dispatcher_items_fetched(claims.len() as u64);
    }
    let claims = residents_first(claims, |instance| core.residents.has(instance));
    // Turns that workers handed over may have taken the permits meanwhile. A turn that waits for one keeps its lease.
    let leased: Vec<_> = claims.into_iter().map(|claim| LeasedClaim::new(core, claim.into())).collect();
    for claim in leased {
        let Some(permit) = core.turn_capacity.permit().await else { return };
        turn_capacity::begin(core, claim, permit, slot.take());
    }
}

/// Moves the instances in memory to the front of a claim: the turns of the others may push them out of memory. The
/// runtime takes the turns of the whole claim, so no instance waits longer than for one claim.
fn residents_first(claims: Vec<InstanceClaim>, is_resident: impl Fn(&str) -> bool) -> Vec<InstanceClaim> {
    let (mut first, others): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|claim| is_resident(&claim.instance));
    first.extend(others);
    first
}

/// Waits until a claim may find something, or the runtime stops. Begins the turns that the store claims for this
/// runtime meanwhile.
async fn wait_for_more(core: &Arc<Core>, signal: &mut WorkSignal, timers: &mut TimersFirst) {
    // All rounds share one wait, so that a claim follows in time, however many timers there are.
    let mut silence = core.clock.sleep(longest_silence(&core.options));
    while !timers.is_over() {
        let Some(wanted) = wanted(core).await else { return };
        let request = turn_capacity::request(core, wanted);
        let claims = tokio::select! {
            // What the store has announced comes before further timers: at most one round of timers goes ahead of it.
            biased;
            () = core.stop.cancelled() => return,
            claims = core.store.extension().wait_for_instances(&request, signal) => claims,
            () = &mut silence => return,
            // Otherwise the store would lease the instances of these timers along with its next commit. It announces
            // other work after this.
            () = steps::until_timers_are_due(core) => {
                timers.note_that_nobody_waits();
                timers.let_go(core).await;
                continue;
            }
        };
        let nothing_is_left = !claims.is_empty() && claims.len() < wanted;
        if !claims.is_empty() {
            timers.note_claim(nothing_is_left);
        }
        begin_all(core, claims, None).await;
        if !nothing_is_left {
            return;
        }
    }
}

/// Claims instances. A stop does not interrupt a claim: the dispatcher must know its leases, to give them back. A store
/// whose claims may take long hears of the stop by itself.
async fn claim(core: &Core, wanted: usize) -> Result<Vec<InstanceClaim>, ProviderError> {
    core.store.extension().claim_instances(&turn_capacity::request(core, wanted)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(instance: &str) -> InstanceClaim {
        InstanceClaim {
            instance: instance.into(),
            orchestration_name: "O".into(),
            version: "1.0.0".into(),
            execution_id: 1,
            incarnation: 1,
            last_event_id: 2,
            status: None,
            messages: Vec::new(),
            lock_token: String::new(),
            attempt_count: 1,
        }
    }

    /// The order in which the turns of a claim begin, if the instances with names in capitals are in memory.
    fn order(claimed: &[&str]) -> Vec<String> {
        let claims = claimed.iter().map(|instance| claim(instance)).collect();
        let is_resident = |instance: &str| instance.chars().all(char::is_uppercase);
        residents_first(claims, is_resident).into_iter().map(|claim| claim.instance).collect()
    }

    #[test]
    fn of_one_claim_those_in_memory_go_first_and_all_go() {
        assert_eq!(order(&["a", "B", "c", "D", "e"]), ["B", "D", "a", "c", "e"]);
    }

    #[test]
    fn among_equals_the_order_of_the_queue_stays() {
        assert_eq!(order(&["c", "a", "b"]), ["c", "a", "b"]);
        assert_eq!(order(&["C", "A", "B"]), ["C", "A", "B"]);
        assert!(order(&[]).is_empty());
    }

    #[test]
    fn whoever_is_not_in_memory_waits_for_no_more_than_its_own_claim() {
        // Each claim takes the oldest, and residents that come all the time are in later ones.
        let mut queue: Vec<String> = vec!["a".into(), "b".into()];
        queue.extend((0..20).map(|_| "R".to_string()));
        let begun: Vec<String> = queue
            .chunks(4)
            .flat_map(|claimed| order(&claimed.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        assert_eq!(begun[..4], ["R", "R", "a", "b"]);
    }
}
