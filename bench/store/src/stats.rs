//! Medians and percentiles, and the one way to read the time.

use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

/// The time since the program began.
pub fn now() -> Duration {
    SystemClock.monotonic()
}

/// The value below which `percent` of the samples lie; 0 without samples.
pub fn percentile(samples: &[f64], percent: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = (percent / 100.0 * last as f64).round() as usize;
    sorted[rank.min(last)]
}

pub fn median(samples: &[f64]) -> f64 {
    percentile(samples, 50.0)
}

/// A quotient, 0 where there is nothing to divide by.
pub fn ratio(value: f64, by: f64) -> f64 {
    if by == 0.0 { 0.0 } else { value / by }
}

/// Small numbers from a seed, for moments that differ between runs and can be had again.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero for ever.
        Self(seed | 1)
    }

    /// A number in `0..below`.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }
}
