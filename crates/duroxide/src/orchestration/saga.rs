//! A scope whose cleanup runs on error, panic and cancellation.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use super::{Cancellation, OrchestrationContext, RetryPolicy};

type Cleanup =
    Box<dyn FnOnce(OrchestrationContext) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send>;

/// The list of what has to be undone if the scope does not succeed; see [`OrchestrationContext::saga`].
///
/// ```
/// # use duroxide::OrchestrationContext;
/// async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
///     ctx.saga(async |saga| {
///         ctx.schedule_activity("Reserve", &order).await?;
///         saga.defer("Release", &order);
///         let receipt = ctx.schedule_activity("Charge", &order).await?;
///         saga.defer_with(async move |ctx: OrchestrationContext| {
///             ctx.schedule_activity("Refund", receipt).await?;
///             ctx.schedule_activity("MailApology", "").await.map(drop)
///         });
///         // If this fails: `Refund` and `MailApology`, then `Release`.
///         ctx.schedule_activity("Ship", &order).await
///     })
///     .await
/// }
/// # duroxide::OrchestrationRegistry::builder().register("Order", order);
/// ```
#[derive(Clone, Default)]
pub struct Saga {
    cleanups: Arc<Mutex<Vec<Cleanup>>>,
}

/// How the body of a scope ended.
enum BodyEnd<T> {
    Returned(T),
    Cancelled(Cancellation),
    Panicked(Box<dyn Any + Send>),
}

impl Saga {
    /// Undoes something with an activity, tried three times.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// # let (ctx, order) = (&ctx, &order);
    /// ctx.saga(|saga| async move {
    ///     let receipt = ctx.schedule_activity("Charge", order).await?;
    ///     saga.defer("Refund", receipt);
    ///     // If this fails, `Refund` runs before the scope returns the error.
    ///     ctx.schedule_activity("Ship", order).await
    /// })
    /// .await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn defer(&self, activity: impl Into<String>, input: impl Into<String>) {
        let (activity, input) = (activity.into(), input.into());
        self.defer_with(move |ctx| async move {
            ctx.schedule_activity_with_retry(activity, input, RetryPolicy::default()).await.map(drop)
        });
    }

    /// Undoes something with steps of the context.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// # let (ctx, order) = (&ctx, &order);
    /// ctx.saga(|saga| async move {
    ///     let receipt = ctx.schedule_activity("Charge", order).await?;
    ///     saga.defer_with(move |ctx| async move {
    ///         let refund = ctx.schedule_activity("Refund", receipt).await?;
    ///         ctx.schedule_activity("MailApology", refund).await.map(drop)
    ///     });
    ///     ctx.schedule_activity("Ship", order).await
    /// })
    /// .await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn defer_with<Fut>(&self, cleanup: impl FnOnce(OrchestrationContext) -> Fut + Send + 'static)
    where
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let cleanup: Cleanup = Box::new(move |ctx| Box::pin(cleanup(ctx)));
        self.cleanups.lock().unwrap_or_else(PoisonError::into_inner).push(cleanup);
    }

    fn pop(&self) -> Option<Cleanup> {
        self.cleanups.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl OrchestrationContext {
    /// Runs a scope whose cleanup is durable: if its body fails, panics or the instance is cancelled, everything that it
    /// [deferred](Saga::defer) is undone, the last first.
    ///
    /// Cancelling drops the body where it waits, which gives up its open steps and cancels its children. A cleanup that
    /// fails is logged, and the others still run. The scope then returns the error of its body, or the cancellation.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     let (ctx, order) = (&ctx, &order);
    ///     ctx.saga(|saga| async move {
    ///         ctx.schedule_activity("Reserve", order).await?;
    ///         saga.defer("Release", order);
    ///         let receipt = ctx.schedule_activity("Charge", order).await?;
    ///         saga.defer("Refund", receipt);
    ///         ctx.schedule_activity("Ship", order).await
    ///     })
    ///     .await
    /// }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Errors
    /// Those of the body, or the [`Cancellation`].
    pub async fn saga<T, E, Fut>(&self, body: impl FnOnce(Saga) -> Fut) -> Result<T, E>
    where
        Fut: Future<Output = Result<T, E>>,
        E: From<Cancellation>,
    {
        let saga = Saga::default();
        // Listens to the end of the cleanup, so that a request which comes then does not end it.
        let _listening = self.cancelled();
        let ended = run(body(saga.clone()), self.cancelled()).await;
        let ended = match ended {
            BodyEnd::Returned(Ok(value)) => return Ok(value),
            other => other,
        };
        while let Some(cleanup) = saga.pop() {
            if let Err(error) = cleanup(self.clone()).await {
                self.trace_error(format!("a cleanup failed: {error}"));
            }
        }
        match ended {
            BodyEnd::Returned(result) => result,
            BodyEnd::Cancelled(cancellation) => Err(cancellation.into()),
            BodyEnd::Panicked(panic) => resume_unwind(panic),
        }
    }
}

/// Runs the body until it ends or the instance is cancelled, and drops it.
async fn run<T>(body: impl Future<Output = T>, cancelled: super::Cancelled) -> BodyEnd<T> {
    let (mut body, mut cancelled) = (pin!(body), pin!(cancelled));
    poll_fn(move |cx| {
        if let Poll::Ready(cancellation) = cancelled.as_mut().poll(cx) {
            return Poll::Ready(BodyEnd::Cancelled(cancellation));
        }
        match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(cx))) {
            Ok(poll) => poll.map(BodyEnd::Returned),
            Err(panic) => Poll::Ready(BodyEnd::Panicked(panic)),
        }
    })
    .await
}
