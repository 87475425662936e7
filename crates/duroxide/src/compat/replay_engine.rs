//! The replay engine for tests that drive it: one turn, from a history and messages.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{Action, Clock, ErrorDetails, Event, KvEntry, SystemClock, WorkItem};
use crate::registry::OrchestrationHandler;
use crate::replay::{self, Journal};
use crate::runtime::program::{Assignment, open_execution};

pub use crate::replay::TurnResult;

/// One turn of an execution, rebuilt from its history.
///
/// It runs on the same code as the runtime's turns: make it with the history, give it the messages, run it once, and
/// read the outcome.
pub struct ReplayEngine {
    journal: Option<Journal>,
    baseline: Vec<Event>,
    persisted: usize,
    kv_snapshot: HashMap<String, KvEntry>,
    delta: Vec<Event>,
    abort: Option<ErrorDetails>,
    actions: Vec<Action>,
    cancelled_activities: Vec<u64>,
    cancelled_children: Vec<String>,
    clock: Arc<dyn Clock>,
}

impl ReplayEngine {
    /// Makes an engine for an execution with the history that it has so far.
    pub fn new(instance: String, execution_id: u64, baseline_history: Vec<Event>) -> Self {
        let mut journal = Journal::new(instance, execution_id);
        for event in &baseline_history {
            journal.note(event);
        }
        Self {
            journal: Some(journal),
            persisted: baseline_history.len(),
            baseline: baseline_history,
            kv_snapshot: HashMap::new(),
            delta: Vec::new(),
            abort: None,
            actions: Vec::new(),
            cancelled_activities: Vec::new(),
            cancelled_children: Vec::new(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Says how many events of the history were stored before this turn. Without this call, all of them were.
    pub fn with_persisted_history_len(mut self, len: usize) -> Self {
        self.persisted = len.min(self.baseline.len());
        self
    }

    /// Sets the key-value store as it was when the execution began.
    pub fn with_kv_snapshot(mut self, snapshot: HashMap<String, KvEntry>) -> Self {
        self.kv_snapshot = snapshot;
        self
    }

    /// Takes the turn at another time than the machine's.
    #[cfg(test)]
    pub(crate) fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Turns a batch of messages into new events.
    pub fn prep_completions(&mut self, messages: Vec<WorkItem>) {
        let Some(journal) = &mut self.journal else { return };
        let batch = replay::admit(journal, messages, self.clock.now_ms());
        self.delta.extend(batch.events);
        self.abort = batch.abort.or_else(|| self.abort.take());
    }

    /// Runs the turn. An engine takes one turn: a second call does nothing.
    pub fn execute_orchestration(
        &mut self,
        handler: Arc<dyn OrchestrationHandler>,
        input: String,
        orchestration_name: String,
        orchestration_version: String,
        _worker_id: &str,
    ) -> TurnResult {
        let Some(journal) = self.journal.take() else { return TurnResult::Continue };
        if let Some(details) = self.abort.take() {
            return TurnResult::Failed(details);
        }
        if journal.is_terminal() {
            return TurnResult::Continue;
        }
        let kv_snapshot = std::mem::take(&mut self.kv_snapshot);
        let assignment =
            Assignment { handler, orchestration_name, orchestration_version, input, kv_snapshot };
        let mut execution = open_execution(journal, assignment);
        let (old, new) = self.baseline.split_at(self.persisted);
        execution.replay_noted(old);
        let fresh: Vec<Event> = new.iter().chain(&self.delta).cloned().collect();
        let turn = execution.go_on(&fresh, self.clock.now_ms());
        self.delta.extend(turn.events);
        self.actions = turn.actions;
        self.cancelled_activities = turn.cancelled_activities;
        self.cancelled_children = turn.cancelled_children;
        turn.result
    }

    /// Returns the new events.
    pub fn history_delta(&self) -> &[Event] {
        &self.delta
    }

    /// Returns the new requests of the code, with the ids of their events.
    pub fn pending_actions(&self) -> &[Action] {
        &self.actions
    }

    /// Returns the activities that the turn cancelled, by the ids of their schedule events.
    pub fn cancelled_activity_ids(&self) -> &[u64] {
        &self.cancelled_activities
    }

    /// Returns the children that the turn cancelled, by their ids as recorded.
    pub fn cancelled_sub_orchestration_ids(&self) -> &[String] {
        &self.cancelled_children
    }

    /// Tells whether there are new events.
    pub fn made_progress(&self) -> bool {
        !self.delta.is_empty()
    }

    /// Returns the history with the new events.
    pub fn final_history(&self) -> Vec<Event> {
        self.baseline.iter().chain(&self.delta).cloned().collect()
    }
}
