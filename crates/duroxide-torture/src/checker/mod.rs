//! The one checker of all harnesses.
//!
//! A harness notes in a [`Trace`] what it was promised and what it saw while things broke. [`Ended::read`] reads what is
//! left in the store, by public interfaces alone. [`check`] compares the two and names every breach of a rule.

mod endings;
mod fencing;
mod history;
mod invariant;
mod ledger;
mod leftovers;
mod store;
mod trace;

#[cfg(test)]
mod tests;

pub use endings::ending_of;
pub use fencing::Fences;
pub(crate) use history::check_due_times;
pub use history::check_history;
pub use invariant::{Invariant, Violation};
pub use ledger::{Run, check_attempts, check_ledger};
pub use leftovers::Leftovers;
pub use store::{Ended, Histories};
pub use trace::{Look, Trace};

use duroxide::OrchestrationRegistry;

/// Compares what was promised and seen with what is left, and returns all breaches.
pub fn check(trace: &Trace, ended: &Ended, code: &OrchestrationRegistry) -> Vec<Violation> {
    let mut found = trace.violations().to_vec();
    found.extend(endings::check(trace, ended));
    for ((instance, execution), events) in &ended.histories {
        found.extend(check_history(instance, *execution, events));
        found.extend(trace.check_prefixes(instance, *execution, events));
    }
    found.extend(history::check_queues(trace, ended));
    found.extend(check_ledger(trace.runs(), &ended.histories));
    if let Some(faults) = trace.faults() {
        found.extend(check_attempts(trace.runs(), &ended.histories, faults));
    }
    found.extend(ended.check_leftovers(trace.expected()));
    found.extend(ended.check_replay(code));
    found
}
