//! Why an activity or orchestration failed, as histories record it and clients see it.

use serde::{Deserialize, Serialize};

use super::{QUOTE_LIMIT, error_text, quote};

/// The cause of a failed activity or orchestration.
///
/// Application failures are results that orchestration code can handle; the other categories end the orchestration.
///
/// ```
/// use duroxide::{AppErrorKind, ErrorDetails};
///
/// fn whom_to_call(details: &ErrorDetails) -> &'static str {
///     match details {
///         ErrorDetails::Application { kind: AppErrorKind::Cancelled { .. }, .. } => "nobody",
///         ErrorDetails::Application { .. } => "the team that wrote the orchestration",
///         ErrorDetails::Configuration { .. } => "whoever has just deployed",
///         ErrorDetails::Infrastructure { .. } | ErrorDetails::Poison { .. } => "the operators",
///     }
/// }
/// let kind = AppErrorKind::ActivityFailed;
/// let details = ErrorDetails::Application { kind, message: "no apples".to_string(), retryable: false };
/// assert_eq!(whom_to_call(&details), "the team that wrote the orchestration");
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum ErrorDetails {
    /// Storage or another part of the machinery failed.
    Infrastructure {
        /// The operation that failed.
        operation: String,
        /// The text of its error.
        message: String,
        /// Whether trying again may help.
        retryable: bool,
    },
    /// The deployment is wrong: the code does not fit the recorded history.
    Configuration {
        /// The kind of misfit.
        kind: ConfigErrorKind,
        /// The orchestration or activity concerned; may be empty.
        resource: String,
        /// The exact misfit.
        message: Option<String>,
    },
    /// User code failed, panicked or was cancelled.
    Application {
        /// Which of these.
        kind: AppErrorKind,
        /// The text that user code returned, or the panic's.
        message: String,
        /// Whether trying again may help.
        retryable: bool,
    },
    /// A message was delivered too often without being completed.
    Poison {
        /// How often it was delivered.
        attempt_count: u32,
        /// How often it may be delivered.
        max_attempts: u32,
        /// The work that it asked for.
        message_type: PoisonMessageType,
        /// The message itself, as JSON, or the decoding error. Long ones are cut. If a handler is not registered, a
        /// line before it names the handler.
        message: String,
    },
}

/// The ways in which a deployment can be wrong.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum ConfigErrorKind {
    /// The code made other decisions than those in the history.
    Nondeterminism,
}

/// The ways in which user code can end without a result.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum AppErrorKind {
    /// An activity returned an error.
    ActivityFailed,
    /// An orchestration returned an error.
    OrchestrationFailed,
    /// User code panicked.
    Panicked,
    /// The instance was cancelled.
    Cancelled {
        /// The reason given with the request.
        reason: String,
    },
}

/// The work that a poisoned message asked for.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum PoisonMessageType {
    /// A turn of an orchestration.
    Orchestration {
        /// The instance whose turn failed so often.
        instance: String,
        /// The execution that the turn belonged to.
        execution_id: u64,
    },
    /// An activity.
    Activity {
        /// The instance that asked for the activity.
        instance: String,
        /// The execution that asked for it.
        execution_id: u64,
        /// The registered name of the activity.
        activity_name: String,
        /// The event that asked for it.
        activity_id: u64,
    },
    /// An orchestration whose stored history could not be read.
    FailedDeserialization {
        /// The instance whose history is unreadable.
        instance: String,
        /// The execution of that history.
        execution_id: u64,
        /// What the decoder said.
        error: String,
    },
}

