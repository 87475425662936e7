//! Timers, messages, values and status with types, and errors that `?` turns into the caller's.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::codec;
use crate::orchestration::{DurableFuture, OrchestrationContext};

use super::{Failure, FailureKind, Payload};

/// The typed interface. Whatever can go wrong is a [`Failure`], which `?` turns into the error of the orchestration.
impl OrchestrationContext {
    /// Waits until `delay` from now, over restarts.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn remind(ctx: OrchestrationContext, text: String) -> Result<String, Failure> {
    ///     ctx.timer(days(30)).await;
    ///     Ok(text)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(remind);
    /// ```
    #[track_caller]
    pub fn timer(&self, delay: Duration) -> DurableFuture<()> {
        self.schedule_timer(delay)
    }

    /// Waits for an event ([`Client::raise_event_typed`](crate::Client::raise_event_typed)).
    ///
    /// The n-th wait for a name gets the n-th event of that name. An event that arrives while no wait is open is recorded
    /// and lost; a [queue](Self::queue) keeps it.
    ///
    /// # Errors
    /// If what arrived is no `T`. That event is used up; another wait gets the next one.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Approval { by: String }
    ///
    /// #[orchestration]
    /// async fn approve(ctx: OrchestrationContext) -> Result<String, Failure> {
    ///     let approval = ctx.event::<Approval>("approved").await?;
    ///     Ok(approval.by)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(approve);
    /// ```
    #[track_caller]
    pub fn event<T: Payload>(&self, name: impl Into<String>) -> DurableFuture<Result<T, Failure>> {
        self.try_schedule_wait_typed(name).map(|event| event.map_err(Failure::undecodable))
    }

    /// Takes the next message of a queue ([`Client::enqueue_event_typed`](crate::Client::enqueue_event_typed)), waiting for
    /// one if there is none.
    ///
    /// # Errors
    /// If what arrived is no `T`. That message is taken; the next call gets the one after it.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn basket(ctx: OrchestrationContext) -> Result<Vec<String>, Failure> {
    ///     let mut items = Vec::new();
    ///     while items.len() < 3 {
    ///         items.push(ctx.queue::<String>("items").await?);
    ///     }
    ///     Ok(items)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(basket);
    /// ```
    #[track_caller]
    pub fn queue<T: Payload>(&self, name: impl Into<String>) -> DurableFuture<Result<T, Failure>> {
        self.try_dequeue_event_typed(name).map(|message| message.map_err(Failure::undecodable))
    }

    /// Returns the time, the same one in every replay, to the millisecond.
    ///
    /// # Errors
    /// If the clock of the worker is out of all bounds.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn when(ctx: OrchestrationContext) -> Result<std::time::SystemTime, Failure> {
    ///     ctx.now().await
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(when);
    /// ```
    #[track_caller]
    pub fn now(&self) -> DurableFuture<Result<SystemTime, Failure>> {
        self.utc_now().map(|time| time.map_err(Failure::recorded))
    }

    /// Returns a random id (UUID v4), the same one in every replay.
    ///
    /// # Errors
    /// If the worker fails.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn ticket(ctx: OrchestrationContext) -> Result<String, Failure> {
    ///     ctx.new_id().await
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(ticket);
    /// ```
    #[track_caller]
    pub fn new_id(&self) -> DurableFuture<Result<String, Failure>> {
        self.new_guid().map(|id| id.map_err(Failure::recorded))
    }

    /// Shows clients how the orchestration stands, as any value; they read it with
    /// [`Client::query`](crate::Client::query).
    ///
    /// # Panics
    /// If the value cannot be serialized, which fails the orchestration.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Progress { done: u32, of: u32 }
    ///
    /// #[orchestration]
    /// async fn batch(ctx: OrchestrationContext, of: u32) -> Result<(), Failure> {
    ///     for done in 1..=of {
    ///         ctx.timer(secs(1)).await;
    ///         ctx.set_status(&Progress { done, of });
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(batch);
    /// ```
    #[track_caller]
    pub fn set_status<T: Serialize + DeserializeOwned>(&self, status: &T) {
        match codec::encode_exactly::<T, T>(status) {
            Ok(text) => self.set_custom_status(text),
            Err(error) => panic!("encode: the status cannot be serialized: {error}"),
        }
    }

    /// Keeps a value with the instance, over continue-as-new and its end; clients read it with
    /// [`Client::query_value`](crate::Client::query_value).
    ///
    /// # Panics
    /// If the value cannot be serialized, which fails the orchestration.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn count(ctx: OrchestrationContext) -> Result<u32, Failure> {
    ///     let count = ctx.value::<u32>("count")?.unwrap_or(0) + 1;
    ///     ctx.set_value("count", &count);
    ///     Ok(count)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(count);
    /// ```
    #[track_caller]
    pub fn set_value<T: Serialize>(&self, key: impl Into<String>, value: &T) {
        self.set_kv_value_typed(key, value);
    }

    /// Returns a value that the instance keeps. The history does not record reads.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// #[orchestration]
    /// async fn counter(ctx: OrchestrationContext) -> Result<u32, Failure> {
    ///     let count = ctx.value::<u32>("count")?.unwrap_or(0) + 1;
    ///     ctx.set_value("count", &count);
    ///     Ok(count)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(counter);
    /// ```
    ///
    /// # Errors
    /// If the value is no `T`.
    pub fn value<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Failure> {
        self.get_kv_value_typed(key).map_err(Failure::undecodable)
    }

    /// Reads a value that another instance keeps, as of its last turn; `None` if there is no such key or instance.
    ///
    /// # Errors
    /// If the value is no `T`, or the worker fails.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn sum(ctx: OrchestrationContext, others: Vec<String>) -> Result<u32, Failure> {
    ///     let mut sum = 0;
    ///     for other in others {
    ///         sum += ctx.value_of::<u32>(other, "count").await?.unwrap_or(0);
    ///     }
    ///     Ok(sum)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(sum);
    /// ```
    #[track_caller]
    pub fn value_of<T: Payload>(
        &self,
        instance: impl Into<String>,
        key: impl Into<String>,
    ) -> DurableFuture<Result<Option<T>, Failure>> {
        let failed = |message| Failure::new(FailureKind::Other, message);
        self.get_kv_value_from_instance_typed(instance, key).map(move |value| value.map_err(failed))
    }
}
