//! How often to try an activity, and how long to wait in between.

use std::time::Duration;

/// How often the runtime tries an activity, with what pauses, and how long one attempt may take.
///
/// Each attempt is a step of its own, with another [`idempotency_key`](crate::ActivityContext::idempotency_key). The attempts of a
/// [`StoredRetry`](crate::StoredRetry) have one.
///
/// ```
/// use std::time::Duration;
/// use duroxide::{BackoffStrategy, OrchestrationContext, RetryPolicy};
///
/// async fn fetch(ctx: OrchestrationContext, url: String) -> Result<String, String> {
///     // Up to five attempts, with pauses of 1, 2, 4 and 8 seconds in between that survive a restart. An attempt that
///     // takes longer than 20 seconds ends the call with an error.
///     let policy = RetryPolicy::new(5).with_timeout(Duration::from_secs(20)).with_backoff(
///         BackoffStrategy::Exponential {
///             base: Duration::from_secs(1),
///             multiplier: 2.0,
///             max: Duration::from_secs(60),
///         },
///     );
///     ctx.schedule_activity_with_retry("Download", url, policy).await
/// }
/// # duroxide::OrchestrationRegistry::builder().register("Fetch", fetch);
/// ```
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// The pauses between attempts.
    pub backoff: BackoffStrategy,
    /// How long one attempt may take. When the time runs out, there is no further attempt, unless
    /// [`retry_timeouts`](Self::retry_timeouts) allows one.
    pub timeout: Option<Duration>,
}

impl Default for RetryPolicy {
    /// Three attempts with the default backoff and no timeout.
    fn default() -> Self {
        Self { max_attempts: 3, backoff: BackoffStrategy::default(), timeout: None }
    }
}

impl RetryPolicy {
    /// Makes a policy with a number of attempts, the default backoff and no timeout.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::RetryPolicy;
    ///
    /// let policy = RetryPolicy::new(3);
    /// assert_eq!((policy.max_attempts, policy.timeout), (3, None));
    /// assert_eq!(policy.delay_for_attempt(1), Duration::from_millis(100));
    /// ```
    ///
    /// # Panics
    /// If `max_attempts` is 0.
    pub fn new(max_attempts: u32) -> Self {
        assert!(max_attempts > 0, "max_attempts must be at least 1");
        Self { max_attempts, ..Self::default() }
    }

    /// Makes a policy with a number of attempts and pauses that double from 100 ms up to 30 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::RetryPolicy;
    ///
    /// let policy = RetryPolicy::exponential(5);
    /// assert_eq!(policy.delay_for_attempt(3), Duration::from_millis(400));
    /// ```
    ///
    /// # Panics
    /// If `max_attempts` is 0.
    pub fn exponential(max_attempts: u32) -> Self {
        Self::new(max_attempts)
    }

    /// Makes a policy with a number of attempts and the same pause between any two.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::RetryPolicy;
    ///
    /// let policy = RetryPolicy::fixed(10, Duration::from_secs(1));
    /// assert_eq!(policy.delay_for_attempt(9), Duration::from_secs(1));
    /// ```
    ///
    /// # Panics
    /// If `max_attempts` is 0.
    pub fn fixed(max_attempts: u32, delay: Duration) -> Self {
        Self::new(max_attempts).with_backoff(BackoffStrategy::Fixed { delay })
    }

    /// Bounds each attempt.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // A charge that takes longer than 20 seconds ends the call with an error, and is cancelled.
    /// let policy = RetryPolicy::new(3).with_timeout(Duration::from_secs(20));
    /// ctx.schedule_activity_with_retry("Charge", order, policy).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same as [`with_timeout`](Self::with_timeout): bounds each attempt, not their sum.
    #[doc(hidden)]
    pub fn with_total_timeout(self, timeout: Duration) -> Self {
        self.with_timeout(timeout)
    }

    /// Sets the pauses between attempts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::{BackoffStrategy, RetryPolicy};
    ///
    /// let (base, max) = (Duration::from_secs(10), Duration::from_secs(60));
    /// let policy = RetryPolicy::new(20).with_backoff(BackoffStrategy::Linear { base, max });
    /// assert_eq!(policy.delay_for_attempt(2), Duration::from_secs(20));
    /// assert_eq!(policy.delay_for_attempt(19), max);
    /// ```
    pub fn with_backoff(mut self, backoff: BackoffStrategy) -> Self {
        self.backoff = backoff;
        self
    }

