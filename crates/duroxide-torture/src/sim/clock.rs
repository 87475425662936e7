//! Clocks that move with simulated time: the store's, and those of runtimes whose clocks are wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use duroxide::providers::Clock;
use tokio::time::Instant;

/// What the wall shows when a simulation begins: 9 September 2025.
const BEGINNING_MS: u64 = 1_757_400_000_000;

/// The clock of the store. It jumps when it is told to.
pub struct SimClock {
    beginning: Instant,
    offset_ms: AtomicI64,
}

impl SimClock {
    /// Makes a clock that starts now. Needs a runtime whose time is paused.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { beginning: Instant::now(), offset_ms: AtomicI64::new(0) })
    }

    /// Steps the wall without any time passing.
    pub fn jump(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> u64 {
        let elapsed = self.monotonic().as_millis() as u64;
        (BEGINNING_MS + elapsed).saturating_add_signed(self.offset_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.beginning.elapsed()
    }

    fn sleep_until(&self, deadline: Duration) -> duroxide::model::ClockSleep {
        Box::pin(tokio::time::sleep_until(self.beginning + deadline))
    }
}

/// The clock of a machine whose wall differs from the store's.
pub struct SkewedClock {
    right: Arc<SimClock>,
    skew_ms: i64,
}

impl SkewedClock {
    /// Makes a clock that is ahead by so much, or behind.
    pub fn new(right: Arc<SimClock>, skew_ms: i64) -> Self {
        Self { right, skew_ms }
    }
}

impl Clock for SkewedClock {
    fn now_ms(&self) -> u64 {
        self.right.now_ms().saturating_add_signed(self.skew_ms)
    }

    fn monotonic(&self) -> Duration {
        self.right.monotonic()
    }

    fn sleep_until(&self, deadline: Duration) -> duroxide::model::ClockSleep {
        self.right.sleep_until(deadline)
    }
}
