//! The call of an activity.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::model::error_text::{self, TypedError};
use crate::model::{ActivityOptions, StoredRetry};
use crate::orchestration::{DurableFuture, Either2, OrchestrationContext, RecordedOutcome, RetryPolicy};

use super::{Activity, Failure, FailureKind};

/// A call of an activity, to be awaited.
///
/// Like any future, it does nothing until it is awaited (or [started](Self::start)). Dropping it before it has its result
/// cancels the activity.
///
/// ```
/// use duroxide::prelude::*;
///
/// #[activity]
/// async fn download(url: String) -> Result<String, String> {
///     Ok(format!("the page at {url}"))
/// }
///
/// #[orchestration]
/// async fn fetch(ctx: OrchestrationContext, url: String) -> Result<String, String> {
///     download(&ctx, url)
///         .retry(RetryPolicy::exponential(5))     // up to five attempts
///         .timeout(secs(20))                      // each of at most 20 seconds
///         .total_timeout(mins(2))                 // two minutes in all, pauses included
///         .await
/// }
/// # let _ = Duroxide::open("memory:").activity(download).orchestration(fetch);
/// ```
#[must_use = "an activity runs only if its call is awaited"]
pub struct ActivityCall<A: Activity> {
    stage: Stage<A>,
}

type Outcome<A> = Result<<A as Activity>::Output, <A as Activity>::Error>;
type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Stage<A: Activity> {
    Planned(Plan),
    /// One attempt without a time limit.
    Once(OrchestrationContext, DurableFuture<RecordedOutcome>),
    Attempts(BoxedFuture<Outcome<A>>),
    /// The outcome was known without a step.
    Known(Option<Failure>),
    Over,
}

/// What is asked for, before the first step is taken.
struct Plan {
    ctx: OrchestrationContext,
    /// Where the code makes the call. Its steps are taken elsewhere: when the call is polled.
    place: &'static Location<'static>,
    input: Result<String, String>,
    retry: Option<RetryPolicy>,
    timeout: Option<Duration>,
    total_timeout: Option<Duration>,
    session_id: Option<String>,
    tag: Option<String>,
    /// What the store is to do: retries and timeouts that add nothing to the history.
    options: Option<Box<ActivityOptions>>,
}

impl<A: Activity> ActivityCall<A> {
    #[track_caller]
    pub(super) fn new(ctx: &OrchestrationContext, input: Result<String, String>) -> Self {
        Self {
            stage: Stage::Planned(Plan {
                ctx: ctx.clone(),
                place: Location::caller(),
                input,
                retry: A::retry(),
                timeout: A::timeout(),
                total_timeout: None,
                session_id: None,
                tag: None,
                options: None,
            }),
        }
    }

    fn plan(mut self, what: &str, change: impl FnOnce(&mut Plan)) -> Self {
        match &mut self.stage {
            Stage::Planned(plan) => change(plan),
            _ => panic!("{what} is called on a call of activity '{}' that has already been started", A::NAME),
        }
        self
    }

