//! I4: the activities' own record of their runs, kept outside the store, against the histories.

use std::collections::BTreeMap;

use duroxide::{ErrorDetails, Event, EventKind};

use super::store::Histories;
use super::{Invariant, Violation};
use crate::shared::program::needed_attempts as needed_by;

/// A run of an activity, as it wrote it down itself when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The instance.
    pub instance: String,
    /// Its execution.
    pub execution: u64,
    /// The event that requested the activity.
    pub event: u64,
    /// How often the activity was delivered, this run included.
    pub attempt: u32,
    /// When the run began, by the clock that stamps events; `None` if the clocks of the harness jump.
    pub began_ms: Option<u64>,
}

/// Checks the runs against the histories of all executions.
pub fn check_ledger(runs: &[Run], histories: &Histories) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut by_step: BTreeMap<(&str, u64, u64), Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_step.entry((&run.instance, run.execution, run.event)).or_default().push(run);
    }
    let event_of = |instance: &str, execution: u64, id: u64| -> Option<&Event> {
        histories.get(&(instance.to_string(), execution))?.iter().find(|event| event.event_id == id)
    };
    for (instance, execution, id) in by_step.keys().copied() {
        let requested = event_of(instance, execution, id);
        if !requested.is_some_and(|event| matches!(event.kind, EventKind::ActivityScheduled { .. })) {
            let what = format!("execution {execution}: was run and is not recorded as requested");
            found.push(Violation::new(Invariant::Ledger, instance, what).at(id));
        }
    }
    for ((instance, execution), events) in histories {
        for event in events {
            let is_end =
                matches!(event.kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. });
            let Some(source) = event.source_event_id.filter(|_| is_end) else { continue };
            if event_of(instance, *execution, source).is_some_and(is_builtin) {
                continue;
            }
            let runs = by_step.get(&(instance, *execution, source)).map(Vec::as_slice).unwrap_or_default();
            let is_unbegun = tells_that_nobody_began(&event.kind);
            if is_unbegun && !runs.is_empty() {
                let what = format!("execution {execution}: is recorded as never begun and was run");
                found.push(Violation::new(Invariant::Ledger, instance, what).at(source));
            }
            if runs.is_empty() && !is_unbegun {
                let what = format!("execution {execution}: is recorded as ended and was never run");
                found.push(Violation::new(Invariant::Ledger, instance, what).at(source));
            }
            // The event is made before the commit that records it, but after the commit that took the step off the
            // queue: whatever begins later was taken from the queue a second time.
            for run in runs.iter().filter(|run| run.began_ms.is_some_and(|at| at > event.timestamp_ms)) {
                let what =
                    format!("execution {execution}: ran again (attempt {}) after its end", run.attempt);
                found.push(Violation::new(Invariant::Ledger, instance, what).at(source));
            }
        }
    }
    found
}

fn tells_that_nobody_began(end: &EventKind) -> bool {
    matches!(end, EventKind::ActivityFailed { details: ErrorDetails::Application { message, .. } }
        if message.starts_with("activity timed out: no worker began"))
}

/// Checks that each step was tried no more often than it takes, and once more for each fault: a fault, be it a failed call, a
/// death or a step of the clock, ends at most one attempt of a step.
pub fn check_attempts(runs: &[Run], histories: &Histories, faults: u64) -> Vec<Violation> {
    let mut tries: BTreeMap<(&str, u64, u64), (u64, u64)> = BTreeMap::new();
    for run in runs {
        let (count, highest) = tries.entry((&run.instance, run.execution, run.event)).or_default();
        *count += 1;
        *highest = (*highest).max(run.attempt.into());
    }
    let mut found = Vec::new();
    for ((instance, execution, id), (count, highest)) in tries {
        let events = histories.get(&(instance.to_string(), execution)).map(Vec::as_slice).unwrap_or_default();
        let needed = events.iter().find(|event| event.event_id == id).map_or(1, needed_attempts);
        if count.max(highest) > needed + faults {
            let what = format!(
                "execution {execution}: was run {count} times, the last as attempt {highest}, with {faults} faults; it \
                 takes {needed}"
            );
            found.push(Violation::new(Invariant::Ledger, instance, what).at(id));
        }
    }
    found
}

/// How many attempts a step takes without faults.
fn needed_attempts(requested: &Event) -> u64 {
    match &requested.kind {
        EventKind::ActivityScheduled { name, input, .. } => needed_by(name, input),
        _ => 1,
    }
}

/// Activities of the framework itself write no ledger.
fn is_builtin(event: &Event) -> bool {
    matches!(&event.kind, EventKind::ActivityScheduled { name, .. } if name.starts_with("__duroxide"))
}
