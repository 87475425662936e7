//! What an activity is given along with its input: retries in the store, timeouts; and what its attempts leave behind.
//!
//! An orchestration that asks for [`ActivityOptions`] still takes one step: the history records the schedule and the
//! outcome, however many attempts there were. The options are not recorded in the history. The turn's commit stores them
//! beside the activity in the worker queue, and they stay as they were when the step was scheduled; so another build of the
//! code may ask for others, and the history still fits.
//!
//! What happens to an attempt:
//!
//! - It ends with a result: the activity is over.
//! - It fails, panics, takes longer than `start_to_close`, or shows no sign of life for longer than `heartbeat`: if the
//!   [`StoredRetry`] allows another attempt, one commit gives the activity back with a delay and notes the error
//!   ([`ActivityProgress`](super::ActivityProgress)). The activity takes no slot and no lease meanwhile. Otherwise the
//!   activity fails with this error.
//! - Its worker dies, or loses the lease: the store delivers the activity again, as it does without options. That, too, was
//!   an attempt.
//! - No worker begins the first one within `schedule_to_start`: a message that the turn has sent to its own instance is due. The
//!   runtime that claims the instance then fails the activity, if no worker has begun it. A worker that comes too late does the
//!   same.
//! - It says that its result comes from elsewhere: one commit gives it back until `start_to_close` is over. A client that
//!   has its [`CompletionToken`](super::CompletionToken) ends it.
//!
//! A crash before such a commit leaves the attempt without a report: the store delivers the activity again. A turn that
//! cancels the activity removes it in whatever state it is; a worker or client that reports on it afterwards is told so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{error_text, whole_ms};

/// The words that begin the error of an attempt that took too long, or was silent for too long.
pub(crate) const ACTIVITY_TIMED_OUT: &str = "activity timed out: ";

/// The error of an activity that no worker has begun in time.
pub(crate) fn begun_too_late(name: &str) -> String {
    format!("{ACTIVITY_TIMED_OUT}no worker began '{name}' in time (schedule to start)")
}

/// How an activity is run: how often, and how long it may take.
///
/// ```
/// use std::time::Duration;
/// use duroxide::{ActivityOptions, OrchestrationContext, StoredRetry};
///
/// async fn sync(ctx: OrchestrationContext, feed: String) -> Result<String, String> {
///     let options = ActivityOptions::new()
///         .retry(StoredRetry::forever().first_pause(Duration::from_secs(1)).longest_pause(Duration::from_secs(600)))
///         .start_to_close(Duration::from_secs(300))
///         .heartbeat(Duration::from_secs(20));
///     ctx.schedule_activity("Import", feed).with_options(options).await
/// }
/// # duroxide::OrchestrationRegistry::builder().register("Sync", sync);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivityOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<StoredRetry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_to_close_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schedule_to_start_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heartbeat_ms: Option<u64>,
    /// When the turn scheduled the activity.
    #[serde(default)]
    scheduled_at_ms: u64,
}

