//! Durations as people write them.

use std::time::Duration;

/// Milliseconds.
///
/// ```
/// assert_eq!(duroxide::millis(1_500).as_secs_f64(), 1.5);
/// ```
pub const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Seconds.
///
/// ```
/// assert_eq!(duroxide::secs(90).as_secs(), 90);
/// ```
pub const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Minutes.
///
/// ```
/// assert_eq!(duroxide::mins(2), duroxide::secs(120));
/// ```
pub const fn mins(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(60))
}

/// Hours.
///
/// ```
/// assert_eq!(duroxide::hours(1), duroxide::mins(60));
/// ```
pub const fn hours(count: u64) -> Duration {
    mins(count.saturating_mul(60))
}

/// Days of 24 hours.
///
/// ```
/// assert_eq!(duroxide::days(30), duroxide::hours(720));
/// ```
pub const fn days(count: u64) -> Duration {
    hours(count.saturating_mul(24))
}
