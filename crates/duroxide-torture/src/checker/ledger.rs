//! I4: the activities' own record of their runs, kept outside the store, against the histories.

use std::collections::BTreeMap;

use duroxide::{Event, EventKind};

use super::store::Histories;
use super::{Invariant, Violation};

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
            if runs.is_empty() {
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

/// Activities of the framework itself write no ledger.
fn is_builtin(event: &Event) -> bool {
    matches!(&event.kind, EventKind::ActivityScheduled { name, .. } if name.starts_with("__duroxide"))
}
