//! Values that code must not make itself because they differ in each replay: ids and times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::replay::CompletionResult;

use super::{DurableFuture, OrchestrationContext};

/// The prefix of the names of built-in activities.
#[allow(dead_code, reason = "the activity registry refuses it")]
pub(crate) const SYSCALL_ACTIVITY_PREFIX: &str = "__duroxide_syscall:";
/// Makes a random id.
pub(crate) const SYSCALL_NEW_GUID: &str = "__duroxide_syscall:new_guid";
/// Reads the wall clock.
pub(crate) const SYSCALL_UTC_NOW_MS: &str = "__duroxide_syscall:utc_now_ms";
/// Reads a value of another instance.
pub(crate) const SYSCALL_GET_KV_VALUE: &str = "__duroxide_syscall:get_kv_value";

impl OrchestrationContext {
    /// Returns a random id (UUID v4), the same one in every replay.
    ///
    /// ```
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Every attempt sends the same key, so that the bank charges once.
    /// let key = ctx.new_guid().await?;
    /// let input = format!("{order} {key}");
    /// ctx.schedule_activity_with_retry("Charge", input, RetryPolicy::default()).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn new_guid(&self) -> DurableFuture<Result<String, String>> {
        self.activity(SYSCALL_NEW_GUID.to_string(), String::new(), None, CompletionResult::into_result)
    }

    /// Tells whether a change of the code applies to this execution: for changing an orchestration in place while
    /// instances of it run.
    ///
    /// An execution that passed this place before the change answers `false`, always; any other answers `true` and
    /// records that. The first answer for an id counts until the execution ends.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// if ctx.patched("reserve before charging") {
    ///     ctx.schedule_activity("Reserve", &order).await?;
    /// }
    /// ctx.schedule_activity("Charge", &order).await
    /// # }
    /// ```
    ///
    /// When no execution is left that began before the change, remove the call and the old way. Histories that
    /// recorded the change go on without it.
    #[track_caller]
    pub fn patched(&self, id: impl Into<String>) -> bool {
        self.shared_state().patched(id.into())
    }

    /// Returns the time, the same one in every replay, to the millisecond.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let begun = ctx.utc_now().await?;
    /// ctx.schedule_activity("Pack", &order).await?;
    /// let took = ctx.utc_now().await?.duration_since(begun).unwrap_or_default();
    /// let label = if took > Duration::from_secs(60 * 60) { "express" } else { "standard" };
    /// ctx.schedule_activity("Ship", format!("{order} {label}")).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn utc_now(&self) -> DurableFuture<Result<SystemTime, String>> {
        self.activity(SYSCALL_UTC_NOW_MS.to_string(), String::new(), None, |outcome| {
            let text = outcome.into_result()?;
            let ms = text.parse::<u64>().map_err(|error| error.to_string())?;
            UNIX_EPOCH
                .checked_add(Duration::from_millis(ms))
                .ok_or_else(|| format!("{ms} ms after the epoch is no time that this machine can express"))
        })
    }
}
