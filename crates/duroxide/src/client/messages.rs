//! Sending messages to instances. None of these checks that the instance exists.

use serde::Serialize;

use super::start::encode;
use super::{Client, ClientError};
use crate::model::WorkItem;

impl Client {
    /// Raises a signal. The oldest wait for this name that is open when the signal arrives receives it; without one it
    /// is recorded and nobody receives it. [`enqueue_event`](Self::enqueue_event) is the buffered kind.
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
        self.send(WorkItem::ExternalRaised { instance, name, data }).await
    }

    /// Raises a signal with a value.
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

    /// Puts a message into one of the instance's queues. It is kept until the orchestration takes it.
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
        self.send(WorkItem::QueueMessage { instance, name, data }).await
    }

    /// Puts a value into one of the instance's queues.
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
        self.send(WorkItem::ExternalRaised2 { instance, name, topic: topic.into(), data: data.into() }).await
    }

    /// Asks to cancel an instance. It ends as failed with this reason; a finished one does not change.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn cancel_instance(
        &self,
        instance: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<(), ClientError> {
        self.send(WorkItem::CancelInstance { instance: instance.into(), reason: reason.into() }).await
    }

    async fn send(&self, message: WorkItem) -> Result<(), ClientError> {
        Ok(self.store.enqueue_for_orchestrator(message, None).await?)
    }
}
