//! The future of a recorded step.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::model::ActivityOptions;
use crate::replay::{CompletionResult, SharedState};

/// What a durable future waits for.
#[derive(Debug, Clone)]
pub enum ScheduleKind {
    /// An activity.
    Activity {
        /// The registered name of the activity.
        name: String,
    },
    /// A timer.
    Timer,
    /// A signal.
    ExternalWait {
        /// The name that the signal must carry.
        event_name: String,
    },
    /// A queue message.
    QueueDequeue {
        /// The name of the queue.
        event_name: String,
    },
    /// A child orchestration.
    SubOrchestration {
        /// Which request of this turn the future is for; it has no meaning outside the turn.
        token: u64,
    },
}

/// The result of a recorded step: an activity, a timer, a signal, a queue message or a child orchestration.
///
/// The call that makes the future asks for the step, not the first await. Dropping the future before it has its result
/// cancels the step: the runtime does not run the activity or tells it to stop, cancels the child, or frees the place
/// of the wait. A dropped timer still fires, but wakes no code.
///
/// ```
/// # use duroxide::OrchestrationContext;
/// async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
///     // Both are asked for here, and run side by side.
///     let packing = ctx.schedule_activity("Pack", &order);
///     let label = ctx.schedule_activity("PrintLabel", &order).with_tag("label-printer");
///     let parcel = packing.await?;
///     // Nobody waits for this one any more: it is cancelled.
///     drop(label);
///     ctx.schedule_activity("Ship", parcel).await
/// }
/// # duroxide::OrchestrationRegistry::builder().register("Order", order);
/// ```
pub struct DurableFuture<T> {
    step: Step,
    finish: Option<Finish<T>>,
}

/// Gets the outcome, and the id of the event that recorded the step if there is one.
type Finish<T> = Box<dyn FnOnce(CompletionResult, Option<u64>) -> T + Send>;

enum Step {
    Open(OpenStep),
    /// The outcome is known at once; there is no step.
    Known(Option<CompletionResult>),
}

/// A step that the code asked for. Dropping it before the code took the outcome is a request to cancel.
struct OpenStep {
    shared_state: Arc<SharedState>,
    token: u64,
    kind: ScheduleKind,
}

impl Drop for OpenStep {
    fn drop(&mut self) {
        self.shared_state.abandon(self.token);
    }
}

impl<T> DurableFuture<T> {
    pub(crate) fn open(
        shared_state: &Arc<SharedState>,
        token: u64,
        kind: ScheduleKind,
        finish: impl FnOnce(CompletionResult, Option<u64>) -> T + Send + 'static,
    ) -> Self {
        let step = Step::Open(OpenStep { shared_state: Arc::clone(shared_state), token, kind });
        Self { step, finish: Some(Box::new(finish)) }
    }

    /// A future that is ready at once and records nothing.
    pub(crate) fn known(
        outcome: CompletionResult,
        finish: impl FnOnce(CompletionResult, Option<u64>) -> T + Send + 'static,
    ) -> Self {
        Self { step: Step::Known(Some(outcome)), finish: Some(Box::new(finish)) }
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<(CompletionResult, Option<u64>)> {
        match &mut self.step {
            Step::Open(step) => step
                .shared_state
                .poll(step.token, cx.waker())
                .map(|(outcome, event_id)| (outcome, Some(event_id))),
            Step::Known(outcome) => {
                outcome.take().map_or(Poll::Pending, |outcome| Poll::Ready((outcome, None)))
            }
        }
    }
}

impl<T: Send + 'static> DurableFuture<T> {
    /// Turns the result into something else when it arrives. Dropping the new future cancels the same step.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Both sides of the race give the same type.
    /// let approver = ctx.schedule_wait("approved").map(Some);
    /// let deadline = ctx.schedule_timer(Duration::from_secs(60 * 60)).map(|()| None);
    /// let (_, approver) = ctx.select2(approver, deadline).await.into_tuple();
    /// approver.ok_or_else(|| format!("nobody approved {order} within an hour"))
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(T) -> U + Send + 'static) -> DurableFuture<U> {
        let finish = self
            .finish
            .map(|finish| -> Finish<U> { Box::new(move |outcome, event_id| f(finish(outcome, event_id))) });
        DurableFuture { step: self.step, finish }
    }

    /// Sends the activity only to workers that serve this tag.
    ///
    /// It must be called right after scheduling, before the orchestration awaits anything. The last call counts.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Runs where `RuntimeOptions::worker_tag_filter` names the tag: on the machines with a label printer.
    /// ctx.schedule_activity("PrintLabel", order).with_tag("label-printer").await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the future is not that of an activity, or the engine has already taken the activity over.
    pub fn with_tag(self, tag: impl Into<String>) -> Self {
        let Step::Open(OpenStep { shared_state, token, kind }) = &self.step else {
            panic!("with_tag() can only be called on activity futures, got a rejected request");
        };
        if !matches!(kind, ScheduleKind::Activity { .. }) {
            panic!("with_tag() can only be called on activity futures, got {kind:?}");
        }
        if !shared_state.set_tag(*token, tag.into()) {
            panic!(
                "with_tag(): token {token} not found in emitted_actions; \
                 call it right after scheduling, before the orchestration awaits anything"
            );
        }
        self
    }

    /// Says how the activity is to be run: retries in the store, timeouts.
    ///
    /// The history does not record the options, so a later build may ask for others. If the store cannot keep them, the
    /// activity fails with a text that names them. It must be called right after scheduling, before the orchestration
    /// awaits anything. The last call counts.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{ActivityOptions, OrchestrationContext, StoredRetry};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let options = ActivityOptions::new()
    ///     .retry(StoredRetry::attempts(100))
    ///     .start_to_close(Duration::from_secs(30));
    /// ctx.schedule_activity("CallCarrier", order).with_options(options).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the future is not that of an activity, or the engine has already taken the activity over.
    pub fn with_options(self, options: ActivityOptions) -> Self {
        let Step::Open(OpenStep { shared_state, token, kind }) = &self.step else {
            panic!("with_options() can only be called on activity futures, got a rejected request");
        };
        if !matches!(kind, ScheduleKind::Activity { .. }) {
            panic!("with_options() can only be called on activity futures, got {kind:?}");
        }
        if !shared_state.set_options(*token, options) {
            panic!(
                "with_options(): token {token} not found in emitted_actions; \
                 call it right after scheduling, before the orchestration awaits anything"
            );
        }
        self
    }
}

impl<T> Future for DurableFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.poll_outcome(cx) {
            // Polled again after the code took its result, the future stays pending.
            Poll::Ready((outcome, event_id)) => {
                self.finish.take().map_or(Poll::Pending, |finish| Poll::Ready(finish(outcome, event_id)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
