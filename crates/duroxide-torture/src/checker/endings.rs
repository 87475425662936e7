//! I1, I2: every acknowledged start ends, and as predicted.

use duroxide::{AppErrorKind, ErrorDetails, OrchestrationStatus};

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
    // Children with generated ids have no prediction of their own, but they end.
    for (instance, status) in &ended.statuses {
        if !trace.expected().contains_key(instance) && matches!(status, OrchestrationStatus::Running { .. }) {
            found.push(Violation::new(Invariant::Liveness, instance, "has not ended"));
        }
    }
    found
}
