//! Runs activities.
//!
//! A store that signals is claimed from by one dispatcher ([`signalled`]), any other by one polling loop for each slot
//! ([`polled`]). What becomes of a claimed activity is in [`activity`], the same for both.

mod activity;
mod builtin;
mod claim;
mod polled;
mod signalled;

use std::sync::Arc;

use super::core::Core;
use super::sessions;
use super::slots::Slots;
use crate::providers::TagFilter;

pub(crate) use builtin::with_builtins;

/// Starts the workers of a runtime, if it is to run activities at all.
pub(crate) fn start(core: &Arc<Core>) {
    let count = core.options.worker_concurrency;
    if count == 0 || matches!(core.options.worker_tag_filter, TagFilter::None) {
        return;
    }
    let slots = Slots::new(count);
    if core.store.as_extended().is_some() {
        let shared = core.clone();
        core.work.spawn_supervised("worker dispatcher", move || signalled::run(shared.clone(), slots.clone()));
    } else {
        for index in 0..count {
            let (shared, slots) = (core.clone(), slots.clone());
            core.work
                .spawn_supervised("worker", move || polled::run(shared.clone(), slots.clone(), index));
        }
    }
    let mut owners: Vec<String> = (0..count).map(|slot| core.session_owner(slot)).collect();
    owners.dedup();
    let shared = core.clone();
    core.upkeep.spawn_supervised("session keeper", move || sessions::keep(shared.clone(), owners.clone()));
}
