//! I1, I2: every acknowledged start ends, and as predicted; what had to be undone was undone, once.

use duroxide::{AppErrorKind, ErrorDetails, EventKind, OrchestrationStatus};

use super::{Ended, Invariant, Trace, Violation};
use crate::shared::program::Ending;

/// Reads how an instance ended; `None` if it did not, or in a way that no program has.
pub fn ending_of(status: &OrchestrationStatus) -> Option<Ending> {
    match status {
        OrchestrationStatus::Completed { output, .. } => Some(Ending::Output(output.clone())),
        OrchestrationStatus::Failed { details: ErrorDetails::Application { kind, message, .. }, .. } => {
            match kind {
                AppErrorKind::OrchestrationFailed => Some(Ending::Failure(message.clone())),
                AppErrorKind::Cancelled { reason } => Some(Ending::Cancelled(reason.clone())),
                _ => None,
            }
        }
        _ => None,
    }
}

pub(super) fn check(trace: &Trace, ended: &Ended) -> Vec<Violation> {
    let mut found = Vec::new();
    for (instance, expected) in trace.expected() {
        match ended.statuses.get(instance) {
            None | Some(OrchestrationStatus::NotFound) => {
                let what = format!("was started and is gone; it should be {expected:?}");
                found.push(Violation::new(Invariant::NothingLost, instance, what));
            }
            Some(OrchestrationStatus::Running { .. }) => {
                let what = format!("has not ended; it should be {expected:?}");
                found.push(Violation::new(Invariant::Liveness, instance, what));
            }
            Some(status) if ending_of(status).as_ref() == Some(expected) => {}
            Some(status) => {
                let what = format!("should be {expected:?}, is {status:?}");
                found.push(Violation::new(Invariant::RightAnswer, instance, what));
            }
        }
    }
    for (instance, expected) in trace.cleanups() {
        let done = cleanups_done(instance, expected, ended);
        if done != expected.iter().collect::<Vec<_>>() {
            let what = format!("should have cleaned up {expected:?}, has done {done:?}");
            found.push(Violation::new(Invariant::RightAnswer, instance, what));
        }
    }
    // Children with generated ids have no prediction of their own, but they end.
    for (instance, status) in &ended.statuses {
        if !trace.expected().contains_key(instance) && matches!(status, OrchestrationStatus::Running { .. }) {
            found.push(Violation::new(Invariant::Liveness, instance, "has not ended"));
        }
    }
    found
}

/// The expected cleanups that an instance has recorded as done, once. Blocks of one program run beside each other, so their order
/// says nothing.
fn cleanups_done<'a>(instance: &str, expected: &'a [String], ended: &Ended) -> Vec<&'a String> {
    let histories = ended.histories.range((instance.to_string(), 0)..=(instance.to_string(), u64::MAX));
    let mut asked: Vec<&str> = Vec::new();
    for (_, events) in histories {
        let completed = |id: u64| {
            events.iter().any(|event| {
                event.source_event_id == Some(id) && matches!(event.kind, EventKind::ActivityCompleted { .. })
            })
        };
        asked.extend(events.iter().filter(|event| completed(event.event_id)).filter_map(|event| {
            match &event.kind {
                EventKind::ActivityScheduled { input, .. } => Some(input.as_str()),
                _ => None,
            }
        }));
    }
    let times = |label: &str| asked.iter().filter(|input| **input == label).count();
    expected.iter().filter(|label| times(label) == 1).collect()
}
