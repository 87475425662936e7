//! The error of a storage operation.

use crate::model::ErrorDetails;

/// A storage operation that failed, and whether trying again may help.
///
/// A retryable error means that the store changed nothing (or does not know whether it did) and that the same call may
/// succeed later. A permanent error means that the call never will: a lost lease, a duplicate event, an unknown
/// instance.
///
/// ```
/// use duroxide::ErrorDetails;
/// use duroxide::providers::ProviderError;
///
/// let busy = ProviderError::retryable("ack_work_item", "the database is locked");
/// assert!(busy.is_retryable() && !ProviderError::permanent("ack_work_item", "the lease is lost").is_retryable());
/// assert_eq!(busy.to_string(), "ack_work_item: the database is locked");
/// assert!(matches!(busy.to_infrastructure_error(), ErrorDetails::Infrastructure { retryable: true, .. }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// The name of the method that failed.
    pub operation: String,
    /// The cause, and the object that it is about.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

impl ProviderError {
    /// Makes an error that may go away by itself.
    pub fn retryable(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self { operation: operation.into(), message: message.into(), retryable: true }
    }

    /// Makes an error that will not go away by itself.
    pub fn permanent(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self { operation: operation.into(), message: message.into(), retryable: false }
    }

    /// Tells whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns the error as the cause of a failed orchestration.
    pub fn to_infrastructure_error(&self) -> ErrorDetails {
        ErrorDetails::Infrastructure {
            operation: self.operation.clone(),
            message: self.message.clone(),
            retryable: self.retryable,
        }
    }
}

impl std::fmt::Display for ProviderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.operation, self.message)
    }
}

impl std::error::Error for ProviderError {}

impl From<String> for ProviderError {
    fn from(message: String) -> Self {
        Self::retryable("unknown", message)
    }
}

impl From<&str> for ProviderError {
    fn from(message: &str) -> Self {
        Self::retryable("unknown", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_operation_and_a_bare_text_may_be_tried_again() {
        let error = ProviderError::permanent("ack_work_item", "lease lost");
        assert_eq!(error.to_string(), "ack_work_item: lease lost");
        assert!(!error.is_retryable() && ProviderError::retryable("read", "busy").is_retryable());
        assert_eq!(ProviderError::from("oops"), ProviderError::retryable("unknown", "oops"));
        assert_eq!(ProviderError::from("oops".to_string()), ProviderError::from("oops"));
    }

    #[test]
    fn an_error_becomes_the_cause_of_a_failure_with_all_it_says() {
        let details = ProviderError::permanent("ack_work_item", "lease lost").to_infrastructure_error();
        let (operation, message) = ("ack_work_item".to_string(), "lease lost".to_string());
        assert_eq!(details, ErrorDetails::Infrastructure { operation, message, retryable: false });
    }
}
