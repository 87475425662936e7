//! Activities, once or with retries.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{Action, ActivityOptions, codec};
use crate::replay::{CompletionResult, Request};

use super::typed::{RecordedOutcome, encode_input};
use super::{DurableFuture, Either2, OrchestrationContext, RetryOptions, RetryPolicy, ScheduleKind};

/// The error of a retried activity when an attempt took too long.
const TIMED_OUT: &str = "timeout: activity timed out";

impl OrchestrationContext {
    /// Runs an activity.
    ///
    /// An `Err` is the text that the activity failed with.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The call asks for the step; both activities run at once.
    /// let stock = ctx.schedule_activity("Reserve", &order);
    /// let label = ctx.schedule_activity("PrintLabel", &order);
    /// stock.await?;
    /// label.await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_activity(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.activity(name.into(), input.into(), None, CompletionResult::into_result)
    }

    /// Runs an activity with a typed input and result. A result that does not decode is an `Err`.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let prices: Vec<u64> = vec![120, 80];
    /// let total: u64 = ctx.schedule_activity_typed("AddTax", &prices).await?;
    /// ctx.schedule_activity_typed("Charge", &(order, total)).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    #[track_caller]
    pub fn schedule_activity_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        let name = name.into();
        let finish = self.result_decoder(result_of(&name));
        self.activity_step(name, encode_input(input), None, finish)
    }

    /// Runs an activity on the worker that owns a session; an unowned session goes to the worker that takes it first.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The file is on the disk of the worker that downloaded it, so the same worker must print it.
    /// let session = ctx.new_guid().await?;
    /// let file = ctx.schedule_activity_on_session("Download", &order, &session).await?;
    /// ctx.schedule_activity_on_session("Print", file, session).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_activity_on_session(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
        session_id: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.activity(name.into(), input.into(), Some(session_id.into()), CompletionResult::into_result)
    }

    /// Runs an activity on the worker that owns a session, with a typed input and result.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let session = ctx.new_guid().await?;
    /// let pages: u32 = ctx.schedule_activity_on_session_typed("Download", &order, &session).await?;
    /// let printed: bool = ctx.schedule_activity_on_session_typed("Print", &(1, pages), session).await?;
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    #[track_caller]
    pub fn schedule_activity_on_session_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
        session_id: impl Into<String>,
    ) -> DurableFuture<Result<Out, String>> {
        let name = name.into();
        let finish = self.result_decoder(result_of(&name));
        self.activity_step(name, encode_input(input), Some(session_id.into()), finish)
    }

    #[track_caller]
    pub(super) fn activity<T>(
        &self,
        name: String,
        input: String,
        session_id: Option<String>,
        finish: impl FnOnce(CompletionResult) -> T + Send + 'static,
    ) -> DurableFuture<T> {
        self.activity_step(name, input, session_id, |outcome, _| finish(outcome))
    }

    /// Makes the step of an activity for a typed call: the outcome as it is recorded, and the id of its event.
    pub(crate) fn recorded_activity(
        &self,
        name: &str,
        input: String,
        session_id: Option<String>,
        tag: Option<String>,
        options: Option<ActivityOptions>,
    ) -> DurableFuture<RecordedOutcome> {
        let step = self.activity_step(name.to_string(), input, session_id, RecordedOutcome::new);
        let step = match tag {
            Some(tag) => step.with_tag(tag),
            None => step,
        };
        match options {
            Some(options) => step.with_options(options),
            None => step,
        }
    }

    /// Makes the step of an activity. `finish` also gets the id of the event that recorded it.
    #[track_caller]
    fn activity_step<T>(
        &self,
        name: String,
        input: String,
        session_id: Option<String>,
        finish: impl FnOnce(CompletionResult, Option<u64>) -> T + Send + 'static,
    ) -> DurableFuture<T> {
        let kind = ScheduleKind::Activity { name: name.clone() };
        let token = self.shared_state().request(Request::Activity, |_| Action::CallActivity {
            scheduling_event_id: 0,
            name,
            input,
            session_id,
            tag: None,
        });
        DurableFuture::open(self.shared_state(), token, kind, finish)
    }

    /// Runs an activity, and runs it again when it fails, as the policy says. Returns the last error.
    ///
    /// An attempt that takes longer than the policy's timeout ends the call at once with `timeout: activity timed out`,
    /// and the activity is cancelled. There is no further attempt for an input that does not decode: the input would be
    /// the same.
    ///
    /// Each attempt has another [`idempotency_key`](crate::ActivityContext::idempotency_key). If all must have one, let the store
    /// keep the attempts ([`StoredRetry`](crate::StoredRetry)), or pass a key in the input
    /// ([`new_guid`](Self::new_guid)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The carrier's service is often down for some seconds.
    /// let policy = RetryPolicy::fixed(10, Duration::from_secs(5));
    /// ctx.schedule_activity_with_retry("CallCarrier", order, policy).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn schedule_activity_with_retry(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
        policy: RetryPolicy,
    ) -> Result<String, String> {
        self.attempts(name.into(), input.into(), policy.into()).await
    }

    /// Like [`schedule_activity_with_retry`](Self::schedule_activity_with_retry), with a typed input and result.
    ///
    /// ```
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let weight: f64 =
    ///     ctx.schedule_activity_with_retry_typed("Weigh", &order, RetryPolicy::exponential(5)).await?;
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    pub async fn schedule_activity_with_retry_typed<In: Serialize, Out: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        input: &In,
        policy: RetryPolicy,
    ) -> Result<Out, String> {
        let name = name.into();
        let payload = result_of(&name);
        let result = self.attempts(name, encode_input(input), policy.into()).await?;
        self.decode_payload(&result, &payload, None)
    }

    /// Like [`schedule_activity_with_retry`](Self::schedule_activity_with_retry), every attempt on the same session.
    ///
    /// ```
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Only this worker has the file, so it is the one to try again.
    /// let session = ctx.new_guid().await?;
    /// let file = ctx.schedule_activity_on_session("Download", order, &session).await?;
    /// ctx.schedule_activity_with_retry_on_session("Print", file, RetryPolicy::new(3), session).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn schedule_activity_with_retry_on_session(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
        policy: RetryPolicy,
        session_id: impl Into<String>,
    ) -> Result<String, String> {
        self.attempts(name.into(), input.into(), RetryOptions::from(policy).on_session(session_id)).await
    }

    /// Like [`schedule_activity_with_retry_on_session`](Self::schedule_activity_with_retry_on_session), with a typed
    /// input and result.
    ///
    /// ```
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let (policy, session) = (RetryPolicy::new(3), ctx.instance_id());
    /// let pages: u32 =
    ///     ctx.schedule_activity_with_retry_on_session_typed("Print", &order, policy, session).await?;
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    pub async fn schedule_activity_with_retry_on_session_typed<In: Serialize, Out: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        input: &In,
        policy: RetryPolicy,
        session_id: impl Into<String>,
    ) -> Result<Out, String> {
        let name = name.into();
        let payload = result_of(&name);
        let options = RetryOptions::from(policy).on_session(session_id);
        let result = self.attempts(name, encode_input(input), options).await?;
        self.decode_payload(&result, &payload, None)
    }

    /// Like [`schedule_activity_with_retry`](Self::schedule_activity_with_retry), with more to choose: a session, and
    /// whether another attempt follows one that took too long.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // A printer that does not answer in ten seconds is asked again.
    /// let options = RetryPolicy::new(5)
    ///     .with_timeout(Duration::from_secs(10))
    ///     .retry_timeouts()
    ///     .on_session("printer-3");
    /// ctx.schedule_activity_with_retry_options("Print", order, options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn schedule_activity_with_retry_options(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
        options: impl Into<RetryOptions>,
    ) -> Result<String, String> {
        self.attempts(name.into(), input.into(), options.into()).await
    }

    /// Like [`schedule_activity_with_retry_options`](Self::schedule_activity_with_retry_options), with a typed input and
    /// result.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{OrchestrationContext, RetryPolicy};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let options = RetryPolicy::new(5).with_timeout(Duration::from_secs(10)).retry_timeouts();
    /// let pages: u32 = ctx.schedule_activity_with_retry_options_typed("Print", &order, options).await?;
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    pub async fn schedule_activity_with_retry_options_typed<In: Serialize, Out: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        input: &In,
        options: impl Into<RetryOptions>,
    ) -> Result<Out, String> {
        let name = name.into();
        let payload = result_of(&name);
        let result = self.attempts(name, encode_input(input), options.into()).await?;
        self.decode_payload(&result, &payload, None)
    }

    async fn attempts(&self, name: String, input: String, options: RetryOptions) -> Result<String, String> {
        let RetryOptions { policy, retry_timeouts, session_id } = options;
        let max = policy.max_attempts;
        let mut last_error = String::new();
        for attempt in 1..=max {
            let finish = |outcome: CompletionResult, step| (outcome.into_result(), step);
            let activity = self.activity_step(name.clone(), input.clone(), session_id.clone(), finish);
            let (result, step) = match policy.timeout {
                None => activity.await,
                Some(timeout) => match self.select2(activity, self.schedule_timer(timeout)).await {
                    Either2::First(ended) => ended,
                    Either2::Second(()) if retry_timeouts => (Err(TIMED_OUT.to_string()), None),
                    Either2::Second(()) => return Err(TIMED_OUT.to_string()),
                },
            };
            match result {
                Ok(output) => return Ok(output),
                Err(error) if self.is_undecodable_input(&name, step, &error) => return Err(error),
                Err(error) => last_error = error,
            }
            if attempt < max {
                let session = session_id.as_ref().map(|id| format!(" (session={id})")).unwrap_or_default();
                self.trace_warn(format!(
                    "Activity '{name}'{session} attempt {attempt}/{max} failed: {last_error}. Retrying..."
                ));
                let delay = policy.delay_for_attempt(attempt);
                if !delay.is_zero() {
                    self.schedule_timer(delay).await;
                }
            }
        }
        Err(last_error)
    }

    /// Tells whether an attempt failed because its input does not decode. The recorded text decides, so that every
    /// replay decides the same; versions that did try again recorded other texts.
    pub(crate) fn is_undecodable_input(&self, activity: &str, step: Option<u64>, error: &str) -> bool {
        step.is_some_and(|step| {
            let input = codec::activity_payload("input", activity, step, &self.instance_id());
            codec::is_decode_error_of(&input, error)
        })
    }
}

fn result_of(activity: &str) -> String {
    format!("result of activity '{activity}'")
}
