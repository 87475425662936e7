//! Takes the turns of orchestrations.
//!
//! A turn is a pure function from a claim, the record or the resident execution, and the registry, to a commit
//! ([`decide`]); [`turn`] does the I/O around it. One dispatcher claims from a store that signals ([`signalled`]); one
//! polling loop for each slot claims from any other ([`polled`]).

mod check;
mod claim;
mod code_misfit;
mod commit;
mod decide;
mod limits;
mod obstacles;
mod outcome;
mod parents;
mod poison;
mod polled;
mod record;
mod refused;
mod report;
mod resident_cache;
mod residents;
mod signalled;
mod start_reminders;
mod steps;
mod turn;
mod turn_capacity;
mod turn_messages;

use std::sync::Arc;

use super::core::Core;

pub(crate) use check::TurnSampler;
pub(crate) use decide::supported_range;
pub(crate) use outcome::{TurnContext, conclude};
pub(crate) use record::Beginning;
pub(crate) use residents::Residents;
pub(crate) use steps::{Offered, OfferedResult, Steps, offer, register};
pub(crate) use turn_capacity::{TurnCapacity, receive, request, reserve};

/// Starts the orchestration dispatchers of a runtime, if it is to take turns at all.
pub(crate) fn start(core: &Arc<Core>) {
    let count = core.options.orchestration_concurrency;
    if count == 0 {
        return;
    }
    if core.store.as_extended().is_some() {
        let shared = core.clone();
        core.work.spawn_supervised("orchestration dispatcher", move || signalled::run(shared.clone()));
        let shared = core.clone();
        core.work.spawn_supervised("timers", move || steps::run_timers(shared.clone()));
    } else {
        for index in 0..count {
            let shared = core.clone();
            core.work
                .spawn_supervised("orchestration dispatcher", move || polled::run(shared.clone(), index));
        }
    }
}
