//! The tools that the engine's tests share: histories built step by step, turns taken by `ReplayEngine`, and a driver
//! that takes turn after turn and checks after each that the history replays to the same decisions.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its own part, and fails by panicking")]

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use duroxide::providers::{KvEntry, WorkItem};
use duroxide::runtime::replay_engine::{ReplayEngine, TurnResult};
use duroxide::runtime::{FnOrchestration, OrchestrationHandler};
use duroxide::{Action, AppErrorKind, ErrorDetails, Event, EventKind, OrchestrationContext};

pub const INSTANCE: &str = "inst";
pub const LEGACY: &str = "0.1.30";

/// An async function as a handler.
pub fn code<F, Fut>(f: F) -> Arc<dyn OrchestrationHandler>
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    Arc::new(FnOrchestration(f))
}

/// A history under construction. Ids count from 1; every method returns the id of its event or the history itself.
#[derive(Clone, Default)]
pub struct History {
    pub events: Vec<Event>,
    pub execution_id: u64,
}

impl History {
    /// A history with its start event.
    pub fn started() -> Self {
        Self::started_with("")
    }

    pub fn started_with(input: &str) -> Self {
        Self { events: Vec::new(), execution_id: 1 }.push(None, start_event(input))
    }

    /// The same history with another version stamp on its first event.
    pub fn stamped(mut self, stamp: &str) -> Self {
        self.events[0].duroxide_version = stamp.to_string();
        self
    }

    pub fn in_execution(mut self, execution_id: u64) -> Self {
        self.execution_id = execution_id;
        self.events.iter_mut().for_each(|event| event.execution_id = execution_id);
        self
    }

    pub fn push(mut self, source: Option<u64>, kind: EventKind) -> Self {
        let id = self.events.last().map_or(1, |event| event.event_id + 1);
        self.events.push(Event::with_event_id(id, INSTANCE, self.execution_id.max(1), source, kind));
        self
    }

    pub fn activity(self, name: &str, input: &str) -> Self {
        self.push(None, activity_scheduled(name, input))
    }

    pub fn activity_done(self, source: u64, result: &str) -> Self {
        self.push(Some(source), EventKind::ActivityCompleted { result: result.into() })
    }

    pub fn activity_failed(self, source: u64, text: &str) -> Self {
        self.push(Some(source), EventKind::ActivityFailed { details: app_error(text) })
    }

    pub fn timer(self) -> Self {
        self.push(None, EventKind::TimerCreated { fire_at_ms: 1_000 })
    }

    pub fn timer_fired(self, source: u64) -> Self {
        self.push(Some(source), EventKind::TimerFired { fire_at_ms: 1_000 })
    }

    pub fn wait(self, name: &str) -> Self {
        self.push(None, EventKind::ExternalSubscribed { name: name.into() })
    }

    pub fn signal(self, name: &str, data: &str) -> Self {
        self.push(None, EventKind::ExternalEvent { name: name.into(), data: data.into() })
    }

    pub fn dequeue(self, name: &str) -> Self {
        self.push(None, EventKind::QueueSubscribed { name: name.into() })
    }

    pub fn message(self, name: &str, data: &str) -> Self {
        self.push(None, EventKind::QueueEventDelivered { name: name.into(), data: data.into() })
    }

    pub fn child(self, name: &str, instance: &str, input: &str) -> Self {
        let (name, instance, input) = (name.into(), instance.into(), input.into());
        self.push(None, EventKind::SubOrchestrationScheduled { name, instance, input })
    }

    pub fn child_done(self, source: u64, result: &str) -> Self {
        self.push(Some(source), EventKind::SubOrchestrationCompleted { result: result.into() })
    }

    pub fn child_failed(self, source: u64, text: &str) -> Self {
        self.push(Some(source), EventKind::SubOrchestrationFailed { details: orch_error(text) })
    }

    pub fn activity_cancelled(self, source: u64) -> Self {
        self.push(Some(source), EventKind::ActivityCancelRequested { reason: "dropped_future".into() })
    }

    /// Takes a turn over this history, all of it stored.
    pub fn turn(&self, handler: &Arc<dyn OrchestrationHandler>, messages: Vec<WorkItem>) -> Turn {
        turn(
            ReplayEngine::new(INSTANCE.into(), self.execution_id.max(1), self.events.clone()),
            handler,
            messages,
        )
    }

