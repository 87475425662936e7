//! A fetch waits as long as the caller allows, or not at all.
//!
//! The two `short` functions check a store that ignores `poll_timeout`, the two `long` ones a store that waits, and the
//! upper bound checks both.

use std::time::Duration;

use super::support::{TURN_LEASE, WORK_LEASE, ms};
use crate::providers::{Clock, Provider, SystemClock, TagFilter};

const POLL: Duration = Duration::from_millis(500);

/// Fetches a turn from an empty store and returns how long that took.
async fn time_turn_fetch(provider: &dyn Provider, poll_timeout: Duration) -> Duration {
    let begin = SystemClock.monotonic();
    let fetched = provider.fetch_orchestration_item(TURN_LEASE, poll_timeout, None).await;
    assert!(fetched.expect("the fetch should work").is_none(), "the store is empty");
    SystemClock.monotonic() - begin
}

/// Fetches an activity from an empty store and returns how long that took.
async fn time_work_fetch(provider: &dyn Provider, poll_timeout: Duration) -> Duration {
    let begin = SystemClock.monotonic();
    let fetched = provider.fetch_work_item(WORK_LEASE, poll_timeout, None, &TagFilter::default()).await;
    assert!(fetched.expect("the fetch should work").is_none(), "the store is empty");
    SystemClock.monotonic() - begin
}

/// A store that does not wait answers at once.
pub async fn test_short_poll_returns_immediately(provider: &dyn Provider, threshold: Duration) {
    let took = time_turn_fetch(provider, POLL).await;
    assert!(took < threshold, "the fetch should return within {threshold:?}; it took {took:?}");
}

/// The same for activities.
pub async fn test_short_poll_work_item_returns_immediately(provider: &dyn Provider, threshold: Duration) {
    let took = time_work_fetch(provider, POLL).await;
    assert!(took < threshold, "the fetch should return within {threshold:?}; it took {took:?}");
}

/// A store that waits for work waits for the whole time-out.
pub async fn test_long_poll_waits_for_timeout(provider: &dyn Provider) {
    let took = time_turn_fetch(provider, POLL).await;
    assert!(took >= POLL, "the fetch should wait for {POLL:?}; it took {took:?}");
}

/// The same for activities.
pub async fn test_long_poll_work_item_waits_for_timeout(provider: &dyn Provider) {
    let took = time_work_fetch(provider, POLL).await;
    assert!(took >= POLL, "the fetch should wait for {POLL:?}; it took {took:?}");
}

/// No store waits much longer than the caller allows.
pub async fn test_fetch_respects_timeout_upper_bound(provider: &dyn Provider) {
    let took = time_turn_fetch(provider, ms(300)).await;
    assert!(took < POLL, "a fetch with a time-out of 300 ms should return within {POLL:?}; it took {took:?}");
}
