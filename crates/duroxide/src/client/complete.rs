//! Completing activities whose result comes from elsewhere.

use super::{Client, ClientError};
use crate::model::{AppErrorKind, CompletionToken, ErrorDetails, WorkItem};
use crate::providers::{ProviderError, ScheduledActivityIdentifier, refusal};

/// Why an activity was not completed.
///
/// ```
/// use duroxide::client::CompleteError;
///
/// /// What a bank gets that reports a payment: it calls again unless the status is 200.
/// fn http_status(completed: Result<(), CompleteError>) -> u16 {
///     match completed {
///         Ok(()) | Err(CompleteError::Ended { .. }) => 200,
///         Err(CompleteError::InstanceGone { .. }) => 404,
///         Err(CompleteError::Client(error)) if error.is_retryable() => 503,
///         Err(_) => 500,
///     }
/// }
/// assert_eq!(http_status(Err(CompleteError::Ended { instance: "order-7".to_string() })), 200);
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The activity has a result already, failed, was cancelled, or its orchestration has ended.
    #[error("the activity of instance '{instance}' is over: it has ended, or was cancelled")]
    Ended {
        /// The instance that scheduled it.
        instance: String,
    },
    /// The instance that scheduled it was deleted.
    #[error("there is no instance '{instance}' any more")]
    InstanceGone {
        /// The instance.
        instance: String,
    },
    /// The store cannot complete activities from elsewhere.
    #[error("this store cannot complete activities from elsewhere")]
    NotSupported,
    /// The store failed, or refused the result; or a value does not encode.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl From<ProviderError> for CompleteError {
    fn from(error: ProviderError) -> Self {
        match refusal::is_not_supported(&error) {
            true => Self::NotSupported,
            false => Self::Client(error.into()),
        }
    }
}

impl Client {
    /// Completes an activity, or fails it, from elsewhere: by the token that its code handed out
    /// ([`ActivityContext::completion_token`](crate::ActivityContext::completion_token)).
    ///
    /// Returns when the outcome is durable. Of several calls one succeeds; the others are told that the activity is over. It
    /// does not matter whether an attempt is running, or whether any runtime is there. A failure is final: the activity's
    /// retries do not apply to it.
    ///
    /// ```no_run
    /// # use duroxide::{Client, CompletionToken};
    /// # use duroxide::client::CompleteError;
    /// # async fn run(client: Client, token: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let token: CompletionToken = token.parse()?;
    /// match client.complete_activity(&token, Ok("approved".to_string())).await {
    ///     Ok(()) => println!("thank you"),
    ///     Err(CompleteError::Ended { .. }) => println!("that was decided before"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`CompleteError::Ended`] and [`CompleteError::InstanceGone`] if there is nothing left to complete;
    /// [`CompleteError::NotSupported`] on a store without the ability.
    pub async fn complete_activity(
        &self,
        token: &CompletionToken,
        result: Result<String, String>,
    ) -> Result<(), CompleteError> {
        let Some(store) = self.extended() else { return Err(CompleteError::NotSupported) };
        let (instance, execution_id, id) =
            (token.instance().to_string(), token.execution_id(), token.activity_id());
        let completion = match result {
            Ok(result) => WorkItem::ActivityCompleted { instance, execution_id, id, result },
            Err(message) => {
                let kind = AppErrorKind::ActivityFailed;
                let details = ErrorDetails::Application { kind, message, retryable: false };
                WorkItem::ActivityFailed { instance, execution_id, id, details }
            }
        };
        let instance = token.instance().to_string();
        if store.complete_activity(token.entry(), completion).await? {
            // An attempt that runs in this process learns it now.
            if let Some(running) = store.running_activities() {
                running.cancel(&[ScheduledActivityIdentifier { instance, execution_id, activity_id: id }]);
            }
            return Ok(());
        }
        match store.read_metadata(&instance).await? {
            Some(_) => Err(CompleteError::Ended { instance }),
            None => Err(CompleteError::InstanceGone { instance }),
        }
    }
}