    /// Replays this history without new messages.
    pub fn replay(&self, handler: &Arc<dyn OrchestrationHandler>) -> Turn {
        self.turn(handler, vec![])
    }
}

pub fn start_event(input: &str) -> EventKind {
    EventKind::OrchestrationStarted {
        name: "Orch".into(),
        version: "1.0.0".into(),
        input: input.into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    }
}

pub fn activity_scheduled(name: &str, input: &str) -> EventKind {
    EventKind::ActivityScheduled { name: name.into(), input: input.into(), session_id: None, tag: None }
}

pub fn app_error(text: &str) -> ErrorDetails {
    ErrorDetails::Application { kind: AppErrorKind::ActivityFailed, message: text.into(), retryable: false }
}

pub fn orch_error(text: &str) -> ErrorDetails {
    ErrorDetails::Application {
        kind: AppErrorKind::OrchestrationFailed,
        message: text.into(),
        retryable: false,
    }
}

pub fn infra_error(text: &str) -> ErrorDetails {
    ErrorDetails::Infrastructure { operation: "op".into(), message: text.into(), retryable: true }
}

/// The outcome of a turn.
pub struct Turn {
    pub result: TurnResult,
    pub delta: Vec<Event>,
    pub actions: Vec<Action>,
    pub cancelled_activities: Vec<u64>,
    pub cancelled_children: Vec<String>,
    pub history: Vec<Event>,
}

pub fn turn(
    mut engine: ReplayEngine,
    handler: &Arc<dyn OrchestrationHandler>,
    messages: Vec<WorkItem>,
) -> Turn {
    if !messages.is_empty() {
        engine.prep_completions(messages);
    }
    let input = engine.final_history().first().map(input_of).unwrap_or_default();
    let result =
        engine.execute_orchestration(handler.clone(), input, "Orch".into(), "1.0.0".into(), "worker");
    Turn {
        result,
        delta: engine.history_delta().to_vec(),
        actions: engine.pending_actions().to_vec(),
        cancelled_activities: engine.cancelled_activity_ids().to_vec(),
        cancelled_children: engine.cancelled_sub_orchestration_ids().to_vec(),
        history: engine.final_history(),
    }
}

fn input_of(event: &Event) -> String {
    match &event.kind {
        EventKind::OrchestrationStarted { input, .. } => input.clone(),
        _ => String::new(),
    }
}

impl Turn {
    /// The result as text: `Continue`, `Completed: x`, `Failed: text`, `Cancelled: why`, `ContinueAsNew: input`.
    pub fn text(&self) -> String {
        match &self.result {
            TurnResult::Continue => "Continue".into(),
            TurnResult::Completed(output) => format!("Completed: {output}"),
            TurnResult::Failed(details) => format!("Failed: {}", details.display_message()),
            TurnResult::Cancelled(reason) => format!("Cancelled: {reason}"),
            TurnResult::ContinueAsNew { input, .. } => format!("ContinueAsNew: {input}"),
        }
    }

    /// The names of the new events.
    pub fn kinds(&self) -> Vec<String> {
        kinds(&self.delta)
    }

    #[track_caller]
    pub fn assert_nondeterminism(&self, fragment: &str) {
        let TurnResult::Failed(details) = &self.result else { panic!("not failed: {:?}", self.result) };
        assert_eq!(details.category(), "configuration", "{details:?}");
        let text = details.display_message();
        assert!(text.starts_with("nondeterministic: "), "{text}");
        assert!(text.contains(fragment), "{text} does not contain {fragment}");
    }
}

/// The names of events, as JSON has them.
pub fn kinds(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| type_of(&event.kind)).collect()
}

pub fn type_of(kind: &EventKind) -> String {
    serde_json::to_value(kind).unwrap()["type"].as_str().unwrap().to_string()
}

/// An execution that is driven turn by turn, rebuilt from its history each time.
pub struct Live {
    pub handler: Arc<dyn OrchestrationHandler>,
    pub history: Vec<Event>,
    pub execution_id: u64,
    pub kv: HashMap<String, KvEntry>,
    /// The turns taken.
    pub turns: Vec<Turn>,
}

impl Live {
    /// Starts an execution and takes its first turn.
    pub fn start(handler: Arc<dyn OrchestrationHandler>) -> Self {
        Self::start_with(handler, vec![])
    }

