//! The processor time of this process, exact enough for runs of a tenth of a second. Linux only; elsewhere it is 0.

use std::fs;
use std::time::Duration;

/// Ticks of `/proc/self/stat` in a second, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of this process so far, in seconds.
#[derive(Clone, Copy)]
pub struct CpuTime {
    /// From `stat`: complete, but in ticks of 10 ms.
    ticks: f64,
    /// From `schedstat`: exact, but without threads that have ended.
    threads: f64,
}

impl CpuTime {
    pub fn read() -> Self {
        Self { ticks: ticks() / TICKS_PER_SECOND, threads: threads().as_secs_f64() }
    }

    /// Seconds so far, threads that have ended included, in steps of 10 ms.
    pub fn complete(&self) -> f64 {
        self.ticks
    }

    /// Seconds used since `earlier`. The exact figure is taken unless the other shows that it misses something.
    pub fn since(&self, earlier: &Self) -> f64 {
        let (ticks, threads) = (self.ticks - earlier.ticks, self.threads - earlier.threads);
        if ticks > threads + 2.0 / TICKS_PER_SECOND { ticks } else { threads }
    }
}

fn ticks() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program may hold spaces, so fields are counted from behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}

fn threads() -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let used = threads.flatten().map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0)
    });
    Duration::from_nanos(used.sum())
}
