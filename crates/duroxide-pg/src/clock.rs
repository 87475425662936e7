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
    pub(crate) fn learn(&self, database_ms: i64, round_trip: Duration) {
        if round_trip > USEFUL_ROUND_TRIP {
            return;
        }
        let local = i64::try_from(SystemClock.now_ms()).unwrap_or(i64::MAX);
        // Rather late than early: asking too soon finds nothing.
        self.offset_ms.store(database_ms.saturating_sub(local).saturating_sub(1), Ordering::Relaxed);
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