impl ActivityOptions {
    /// Makes options that ask for nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{ActivityOptions, OrchestrationContext};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let options = ActivityOptions::new().schedule_to_start(Duration::from_secs(60));
    /// ctx.schedule_activity("PrintLabel", order).with_options(options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the store keep an activity that failed, and workers try it again.
    ///
    /// ```
    /// # use duroxide::{ActivityOptions, OrchestrationContext, StoredRetry};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The bank may be down for the whole night. However often workers try, the history has one step.
    /// let options = ActivityOptions::new().retry(StoredRetry::forever());
    /// ctx.schedule_activity("Charge", order).with_options(options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn retry(mut self, retry: StoredRetry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Bounds each attempt. An attempt that takes longer is cancelled, and has failed. An attempt whose result comes from
    /// elsewhere has this long, too.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{ActivityOptions, OrchestrationContext, StoredRetry};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // A call to the bank that hangs is given up after 20 seconds, and made again.
    /// let options = ActivityOptions::new()
    ///     .start_to_close(Duration::from_secs(20))
    ///     .retry(StoredRetry::attempts(5));
    /// ctx.schedule_activity("Charge", order).with_options(options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn start_to_close(mut self, timeout: Duration) -> Self {
        self.start_to_close_ms = Some(whole_ms(timeout));
        self
    }

    /// Bounds the time until a worker begins the first attempt. An activity that no worker has begun by then does not run: it
    /// fails, without a retry, also if there is no worker for it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{ActivityOptions, OrchestrationContext};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // If no machine with a printer is there within a minute, the orchestration does something else.
    /// let options = ActivityOptions::new().schedule_to_start(Duration::from_secs(60));
    /// match ctx.schedule_activity("PrintLabel", &order).with_tag("label-printer").with_options(options).await {
    ///     Ok(label) => Ok(label),
    ///     Err(_) => ctx.schedule_activity("MailLabel", order).await,
    /// }
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn schedule_to_start(mut self, timeout: Duration) -> Self {
        self.schedule_to_start_ms = Some(whole_ms(timeout));
        self
    }

    /// Bounds the time between two heartbeats of an attempt, and from its start to the first one. An attempt that is silent
    /// for longer is cancelled, and has failed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{ActivityOptions, OrchestrationContext, StoredRetry};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The import may take hours. One that does not call `ActivityContext::heartbeat` for 30 seconds has
    /// // failed; the next attempt goes on where it was.
    /// let options = ActivityOptions::new()
    ///     .heartbeat(Duration::from_secs(30))
    ///     .retry(StoredRetry::forever());
    /// ctx.schedule_activity("Import", order).with_options(options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.heartbeat_ms = Some(whole_ms(timeout));
        self
    }

    /// Tells whether the options ask for nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::ActivityOptions;
    ///
    /// assert!(ActivityOptions::new().is_empty());
    /// assert!(!ActivityOptions::new().heartbeat(Duration::from_secs(30)).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.retry.is_none()
            && self.start_to_close_ms.is_none()
            && self.schedule_to_start_ms.is_none()
            && self.heartbeat_ms.is_none()
    }

    /// Names the options that are asked for, for an error.
    pub(crate) fn names(&self) -> String {
        let asked = [
            ("retry in the store", self.retry.is_some()),
            ("start-to-close timeout", self.start_to_close_ms.is_some()),
            ("schedule-to-start timeout", self.schedule_to_start_ms.is_some()),
            ("heartbeat timeout", self.heartbeat_ms.is_some()),
        ];
        let names: Vec<&str> =
            asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| name).collect();
        names.join(", ")
    }

    /// Returns the same options with the time at which the step was scheduled.
    pub fn scheduled_at(mut self, at_ms: u64) -> Self {
        self.scheduled_at_ms = at_ms;
        self
    }

    /// Returns the retries.
    pub fn stored_retry(&self) -> Option<&StoredRetry> {
        self.retry.as_ref()
    }

    /// Returns how long an attempt may take.
    pub fn start_to_close_timeout(&self) -> Option<Duration> {
        self.start_to_close_ms.map(Duration::from_millis)
    }

    /// Returns how long an attempt may be silent.
    pub fn heartbeat_timeout(&self) -> Option<Duration> {
        self.heartbeat_ms.map(Duration::from_millis)
    }

    /// Returns by when the first attempt must begin, in milliseconds since the epoch.
    pub fn start_by_ms(&self) -> Option<u64> {
        self.schedule_to_start_ms.map(|timeout| self.scheduled_at_ms.saturating_add(timeout))
    }

    /// Returns the pause before another attempt, or `None` if there is none: after `attempt` attempts, the last of which
    /// ended at `now_ms` with this error.
    pub fn pause_after(&self, attempt: u32, now_ms: u64, error: &str) -> Option<Duration> {
        let retry = self.retry.as_ref()?;
        let pause = retry.pause_after(attempt, error)?;
        let since = now_ms.saturating_sub(self.scheduled_at_ms).saturating_add(whole_ms(pause));
        match retry.max_elapsed_ms {
            Some(most) if since > most => None,
            _ => Some(pause),
        }
    }
}