    /// Starts an execution with messages in the batch of the start.
    pub fn start_with(handler: Arc<dyn OrchestrationHandler>, messages: Vec<WorkItem>) -> Self {
        Self::from_start(handler, History::started(), messages)
    }

    pub fn from_start(
        handler: Arc<dyn OrchestrationHandler>,
        start: History,
        messages: Vec<WorkItem>,
    ) -> Self {
        let execution_id = start.execution_id.max(1);
        let engine = ReplayEngine::new(INSTANCE.into(), execution_id, start.events.clone())
            .with_persisted_history_len(0);
        let first = turn(engine, &handler, messages);
        let mut live =
            Self { handler, history: first.history.clone(), execution_id, kv: HashMap::new(), turns: vec![] };
        live.check_replay(&first);
        live.turns.push(first);
        live
    }

    /// Takes a turn.
    #[track_caller]
    pub fn turn(&mut self, messages: Vec<WorkItem>) -> &Turn {
        let engine = ReplayEngine::new(INSTANCE.into(), self.execution_id, self.history.clone())
            .with_kv_snapshot(self.kv.clone());
        let turn = turn(engine, &self.handler, messages);
        self.history = turn.history.clone();
        self.check_replay(&turn);
        self.turns.push(turn);
        self.turns.last().unwrap()
    }

    pub fn last(&self) -> &Turn {
        self.turns.last().unwrap()
    }

    /// The recorded history must lead to the same result without anything new.
    #[track_caller]
    fn check_replay(&self, taken: &Turn) {
        if matches!(taken.result, TurnResult::Failed(_)) && taken.text().contains("nondeterministic") {
            return;
        }
        let legacy = semver::Version::parse(&self.history[0].duroxide_version)
            .map_or(true, |version| version < semver::Version::new(0, 1, 31));
        if legacy {
            return;
        }
        let engine = ReplayEngine::new(INSTANCE.into(), self.execution_id, self.history.clone())
            .with_kv_snapshot(self.kv.clone());
        let again = turn(engine, &self.handler, vec![]);
        assert_eq!(again.text(), taken.text(), "replay differs from the live turn");
        assert!(again.delta.is_empty(), "replay records something new: {:?}", again.kinds());
    }
}

/// Messages for the instance of these tests.
pub mod msg {
    use super::*;

    pub fn activity(id: u64, result: &str) -> WorkItem {
        WorkItem::ActivityCompleted { instance: INSTANCE.into(), execution_id: 1, id, result: result.into() }
    }

    pub fn activity_failed(id: u64, details: ErrorDetails) -> WorkItem {
        WorkItem::ActivityFailed { instance: INSTANCE.into(), execution_id: 1, id, details }
    }

    pub fn timer(id: u64) -> WorkItem {
        WorkItem::TimerFired { instance: INSTANCE.into(), execution_id: 1, id, fire_at_ms: 1_000 }
    }

    pub fn signal(name: &str, data: &str) -> WorkItem {
        WorkItem::ExternalRaised { instance: INSTANCE.into(), name: name.into(), data: data.into() }
    }

    pub fn queue(name: &str, data: &str) -> WorkItem {
        WorkItem::QueueMessage { instance: INSTANCE.into(), name: name.into(), data: data.into() }
    }

    pub fn child(parent_id: u64, result: &str) -> WorkItem {
        let (parent_instance, result) = (INSTANCE.into(), result.into());
        WorkItem::SubOrchCompleted { parent_instance, parent_execution_id: 1, parent_id, result }
    }

    pub fn child_failed(parent_id: u64, details: ErrorDetails) -> WorkItem {
        let parent_instance = INSTANCE.into();
        WorkItem::SubOrchFailed { parent_instance, parent_execution_id: 1, parent_id, details }
    }

    pub fn cancel(reason: &str) -> WorkItem {
        WorkItem::CancelInstance { instance: INSTANCE.into(), reason: reason.into() }
    }

    pub fn in_execution(mut item: WorkItem, wanted: u64) -> WorkItem {
        match &mut item {
            WorkItem::ActivityCompleted { execution_id, .. }
            | WorkItem::ActivityFailed { execution_id, .. }
            | WorkItem::TimerFired { execution_id, .. } => *execution_id = wanted,
            WorkItem::SubOrchCompleted { parent_execution_id, .. }
            | WorkItem::SubOrchFailed { parent_execution_id, .. } => *parent_execution_id = wanted,
            _ => {}
        }
        item
    }
}
