//! Timers, signals and queues.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::model::Action;
use crate::replay::{CompletionResult, Request};

use super::{DurableFuture, OrchestrationContext, ScheduleKind};

impl OrchestrationContext {
    /// Waits until `delay` from now. The history records the time at which the timer fires, so that a restart does not
    /// begin the wait anew.
    ///
    /// Drops fractions of a millisecond. A delay that is too long to store ends at the latest time that a store can
    /// hold.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// ctx.schedule_activity("Ship", &order).await?;
    /// // Two weeks, however often the process restarts meanwhile.
    /// ctx.schedule_timer(Duration::from_secs(14 * 24 * 60 * 60)).await;
    /// ctx.schedule_activity("AskForReview", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_timer(&self, delay: Duration) -> DurableFuture<()> {
        let fire_at_ms = self.shared_state().fire_time(delay);
        let action = |_| Action::CreateTimer { scheduling_event_id: 0, fire_at_ms };
        let token = self.shared_state().request(Request::Timer, action);
        DurableFuture::open(self.shared_state(), token, ScheduleKind::Timer, |_, _| ())
    }

    /// Waits for a signal.
    ///
    /// The n-th wait for a name gets the n-th signal of that name. A signal that arrives while no wait is open is
    /// recorded and lost; use [`dequeue_event`](Self::dequeue_event) where that matters.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Open the wait before somebody is asked: the answer may come at once.
    /// let approval = ctx.schedule_wait("approved");
    /// ctx.schedule_activity("MailManager", &order).await?;
    /// let approver = approval.await;
    /// ctx.schedule_activity("Ship", format!("{order}, approved by {approver}")).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_wait(&self, name: impl Into<String>) -> DurableFuture<String> {
        self.wait(name.into(), |outcome, _| outcome.into_data())
    }

    /// Waits for a signal with typed data.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let (approver, limit): (String, u64) = ctx.schedule_wait_typed("approved").await;
    /// ctx.schedule_activity("Ship", format!("{order} up to {limit}, approved by {approver}")).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// When awaited, if the data does not decode. That fails the orchestration;
    /// [`try_schedule_wait_typed`](Self::try_schedule_wait_typed) returns an error instead.
    #[track_caller]
    pub fn schedule_wait_typed<T: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
    ) -> DurableFuture<T> {
        let name = name.into();
        let decode = self.data_decoder(signal(&name));
        self.wait(name, |outcome, step| expect(decode(outcome, step)))
    }

    /// Waits for a signal with typed data.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // A person types the amount; one that is no number is asked for again.
    /// let cents: u64 = loop {
    ///     match ctx.try_schedule_wait_typed("amount").await {
    ///         Ok(cents) => break cents,
    ///         Err(error) => ctx.set_custom_status(format!("not understood: {error}")),
    ///     }
    /// };
    /// ctx.schedule_activity_typed("Charge", &(order, cents)).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Errors
    /// The text says why the data does not decode. The signal is used up; another wait gets the next one.
    #[track_caller]
    pub fn try_schedule_wait_typed<T: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
    ) -> DurableFuture<Result<T, String>> {
        let name = name.into();
        let decode = self.data_decoder(signal(&name));
        self.wait(name, decode)
    }

    #[track_caller]
    fn wait<T>(
        &self,
        name: String,
        finish: impl FnOnce(CompletionResult, Option<u64>) -> T + Send + 'static,
    ) -> DurableFuture<T> {
        let kind = ScheduleKind::ExternalWait { event_name: name.clone() };
        let request = Request::Wait((name.clone(), None));
        let action = |_| Action::WaitExternal { scheduling_event_id: 0, name };
        let token = self.shared_state().request(request, action);
        DurableFuture::open(self.shared_state(), token, kind, finish)
    }

    /// Takes the next message of a queue, waiting for one if there is none.
    ///
    /// A message stays in its queue until the code reads it, also over continue-as-new (the oldest 100 messages).
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // No item is lost, even if several come while one is being packed.
    /// loop {
    ///     match ctx.dequeue_event("items").await.as_str() {
    ///         "that is all" => break,
    ///         item => ctx.schedule_activity("Pack", item).await?,
    ///     };
    /// }
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn dequeue_event(&self, queue: impl Into<String>) -> DurableFuture<String> {
        self.dequeue(queue.into(), |outcome, _| outcome.into_data())
    }

    /// Takes the next message of a queue with typed data.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let (item, count): (String, u32) = ctx.dequeue_event_typed("items").await;
    /// ctx.schedule_activity("Pack", format!("{count} {item}")).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// When awaited, if the data does not decode. That fails the orchestration;
    /// [`try_dequeue_event_typed`](Self::try_dequeue_event_typed) returns an error instead.
    #[track_caller]
    pub fn dequeue_event_typed<T: DeserializeOwned>(&self, queue: impl Into<String>) -> DurableFuture<T> {
        let queue = queue.into();
        let decode = self.data_decoder(message(&queue));
        self.dequeue(queue, |outcome, step| expect(decode(outcome, step)))
    }

    /// Takes the next message of a queue with typed data.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// match ctx.try_dequeue_event_typed::<(String, u32)>("items").await {
    ///     Ok((item, count)) => ctx.schedule_activity("Pack", format!("{count} {item}")).await,
    ///     // A message that does not decode is set aside, and the order goes on.
    ///     Err(error) => ctx.schedule_activity("ReportMessage", error).await,
    /// }
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Errors
    /// The text says why the data does not decode. The message is taken; the next call gets the one after it.
    #[track_caller]
    pub fn try_dequeue_event_typed<T: DeserializeOwned>(
        &self,
        queue: impl Into<String>,
    ) -> DurableFuture<Result<T, String>> {
        let queue = queue.into();
        let decode = self.data_decoder(message(&queue));
        self.dequeue(queue, decode)
    }

    #[track_caller]
    fn dequeue<T>(
        &self,
        name: String,
        finish: impl FnOnce(CompletionResult, Option<u64>) -> T + Send + 'static,
    ) -> DurableFuture<T> {
        let kind = ScheduleKind::QueueDequeue { event_name: name.clone() };
        let request = Request::Dequeue(name.clone());
        let action = |_| Action::DequeueEvent { scheduling_event_id: 0, name };
        let token = self.shared_state().request(request, action);
        DurableFuture::open(self.shared_state(), token, kind, finish)
    }

    /// Takes the next message of a queue.
    #[deprecated(note = "Use dequeue_event() instead")]
    #[track_caller]
    pub fn schedule_wait_persistent(&self, name: impl Into<String>) -> DurableFuture<String> {
        self.dequeue_event(name)
    }

    /// Takes the next message of a queue with typed data.
    #[deprecated(note = "Use dequeue_event_typed() instead")]
    #[track_caller]
    pub fn schedule_wait_persistent_typed<T: DeserializeOwned>(
        &self,
        name: impl Into<String>,
    ) -> DurableFuture<T> {
        self.dequeue_event_typed(name)
    }

    /// Waits for a signal on a topic.
    #[cfg(feature = "replay-version-test")]
    #[track_caller]
    pub fn schedule_wait2(&self, name: impl Into<String>, topic: impl Into<String>) -> DurableFuture<String> {
        let (name, topic) = (name.into(), topic.into());
        let kind = ScheduleKind::ExternalWait { event_name: name.clone() };
        let request = Request::Wait((name.clone(), Some(topic.clone())));
        let action = |_| Action::WaitExternal2 { scheduling_event_id: 0, name, topic };
        let token = self.shared_state().request(request, action);
        DurableFuture::open(self.shared_state(), token, kind, |outcome, _| outcome.into_data())
    }
}

fn signal(name: &str) -> String {
    format!("signal '{name}'")
}

fn message(queue: &str) -> String {
    format!("message from queue '{queue}'")
}

/// Panics on an error, which fails the orchestration: the published signatures leave no place for an error.
fn expect<T>(decoded: Result<T, String>) -> T {
    match decoded {
        Ok(value) => value,
        Err(error) => panic!("decode: the data does not fit the type that is waited for: {error}"),
    }
}
