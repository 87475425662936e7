//! What became of a turn.

/// What became of a turn, the label `outcome` of `duroxide_turns_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// It is stored.
    Stored,
    /// The store will not take it: the failure of its instance is stored instead, or the turn is taken again.
    Refused,
    /// The store cannot take it for now: it is taken again after a wait.
    Postponed,
    /// Its instance changed meanwhile, or the store did not take it together with its cause: it is taken again from the queue.
    Requeued,
    /// Another runtime has taken it over.
    Lost,
    /// This runtime cannot run its code: it is left to others for a while.
    Deferred,
    /// Its instance cannot go on and is blocked.
    Blocked,
}

impl TurnOutcome {
    /// The value of the label.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Refused => "refused",
            Self::Postponed => "postponed",
            Self::Requeued => "requeued",
            Self::Lost => "lost",
            Self::Deferred => "deferred",
            Self::Blocked => "blocked",
        }
    }
}
