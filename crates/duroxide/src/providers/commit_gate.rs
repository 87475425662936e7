//! A gate before and behind the commits of a runtime, for tests that crash it there.

use async_trait::async_trait;

use super::{StepCause, StepToStore};
use crate::model::{Event, WorkItem};

/// What a commit stores.
#[derive(Debug, Clone)]
pub(crate) enum CommitKind {
    /// The events of a turn.
    Turn(Vec<Event>),
    /// The result of an activity.
    Result(Option<WorkItem>),
    /// What an attempt of the activity of this name leaves behind.
    Attempt(String),
    /// A turn, together with the results that caused it, if any did.
    Step {
        /// The events of the turn.
        events: Vec<Event>,
        /// The results.
        results: Vec<WorkItem>,
    },
}

impl CommitKind {
    pub fn of_turn(events: &[Event]) -> Self {
        Self::Turn(events.to_vec())
    }

    pub fn of_step(step: &StepToStore<'_>) -> Self {
        let results = match step.cause {
            StepCause::Results(results) => results.iter().map(|result| result.completion.clone()).collect(),
            _ => Vec::new(),
        };
        let events = step.turns.iter().flat_map(|turn| turn.turn.history_delta.iter().cloned()).collect();
        Self::Step { events, results }
    }

    pub fn of_attempt(item: &WorkItem) -> Self {
        match item {
            WorkItem::ActivityExecute { name, .. } => Self::Attempt(name.clone()),
            _ => Self::Attempt(String::new()),
        }
    }

    pub fn of_result(completion: Option<&WorkItem>) -> Self {
        Self::Result(completion.cloned())
    }
}

/// Sees every commit of a runtime. A gate that never returns keeps the runtime from hearing of the commit.
#[async_trait]
pub(crate) trait CommitGate: Send + Sync {
    /// Called before the store is asked.
    async fn before(&self, commit: &CommitKind);

    /// Called after the store has committed.
    async fn after(&self, commit: &CommitKind);
}