impl ErrorDetails {
    /// Returns the category as it appears in metrics: `infrastructure`, `configuration`, `application` or `poison`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationStatus;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let status = client.wait_for_orchestration("order-7", Duration::from_secs(60)).await?;
    /// if let OrchestrationStatus::Failed { details, .. } = status {
    ///     match details.category() {
    ///         "application" => println!("the order failed: {}", details.display_message()),
    ///         category => println!("call an operator ({category}): {}", details.display_message()),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn category(&self) -> &'static str {
        match self {
            Self::Infrastructure { .. } => "infrastructure",
            Self::Configuration { .. } => "configuration",
            Self::Application { .. } => "application",
            Self::Poison { .. } => "poison",
        }
    }

    /// Tells whether trying again may help. Configuration and poison failures never can.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationStatus;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let status = client.wait_for_orchestration("order-7", Duration::from_secs(60)).await?;
    /// if let OrchestrationStatus::Failed { details, .. } = status && details.is_retryable() {
    ///     client.start_orchestration("order-7-again", "Order", "3 apples").await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Infrastructure { retryable, .. } | Self::Application { retryable, .. } => *retryable,
            Self::Configuration { .. } | Self::Poison { .. } => false,
        }
    }

    /// Returns the text that users and parents see. Of a typed error, these are its words, not its value.
    ///
    /// ```
    /// use duroxide::{AppErrorKind, ErrorDetails};
    ///
    /// let kind = AppErrorKind::Cancelled { reason: "the customer called".to_string() };
    /// let details = ErrorDetails::Application { kind, message: String::new(), retryable: false };
    /// assert_eq!(details.display_message(), "canceled: the customer called");
    /// ```
    pub fn display_message(&self) -> String {
        let text = self.recorded_message();
        match self {
            Self::Application { .. } => error_text::words(&text).to_string(),
            _ => text,
        }
    }

    /// Returns the same text with the value of a typed error.
    pub(crate) fn recorded_message(&self) -> String {
        match self {
            Self::Infrastructure { operation, message, .. } => {
                format!("infrastructure:{operation}: {message}")
            }
            Self::Configuration { kind: ConfigErrorKind::Nondeterminism, resource, message } => match message
            {
                Some(message) => format!("nondeterministic: {message}"),
                None => format!("nondeterministic in {resource}"),
            },
            Self::Application { kind, message, .. } => match kind {
                AppErrorKind::ActivityFailed | AppErrorKind::OrchestrationFailed => message.clone(),
                AppErrorKind::Panicked => format!("orchestration panicked: {message}"),
                AppErrorKind::Cancelled { reason } => format!("canceled: {reason}"),
            },
            Self::Poison { attempt_count, max_attempts, message_type, message } => {
                let text = message_type.display(*attempt_count, *max_attempts);
                match reason_in(message) {
                    Some(reason) => format!("{text}: {reason}"),
                    None => text,
                }
            }
        }
    }
}

/// The words that begin the message of a poison failure if a handler is not registered. The messages follow on the next
/// line.
const NOT_REGISTERED: &str = "not registered: ";

/// Makes the text of a poison failure: the messages that were delivered too often, and why, if the reason is known.
pub(crate) fn poison_message(reason: Option<&str>, messages: &str) -> String {
    let messages = quote(messages, QUOTE_LIMIT);
    match reason {
        Some(reason) => format!("{NOT_REGISTERED}{reason}\n{messages}"),
        None => messages,
    }
}

fn reason_in(message: &str) -> Option<&str> {
    message.strip_prefix(NOT_REGISTERED)?.lines().next()
}

impl PoisonMessageType {
    fn display(&self, attempts: u32, max: u32) -> String {
        match self {
            Self::Orchestration { instance, .. } => {
                format!("poison: orchestration {instance} exceeded {attempts} attempts (max {max})")
            }
            Self::Activity { activity_name, activity_id, .. } => {
                format!(
                    "poison: activity {activity_name}#{activity_id} exceeded {attempts} attempts (max {max})"
                )
            }
            Self::FailedDeserialization { instance, error, .. } => format!(
                "poison: orchestration {instance} history deserialization failed after {attempts} attempts (max {max}): {error}"
            ),
        }
    }
}