    /// Sets how often to try, and the pauses in between. An attempt that takes too long counts as one that failed.
    ///
    /// There is no other attempt after an error that is [not retryable](super::Retryable), nor after an input that does not
    /// decode.
    ///
    /// <div class="warning">
    ///
    /// Each attempt is a step of its own, with another
    /// [`idempotency_key`](crate::ActivityContext::idempotency_key). A service that recognises requests by that key takes the second
    /// attempt for a new request: if the first one had its effect and then failed or timed out, there are two effects. Where that
    /// matters, use [`retry_in_store`](Self::retry_in_store), whose attempts have one key, or make the key with
    /// [`ctx.new_id()`](crate::OrchestrationContext::new_id) and pass it as an argument.
    ///
    /// </div>
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn charge(cents: u64) -> Result<u64, String> { Ok(cents) }
    /// # #[orchestration] async fn pay(ctx: OrchestrationContext) -> Result<u64, String> {
    /// charge(&ctx, 300).retry(RetryPolicy::exponential(5)).await
    /// # }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.plan("retry()", |plan| plan.retry = Some(policy))
    }

    /// Makes one attempt, whatever the activity says.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn charge(cents: u64) -> Result<u64, String> { Ok(cents) }
    /// # #[orchestration] async fn pay(ctx: OrchestrationContext) -> Result<u64, String> {
    /// charge(&ctx, 300).no_retry().await
    /// # }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn no_retry(self) -> Self {
        self.plan("no_retry()", |plan| plan.retry = None)
    }

    /// Bounds each attempt. An attempt that takes longer is cancelled and counts as failed
    /// ([`FailureKind::TimedOut`]).
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn charge(cents: u64) -> Result<u64, String> { Ok(cents) }
    /// # #[orchestration] async fn pay(ctx: OrchestrationContext) -> Result<u64, String> {
    /// charge(&ctx, 300).timeout(secs(30)).await
    /// # }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn timeout(self, timeout: Duration) -> Self {
        self.plan("timeout()", |plan| plan.timeout = Some(timeout))
    }

    /// Bounds the call as a whole: all attempts and the pauses between them.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn charge(cents: u64) -> Result<u64, String> { Ok(cents) }
    /// # #[orchestration] async fn pay(ctx: OrchestrationContext) -> Result<u64, String> {
    /// charge(&ctx, 300).retry(RetryPolicy::exponential(5)).total_timeout(mins(2)).await
    /// # }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn total_timeout(self, timeout: Duration) -> Self {
        self.plan("total_timeout()", |plan| plan.total_timeout = Some(timeout))
    }

    /// Runs the activity on the worker that owns a session; an unowned session goes to the worker that takes it first.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn charge(cents: u64) -> Result<u64, String> { Ok(cents) }
    /// # #[orchestration] async fn pay(ctx: OrchestrationContext) -> Result<u64, String> {
    /// charge(&ctx, 300).session("gpu-1").await
    /// # }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn session(self, session_id: impl Into<String>) -> Self {
        let session_id = session_id.into();
        self.plan("session()", |plan| plan.session_id = Some(session_id))
    }

    /// Sends the activity only to workers that serve this tag.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn charge(cents: u64) -> Result<u64, String> { Ok(cents) }
    /// # #[orchestration] async fn pay(ctx: OrchestrationContext) -> Result<u64, String> {
    /// charge(&ctx, 300).tag("gpu").await
    /// # }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn tag(self, tag: impl Into<String>) -> Self {
        let tag = tag.into();
        self.plan("tag()", |plan| plan.tag = Some(tag))
    }

    /// Lets the store keep the activity between attempts, instead of the orchestration: however many attempts there are,
    /// the history records one schedule and one outcome. Takes the place of [`retry`](Self::retry), also of the one that
    /// the activity asks for by itself.
    ///
    /// It changes what the history records. An orchestration that is under way and recorded attempts of `retry` needs
    /// [`patched`](crate::OrchestrationContext::patched) or a new version to change over.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn charge(order: u32) -> Result<u32, String> { Ok(order) }
    /// #[orchestration]
    /// async fn fulfil(ctx: OrchestrationContext, order: u32) -> Result<u32, String> {
    ///     charge(&ctx, order)
    ///         .retry_in_store(StoredRetry::attempts(1_000).longest_pause(mins(5)))
    ///         .start_to_close(mins(2))            // each attempt
    ///         .heartbeat(secs(20))                // between two signs of life
    ///         .await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(fulfil);
    /// ```
    pub fn retry_in_store(self, retry: StoredRetry) -> Self {
        self.plan("retry_in_store()", |plan| {
            plan.retry = None;
            plan.change_options(|options| options.retry(retry));
        })
    }

    /// Bounds each attempt, as [`timeout`](Self::timeout) does, without a timer in the history: the worker keeps the time.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # #[activity] async fn charge(card: String) -> Result<String, String> { Ok(card) }
    /// #[orchestration]
    /// async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> {
    ///     charge(&ctx, card).start_to_close(mins(2)).await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn start_to_close(self, timeout: Duration) -> Self {
        self.plan("start_to_close()", |plan| plan.change_options(|options| options.start_to_close(timeout)))
    }

    /// Bounds the time until a worker begins the first attempt. An activity that no worker has begun by then fails without being
    /// run, also if no worker serves its tag.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # #[activity] async fn charge(card: String) -> Result<String, String> { Ok(card) }
    /// #[orchestration]
    /// async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> {
    ///     charge(&ctx, card).tag("bank").schedule_to_start(hours(1)).await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn schedule_to_start(self, timeout: Duration) -> Self {
        self.plan("schedule_to_start()", |plan| {
            plan.change_options(|options| options.schedule_to_start(timeout))
        })
    }

    /// Bounds the time between two [heartbeats](crate::ActivityContext::heartbeat). An attempt that is silent for longer
    /// has failed.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # #[activity] async fn charge(card: String) -> Result<String, String> { Ok(card) }
    /// #[orchestration]
    /// async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> {
    ///     charge(&ctx, card).retry_in_store(StoredRetry::attempts(5)).heartbeat(secs(20)).await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(charge).orchestration(pay);
    /// ```
    pub fn heartbeat(self, timeout: Duration) -> Self {
        self.plan("heartbeat()", |plan| plan.change_options(|options| options.heartbeat(timeout)))
    }

    /// Schedules the activity now, so that it runs while the code goes on.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn price(item: String) -> Result<u32, String> { Ok(item.len() as u32) }
    /// #[orchestration]
    /// async fn quote(ctx: OrchestrationContext, item: String) -> Result<u32, String> {
    ///     let price = price(&ctx, item).start();
    ///     ctx.timer(secs(1)).await;               // the activity runs meanwhile
    ///     price.await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(price).orchestration(quote);
    /// ```
    pub fn start(mut self) -> Self {
        self.schedule();
        self
    }

    /// The recorded input, for a test of the body.
    pub(super) fn into_input(self) -> Result<String, String> {
        match self.stage {
            Stage::Planned(plan) => plan.input,
            _ => Err("the call has been started".to_string()),
        }
    }

    fn schedule(&mut self) {
        let Stage::Planned(_) = &self.stage else { return };
        let Stage::Planned(plan) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        self.stage = match &plan.input {
            Err(reason) => Stage::Known(Some(unencodable::<A>(reason))),
            Ok(input) if plan.is_simple() => {
                let step = plan.attempt(A::NAME, input.clone());
                Stage::Once(plan.ctx, step)
            }
            Ok(input) => {
                let input = input.clone();
                let first = plan.limited_attempt(A::NAME, &input);
                let in_all = plan.total_timeout.map(|total| (total, plan.timer(total)));
                Stage::Attempts(Box::pin(plan.attempts::<A>(input, first, in_all)))
            }
        };
    }
}

