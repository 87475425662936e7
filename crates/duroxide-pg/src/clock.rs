//! The database's clock, as this process knows it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

/// An answer's travel time does not explain a larger difference: a clock was set.
const STEP_MS: i64 = 1_000;

/// The machine's clock, corrected by the database's answers. The database decides about visibility and leases; this
/// clock tells dispatchers when asking is worth it, and stamps events.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock {
    has_learnt: AtomicBool,
    offset_ms: AtomicI64,
    /// The latest time that the database has shown. A message that it found due must not look early here, whatever the
    /// offset.
    shown_ms: AtomicI64,
}

impl DatabaseClock {
    /// Takes note of the time that the database showed in an answer.
    ///
    /// The answer took some time to arrive, so the database's clock has moved on since; the largest offset is the
    /// closest. That offset shrinks slowly, because clocks drift, and at once if a clock was set back.
    pub(crate) fn learn(&self, database_ms: i64) {
        let local = i64::try_from(SystemClock.now_ms()).unwrap_or(i64::MAX);
        let (sample, known) = (database_ms.saturating_sub(local), self.offset_ms.load(Ordering::Relaxed));
        let is_first = !self.has_learnt.swap(true, Ordering::Relaxed);
        let was_set_back = known.saturating_sub(sample) > STEP_MS;
        let offset = if is_first || was_set_back || sample >= known { sample } else { known - 1 };
        self.offset_ms.store(offset, Ordering::Relaxed);
        if was_set_back {
            self.shown_ms.store(database_ms, Ordering::Relaxed);
        } else {
            self.shown_ms.fetch_max(database_ms, Ordering::Relaxed);
        }
    }
}

impl Clock for DatabaseClock {
    fn now_ms(&self) -> u64 {
        let now = SystemClock.now_ms().saturating_add_signed(self.offset_ms.load(Ordering::Relaxed));
        now.max(u64::try_from(self.shown_ms.load(Ordering::Relaxed)).unwrap_or(0))
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn sleep_until(&self, deadline: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        SystemClock.sleep_until(deadline)
    }

    fn alarm(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        SystemClock.alarm(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_behind_what_the_database_has_shown() {
        let clock = DatabaseClock::default();
        let ahead = i64::try_from(SystemClock.now_ms()).unwrap() + 60_000;
        clock.learn(ahead);
        assert!(clock.now_ms() >= ahead.unsigned_abs());
        for late in 1..200 {
            clock.learn(ahead - late);
            assert!(
                clock.now_ms() >= ahead.unsigned_abs(),
                "an answer that was read late does not set it back"
            );
        }
    }

    #[test]
    fn it_follows_a_clock_that_was_set() {
        let clock = DatabaseClock::default();
        let now = i64::try_from(SystemClock.now_ms()).unwrap();
        clock.learn(now + 3_600_000);
        clock.learn(now);
        assert!(clock.now_ms() < now.unsigned_abs() + 60_000);
    }
}