/// How often workers try an activity that the store keeps, and with what pauses.
///
/// The attempts leave nothing in the history: a thousand attempts cost as many commits, and one schedule and one outcome.
/// The pause occupies no worker, and survives a crash. The last error is part of the instance's
/// [waits](super::ActivityWait).
///
/// There is no other attempt after an error that is [not retryable](crate::Retryable), after one whose text begins with
/// words given to [`give_up_on`](Self::give_up_on), nor after an input that does not decode.
///
/// ```
/// use std::time::Duration;
/// use duroxide::StoredRetry;
///
/// let retry = StoredRetry::attempts(1_000)
///     .first_pause(Duration::from_millis(500))    // then 1 s, 2 s, 4 s, ...
///     .longest_pause(Duration::from_secs(60))
///     .max_elapsed(Duration::from_secs(24 * 60 * 60))
///     .give_up_on("card declined");
/// assert_eq!(retry.pause_after(3, "bank is down"), Some(Duration::from_secs(2)));
/// assert_eq!(retry.pause_after(3, "card declined: 51"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRetry {
    /// Attempts in all; without it, there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    first_pause_ms: u64,
    multiplier: f64,
    longest_pause_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_elapsed_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    give_up_on: Vec<String>,
}

impl StoredRetry {
    /// Makes a policy with a number of attempts, the first included, and pauses that double from 100 ms up to 30 s.
    ///
    /// ```
    /// use duroxide::StoredRetry;
    ///
    /// let retry = StoredRetry::attempts(5);
    /// assert!(retry.pause_after(4, "bank is down").is_some());
    /// assert!(retry.pause_after(5, "bank is down").is_none());
    /// ```
    ///
    /// # Panics
    /// If `max_attempts` is 0.
    pub fn attempts(max_attempts: u32) -> Self {
        assert!(max_attempts > 0, "max_attempts must be at least 1");
        Self { max_attempts: Some(max_attempts), ..Self::forever() }
    }

    /// Makes a policy without a bound on the attempts, and pauses that double from 100 ms up to 30 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::StoredRetry;
    ///
    /// let retry = StoredRetry::forever();
    /// assert_eq!(retry.pause_after(1_000_000, "bank is down"), Some(Duration::from_secs(30)));
    /// ```
    pub fn forever() -> Self {
        Self {
            max_attempts: None,
            first_pause_ms: 100,
            multiplier: 2.0,
            longest_pause_ms: 30_000,
            max_elapsed_ms: None,
            give_up_on: Vec::new(),
        }
    }

    /// Sets the pause after the first attempt.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::StoredRetry;
    ///
    /// let retry = StoredRetry::attempts(5).first_pause(Duration::from_secs(2));
    /// assert_eq!(retry.pause_after(1, "bank is down"), Some(Duration::from_secs(2)));
    /// assert_eq!(retry.pause_after(2, "bank is down"), Some(Duration::from_secs(4)));
    /// ```
    pub fn first_pause(mut self, pause: Duration) -> Self {
        self.first_pause_ms = whole_ms(pause);
        self
    }

    /// Sets by how much each pause is longer than the one before; 1 makes all the same.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::StoredRetry;
    ///
    /// // Every ten seconds.
    /// let retry = StoredRetry::forever().first_pause(Duration::from_secs(10)).multiplier(1.0);
    /// assert_eq!(retry.pause_after(99, "bank is down"), Some(Duration::from_secs(10)));
    /// ```
    ///
    /// # Panics
    /// If it is below 1, or not a number.
    pub fn multiplier(mut self, multiplier: f64) -> Self {
        assert!(multiplier >= 1.0 && multiplier.is_finite(), "the multiplier must be at least 1");
        self.multiplier = multiplier;
        self
    }

