//! Takes the turns of orchestrations.
//!
//! A turn is a pure function from a claim, the record or the resident execution, and the registry, to a commit
//! ([`decide`]); [`turn`] does the I/O around it. [`dispatcher`] claims instances from the store.

pub(super) mod check;
pub(super) mod claim;
mod code_misfit;
pub(super) mod commit;
mod custom_status;
pub(super) mod decide;
mod dispatcher;
mod limits;
mod obstacles;
mod outcome;
mod parents;
mod poison;
mod record;
mod refused;
pub(super) mod report;
mod resident_cache;
pub(super) mod residents;
mod start_reminders;
mod turn;
pub(super) mod turn_capacity;
mod turn_messages;

use std::sync::Arc;

use super::core::Core;

pub(crate) use check::TurnSampler;
pub(crate) use decide::supported_range;
pub(crate) use outcome::{TurnContext, conclude};
pub(crate) use record::Beginning;
pub(crate) use residents::Residents;
pub(crate) use turn_capacity::{TurnCapacity, receive, request, reserve};

/// Starts the orchestration dispatchers of a runtime, if its options let it take turns.
pub(crate) fn start(core: &Arc<Core>) {
    let count = core.options.orchestration_concurrency;
    if count == 0 {
        return;
    }
    let dispatchers = if core.store.leases_one_at_a_time() { count } else { 1 };
    for _ in 0..dispatchers {
        let shared = core.clone();
        core.work.spawn_supervised("orchestration dispatcher", move || dispatcher::run(shared.clone()));
    }
}
