//! Stores that are broken on purpose: the checker must notice each.

/// A fault of the store itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twin {
    /// Some messages of stored turns are lost.
    ForgetsMessages,
    /// Some acknowledged messages were never stored.
    LosesAcknowledged,
    /// A holder that was replaced is told that its write was stored.
    IgnoresLeases,
    /// Timers fire before they are due.
    FiresEarly,
    /// Some activities of stored steps are lost.
    ForgetsActivities,
    /// A power cut takes what was called durable.
    LosesSynced,
}

impl Twin {
    /// The names of all of them.
    pub const NAMES: [&'static str; 6] = [
        "forgets-messages",
        "loses-acknowledged",
        "ignores-leases",
        "fires-early",
        "loses-synced",
        "forgets-activities",
    ];

    /// Finds one by its name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::ForgetsMessages,
            Self::LosesAcknowledged,
            Self::IgnoresLeases,
            Self::FiresEarly,
            Self::LosesSynced,
            Self::ForgetsActivities,
        ];
        Self::NAMES.iter().position(|other| *other == name).and_then(|place| all.get(place).copied())
    }
}
