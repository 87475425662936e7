//! How long a dispatcher waits until it asks its store again.

use std::time::Duration;

use super::options::RuntimeOptions;
use crate::providers::ProviderError;

const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// How long a dispatcher waits for a signal before it asks without one. So a signal that the store failed to send
/// delays work by seconds, instead of losing it. A dispatcher asks a store that does not signal no more often than the
/// options say.
pub(crate) fn longest_silence(options: &RuntimeOptions) -> Duration {
    LONGEST_SILENCE.max(options.dispatcher_min_poll_interval)
}

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How often a dispatcher logs a failure that goes on as a warning.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// How a dispatcher goes on after its store has refused a claim, for now or for good: it waits longer each time, and does not
/// flood the log. An operator may mend a store at any time, so the dispatcher never stops asking.
#[derive(Debug, Default)]
pub(crate) struct FetchBackoff {
    failures: u32,
    warned: Option<Warned>,
}

/// The last warning: when, and about which failure.
#[derive(Debug)]
struct Warned {
    at: Duration,
    message: String,
}

/// What to do about a failed claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AfterFailure {
    pub pause: Duration,
    /// Whether operators should hear of it; if not, they have heard of the same one less than a minute ago.
    pub is_news: bool,
}

impl FetchBackoff {
    /// Takes note of a failure at this monotonic time.
    pub fn after(&mut self, error: &ProviderError, now: Duration) -> AfterFailure {
        // Four doublings reach the longest pause; in a longer outage the pause stays there.
        let longest = FIRST_PAUSE.saturating_mul(1 << self.failures.min(4)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        let is_news = self.warned.as_ref().is_none_or(|warned| {
            warned.message != error.message || now.saturating_sub(warned.at) >= WARN_EVERY
        });
        if is_news {
            self.warned = Some(Warned { at: now, message: error.message.clone() });
        }
        AfterFailure { pause: jittered(longest), is_news }
    }

    /// Takes note of a fetch that worked.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Returns a random duration between three quarters of this one and all of it, so that runtimes that met the same outage
/// do not all come back at once.
fn jittered(longest: Duration) -> Duration {
    let random = u32::try_from(uuid::Uuid::new_v4().as_u128() % 251).unwrap_or_default();
    longest / 1_000 * (750 + random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permanent(message: &str) -> ProviderError {
        ProviderError::permanent("fetch_work_item", message)
    }

    #[test]
    fn pauses_grow_to_the_longest_whether_the_failure_may_pass_or_not() {
        for error in [ProviderError::retryable("fetch_work_item", "busy"), permanent("closed")] {
            let mut backoff = FetchBackoff::default();
            for longest in [200, 400, 800, 1_600, 3_000, 3_000] {
                let pause = backoff.after(&error, Duration::ZERO).pause.as_millis();
                assert!(pause >= longest * 3 / 4 && pause <= longest, "{pause} of {longest}");
            }
            for _ in 0..1_000 {
                assert!(backoff.after(&error, Duration::ZERO).pause <= LONGEST_PAUSE);
            }
            backoff.reset();
            assert!(backoff.after(&error, Duration::ZERO).pause <= FIRST_PAUSE);
        }
    }

    #[test]
    fn pauses_differ() {
        let pauses: std::collections::HashSet<Duration> = (0..100)
            .map(|_| FetchBackoff::default().after(&permanent("closed"), Duration::ZERO).pause)
            .collect();
        assert!(pauses.len() > 20, "{pauses:?}");
    }

    #[test]
    fn a_failure_that_goes_on_is_news_once_a_minute_and_another_one_at_once() {
        let mut backoff = FetchBackoff::default();
        let mut is_news =
            |message, seconds| backoff.after(&permanent(message), Duration::from_secs(seconds)).is_news;
        assert_eq!(
            [0, 3, 59, 60, 61].map(|seconds| is_news("closed", seconds)),
            [true, false, false, true, false]
        );
        assert!(is_news("read-only", 62));
        backoff.reset();
        assert!(backoff.after(&permanent("read-only"), Duration::from_secs(63)).is_news);
    }
}
