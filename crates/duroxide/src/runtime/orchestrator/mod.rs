//! Takes the turns of orchestrations.
//!
//! A turn is a pure function from a claim, what is recorded or resident, and the registry, to a commit ([`decide`]);
//! [`turn`] does the I/O around it. A store that signals is claimed from by one dispatcher ([`signalled`]), any other by
//! one polling loop for each slot ([`polled`]).

mod check;
mod claim;
mod commit;
mod decide;
mod limits;
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
mod turn;
mod turn_capacity;
mod turn_messages;

use std::sync::Arc;

use super::core::Core;

pub(crate) use decide::supported_range;
pub(crate) use outcome::{TurnContext, conclude};
pub(crate) use record::Beginning;
pub(crate) use residents::Residents;
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
    } else {
        for index in 0..count {
            let shared = core.clone();
            core.work
                .spawn_supervised("orchestration dispatcher", move || polled::run(shared.clone(), index));
        }
    }
}
