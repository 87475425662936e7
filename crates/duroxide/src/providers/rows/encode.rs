//! Checks values on their way into a store, and turns them into text and numbers before a transaction begins.

use serde::Serialize;

use crate::model::{ActivityOptions, ActivityProgress, ActivityRecord, Event, WorkItem};
use crate::providers::inspect::MessageClass;
use crate::providers::{ProviderError, StoreLimits, inspect, refusal};

/// A message, ready to be inserted.
#[derive(Debug, Clone)]
pub struct MessageRow {
    /// The instance that it is for.
    pub instance: String,
    /// The class of the message.
    pub class: MessageClass,
    /// For a timer: when it is due, in milliseconds since the epoch; 0 otherwise.
    pub due_at_ms: i64,
    /// For the start of a child: the instance that started it.
    pub parent: Option<String>,
    /// The message as JSON.
    pub text: String,
}

impl MessageRow {
    /// Checks and encodes a message.
    ///
    /// # Errors
    /// A refusal that names `operation`, if the message belongs in another queue or is beyond the limits.
    pub fn encode(limits: &StoreLimits, operation: &str, item: &WorkItem) -> Result<Self, ProviderError> {
        let route = limits.route_message(operation, item)?;
        Ok(Self {
            instance: route.instance.to_string(),
            class: route.class,
            due_at_ms: route.due_at_ms.map_or(0, |due_at| i64::try_from(due_at).unwrap_or(i64::MAX)),
            parent: route.parent.map(str::to_string),
            text: json(limits, operation, item)?,
        })
    }
}

/// An activity, ready to be inserted.
#[derive(Debug, Clone)]
pub struct ActivityRow {
    /// The instance that scheduled it.
    pub instance: String,
    /// The execution that scheduled it.
    pub execution_id: i64,
    /// Its id within the execution.
    pub activity_id: i64,
    /// The session that it belongs to.
    pub session_id: Option<String>,
    /// Its tag.
    pub tag: Option<String>,
    /// The activity as JSON.
    pub text: String,
}

impl ActivityRow {
    /// Checks and encodes an activity.
    ///
    /// # Errors
    /// A refusal that names `operation`, if the item is no activity, is beyond the limits, or has an id that is too
    /// large for a row.
    pub fn encode(limits: &StoreLimits, operation: &str, item: &WorkItem) -> Result<Self, ProviderError> {
        Self::encode_with(limits, operation, item, None, None)
    }

    /// Checks and encodes an activity with what the store keeps beside it: two more fields of its JSON, which builds that do
    /// not know them ignore.
    ///
    /// # Errors
    /// As for [`encode`](Self::encode).
    pub fn encode_with(
        limits: &StoreLimits,
        operation: &str,
        item: &WorkItem,
        options: Option<&ActivityOptions>,
        progress: Option<&ActivityProgress>,
    ) -> Result<Self, ProviderError> {
        let route = limits.route_activity(operation, item)?;
        Ok(Self {
            instance: route.instance.to_string(),
            execution_id: row_number(operation, "execution id", route.execution_id)?,
            activity_id: row_number(operation, "activity id", route.activity_id)?,
            session_id: route.session_id.map(str::to_string),
            tag: route.tag.map(str::to_string),
            text: checked(limits, operation, ActivityRecord::encode(item, options, progress))?,
        })
    }
}

/// An event, ready to be inserted.
#[derive(Debug, Clone)]
pub struct EventRow {
    /// Its id within the execution.
    pub event_id: i64,
    /// The name of its kind.
    pub event_type: &'static str,
    /// The event as JSON.
    pub text: String,
}

impl EventRow {
    /// Checks and encodes the events that a turn adds.
    ///
    /// # Errors
    /// A refusal that names `operation`, if an event has no id (the runtime assigns them) or is beyond the limits.
    pub fn encode_all(
        limits: &StoreLimits,
        operation: &str,
        delta: &[Event],
    ) -> Result<Vec<Self>, ProviderError> {
        let encode = |event: &Event| {
            if event.event_id == 0 {
                return Err(refusal::event_without_id(operation));
            }
            Ok(Self {
                event_id: row_number(operation, "event id", event.event_id)?,
                event_type: inspect::event_type(&event.kind),
                text: json(limits, operation, event)?,
            })
        };
        delta.iter().map(encode).collect()
    }
}

/// The framework version that an execution is pinned to.
#[derive(Debug, Clone)]
pub struct PinnedVersion {
    /// The version as text.
    pub text: String,
    /// Major, minor and patch.
    pub numbers: [i64; 3],
}

impl PinnedVersion {
    /// Encodes a version.
    ///
    /// # Errors
    /// A refusal that names `operation`, if one of its numbers is too large for a row.
    pub fn encode(operation: &str, version: &semver::Version) -> Result<Self, ProviderError> {
        let number = |number| row_number(operation, "version number", number);
        let numbers = [number(version.major)?, number(version.minor)?, number(version.patch)?];
        Ok(Self { text: version.to_string(), numbers })
    }
}

/// Converts a number for a signed 64-bit column.
///
/// # Errors
/// A refusal that names `operation` and `what`, if the number is too large.
pub fn row_number(operation: &str, what: &str, number: u64) -> Result<i64, ProviderError> {
    i64::try_from(number).map_err(|_| {
        ProviderError::permanent(
            operation,
            format!("{what} {number} is out of range; this store takes at most {}", i64::MAX),
        )
    })
}

/// Converts numbers that a row is looked for by; `None` if one is too large for a signed 64-bit column, so that no row has it.
pub fn row_numbers<const N: usize>(numbers: [u64; N]) -> Option<[i64; N]> {
    let mut converted = [0; N];
    for (converted, number) in converted.iter_mut().zip(numbers) {
        *converted = i64::try_from(number).ok()?;
    }
    Some(converted)
}

fn json(limits: &StoreLimits, operation: &str, value: &impl Serialize) -> Result<String, ProviderError> {
    checked(limits, operation, serde_json::to_string(value))
}

fn checked(
    limits: &StoreLimits,
    operation: &str,
    encoded: Result<String, serde_json::Error>,
) -> Result<String, ProviderError> {
    let text = encoded.map_err(|error| ProviderError::permanent(operation, error.to_string()))?;
    limits.check_payload(operation, &text)?;
    Ok(text)
}
