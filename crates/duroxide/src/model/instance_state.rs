//! The state of an instance, as descriptions and listings tell it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ExecutionStatus;

/// The state of an instance: finer than its published status, so that work that cannot go on is not hidden among work
/// that does.
///
/// ```
/// use duroxide::InstanceState;
///
/// let state: InstanceState = "blocked".parse().unwrap();
/// assert_eq!(state.as_str(), "blocked");
/// assert!(!state.is_ended() && InstanceState::Cancelled.is_ended());
/// // A listing does not tell those apart that have begun and not ended.
/// assert_eq!(state.listed_status(), Some("Running"));
/// // What a store makes of the status, and of what it knows beside it: cancelled, blocked, busy.
/// assert_eq!(InstanceState::of("Running", false, true, false), InstanceState::Blocked);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InstanceState {
    /// Its start is queued; it has not taken its first turn.
    #[default]
    Pending,
    /// It takes a turn right now, or has messages to take one with as soon as a runtime is free.
    Running,
    /// It waits for an activity, a timer, a signal, a queue message or a child.
    Waiting,
    /// It cannot go on without help. Its description tells the reason.
    Blocked,
    /// It returned a result.
    Completed,
    /// It failed.
    Failed,
    /// It ended because a caller cancelled it.
    Cancelled,
    /// One execution has ended, and the next has not taken its first turn yet.
    Continued,
}

impl InstanceState {
    /// All states, in the order in which an instance can pass through them.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Waiting,
        Self::Blocked,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Continued,
    ];

    /// Returns the state as a lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Continued => "continued",
        }
    }

    /// Tells whether the instance has ended for good.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Tells the state of an instance by its stored status and by what the store knows of its queue.
    ///
    /// `status` is that of its current execution, or [`CANCELLED`](Self::CANCELLED). A text that is no status counts as
    /// running, as the published status does.
    pub fn of(status: &str, is_cancelled: bool, is_blocked: bool, is_busy: bool) -> Self {
        match ExecutionStatus::parse(status) {
            Some(ExecutionStatus::Completed) => Self::Completed,
            Some(ExecutionStatus::Failed) if is_cancelled => Self::Cancelled,
            Some(ExecutionStatus::Failed) => Self::Failed,
            None if status == Self::CANCELLED => Self::Cancelled,
            _ if is_blocked => Self::Blocked,
            Some(ExecutionStatus::ContinuedAsNew) => Self::Continued,
            _ if is_busy => Self::Running,
            _ => Self::Waiting,
        }
    }

    /// The status that listings keep for an instance that ended because it was cancelled. Its execution says `Failed`.
    pub const CANCELLED: &'static str = "Cancelled";

    /// Returns the listed status of instances in this state; `None` for an instance that has none yet.
    pub fn listed_status(self) -> Option<&'static str> {
        match self {
            Self::Pending => None,
            Self::Running | Self::Waiting | Self::Blocked => Some(ExecutionStatus::Running.as_str()),
            Self::Completed => Some(ExecutionStatus::Completed.as_str()),
            Self::Failed => Some(ExecutionStatus::Failed.as_str()),
            Self::Cancelled => Some(Self::CANCELLED),
            Self::Continued => Some(ExecutionStatus::ContinuedAsNew.as_str()),
        }
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that names no state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownState(String);

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = InstanceState::ALL.iter().map(|state| state.as_str()).collect();
        write!(f, "'{}' is not a state; the states are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownState {}

impl FromStr for InstanceState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let named = Self::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(text));
        named.ok_or_else(|| UnknownState(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_as_it_is_written_and_serialized() {
        for state in InstanceState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        let error = "sleeping".parse::<InstanceState>().unwrap_err();
        assert!(error.to_string().contains("pending, running"), "{error}");
    }

    #[test]
    fn an_ended_instance_is_neither_blocked_nor_running() {
        assert_eq!(InstanceState::of("Completed", false, true, true), InstanceState::Completed);
        assert_eq!(InstanceState::of("Failed", false, true, true), InstanceState::Failed);
        assert_eq!(InstanceState::of("Failed", true, false, false), InstanceState::Cancelled);
        assert_eq!(InstanceState::of("Cancelled", false, false, true), InstanceState::Cancelled);
        assert_eq!(InstanceState::of("Running", false, true, true), InstanceState::Blocked);
        assert_eq!(InstanceState::of("Running", false, false, true), InstanceState::Running);
        assert_eq!(InstanceState::of("Running", false, false, false), InstanceState::Waiting);
        assert_eq!(InstanceState::of("ContinuedAsNew", false, false, true), InstanceState::Continued);
    }
}
