//! How an execution settles races and words errors. The version that started it decides, once.

use semver::Version;

/// The first version whose executions free a cancelled wait at once.
const PROMPT_SINCE: Version = Version::new(0, 1, 31);
/// The first version that says which payload does not decode, and why.
const OWN_WORDS_SINCE: Version = Version::new(0, 1, 100);

/// The fate of the place of a wait or dequeue whose future was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RacePolicy {
    /// Executions started before 0.1.31, or with a stamp that is no version. The place stays taken for a while, so that
    /// messages can be skipped or read twice. Stored histories depend on that, so this policy never changes.
    Legacy,
    /// Executions started by 0.1.31 or later. The place is free as soon as the future is gone.
    Prompt,
}

impl RacePolicy {
    /// Chooses the policy by the stamp of an execution's first event. Logs a stamp that is no version.
    pub(crate) fn of_stamp(instance: &str, stamp: &str) -> Self {
        match Version::parse(stamp) {
            Ok(version) if version >= PROMPT_SINCE => Self::Prompt,
            Ok(_) => Self::Legacy,
            Err(error) => {
                tracing::warn!(
                    target: "duroxide::runtime",
                    instance,
                    version = stamp,
                    %error,
                    "Invalid pinned version; retaining legacy race cancellation semantics"
                );
                Self::Legacy
            }
        }
    }
}

/// The words that orchestration code gets when a payload does not decode.
///
/// The code may pass that text on to a step, and the engine records and compares it there. So an execution gets the
/// same words in every replay, also after an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeWords {
    /// Executions started before 0.1.100, or with a stamp that is no version.
    Published,
    /// Executions started by 0.1.100 or later.
    Own,
}

impl DecodeWords {
    /// Chooses the words by the stamp of an execution's first event.
    pub(crate) fn of_stamp(stamp: &str) -> Self {
        match Version::parse(stamp) {
            Ok(version) if version >= OWN_WORDS_SINCE => Self::Own,
            _ => Self::Published,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RacePolicy::{Legacy, Prompt};
    use super::*;

    #[test]
    fn the_stamp_of_the_first_event_chooses_the_policy() {
        let cases = [
            ("0.1.30", Legacy),
            ("0.1.31-rc.1", Legacy),
            ("0.1.31", Prompt),
            ("0.1.31+build", Prompt),
            ("0.1.100", Prompt),
            ("0.2.0", Prompt),
            ("", Legacy),
            ("latest", Legacy),
        ];
        for (stamp, expected) in cases {
            assert_eq!(RacePolicy::of_stamp("i", stamp), expected, "{stamp}");
        }
    }
}
