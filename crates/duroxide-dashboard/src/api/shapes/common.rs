//! What several answers use: states, payloads, counts, and what the pages need to know first.

use duroxide::InstanceState;
use duroxide::providers::Count;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most bytes of a payload that an overview of it carries.
pub(crate) const CUT: usize = 2_000;

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Pending,
    Running,
    Waiting,
    Blocked,
    Completed,
    Failed,
    Cancelled,
    Continued,
}

impl From<InstanceState> for State {
    fn from(state: InstanceState) -> Self {
        match state {
            InstanceState::Pending => Self::Pending,
            InstanceState::Waiting => Self::Waiting,
            InstanceState::Blocked => Self::Blocked,
            InstanceState::Completed => Self::Completed,
            InstanceState::Failed => Self::Failed,
            InstanceState::Cancelled => Self::Cancelled,
            InstanceState::Continued => Self::Continued,
            _ => Self::Running,
        }
    }
}

/// A payload, or its beginning.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Payload {
    /// The text, as it is stored.
    pub(crate) text: String,
    /// How long it is; if it was cut, how much of it is here.
    pub(crate) bytes: u64,
    /// Whether there is more.
    pub(crate) cut: bool,
}

impl Payload {
    /// A payload that the store has cut to at most `cut` bytes, never inside a character.
    pub(crate) fn cut_at(text: String, cut: usize) -> Self {
        let is_cut = text.len().saturating_add(4) > cut;
        Self { bytes: text.len() as u64, cut: is_cut, text }
    }

    /// A payload whose whole length is known.
    pub(crate) fn of(text: String, bytes: u64) -> Self {
        let cut = (text.len() as u64) < bytes;
        Self { text, bytes, cut }
    }
}

/// What the pages need to know first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Meta {
    /// The version of the package.
    pub(crate) version: String,
    /// The store, as the operator named it.
    pub(crate) store: String,
    /// What the sender of this request may do.
    pub(crate) access: AccessWord,
    /// Whether there is a worker to crash.
    pub(crate) crash: bool,
    /// The store's time, in milliseconds since the epoch.
    pub(crate) now_ms: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AccessWord {
    Read,
    Full,
}

/// A number that is exact, or a bound that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub(crate) struct Counted {
    pub(crate) count: u64,
    /// Whether there are more than that.
    pub(crate) is_more: bool,
}

impl From<Count> for Counted {
    fn from(count: Count) -> Self {
        Self { count: count.value, is_more: !count.is_exact }
    }
}
