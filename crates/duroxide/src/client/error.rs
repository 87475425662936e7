//! The errors of client calls.

use std::fmt;

use crate::providers::{ProviderError, refusal};

/// Why a client call failed.
///
/// ```
/// use duroxide::ClientError;
///
/// fn http_status(error: &ClientError) -> u16 {
///     match error {
///         ClientError::InstanceNotFound { .. } => 404,
///         ClientError::InvalidInput { .. } => 400,
///         ClientError::InstanceStillRunning { .. } => 409,
///         other if other.is_retryable() => 503,
///         _ => 500,
///     }
/// }
/// assert_eq!(http_status(&ClientError::InstanceNotFound { instance_id: "order-7".to_string() }), 404);
/// assert_eq!(http_status(&ClientError::Timeout), 503);
/// ```
#[derive(Debug, Clone)]
pub enum ClientError {
    /// The store failed.
    Provider(ProviderError),
    /// The store offers no management.
    ManagementNotAvailable,
    /// The client refused an argument.
    InvalidInput {
        /// The fault in it.
        message: String,
    },
    /// The awaited change did not happen in time.
    Timeout,
    /// The instance has not finished.
    InstanceStillRunning {
        /// The instance.
        instance_id: String,
    },
    /// The instance is a child; only its root can be deleted.
    CannotDeleteSubOrchestration {
        /// The instance.
        instance_id: String,
    },
    /// There is no such instance.
    InstanceNotFound {
        /// The instance.
        instance_id: String,
    },
}

impl ClientError {
    /// Tells whether the same call may succeed later.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// // To start an instance again is harmless: an id that is taken changes nothing.
    /// while let Err(error) = client.start_orchestration("order-7", "Order", "3 apples").await {
    ///     if !error.is_retryable() {
    ///         return Err(error);
    ///     }
    ///     tokio::time::sleep(Duration::from_secs(1)).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Provider(error) => error.retryable,
            Self::Timeout => true,
            _ => false,
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidInput { message: message.into() }
    }

    /// Names the option if the store cannot do what it asks for.
    pub(super) fn of_option(error: ProviderError, option: &str) -> Self {
        match refusal::is_not_supported(&error) {
            true => Self::invalid(format!("{option} is not supported by this store")),
            false => Self::Provider(error),
        }
    }

    /// Sorts the error of a deletion. Stores report the cause only as text, and each store words it differently.
    pub(super) fn of_deletion(error: ProviderError, instance_id: &str) -> Self {
        let instance_id = instance_id.to_string();
        let text = error.message.to_lowercase();
        if text.contains("not found") {
            Self::InstanceNotFound { instance_id }
        } else if text.contains("still running") || text.contains("is running") {
            Self::InstanceStillRunning { instance_id }
        } else if text.contains("sub-orchestration") || text.contains("delete the root") {
            Self::CannotDeleteSubOrchestration { instance_id }
        } else {
            Self::Provider(error)
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(error) => error.fmt(f),
            Self::ManagementNotAvailable => {
                f.write_str("Management features not available - provider doesn't implement ProviderAdmin")
            }
            Self::InvalidInput { message } => write!(f, "Invalid input: {message}"),
            Self::Timeout => f.write_str("Operation timed out"),
            Self::InstanceStillRunning { instance_id } => {
                write!(f, "Instance {instance_id} is still running. Use force=true or cancel first.")
            }
            Self::CannotDeleteSubOrchestration { instance_id } => write!(
                f,
                "Cannot delete sub-orchestration {instance_id} directly. Delete the root orchestration instead."
            ),
            Self::InstanceNotFound { instance_id } => write!(f, "Instance {instance_id} not found"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<ProviderError> for ClientError {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}
