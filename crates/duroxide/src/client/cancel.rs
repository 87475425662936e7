//! Cancelling an instance with a reason and a grace period.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use super::{Client, ClientError};
use crate::model::WorkItem;
use crate::model::cancellation::grace_is_over;

/// A request to cancel an instance; see [`Client::cancel`]. Await it to send it.
///
/// ```
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// client.cancel("order-7").reason("the customer called").grace(duroxide::mins(5)).await?;
/// # Ok(()) }
/// ```
#[must_use = "await it to send it"]
pub struct Cancel {
    client: Client,
    instance: String,
    reason: String,
    grace: Option<Duration>,
}

impl Client {
    /// Cancels an instance: one that [listens](crate::OrchestrationContext::cancelled) cleans up and ends itself, any other
    /// ends at once.
    ///
    /// An instance that is blocked is tried once more, and ends as cancelled whatever its code does.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.cancel("order-7").reason("the customer called").grace(Duration::from_secs(300)).await?;
    /// # Ok(()) }
    /// ```
    pub fn cancel(&self, instance: impl Into<String>) -> Cancel {
        Cancel { client: self.clone(), instance: instance.into(), reason: String::new(), grace: None }
    }
}

impl Cancel {
    /// Says why. The orchestration sees it, and so do people who look at the instance.
    ///
    /// ```
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.cancel("order-7").reason("the customer called").await?;
    /// # Ok(()) }
    /// ```
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Ends the instance after this time, if its own cleanup has not ended it. Zero ends it at once, without cleanup.
    /// Without a grace period the cleanup may take as long as it takes.
    ///
    /// ```
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.cancel("order-7").grace(duroxide::mins(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    async fn send(self) -> Result<(), ClientError> {
        let Self { client, instance, reason, grace } = self;
        let message = |reason: String| WorkItem::CancelInstance { instance: instance.clone(), reason };
        // The end of the grace first: if only one of the two is stored, cleanup is still bounded.
        if let Some(grace) = grace {
            let last = message(grace_is_over(&reason));
            client.store.enqueue_for_orchestrator(last, Some(grace).filter(|grace| !grace.is_zero())).await?;
        }
        if grace != Some(Duration::ZERO) {
            client.store.enqueue_for_orchestrator(message(reason), None).await?;
        }
        if let Some(store) = client.extended() {
            store.unblock_instance(&instance).await?;
        }
        Ok(())
    }
}

impl IntoFuture for Cancel {
    type Output = Result<(), ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
