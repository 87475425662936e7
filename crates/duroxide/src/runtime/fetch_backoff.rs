//! How long a dispatcher waits until it asks its store again.

use std::time::Duration;

use super::options::RuntimeOptions;
use crate::providers::ProviderError;

const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// How long a dispatcher waits for a signal before it asks without one. So a signal that the store failed to send
/// delays work by seconds, instead of losing it. A store that does not signal is asked no more often than the options say.
pub(crate) fn longest_silence(options: &RuntimeOptions) -> Duration {
    LONGEST_SILENCE.max(options.dispatcher_min_poll_interval)
}

const PERMANENT_PAUSE: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Doubles the pause from failure to failure: 200, 400, 800, 1600, 3000, 3000 ... ms.
#[derive(Debug, Default)]
pub(crate) struct FetchBackoff {
    failures: u32,
}

impl FetchBackoff {
    /// Takes note of a failure and returns the pause after it.
    pub fn after(&mut self, error: &ProviderError) -> Duration {
        if !error.retryable {
            return PERMANENT_PAUSE;
        }
        // Four doublings reach the longest pause; in a longer outage the pause stays there.
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(4));
        self.failures = self.failures.saturating_add(1);
        pause.min(LONGEST_PAUSE)
    }

    /// Takes note of a fetch that worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_any_length_keeps_the_longest_pause() {
        let error = ProviderError::retryable("fetch_work_item", "busy");
        let mut backoff = FetchBackoff::default();
        let pauses: Vec<u128> = (0..6).map(|_| backoff.after(&error).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3000, 3000]);
        for _ in 0..1000 {
            assert_eq!(backoff.after(&error), LONGEST_PAUSE);
        }
        backoff.reset();
        assert_eq!(backoff.after(&error), FIRST_PAUSE);
        assert_eq!(backoff.after(&ProviderError::permanent("fetch_work_item", "no")), PERMANENT_PAUSE);
    }
}