    /// Allows another attempt after one that took too long, as after one that failed.
    ///
    /// Pass the result to
    /// [`schedule_activity_with_retry_options`](super::OrchestrationContext::schedule_activity_with_retry_options).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The carrier's service sometimes hangs, and the next call works.
    /// let policy = RetryPolicy::new(5).with_timeout(Duration::from_secs(10));
    /// ctx.schedule_activity_with_retry_options("CallCarrier", order, policy.retry_timeouts()).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn retry_timeouts(self) -> RetryOptions {
        RetryOptions::from(self).retry_timeouts()
    }

    /// Returns the pause after a failed attempt, counted from 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::RetryPolicy;
    ///
    /// // How long five attempts pause altogether: 100, 200, 400 and 800 ms.
    /// let policy = RetryPolicy::exponential(5);
    /// let pauses: Duration = (1..policy.max_attempts).map(|attempt| policy.delay_for_attempt(attempt)).sum();
    /// assert_eq!(pauses, Duration::from_millis(1_500));
    /// ```
    pub fn delay_for_attempt(&self, attempt: u32) -> Duration {
        self.backoff.delay_for_attempt(attempt)
    }
}

/// A [`RetryPolicy`] with further choices.
///
/// ```
/// use std::time::Duration;
/// use duroxide::{RetryOptions, RetryPolicy};
///
/// let policy = RetryPolicy::new(5).with_timeout(Duration::from_secs(10));
/// let options: RetryOptions = policy.retry_timeouts().on_session("printer-3");
/// ```
#[derive(Debug, Clone)]
pub struct RetryOptions {
    pub(super) policy: RetryPolicy,
    pub(super) retry_timeouts: bool,
    pub(super) session_id: Option<String>,
}

impl From<RetryPolicy> for RetryOptions {
    fn from(policy: RetryPolicy) -> Self {
        Self { policy, retry_timeouts: false, session_id: None }
    }
}

impl RetryOptions {
    /// Allows another attempt after one that took too long, as after one that failed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{OrchestrationContext, RetryOptions, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let policy = RetryPolicy::new(5).with_timeout(Duration::from_secs(10));
    /// let options = RetryOptions::from(policy).on_session("printer-3").retry_timeouts();
    /// ctx.schedule_activity_with_retry_options("Print", order, options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn retry_timeouts(mut self) -> Self {
        self.retry_timeouts = true;
        self
    }

    /// Runs every attempt on the same session.
    ///
    /// ```
    /// # use duroxide::{OrchestrationContext, RetryOptions, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The worker that holds the session has the connection to the printer.
    /// let options = RetryOptions::from(RetryPolicy::new(3)).on_session("printer-3");
    /// ctx.schedule_activity_with_retry_options("Print", order, options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn on_session(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }
}

/// The pauses between attempts.
///
/// ```
/// use std::time::Duration;
/// use duroxide::BackoffStrategy;
///
/// let (base, max) = (Duration::from_secs(1), Duration::from_secs(3));
/// let growing = BackoffStrategy::Linear { base, max };
/// let pauses: Vec<u64> = (1..=4).map(|attempt| growing.delay_for_attempt(attempt).as_secs()).collect();
/// assert_eq!(pauses, [1, 2, 3, 3]);
/// ```
#[derive(Debug, Clone)]
pub enum BackoffStrategy {
    /// No pause.
    None,
    /// Always the same pause.
    Fixed {
        /// How long each pause is.
        delay: Duration,
    },
    /// `base` times the number of the attempt, at most `max`.
    Linear {
        /// How long the first pause is, and by how much each is longer than the one before.
        base: Duration,
        /// No pause is longer.
        max: Duration,
    },
    /// `base`, then `multiplier` times as long after each attempt, at most `max`.
    Exponential {
        /// How long the first pause is.
        base: Duration,
        /// How many times longer each pause is than the one before; 2 doubles. Zero, a negative number or NaN is no pause.
        multiplier: f64,
        /// No pause is longer.
        max: Duration,
    },
}

