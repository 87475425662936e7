//! The rows of the queues, as people look at them.

use serde::{Deserialize, Serialize};

use super::{ActivityRecord, ErrorDetails, WorkItem, cut_text, error_text, kind_of};

/// An activity in the worker queue: to be run, or being run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueuedActivity {
    /// The row of the queue.
    pub id: u64,
    /// The instance that scheduled it.
    pub instance: String,
    /// The execution of that instance.
    pub execution_id: u64,
    /// The event that scheduled it.
    pub activity_id: u64,
    /// Its name; empty if the row does not decode.
    pub name: String,
    /// The tag that routes it.
    pub tag: Option<String>,
    /// The session that it is bound to.
    pub session_id: Option<String>,
    /// How often workers have claimed it.
    pub attempts: u32,
    /// When it was enqueued, in milliseconds since the epoch.
    pub enqueued_at_ms: u64,
    /// When it can be claimed, if that is later than now, in milliseconds since the epoch.
    pub delayed_until_ms: Option<u64>,
    /// Until when a worker has leased it, if one has, in milliseconds since the epoch.
    pub leased_until_ms: Option<u64>,
    /// How many attempts reported a failure, and the store kept the activity for another.
    #[serde(default)]
    pub failed_attempts: u32,
    /// The error of the last of them.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Whether its result comes from elsewhere, by a completion token.
    #[serde(default)]
    pub is_awaited: bool,
    /// Until when that result may come, if not at any time, in milliseconds since the epoch.
    #[serde(default)]
    pub awaited_until_ms: Option<u64>,
    /// The size of the stored row in bytes.
    pub size_bytes: u64,
}

impl QueuedActivity {
    /// Takes name, tag and session from the stored text.
    pub fn describe(&mut self, text: &[u8]) {
        self.size_bytes = text.len() as u64;
        if let Ok(WorkItem::ActivityExecute { name, tag, session_id, .. }) = serde_json::from_slice(text) {
            (self.name, self.tag, self.session_id) = (name, tag, session_id);
            let progress = ActivityRecord::read(self.id, text).ok().and_then(|record| record.progress);
            if let Some(progress) = progress {
                self.failed_attempts = progress.failed_attempts;
                self.last_error =
                    progress.last_error.as_deref().map(|error| error_text::words(error).to_string());
                self.is_awaited = progress.awaited_until_ms.is_some();
                self.awaited_until_ms = progress.awaited_until_ms.filter(|until_ms| *until_ms > 0);
            }
        }
    }
}

/// A message in the orchestrator queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueuedMessage {
    /// The row of the queue.
    pub id: u64,
    /// The instance that receives it.
    pub instance: String,
    /// The kind of the message: `ActivityCompleted`, for example. Empty if the row does not decode.
    pub kind: String,
    /// The name of the signal, queue or orchestration.
    pub name: Option<String>,
    /// For a completion: the event that scheduled what ended, and its execution.
    pub source: Option<MessageSource>,
    /// When it was enqueued, in milliseconds since the epoch.
    pub enqueued_at_ms: u64,
    /// When it is delivered, if that is later than now, in milliseconds since the epoch.
    pub delayed_until_ms: Option<u64>,
    /// How often deliveries of it ended without a stored turn.
    pub attempts: u32,
    /// Whether it waits for an instance that does not exist.
    pub is_parked: bool,
    /// Its payload, cut.
    pub data: String,
    /// The size of the stored row in bytes.
    pub size_bytes: u64,
}

/// The event that a completion belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MessageSource {
    /// The execution.
    pub execution_id: u64,
    /// The event in it.
    pub event_id: u64,
}

impl QueuedMessage {
    /// Takes kind, name, source and payload from the stored text. Cuts the payload.
    pub fn describe(&mut self, text: &[u8], cut: usize) {
        self.size_bytes = text.len() as u64;
        let item: WorkItem = match serde_json::from_slice(text) {
            Ok(item) => item,
            Err(_) => {
                self.data = String::from_utf8_lossy(text).into_owned();
                cut_text(&mut self.data, cut);
                return;
            }
        };
        self.kind = kind_of(&item).to_string();
        let failure = |details: &ErrorDetails| details.display_message();
        let (name, source, data) = match item {
            WorkItem::StartOrchestration { orchestration, input, .. }
            | WorkItem::ContinueAsNew { orchestration, input, .. } => (Some(orchestration), None, input),
            WorkItem::ActivityExecute { execution_id, id, name, input, .. } => {
                (Some(name), Some((execution_id, id)), input)
            }
            WorkItem::ActivityCompleted { execution_id, id, result, .. } => {
                (None, Some((execution_id, id)), result)
            }
            WorkItem::ActivityFailed { execution_id, id, details, .. } => {
                (None, Some((execution_id, id)), failure(&details))
            }
            WorkItem::TimerFired { execution_id, id, .. } => (None, Some((execution_id, id)), String::new()),
            WorkItem::SubOrchCompleted { parent_execution_id, parent_id, result, .. } => {
                (None, Some((parent_execution_id, parent_id)), result)
            }
            WorkItem::SubOrchFailed { parent_execution_id, parent_id, details, .. } => {
                (None, Some((parent_execution_id, parent_id)), failure(&details))
            }
            WorkItem::ExternalRaised { name, data, .. } | WorkItem::QueueMessage { name, data, .. } => {
                (Some(name), None, data)
            }
            WorkItem::CancelInstance { reason, .. } => (None, None, reason),
            #[cfg(feature = "replay-version-test")]
            WorkItem::ExternalRaised2 { name, data, .. } => (Some(name), None, data),
        };
        self.name = name;
        self.source = source.map(|(execution_id, event_id)| MessageSource { execution_id, event_id });
        self.data = data;
        cut_text(&mut self.data, cut);
    }
}
