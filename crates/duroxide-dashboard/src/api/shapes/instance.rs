//! One instance: its description, and what it keeps.

use duroxide::client::InstanceDescription;
use serde::Serialize;
use utoipa::ToSchema;

use super::{CUT, InstanceRow, Payload, Wait};

/// An instance, described.
#[derive(Serialize, ToSchema)]
pub(crate) struct Instance {
    #[serde(flatten)]
    pub(crate) row: InstanceRow,
    /// Events of the current execution.
    pub(crate) events: u64,
    pub(crate) input: Option<Payload>,
    /// The result, or the text of the error.
    pub(crate) output: Option<Payload>,
    /// What it waits for.
    pub(crate) waits: Vec<Wait>,
    /// Whether these are all: of a very long history only the newest part is looked at.
    pub(crate) waits_are_complete: bool,
    /// How often its waiting messages were delivered.
    pub(crate) attempts: u32,
    pub(crate) last_errors: Vec<String>,
    pub(crate) queued_messages: u64,
    /// When a blocked instance is tried again by itself.
    pub(crate) next_try_ms: Option<u64>,
}

impl From<InstanceDescription> for Instance {
    fn from(about: InstanceDescription) -> Self {
        let output = about.row.output.clone().map(|text| Payload::cut_at(text, CUT));
        let mut row = InstanceRow::from(about.row);
        let next_try_ms = about.blocked.as_ref().and_then(|blocked| blocked.next_try_ms);
        if let Some(blocked) = &about.blocked {
            row.reason = Some(blocked.reason.sentence());
        }
        Self {
            row,
            events: about.event_count,
            input: about.input.map(|text| Payload::cut_at(text, CUT)),
            output,
            waits: about.waits.into_iter().map(Wait::from).collect(),
            waits_are_complete: about.waits_are_complete,
            attempts: about.attempts,
            last_errors: about.last_errors,
            queued_messages: about.queued_messages,
            next_try_ms,
        }
    }
}

/// A value that an orchestration keeps.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeptValue {
    pub(crate) key: String,
    pub(crate) value: Payload,
    pub(crate) updated_at_ms: u64,
}

/// A message that waits for an instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct Message {
    /// The kind as it is stored.
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
    pub(crate) enqueued_at_ms: u64,
    pub(crate) delayed_until_ms: Option<u64>,
    pub(crate) attempts: u32,
    pub(crate) data: Payload,
}

/// What an instance keeps: values, custom status, messages on their way.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstanceData {
    pub(crate) values: Vec<KeptValue>,
    pub(crate) custom_status: Option<Payload>,
    pub(crate) custom_status_version: u64,
    pub(crate) messages: Vec<Message>,
}

/// A whole text.
#[derive(Serialize, ToSchema)]
pub(crate) struct Text {
    pub(crate) text: String,
}