impl Default for BackoffStrategy {
    /// 100 ms, doubling, at most 30 s.
    fn default() -> Self {
        Self::Exponential { base: Duration::from_millis(100), multiplier: 2.0, max: Duration::from_secs(30) }
    }
}

impl BackoffStrategy {
    /// Returns the pause after a failed attempt, counted from 1. Never overflows: a pause that is too long becomes
    /// `max`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::BackoffStrategy;
    ///
    /// let (base, max) = (Duration::from_secs(1), Duration::from_secs(60));
    /// let tripling = BackoffStrategy::Exponential { base, multiplier: 3.0, max };
    /// let pauses = [1, 2, 3, 4, 5].map(|attempt| tripling.delay_for_attempt(attempt).as_secs());
    /// assert_eq!(pauses, [1, 3, 9, 27, 60]);
    /// ```
    pub fn delay_for_attempt(&self, attempt: u32) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Fixed { delay } => *delay,
            Self::Linear { base, max } => base.saturating_mul(attempt).min(*max),
            Self::Exponential { base, multiplier, max } => {
                exponential(*base, *multiplier, attempt.saturating_sub(1))
                    .map_or(*max, |delay| delay.min(*max))
            }
        }
    }
}

/// Returns `base * multiplier^power`, or `None` if no duration is that long.
fn exponential(base: Duration, multiplier: f64, power: u32) -> Option<Duration> {
    if base.is_zero() {
        return Some(Duration::ZERO);
    }
    let factor = multiplier.powf(f64::from(power));
    // A negative or undefined factor means nothing as a pause, so it counts as no pause.
    if factor.is_nan() || factor <= 0.0 {
        return Some(Duration::ZERO);
    }
    Duration::try_from_secs_f64(base.as_secs_f64() * factor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_default_doubles_from_100_ms_up_to_30_s() {
        let policy = RetryPolicy::default();
        let delays: Vec<_> = (1..=5).map(|attempt| policy.delay_for_attempt(attempt)).collect();
        assert_eq!(delays, [MS(100), MS(200), MS(400), MS(800), MS(1600)]);
        assert_eq!(policy.delay_for_attempt(100), MS(30_000));
        assert_eq!((policy.max_attempts, policy.timeout), (3, None));
    }

    #[test]
    fn no_attempt_number_and_no_duration_overflows() {
        for attempt in [0, 1, 64, 100, u32::MAX] {
            let max = Duration::from_secs(9);
            let linear = BackoffStrategy::Linear { base: Duration::MAX, max };
            assert!(linear.delay_for_attempt(attempt) <= max);
            for multiplier in [0.0, 0.5, 1.0, 2.0, 1e300, f64::INFINITY, f64::NAN, -3.0] {
                for base in [Duration::ZERO, MS(1), Duration::MAX] {
                    let strategy = BackoffStrategy::Exponential { base, multiplier, max };
                    assert!(strategy.delay_for_attempt(attempt) <= max);
                }
            }
        }
    }

    #[test]
    fn exponential_backoff_treats_attempt_0_like_attempt_1() {
        let strategy = BackoffStrategy::Exponential { base: MS(10), multiplier: 3.0, max: MS(1_000) };
        assert_eq!(strategy.delay_for_attempt(0), MS(10));
        assert_eq!(strategy.delay_for_attempt(3), MS(90));
    }

    #[test]
    fn linear_fixed_and_none_follow_their_formulas() {
        let linear = BackoffStrategy::Linear { base: MS(10), max: MS(25) };
        assert_eq!([1, 2, 3].map(|attempt| linear.delay_for_attempt(attempt)), [MS(10), MS(20), MS(25)]);
        assert_eq!(BackoffStrategy::Fixed { delay: MS(7) }.delay_for_attempt(9), MS(7));
        assert_eq!(BackoffStrategy::None.delay_for_attempt(9), Duration::ZERO);
    }

    #[test]
    #[should_panic(expected = "max_attempts must be at least 1")]
    fn a_policy_without_attempts_is_refused() {
        let _ = RetryPolicy::new(0);
    }

    #[test]
    fn the_total_timeout_is_the_timeout_of_each_attempt() {
        let policy = RetryPolicy::new(2).with_total_timeout(MS(5));
        assert_eq!(policy.timeout, Some(MS(5)));
    }
}
