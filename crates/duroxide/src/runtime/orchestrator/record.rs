//! The facts that a history states about its execution, apart from the code that made it.

use super::claim::Claim;
use super::parents::ParentLink;
use crate::model::{Event, EventKind};

/// The recorded version that stands for "no version".
const NO_VERSION: &str = "0.0.0";

/// How an execution began.
#[derive(Debug, Clone)]
pub(crate) struct Beginning {
    pub name: String,
    pub version: String,
    pub input: String,
    pub parent: Option<ParentLink>,
    /// The framework version that started it.
    pub stamp: String,
    pub at_ms: u64,
}

impl Beginning {
    /// Stands in for the start that is missing from a history. The replay of such an execution fails and reports it.
    pub(super) fn corrupted(claim: &Claim, events: &[Event]) -> Self {
        Self {
            name: claim.orchestration_name.clone(),
            version: claim.version.clone(),
            input: String::new(),
            parent: None,
            stamp: events.first().map(|event| event.duroxide_version.clone()).unwrap_or_default(),
            at_ms: events.first().map(|event| event.timestamp_ms).unwrap_or_default(),
        }
    }

    /// The version that must run it; `None` if none was recorded.
    pub fn exact_version(&self) -> Option<&str> {
        Some(self.version.as_str()).filter(|version| *version != NO_VERSION)
    }

    pub fn from_event(event: &Event) -> Option<Self> {
        let EventKind::OrchestrationStarted {
            name,
            version,
            input,
            parent_instance,
            parent_id,
            parent_execution_id,
            ..
        } = &event.kind
        else {
            return None;
        };
        Some(Self {
            name: name.clone(),
            version: version.clone(),
            input: input.clone(),
            parent: ParentLink::new(parent_instance.as_ref(), *parent_id, *parent_execution_id),
            stamp: event.duroxide_version.clone(),
            at_ms: event.timestamp_ms,
        })
    }
}

/// Where an instance stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is recorded.
    Fresh,
    /// The current execution goes on.
    Running,
    /// The current execution ended, and the next has not begun.
    Continued,
    /// The instance completed or failed.
    Finished,
}

/// Reads from a history where the instance stands, and how its current execution began.
pub(super) fn read(events: &[Event]) -> (Phase, Option<Beginning>) {
    let Some(first) = events.first() else { return (Phase::Fresh, None) };
    let beginning =
        events.iter().rposition(|event| matches!(event.kind, EventKind::OrchestrationStarted { .. }));
    let since = &events[beginning.unwrap_or(0)..];
    let ended = |event: &Event| {
        matches!(event.kind, EventKind::OrchestrationCompleted { .. } | EventKind::OrchestrationFailed { .. })
    };
    let phase = if since.iter().any(ended) {
        Phase::Finished
    } else if since.iter().any(Event::is_terminal) {
        Phase::Continued
    } else {
        Phase::Running
    };
    (phase, Beginning::from_event(since.first().unwrap_or(first)))
}

/// How many turns made this history, as far as it shows: the events of one turn bear the same time.
pub(super) fn turns(events: &[Event]) -> u64 {
    events.chunk_by(|earlier, later| earlier.timestamp_ms == later.timestamp_ms).count() as u64
}

/// The activities that were scheduled, have no result and were not cancelled.
pub(super) fn open_activities(events: &[Event]) -> Vec<u64> {
    let mut open = std::collections::BTreeSet::new();
    for event in events {
        match (&event.kind, event.source_event_id) {
            (EventKind::ActivityScheduled { .. }, _) => {
                open.insert(event.event_id);
            }
            (
                EventKind::ActivityCompleted { .. }
                | EventKind::ActivityFailed { .. }
                | EventKind::ActivityCancelRequested { .. },
                Some(source),
            ) => {
                open.remove(&source);
            }
            _ => {}
        }
    }
    open.into_iter().collect()
}