    /// Sets the longest pause.
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::StoredRetry;
    ///
    /// // A service that was down all night is asked within ten minutes after it is back.
    /// let retry = StoredRetry::forever().longest_pause(Duration::from_secs(600));
    /// assert_eq!(retry.pause_after(100, "bank is down"), Some(Duration::from_secs(600)));
    /// ```
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause_ms = whole_ms(pause);
        self
    }

    /// Makes no attempt that would begin later than this after the step was scheduled.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{ActivityOptions, OrchestrationContext, StoredRetry};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // As many attempts as fit into a day; then the orchestration gets the last error.
    /// let retry = StoredRetry::forever().max_elapsed(Duration::from_secs(24 * 60 * 60));
    /// ctx.schedule_activity("Charge", order).with_options(ActivityOptions::new().retry(retry)).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn max_elapsed(mut self, time: Duration) -> Self {
        self.max_elapsed_ms = Some(whole_ms(time));
        self
    }

    /// Makes no other attempt after an error whose text begins with these words.
    ///
    /// ```
    /// use duroxide::StoredRetry;
    ///
    /// let retry = StoredRetry::forever().give_up_on("card declined").give_up_on("card expired");
    /// assert!(retry.pause_after(1, "card declined: 51").is_none());
    /// assert!(retry.pause_after(1, "bank is down").is_some());
    /// ```
    pub fn give_up_on(mut self, words: impl Into<String>) -> Self {
        self.give_up_on.push(words.into());
        self
    }

    /// Returns the attempts in all; `None` if there is no bound.
    ///
    /// ```
    /// use duroxide::StoredRetry;
    ///
    /// assert_eq!(StoredRetry::attempts(5).max_attempts(), Some(5));
    /// assert_eq!(StoredRetry::forever().max_attempts(), None);
    /// ```
    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// Returns the pause after this many attempts, or `None` if no other attempt may follow this error. Does not look at
    /// [`max_elapsed`](Self::max_elapsed).
    ///
    /// ```
    /// use std::time::Duration;
    /// use duroxide::StoredRetry;
    ///
    /// let retry = StoredRetry::attempts(4).first_pause(Duration::from_secs(1));
    /// let pauses = [1, 2, 3, 4].map(|attempt| retry.pause_after(attempt, "bank is down"));
    /// assert_eq!(pauses.map(|pause| pause.map(|p| p.as_secs())), [Some(1), Some(2), Some(4), None]);
    /// ```
    pub fn pause_after(&self, attempt: u32, error: &str) -> Option<Duration> {
        if self.max_attempts.is_some_and(|most| attempt >= most) || error_text::is_final(error) {
            return None;
        }
        let words = error_text::words(error);
        if self.give_up_on.iter().any(|given| words.starts_with(given.as_str())) {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let pause = self.first_pause_ms as f64 * self.multiplier.powi(exponent);
        // A stored number may be anything; what is no number, or too large, is the longest pause.
        let pause = if pause < self.longest_pause_ms as f64 { pause as u64 } else { self.longest_pause_ms };
        Some(Duration::from_millis(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn pauses_grow_up_to_the_longest_and_end_with_the_attempts() {
        let retry = StoredRetry::attempts(5)
            .first_pause(Duration::from_secs(1))
            .longest_pause(Duration::from_secs(3));
        let pauses: Vec<_> =
            (1..=5).map(|attempt| retry.pause_after(attempt, "x").map(|p| p.as_secs())).collect();
        assert_eq!(pauses, [Some(1), Some(2), Some(3), Some(3), None]);
        let forever = StoredRetry::forever();
        assert_eq!(forever.pause_after(u32::MAX, "x"), Some(Duration::from_secs(30)));
    }

    #[test]
    fn no_attempt_begins_after_the_time_in_all() {
        let retry = StoredRetry::forever().first_pause(HOUR).longest_pause(HOUR).max_elapsed(HOUR * 3);
        let options = ActivityOptions::new().retry(retry).scheduled_at(1_000);
        let hour = 3_600_000;
        assert_eq!(options.pause_after(1, 1_000 + 2 * hour, "x"), Some(HOUR));
        assert_eq!(options.pause_after(1, 1_001 + 2 * hour, "x"), None);
    }

    #[test]
    fn errors_that_are_final_or_named_are_not_tried_again() {
        let retry = StoredRetry::forever().give_up_on("declined");
        assert_eq!(retry.pause_after(1, "declined: 51"), None);
        assert_eq!(retry.pause_after(1, "declined: 51\u{1e}{\"error\":51}"), None);
        assert_eq!(retry.pause_after(1, "no such account\u{1e}{\"error\":1,\"final\":true}"), None);
        assert!(retry.pause_after(1, "was declined").is_some());
    }

    #[test]
    fn stored_options_are_small_and_may_lack_what_came_later() {
        let options = ActivityOptions::new().heartbeat(Duration::from_secs(1)).scheduled_at(7);
        assert_eq!(serde_json::to_string(&options).unwrap(), r#"{"heartbeat_ms":1000,"scheduled_at_ms":7}"#);
        let later: ActivityOptions = serde_json::from_str(r#"{"new":1,"scheduled_at_ms":7}"#).unwrap();
        assert!(later.is_empty());
    }
}
