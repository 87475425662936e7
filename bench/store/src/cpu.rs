//! How much processor time was used, which other programs on the machine disturb much less than how long it took.
//!
//! Linux only; elsewhere the figures are 0.

use std::time::Duration;

/// The store's writer, which every write has to pass through.
const WRITER_THREAD: &str = "duroxide-sqlite";

/// Processor time of this process so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTime {
    pub writer: Duration,
    pub all: Duration,
}

impl CpuTime {
    /// Adds up what the threads that exist have used.
    pub fn read() -> Self {
        let mut sum = Self::default();
        let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return sum };
        for thread in threads.flatten() {
            let text = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            // The first field is the time on a processor, in nanoseconds.
            let used = text("schedstat").split(' ').next().and_then(|field| field.parse().ok());
            let used = Duration::from_nanos(used.unwrap_or(0));
            sum.all += used;
            if text("comm").trim_end() == WRITER_THREAD {
                sum.writer += used;
            }
        }
        sum
    }

    pub fn since(&self, earlier: &Self) -> Self {
        Self { writer: self.writer.saturating_sub(earlier.writer), all: self.all.saturating_sub(earlier.all) }
    }
}

/// Microseconds for each of `count`.
pub fn us_per(time: Duration, count: u64) -> f64 {
    crate::stats::ratio(time.as_secs_f64() * 1e6, count as f64)
}
