//! Values on their way into the store: checked and turned into text before the writer sees them.

use serde::Serialize;
use uuid::Uuid;

use super::shared::clamp_ms;
use crate::model::{Event, WorkItem};
use crate::providers::inspect::MessageClass;
use crate::providers::{ProviderError, StoreLimits, inspect, refusal};

/// A message, ready to be inserted.
pub(super) struct NewMessage {
    pub(super) instance: String,
    pub(super) class: MessageClass,
    /// For a timer: when it is due; 0 otherwise.
    pub(super) due_at: i64,
    /// For the start of a child: who started it.
    pub(super) parent: Option<String>,
    pub(super) text: String,
}

/// An activity, ready to be inserted.
pub(super) struct NewActivity {
    pub(super) instance: String,
    pub(super) execution_id: i64,
    pub(super) activity_id: i64,
    pub(super) session_id: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) text: String,
}

/// An event, ready to be inserted.
pub(super) struct NewEvent {
    pub(super) event_id: i64,
    pub(super) event_type: &'static str,
    pub(super) text: String,
}

pub(super) fn message(
    limits: &StoreLimits,
    operation: &str,
    item: &WorkItem,
) -> Result<NewMessage, ProviderError> {
    let route = limits.route_message(operation, item)?;
    Ok(NewMessage {
        instance: route.instance.to_string(),
        class: route.class,
        due_at: route.due_at_ms.map_or(0, clamp_ms),
        parent: route.parent.map(str::to_string),
        text: text(limits, operation, item)?,
    })
}

pub(super) fn messages(
    limits: &StoreLimits,
    operation: &str,
    items: &[WorkItem],
) -> Result<Vec<NewMessage>, ProviderError> {
    items.iter().map(|item| message(limits, operation, item)).collect()
}

pub(super) fn activity(
    limits: &StoreLimits,
    operation: &str,
    item: &WorkItem,
) -> Result<NewActivity, ProviderError> {
    let route = limits.route_activity(operation, item)?;
    Ok(NewActivity {
        instance: route.instance.to_string(),
        execution_id: id(operation, "execution id", route.execution_id)?,
        activity_id: id(operation, "activity id", route.activity_id)?,
        session_id: route.session_id.map(str::to_string),
        tag: route.tag.map(str::to_string),
        text: text(limits, operation, item)?,
    })
}

pub(super) fn activities(
    limits: &StoreLimits,
    operation: &str,
    items: &[WorkItem],
) -> Result<Vec<NewActivity>, ProviderError> {
    items.iter().map(|item| activity(limits, operation, item)).collect()
}

/// Encodes a delta. Ids are assigned by the runtime; one that is missing is refused here.
pub(super) fn events(
    limits: &StoreLimits,
    operation: &str,
    delta: &[Event],
) -> Result<Vec<NewEvent>, ProviderError> {
    let encode = |event: &Event| {
        if event.event_id == 0 {
            return Err(refusal::event_without_id(operation));
        }
        Ok(NewEvent {
            event_id: id(operation, "event id", event.event_id)?,
            event_type: inspect::event_type(&event.kind),
            text: text(limits, operation, event)?,
        })
    };
    delta.iter().map(encode).collect()
}

/// An id as SQLite can hold it.
pub(super) fn id(operation: &str, what: &str, id: u64) -> Result<i64, ProviderError> {
    i64::try_from(id).map_err(|_| {
        ProviderError::permanent(
            operation,
            format!("{what} {id} is out of range; this store takes at most {}", i64::MAX),
        )
    })
}

fn text(limits: &StoreLimits, operation: &str, value: &impl Serialize) -> Result<String, ProviderError> {
    let text = serde_json::to_string(value)
        .map_err(|error| ProviderError::permanent(operation, error.to_string()))?;
    limits.check_payload(operation, &text)?;
    Ok(text)
}

/// The version that an execution is pinned to.
pub(super) struct PinnedVersion {
    pub(super) text: String,
    numbers: [i64; 3],
}

impl PinnedVersion {
    pub(super) fn new(operation: &str, version: &semver::Version) -> Result<Self, ProviderError> {
        let number = |number| id(operation, "version number", number);
        let numbers = [number(version.major)?, number(version.minor)?, number(version.patch)?];
        Ok(Self { text: version.to_string(), numbers })
    }

    /// Major, minor and patch, as optional columns.
    pub(super) fn parts(&self) -> (Option<i64>, Option<i64>, Option<i64>) {
        let [major, minor, patch] = self.numbers;
        (Some(major), Some(minor), Some(patch))
    }
}

/// Makes the token of a lease: it names what is leased, so that it is found without a search, and cannot be guessed.
pub(super) fn new_token(leased: impl std::fmt::Display) -> String {
    format!("lock_{}_{leased}", Uuid::new_v4().simple())
}

/// Returns what a token says it leases; `None` if it is not one of ours.
pub(super) fn leased_by(token: &str) -> Option<&str> {
    token.strip_prefix("lock_")?.get(32..)?.strip_prefix('_')
}

/// Returns the random part of a token; `None` if it is not one of ours.
pub(super) fn random_part(token: &str) -> Option<[u8; 16]> {
    let digits = token.strip_prefix("lock_")?.get(..32)?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_what_it_leases() {
        for name in ["order-1", "", "a_b_c", "日本"] {
            assert_eq!(leased_by(&new_token(name)), Some(name));
        }
    }

    #[test]
    fn the_random_part_of_a_token_tells_it_from_others() {
        let (one, two) = (new_token("a"), new_token("a"));
        assert!(random_part(&one).is_some() && random_part(&one) != random_part(&two));
    }

    #[test]
    fn foreign_tokens_name_nothing_and_do_not_panic() {
        for token in
            ["", "lock_", "invalid-token", "lock_日本日本日本日本日本日本日本日本日本日本日本", "lock_x_y"]
        {
            assert_eq!(leased_by(token), None, "{token}");
            assert_eq!(random_part(token), None, "{token}");
        }
    }
}
