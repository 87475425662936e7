//! The history of an instance during a turn: the stored events, and those that the turn adds.

use std::collections::BTreeSet;

use crate::model::{ErrorDetails, Event, EventKind, ExecutionStatus};
use crate::providers::ScheduledActivityIdentifier;

/// The stored history of the current execution with the events of this turn.
///
/// The fields describe the stored part: the last start event, and the first event after it that ends the execution.
#[derive(Debug, Clone)]
pub struct HistoryManager {
    /// The orchestration's name.
    pub orchestration_name: Option<String>,
    /// Its version.
    pub orchestration_version: Option<String>,
    /// Its input.
    pub orchestration_input: Option<String>,
    /// The parent instance of a child.
    pub parent_instance: Option<String>,
    /// The event by which the parent scheduled this child.
    pub parent_id: Option<u64>,
    /// The execution of the parent that scheduled this child.
    pub parent_execution_id: Option<u64>,
    /// Whether the execution completed.
    pub is_completed: bool,
    /// Whether the execution failed.
    pub is_failed: bool,
    /// Whether the execution was continued as new.
    pub is_continued_as_new: bool,
    /// The number of start events seen.
    pub current_execution_id: Option<u64>,
    history: Vec<Event>,
    delta: Vec<Event>,
}

impl HistoryManager {
    /// Reads a stored history.
    pub fn from_history(history: &[Event]) -> Self {
        Self::from_owned(history.to_vec())
    }

    /// Reads a stored history without copying it.
    pub(crate) fn from_owned(history: Vec<Event>) -> Self {
        let mut manager = Self {
            orchestration_name: None,
            orchestration_version: None,
            orchestration_input: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            is_completed: false,
            is_failed: false,
            is_continued_as_new: false,
            current_execution_id: None,
            history: Vec::new(),
            delta: Vec::new(),
        };
        for event in &history {
            manager.read(event);
        }
        manager.history = history;
        manager
    }

    fn read(&mut self, event: &Event) {
        match &event.kind {
            EventKind::OrchestrationStarted {
                name,
                version,
                input,
                parent_instance,
                parent_id,
                parent_execution_id,
                ..
            } => {
                self.orchestration_name = Some(name.clone());
                self.orchestration_version = Some(version.clone());
                self.orchestration_input = Some(input.clone());
                self.parent_instance.clone_from(parent_instance);
                self.parent_id = *parent_id;
                self.parent_execution_id = *parent_execution_id;
                self.current_execution_id = Some(self.current_execution_id.map_or(1, |seen| seen + 1));
                self.is_completed = false;
                self.is_failed = false;
                self.is_continued_as_new = false;
            }
            EventKind::OrchestrationCompleted { .. } if !self.is_terminal() => self.is_completed = true,
            EventKind::OrchestrationFailed { .. } if !self.is_terminal() => self.is_failed = true,
            EventKind::OrchestrationContinuedAsNew { .. } if !self.is_terminal() => {
                self.is_continued_as_new = true;
            }
            _ => {}
        }
    }

    /// Tells whether the stored execution has ended.
    pub fn is_terminal(&self) -> bool {
        self.is_completed || self.is_failed || self.is_continued_as_new
    }

    /// Tells whether there is no event, stored or new.
    pub fn is_empty(&self) -> bool {
        self.history.is_empty() && self.delta.is_empty()
    }

    /// Returns the number of stored events.
    pub fn original_len(&self) -> usize {
        self.history.len()
    }

    /// Returns the status of the stored execution: `Completed`, `Failed`, `ContinuedAsNew` or `Running`.
    pub fn status(&self) -> &'static str {
        let status = if self.is_completed {
            ExecutionStatus::Completed
        } else if self.is_failed {
            ExecutionStatus::Failed
        } else if self.is_continued_as_new {
            ExecutionStatus::ContinuedAsNew
        } else {
            ExecutionStatus::Running
        };
        status.as_str()
    }

    /// Returns the id after the highest one, from 1.
    pub fn next_event_id(&self) -> u64 {
        self.full_history_iter().map(|event| event.event_id).max().map_or(1, |max| max + 1)
    }

    /// Adds an event to this turn.
    pub fn append(&mut self, event: Event) {
        self.delta.push(event);
    }

    /// Adds the failure of the execution to this turn.
    pub fn append_failed(&mut self, instance_id: &str, execution_id: u64, details: ErrorDetails) {
        let kind = EventKind::OrchestrationFailed { details };
        self.append(Event::with_event_id(self.next_event_id(), instance_id, execution_id, None, kind));
    }

    /// Adds events to this turn.
    pub fn extend(&mut self, events: Vec<Event>) {
        self.delta.extend(events);
    }

    /// Returns the events of this turn.
    pub fn delta(&self) -> &[Event] {
        &self.delta
    }

    /// Returns the events of this turn.
    pub fn into_delta(self) -> Vec<Event> {
        self.delta
    }

    /// Returns the number of events, stored and new.
    pub fn full_history_len(&self) -> usize {
        self.history.len() + self.delta.len()
    }

    /// Tells whether there is no event, stored or new.
    pub fn is_full_history_empty(&self) -> bool {
        self.is_empty()
    }

    /// Goes through all events, stored and new.
    pub fn full_history_iter(&self) -> impl Iterator<Item = &Event> {
        self.history.iter().chain(&self.delta)
    }

    /// Returns all events, stored and new.
    pub fn full_history(&self) -> Vec<Event> {
        self.full_history_iter().cloned().collect()
    }

    /// Returns the version of the orchestration, also from this turn's start event; `None` for the placeholder `0.0.0`.
    pub fn version(&self) -> Option<String> {
        let stored = self.orchestration_version.as_deref();
        let version = stored.or_else(|| {
            self.delta.iter().rev().find_map(|event| match &event.kind {
                EventKind::OrchestrationStarted { version, .. } => Some(version.as_str()),
                _ => None,
            })
        });
        version.filter(|version| *version != "0.0.0").map(str::to_string)
    }

    /// Returns the stored input of the orchestration.
    pub fn input(&self) -> Option<&str> {
        self.orchestration_input.as_deref()
    }

    /// Returns the input and, for a child, the parent's instance, execution and event, also from this turn's start
    /// event.
    pub fn extract_context(&self) -> (String, Option<(String, Option<u64>, u64)>) {
        let started = self.full_history_iter().filter_map(|event| match &event.kind {
            EventKind::OrchestrationStarted {
                input,
                parent_instance,
                parent_id,
                parent_execution_id,
                ..
            } => {
                let parent = parent_instance.clone().zip(*parent_id);
                Some((input.clone(), parent.map(|(instance, id)| (instance, *parent_execution_id, id))))
            }
            _ => None,
        });
        started.last().unwrap_or_default()
    }

    /// Returns the activities that were scheduled, have no result and were not cancelled; ascending.
    pub fn compute_inflight_activities(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Vec<ScheduledActivityIdentifier> {
        let mut in_flight = BTreeSet::new();
        let mut ended = BTreeSet::new();
        for event in self.full_history_iter() {
            match &event.kind {
                EventKind::ActivityScheduled { .. } => {
                    in_flight.insert(event.event_id);
                }
                EventKind::ActivityCompleted { .. }
                | EventKind::ActivityFailed { .. }
                | EventKind::ActivityCancelRequested { .. } => ended.extend(event.source_event_id),
                _ => {}
            }
        }
        in_flight
            .difference(&ended)
            .map(|id| ScheduledActivityIdentifier {
                instance: instance.to_string(),
                execution_id,
                activity_id: *id,
            })
            .collect()
    }
}