/// An attempt, and the timer that ends it.
type LimitedAttempt = (DurableFuture<RecordedOutcome>, Option<(Duration, DurableFuture<()>)>);

impl Plan {
    fn is_simple(&self) -> bool {
        let attempts = self.retry.as_ref().map_or(1, |policy| policy.max_attempts);
        let has_limit = self.total_timeout.is_some() || self.attempt_timeout().is_some();
        attempts == 1 && !has_limit
    }

    fn attempt_timeout(&self) -> Option<Duration> {
        self.timeout.or_else(|| self.retry.as_ref()?.timeout)
    }

    fn change_options(&mut self, change: impl FnOnce(ActivityOptions) -> ActivityOptions) {
        self.options = Some(Box::new(change(*self.options.take().unwrap_or_default())));
    }

    fn attempt(&self, name: &str, input: String) -> DurableFuture<RecordedOutcome> {
        let (session_id, tag) = (self.session_id.clone(), self.tag.clone());
        self.ctx.asked_at(self.place, || {
            self.ctx.recorded_activity(name, input, session_id, tag, self.options.as_deref().cloned())
        })
    }

    fn timer(&self, duration: Duration) -> DurableFuture<()> {
        self.ctx.asked_at(self.place, || self.ctx.schedule_timer(duration))
    }

    fn limited_attempt(&self, name: &str, input: &str) -> LimitedAttempt {
        let step = self.attempt(name, input.to_string());
        (step, self.attempt_timeout().map(|limit| (limit, self.timer(limit))))
    }

    /// Makes all attempts. The first one, and the timer for all of them, are under way already.
    async fn attempts<A: Activity>(
        self,
        input: String,
        first: LimitedAttempt,
        in_all: Option<(Duration, DurableFuture<()>)>,
    ) -> Outcome<A> {
        let attempts = self.all_attempts::<A>(input, first);
        let Some((total, timer)) = in_all else { return attempts.await };
        match self.ctx.select2(attempts, timer).await {
            Either2::First(outcome) => outcome,
            Either2::Second(()) => Err(timed_out::<A>(total, "in all").into()),
        }
    }

