//! What can go wrong with a step, as types.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::model::ACTIVITY_TIMED_OUT;
use crate::orchestration::Cancellation;

/// A value that can be an argument or a result: it is recorded as JSON and read again.
///
/// Every type that serde can write and read is one, if it owns its data and may move to another thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded",
    label = "this type must be `Serialize` and `Deserialize`, own its data, and be `Send`",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it"
)]
pub trait Payload: Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Payload for T {}

/// The error of an activity or of an orchestration: it crosses to the caller as it is.
///
/// The history records its `Display` text, which people see, and its value, which the caller gets. The caller may also see
/// that the step failed without an error of this type: it took too long, panicked, or was cancelled. Such a
/// [`Failure`] is turned into this type, so that `?` and `match` find all that can go wrong in one place.
///
/// ```
/// use duroxide::Failure;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Serialize, Deserialize, thiserror::Error)]
/// enum ChargeError {
///     #[error("the card was declined with code {0}")]
///     Declined(u32),
///     #[error(transparent)]
///     Failed(#[from] Failure),
/// }
/// ```
///
/// `String`, [`Failure`] itself and [`AnyError`](super::AnyError) are such types already.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of an activity or orchestration",
    label = "this error must be `Serialize`, `Deserialize`, `Display` and `From<duroxide::Failure>`",
    note = "a step can also fail without an error of yours: it panics, takes too long, or is cancelled; give such a failure a \
            place: `Failed(#[from] duroxide::Failure)`",
    note = "`String` and `duroxide::AnyError` are errors that need no preparation"
)]
pub trait StepError: Serialize + DeserializeOwned + Display + From<Failure> + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<E: Serialize + DeserializeOwned + Display + From<Failure> + Send + 'static> StepError for E {}

/// An error that knows whether another attempt can help. Errors that do not implement this are worth another attempt.
///
/// The worker decides when the activity fails, and the decision is recorded with the error.
///
/// ```
/// use duroxide::Retryable;
///
/// enum ChargeError { Declined, BankIsDown }
///
/// impl Retryable for ChargeError {
///     fn is_retryable(&self) -> bool {
///         matches!(self, ChargeError::BankIsDown)
///     }
/// }
/// ```
pub trait Retryable {
    /// Tells whether another attempt can help.
    fn is_retryable(&self) -> bool;
}

/// A step that failed without an error of the application.
///
/// ```
/// use duroxide::{Failure, FailureKind};
///
/// fn is_late(failure: &Failure) -> bool {
///     failure.kind() == FailureKind::TimedOut
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    kind: FailureKind,
    message: String,
}

/// Why a step failed without an error of the application.
///
/// ```
/// use duroxide::{Failure, FailureKind};
///
/// fn advice(failure: &Failure) -> &'static str {
///     match failure.kind() {
///         FailureKind::TimedOut => "try again later",
///         FailureKind::Cancelled => "nothing to do",
///         FailureKind::Panicked | FailureKind::Undecodable => "tell a developer",
///         _ => "see the message",
///     }
/// }
/// assert_eq!(advice(&Failure::new(FailureKind::TimedOut, "too late")), "try again later");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// It took longer than it may.
    TimedOut,
    /// Its code panicked.
    Panicked,
    /// It was cancelled.
    Cancelled,
    /// A payload is not of the type that the code expects: input, result, error or message.
    Undecodable,
    /// A payload cannot be written as JSON. The step was not taken.
    Unencodable,
    /// Anything else; the text says what.
    #[serde(other)]
    Other,
}

impl Failure {
    /// Makes a failure: for tests of code that handles one.
    ///
    /// ```
    /// use duroxide::{Failure, FailureKind};
    /// assert_eq!(Failure::new(FailureKind::TimedOut, "too late").to_string(), "too late");
    /// ```
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Returns why it failed.
    ///
    /// ```
    /// use duroxide::{Failure, FailureKind};
    /// assert_eq!(Failure::new(FailureKind::TimedOut, "too late").kind(), FailureKind::TimedOut);
    /// ```
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns the text that says what happened.
    ///
    /// ```
    /// use duroxide::{Failure, FailureKind};
    /// assert_eq!(Failure::new(FailureKind::TimedOut, "too late").message(), "too late");
    /// ```
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn undecodable(message: String) -> Self {
        Self::new(FailureKind::Undecodable, message)
    }

    pub(super) fn unencodable(payload: &str, reason: &str) -> Self {
        Self::new(FailureKind::Unencodable, format!("{payload} does not encode: {reason}"))
    }

    /// Sorts a text that the machinery recorded.
    pub(crate) fn recorded(message: String) -> Self {
        let panicked = ["activity panicked", "orchestration panicked: "];
        let kind = if panicked.iter().any(|words| message.starts_with(words)) {
            FailureKind::Panicked
        } else if message.starts_with(ACTIVITY_TIMED_OUT) {
            FailureKind::TimedOut
        } else if message.starts_with("canceled: ") {
            FailureKind::Cancelled
        } else {
            FailureKind::Other
        };
        Self::new(kind, message)
    }
}

impl From<Cancellation> for Failure {
    fn from(cancellation: Cancellation) -> Self {
        Self::new(FailureKind::Cancelled, cancellation.to_string())
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.message
    }
}
