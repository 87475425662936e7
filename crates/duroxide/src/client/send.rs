//! Sending messages to instances that can take them.

use serde::Serialize;

use super::presence::Presence;
use super::start::encode;
use super::{Client, ClientError};
use crate::model::WorkItem;
use crate::providers::{SendOutcome, refusal};

/// Why a message was not sent.
///
/// ```
/// use duroxide::client::SendError;
/// # async fn run(client: duroxide::Client) -> Result<(), SendError> {
/// match client.send("basket-7", "items", &"apple").await {
///     Err(SendError::NotFound { .. } | SendError::Ended { .. }) => println!("nobody takes it"),
///     sent => sent?,
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such instance.
    #[error("there is no instance '{instance}'")]
    NotFound {
        /// The instance.
        instance: String,
    },
    /// The instance has completed or failed, and takes no message any more.
    #[error("instance '{instance}' has ended")]
    Ended {
        /// The instance.
        instance: String,
    },
    /// The store failed, or an argument was refused. If it is retryable, the message may have been sent.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl SendError {
    /// Tells whether the same call may succeed later.
    ///
    /// ```
    /// use duroxide::client::SendError;
    /// # async fn run(client: duroxide::Client) -> Result<(), SendError> {
    /// match client.send("basket-7", "items", &"apple").await {
    ///     // The item may be in the basket: look before you send it again.
    ///     Err(error) if error.is_retryable() => println!("the store is busy: {error}"),
    ///     sent => sent?,
    /// }
    /// # Ok(()) }
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_retryable())
    }
}

impl Client {
    /// Puts a value into one of an instance's queues, if there is such an instance and it has not ended.
    ///
    /// [`enqueue_event_typed`](Self::enqueue_event_typed) sends without looking. Here the store looks and sends in one step, and a
    /// start that is queued counts as an instance: what was sent is in the queue of an instance that has not ended. It may still
    /// end before it reads the message; only an [answer](Self::ask) proves that a message was read.
    ///
    /// ```
    /// use duroxide::client::SendError;
    /// # async fn run(client: duroxide::Client) -> Result<(), SendError> {
    /// match client.send("basket-7", "items", &"apple").await {
    ///     Err(SendError::Ended { .. }) => println!("that basket has been paid for"),
    ///     sent => sent?,
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SendError::NotFound`] and [`SendError::Ended`]: nothing was sent. A store that knows only the published contract
    /// looks first and sends then, and cannot tell a queued start from nothing; there the message is sent. Otherwise as
    /// [`enqueue_event_typed`](Self::enqueue_event_typed).
    pub async fn send<T: Serialize + ?Sized>(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: &T,
    ) -> Result<(), SendError> {
        let (instance, name, data) = (instance.into(), queue.into(), encode(data)?);
        self.send_to_living(WorkItem::QueueMessage { instance: instance.clone(), name, data }, instance).await
    }

    /// Raises a signal with a value, if there is such an instance and it has not ended.
    ///
    /// As [`send`](Self::send) does for queues. A signal that arrives while no wait is open is still recorded and lost.
    ///
    /// ```
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::client::SendError> {
    /// client.signal("order-7", "approved", &"Ada").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn signal<T: Serialize + ?Sized>(
        &self,
        instance: impl Into<String>,
        event: impl Into<String>,
        data: &T,
    ) -> Result<(), SendError> {
        let (instance, name, data) = (instance.into(), event.into(), encode(data)?);
        self.send_to_living(WorkItem::ExternalRaised { instance: instance.clone(), name, data }, instance)
            .await
    }

    /// Puts a payload into one of an instance's queues as it is, if there is such an instance and it has not ended.
    ///
    /// [`send`](Self::send) encodes a value; this is for a payload that is text already, such as one that an operator has typed.
    ///
    /// ```
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::client::SendError> {
    /// client.send_text("basket-7", "items", "\"apple\"").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_text(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), SendError> {
        let (instance, name, data) = (instance.into(), queue.into(), data.into());
        self.send_to_living(WorkItem::QueueMessage { instance: instance.clone(), name, data }, instance).await
    }

    /// Raises a signal with a payload as it is, if there is such an instance and it has not ended.
    ///
    /// As [`send_text`](Self::send_text) does for queues.
    ///
    /// ```
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::client::SendError> {
    /// client.signal_text("order-7", "approved", "\"Ada\"").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn signal_text(
        &self,
        instance: impl Into<String>,
        event: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), SendError> {
        let (instance, name, data) = (instance.into(), event.into(), data.into());
        self.send_to_living(WorkItem::ExternalRaised { instance: instance.clone(), name, data }, instance)
            .await
    }

    async fn send_to_living(&self, message: WorkItem, instance: String) -> Result<(), SendError> {
        if let Some(store) = self.extended() {
            self.note_message(&message);
            match store.enqueue_if_alive(message.clone()).await {
                Ok(SendOutcome::Sent) => return Ok(()),
                Ok(SendOutcome::Ended) => return Err(SendError::Ended { instance }),
                Ok(SendOutcome::NotFound) => return Err(SendError::NotFound { instance }),
                Err(error) if refusal::is_not_supported(&error) => {}
                Err(error) => return Err(ClientError::from(error).into()),
            }
        }
        // Such a store cannot look and send in one step.
        match self.presence(&instance).await? {
            Presence::Alive(_) | Presence::Unknown => Ok(self.send_unseen(message).await?),
            Presence::Ended => Err(SendError::Ended { instance }),
            Presence::Absent => Err(SendError::NotFound { instance }),
        }
    }
}