    async fn all_attempts<A: Activity>(&self, input: String, first: LimitedAttempt) -> Outcome<A> {
        let policy = self.retry.clone().unwrap_or_else(|| RetryPolicy::new(1));
        let mut attempt = 1;
        let mut under_way = first;
        loop {
            let ended = match under_way {
                (step, None) => ended::<A>(&self.ctx, step.await),
                (step, Some((limit, timer))) => match self.ctx.select2(step, timer).await {
                    Either2::First(outcome) => ended::<A>(&self.ctx, outcome),
                    Either2::Second(()) => Attempt::failed(timed_out::<A>(limit, "for one attempt").into()),
                },
            };
            let error = match ended {
                Attempt { outcome: Ok(output), .. } => return Ok(output),
                Attempt { outcome: Err(error), is_final: true } => return Err(error),
                Attempt { outcome: Err(error), .. } if attempt >= policy.max_attempts => return Err(error),
                Attempt { outcome: Err(error), .. } => error,
            };
            let (name, most) = (A::NAME, policy.max_attempts);
            self.ctx.trace_warn(format!("activity '{name}' failed in attempt {attempt} of {most}: {error}"));
            let pause = policy.delay_for_attempt(attempt);
            if !pause.is_zero() {
                self.timer(pause).await;
            }
            attempt += 1;
            under_way = self.limited_attempt(A::NAME, &input);
        }
    }
}

/// How an attempt ended.
struct Attempt<A: Activity> {
    outcome: Outcome<A>,
    /// Another attempt cannot help.
    is_final: bool,
}

impl<A: Activity> Attempt<A> {
    fn failed(error: A::Error) -> Self {
        Self { outcome: Err(error), is_final: false }
    }
}

fn ended<A: Activity>(ctx: &OrchestrationContext, recorded: RecordedOutcome) -> Attempt<A> {
    let RecordedOutcome { result, step } = recorded;
    let name = A::NAME;
    match result {
        Ok(text) => match ctx.decode_payload(&text, &format!("result of activity '{name}'"), step) {
            Ok(output) => Attempt { outcome: Ok(output), is_final: true },
            // The work was done. Doing it again would not change what its result looks like.
            Err(reason) => Attempt { outcome: Err(Failure::undecodable(reason).into()), is_final: true },
        },
        Err(text) => match error_text::decode::<A::Error>(&text) {
            TypedError { error: Ok(error), is_final } => {
                let is_final = is_final || ctx.is_undecodable_input(name, step, &text);
                Attempt { outcome: Err(error), is_final }
            }
            TypedError { error: Err(words), is_final } => {
                let is_input = ctx.is_undecodable_input(name, step, &words);
                let failure = match is_input {
                    true => Failure::undecodable(words),
                    false => Failure::recorded(words),
                };
                Attempt { outcome: Err(failure.into()), is_final: is_final || is_input }
            }
        },
    }
}

fn unencodable<A: Activity>(reason: &str) -> Failure {
    Failure::unencodable(&format!("input of activity '{}'", A::NAME), reason)
}

fn timed_out<A: Activity>(limit: Duration, what: &str) -> Failure {
    let message = format!("activity '{}' took longer than {limit:?}, which is its limit {what}", A::NAME);
    Failure::new(FailureKind::TimedOut, message)
}

impl<A: Activity> Future for ActivityCall<A> {
    type Output = Outcome<A>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<A>> {
        self.schedule();
        let outcome = match &mut self.stage {
            Stage::Once(ctx, step) => match Pin::new(step).poll(cx) {
                Poll::Ready(recorded) => ended::<A>(ctx, recorded).outcome,
                Poll::Pending => return Poll::Pending,
            },
            Stage::Attempts(attempts) => match attempts.as_mut().poll(cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => return Poll::Pending,
            },
            Stage::Known(failure) => match failure.take() {
                Some(failure) => Err(failure.into()),
                None => return Poll::Pending,
            },
            // As every durable future: polled again after its end, it stays pending.
            Stage::Planned(_) | Stage::Over => return Poll::Pending,
        };
        self.stage = Stage::Over;
        Poll::Ready(outcome)
    }
}

impl<A: Activity> fmt::Debug for ActivityCall<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActivityCall").field("name", &A::NAME).finish_non_exhaustive()
    }
}
