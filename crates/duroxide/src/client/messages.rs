//! Sending messages to instances. None of these checks that the instance exists; those of `send` do.

use serde::Serialize;

use super::start::encode;
use super::{Client, ClientError};
use crate::model::WorkItem;
use crate::providers::refusal;

/// Options for sending a message.
///
/// ```
/// use duroxide::client::EnqueueOptions;
/// let options = EnqueueOptions::new().park_until_started();
/// ```
#[derive(Debug, Clone, Default)]
pub struct EnqueueOptions {
    park_until_started: bool,
}

impl EnqueueOptions {
    /// Makes options that ask for nothing.
    ///
    /// ```
    /// # use duroxide::client::EnqueueOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let options = EnqueueOptions::new();
    /// client.enqueue_event_with("basket-7", "items", "apple", options).await?;
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the message if there is no such instance. The store parks it until a client starts the instance, and then
    /// delivers parked messages in the order in which they were sent.
    /// [`list_parked_messages`](Client::list_parked_messages) shows what waits. After a day, or the time that the store
    /// is configured for, the store drops the message and [lists it as dropped](Client::list_dropped_messages).
    ///
    /// If an operator deletes the instance while the message is on its way, the next instance of that id gets the
    /// message.
    ///
    /// ```
    /// # use duroxide::client::EnqueueOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// // The item comes first, the basket later; nothing is lost.
    /// let options = EnqueueOptions::new().park_until_started();
    /// client.enqueue_event_with("basket-7", "items", "apple", options).await?;
    /// client.start_orchestration("basket-7", "Basket", "Ada").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn park_until_started(mut self) -> Self {
        self.park_until_started = true;
        self
    }
}

impl Client {
    /// Raises a signal. The oldest wait for this name that is open when the signal arrives receives it; without one,
    /// the history records it and no wait ever receives it. [`enqueue_event`](Self::enqueue_event) is the buffered
    /// kind.
    ///
    /// A signal for an instance that does not exist waits up to a day for the start and arrives together with it:
    /// before any wait is open.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.raise_event("order-7", "approved", "Ada").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn raise_event(
        &self,
        instance: impl Into<String>,
        event_name: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), ClientError> {
        let (instance, name, data) = (instance.into(), event_name.into(), data.into());
        self.send_unseen(WorkItem::ExternalRaised { instance, name, data }).await
    }

    /// Raises a signal with a value.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.raise_event_typed("order-7", "approved", &("Ada", 7)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the value does not encode.
    pub async fn raise_event_typed<T: Serialize>(
        &self,
        instance: impl Into<String>,
        event_name: impl Into<String>,
        data: &T,
    ) -> Result<(), ClientError> {
        let data = encode(data)?;
        self.raise_event(instance, event_name, data).await
    }

    /// Puts a message into one of the instance's queues. The message stays there until the orchestration takes it or
    /// ends.
    ///
    /// The instance must exist, or its start must be queued. Otherwise the call still succeeds, but the next runtime
    /// that looks drops the message: it logs, counts and [lists](Self::list_dropped_messages) it, and an instance
    /// started later never sees it. A sender that may come before the start parks the message
    /// ([`EnqueueOptions::park_until_started`]) or [brings the start along](Self::start_with_message).
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.enqueue_event("basket-7", "items", "apple").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn enqueue_event(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), ClientError> {
        let (instance, name, data) = (instance.into(), queue.into(), data.into());
        self.send_unseen(WorkItem::QueueMessage { instance, name, data }).await
    }

    /// Puts a value into one of the instance's queues, as [`enqueue_event`](Self::enqueue_event) does.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.enqueue_event_typed("basket-7", "items", &("apple", 3)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the value does not encode.
    pub async fn enqueue_event_typed<T: Serialize>(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: &T,
    ) -> Result<(), ClientError> {
        let data = encode(data)?;
        self.enqueue_event(instance, queue, data).await
    }

    /// As [`enqueue_event`](Self::enqueue_event), with options.
    ///
    /// ```no_run
    /// # use duroxide::client::EnqueueOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let options = EnqueueOptions::new().park_until_started();
    /// client.enqueue_event_with("basket-7", "items", "apple", options).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the store cannot do what an option asks for.
    pub async fn enqueue_event_with(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: impl Into<String>,
        options: EnqueueOptions,
    ) -> Result<(), ClientError> {
        let (instance, name, data) = (instance.into(), queue.into(), data.into());
        let message = WorkItem::QueueMessage { instance, name, data };
        if !options.park_until_started {
            return self.send_unseen(message).await;
        }
        let parked = match self.extended() {
            Some(store) => {
                self.note_message(&message);
                store.enqueue_or_park(message).await
            }
            None => Err(refusal::not_supported("enqueue_or_park")),
        };
        parked.map_err(|error| ClientError::of_option(error, "EnqueueOptions::park_until_started"))
    }

    /// As [`enqueue_event_with`](Self::enqueue_event_with), with a value.
    ///
    /// ```no_run
    /// # use duroxide::client::EnqueueOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let options = EnqueueOptions::new().park_until_started();
    /// client.enqueue_event_typed_with("basket-7", "items", &("apple", 3), options).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the value does not encode.
    pub async fn enqueue_event_typed_with<T: Serialize>(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: &T,
        options: EnqueueOptions,
    ) -> Result<(), ClientError> {
        let data = encode(data)?;
        self.enqueue_event_with(instance, queue, data, options).await
    }

    /// The older name of [`enqueue_event`](Self::enqueue_event).
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    #[deprecated(note = "Use enqueue_event() instead")]
    pub async fn raise_event_persistent(
        &self,
        instance: impl Into<String>,
        event_name: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), ClientError> {
        self.enqueue_event(instance, event_name, data).await
    }

    /// Raises a signal on a topic.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    #[cfg(feature = "replay-version-test")]
    pub async fn raise_event2(
        &self,
        instance: impl Into<String>,
        event_name: impl Into<String>,
        topic: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), ClientError> {
        let (instance, name) = (instance.into(), event_name.into());
        self.send_unseen(WorkItem::ExternalRaised2 { instance, name, topic: topic.into(), data: data.into() })
            .await
    }

    /// Asks to cancel an instance. It ends as failed with this reason; a finished one does not change. One that
    /// [listens](crate::OrchestrationContext::cancelled) cleans up first; [`cancel`](Self::cancel) bounds that.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.cancel_instance("order-7", "the customer called").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn cancel_instance(
        &self,
        instance: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<(), ClientError> {
        self.send_unseen(WorkItem::CancelInstance { instance: instance.into(), reason: reason.into() }).await
    }

    /// Tells the runtimes of this process that a message for an instance is on its way.
    pub(super) fn note_message(&self, message: &WorkItem) {
        let (WorkItem::ExternalRaised { instance, .. }
        | WorkItem::QueueMessage { instance, .. }
        | WorkItem::CancelInstance { instance, .. }) = message
        else {
            return;
        };
        if let Some(exchange) = self.extended().and_then(|store| store.local_exchange()) {
            exchange.note_message(instance);
        }
    }

    /// Sends a message without a look at who could take it.
    pub(super) async fn send_unseen(&self, message: WorkItem) -> Result<(), ClientError> {
        self.note_message(&message);
        Ok(self.store.enqueue_for_orchestrator(message, None).await?)
    }
}
