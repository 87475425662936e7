//! The database's clock, as this process knows it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

/// An answer that took longer says too little about the time.
const USEFUL_ROUND_TRIP: Duration = Duration::from_millis(100);

/// The machine's clock, corrected by what the database's answers say. Visibility and leases are decided by the database;
/// this tells dispatchers when it is worth to ask.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock {
    offset_ms: AtomicI64,
}

impl DatabaseClock {
    /// Takes note that the database showed `database_ms` in an answer that took `round_trip`.
    ///
    /// From then on this clock shows no less: what the database found due must not look early here. It is behind the
    /// database's by the time that the answer took, so whoever waits for it does not ask too soon.
    pub(crate) fn learn(&self, database_ms: i64, round_trip: Duration) {
        let local = i64::try_from(SystemClock.now_ms()).unwrap_or(i64::MAX);
        let offset = database_ms.saturating_sub(local);
        if round_trip <= USEFUL_ROUND_TRIP {
            self.offset_ms.store(offset, Ordering::Relaxed);
        } else {
            self.offset_ms.fetch_max(offset, Ordering::Relaxed);
        }
    }
}

impl Clock for DatabaseClock {
    fn now_ms(&self) -> u64 {
        SystemClock.now_ms().saturating_add_signed(self.offset_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn sleep_until(&self, deadline: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        SystemClock.sleep_until(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local_ms() -> i64 {
        i64::try_from(SystemClock.now_ms()).unwrap()
    }

    #[test]
    fn it_is_never_behind_what_the_database_has_shown() {
        let clock = DatabaseClock::default();
        let ahead = local_ms() + 60_000;
        clock.learn(ahead, Duration::from_millis(1));
        assert!(clock.now_ms() >= ahead.unsigned_abs());
        clock.learn(ahead + 500, Duration::from_secs(10));
        assert!(clock.now_ms() >= ahead.unsigned_abs() + 500, "even if the answer took long");
        let before = local_ms() - 60_000;
        clock.learn(before, Duration::from_secs(10));
        assert!(clock.now_ms() >= ahead.unsigned_abs(), "a late answer does not set it back");
        clock.learn(before, Duration::from_millis(1));
        assert!(clock.now_ms() < ahead.unsigned_abs(), "a prompt one does");
    }
}
