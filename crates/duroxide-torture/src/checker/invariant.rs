//! The rules that hold whatever breaks, and how a breach of one is told.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A rule that holds whatever breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Invariant {
    /// Every acknowledged start, signal, message and cancel takes effect.
    NothingLost,
    /// An instance ends as an interpreter of its program says.
    RightAnswer,
    /// Whatever was scheduled is completed at most once, and exactly once by an instance that waited for it.
    OneCompletion,
    /// Whatever ran was recorded as requested, whatever is recorded as ended ran, and nothing runs again after that.
    Ledger,
    /// The store accepts no write from a holder that was replaced.
    Fencing,
    /// Histories are numbered without gaps, only grow, end once, and refer only backwards.
    History,
    /// The code decides from every history as it did when it was recorded.
    Replay,
    /// When all instances have ended, no message, activity or lease is left.
    CleanQueues,
    /// No timer fires early.
    Timers,
    /// Messages of a queue are taken in their order, each once.
    Queues,
    /// No reader sees an instance go backwards.
    MonotonicReads,
    /// All instances end within a bound once the faults have stopped.
    Liveness,
    /// Damage leads to a typed error or a row that is set aside: never to silence, a hang or a panic.
    LoudFailure,
}

impl Invariant {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 13] = [
        Self::NothingLost,
        Self::RightAnswer,
        Self::OneCompletion,
        Self::Ledger,
        Self::Fencing,
        Self::History,
        Self::Replay,
        Self::CleanQueues,
        Self::Timers,
        Self::Queues,
        Self::MonotonicReads,
        Self::Liveness,
        Self::LoudFailure,
    ];

    /// Returns the short name under which documents refer to it: `I1` to `I13`.
    pub fn code(self) -> String {
        let place = Self::ALL.iter().position(|other| *other == self).unwrap_or_default();
        format!("I{}", place + 1)
    }
}

/// A breach of a rule: which, by whom, and where in its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The rule.
    pub invariant: Invariant,
    /// The instance that shows it; empty if it is about the store as a whole.
    pub instance: String,
    /// The event of its history that shows it.
    pub event: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl Violation {
    /// Describes a breach that shows in an instance.
    pub fn new(invariant: Invariant, instance: impl Into<String>, what: impl Into<String>) -> Self {
        Self { invariant, instance: instance.into(), event: None, what: what.into() }
    }

    /// Describes a breach that shows in the store as a whole.
    pub fn of_store(invariant: Invariant, what: impl Into<String>) -> Self {
        Self::new(invariant, "", what)
    }

    /// Adds the event that shows it.
    #[must_use]
    pub fn at(mut self, event: u64) -> Self {
        self.event = Some(event);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.invariant.code(), self.invariant)?;
        if !self.instance.is_empty() {
            write!(f, " {}", self.instance)?;
        }
        if let Some(event) = self.event {
            write!(f, " event {event}")?;
        }
        write!(f, ": {}", self.what)
    }
}
