//! How long orchestrations took under load, from start to end.

use std::time::Duration;

use super::core::StressTestResult;

/// The result of a stress test, with the times of single orchestrations.
#[derive(Debug, Clone)]
pub struct StressTestReport {
    /// Counts and throughput.
    pub result: StressTestResult,
    /// How long the completed orchestrations took.
    pub latencies: Latencies,
}

/// The times from start to end of a number of orchestrations; all zero if there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latencies {
    /// The average.
    pub mean: Duration,
    /// Half of them took no longer.
    pub p50: Duration,
    /// Nine out of ten took no longer.
    pub p90: Duration,
    /// Ninety-nine out of a hundred took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Latencies {
    /// Summarises these times.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let Some(max) = times.last().copied() else {
            return Self::default();
        };
        let total: Duration = times.iter().sum();
        let percentile = |percent: usize| {
            // The smallest time that this percentage of the times does not exceed.
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or(max)
        };
        Self {
            mean: total / u32::try_from(times.len()).unwrap_or(u32::MAX),
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_occurred() {
        let times = (1..=10).map(Duration::from_millis).collect();
        let latencies = Latencies::of(times);
        assert_eq!(latencies.p50, Duration::from_millis(5));
        assert_eq!(latencies.p90, Duration::from_millis(9));
        assert_eq!((latencies.p99, latencies.max), (Duration::from_millis(10), Duration::from_millis(10)));
        assert_eq!(latencies.mean, Duration::from_micros(5_500));
    }

    #[test]
    fn no_times_are_no_latency() {
        assert_eq!(Latencies::of(Vec::new()), Latencies::default());
    }
}
