//! Events and executions.

use duroxide::InstanceState;
use duroxide::model::EventView;
use duroxide::providers::ExecutionSummary;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Payload, State};

/// An event of a history.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventRow {
    pub(crate) event_id: u64,
    /// The event that asked for what this one ends.
    pub(crate) source_event_id: Option<u64>,
    pub(crate) timestamp_ms: u64,
    /// The kind as it is stored: `ActivityScheduled`, for example.
    pub(crate) kind: String,
    /// Of the activity, signal, queue, child, orchestration or key.
    pub(crate) name: Option<String>,
    /// The instance that was started.
    pub(crate) child: Option<String>,
    pub(crate) payload: Option<Payload>,
    pub(crate) error: Option<String>,
    pub(crate) fire_at_ms: Option<u64>,
    pub(crate) tag: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) duroxide_version: String,
    /// The size of the stored event.
    pub(crate) size_bytes: u64,
    /// Why the stored text is no event, if it is not.
    pub(crate) damage: Option<String>,
}

impl EventRow {
    pub(crate) fn of(event: EventView, cut: usize) -> Self {
        let text = |field: &str| event.text(field).map(str::to_string);
        let payload =
            ["input", "result", "output", "data", "value", "status", "reason"].iter().find_map(|f| text(f));
        Self {
            event_id: event.event_id,
            source_event_id: event.source_event_id,
            timestamp_ms: event.timestamp_ms,
            name: text("name").or_else(|| text("key")),
            child: text("instance"),
            payload: payload.map(|text| match event.is_cut {
                true => Payload::cut_at(text, cut),
                false => Payload { bytes: text.len() as u64, cut: false, text },
            }),
            error: event.error_text(),
            fire_at_ms: event.number("fire_at_ms"),
            tag: text("tag"),
            session: text("session_id"),
            duroxide_version: event.duroxide_version.clone(),
            size_bytes: event.size_bytes,
            damage: event.damage.clone(),
            kind: event.kind,
        }
    }
}

/// A part of a history.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<EventRow>,
    /// Whether there are more in this direction.
    pub(crate) more: bool,
}

/// One execution of an instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct Execution {
    pub(crate) execution: u64,
    pub(crate) state: State,
    pub(crate) started_at_ms: u64,
    pub(crate) ended_at_ms: Option<u64>,
    pub(crate) events: u64,
    pub(crate) history_bytes: Option<u64>,
    pub(crate) output: Option<String>,
}

impl From<ExecutionSummary> for Execution {
    fn from(summary: ExecutionSummary) -> Self {
        Self {
            execution: summary.execution_id,
            // Which of the running ones wait, only the description of the instance tells.
            state: InstanceState::of(&summary.status, false, false, true).into(),
            started_at_ms: summary.started_at_ms,
            ended_at_ms: summary.completed_at_ms,
            events: summary.event_count,
            history_bytes: summary.history_bytes,
            output: summary.output,
        }
    }
}

/// Executions, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Executions {
    pub(crate) executions: Vec<Execution>,
    pub(crate) more: bool,
}
