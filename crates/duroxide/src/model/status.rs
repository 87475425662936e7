//! How clients describe an instance to applications.

use super::{ErrorDetails, Event, EventKind};

/// How an instance stands, as of its last committed turn.
///
/// ```
/// use duroxide::{Client, ClientError, OrchestrationStatus};
///
/// async fn tell(client: Client, order: &str) -> Result<String, ClientError> {
///     Ok(match client.get_orchestration_status(order).await? {
///         OrchestrationStatus::NotFound => "no turn yet".to_string(),
///         OrchestrationStatus::Running { custom_status, .. } => custom_status.unwrap_or_default(),
///         OrchestrationStatus::Completed { output, .. } => output,
///         OrchestrationStatus::Failed { details, .. } => details.display_message(),
///     })
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrchestrationStatus {
    /// No runtime has taken its first turn yet, or the instance does not exist.
    NotFound,
    /// The instance has not ended.
    Running {
        /// What the code last set as its custom status; `None` if it set none, or cleared it.
        custom_status: Option<String>,
        /// How many turns have set or cleared the custom status; it never goes down.
        custom_status_version: u64,
    },
    /// It returned a result.
    Completed {
        /// What it returned, as text: JSON if it is typed.
        output: String,
        /// What the code last set as its custom status; `None` if it set none, or cleared it.
        custom_status: Option<String>,
        /// How many turns have set or cleared the custom status; it never goes down.
        custom_status_version: u64,
    },
    /// It failed or was cancelled.
    Failed {
        /// Why it failed, or that it was cancelled and for what reason.
        details: ErrorDetails,
        /// What the code last set as its custom status; `None` if it set none, or cleared it.
        custom_status: Option<String>,
        /// How many turns have set or cleared the custom status; it never goes down.
        custom_status_version: u64,
    },
}

/// How an execution stands, as stores keep it beside its history.
///
/// Stores keep a text, and callers may give them any text. So the library reads a status with [`parse`](Self::parse); a
/// text that it does not know has no meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutionStatus {
    Running,
    Completed,
    Failed,
    /// Another execution of the instance follows.
    ContinuedAsNew,
}

impl ExecutionStatus {
    const ALL: [Self; 4] = [Self::Running, Self::Completed, Self::Failed, Self::ContinuedAsNew];

    /// Returns the status as it is stored.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::ContinuedAsNew => "ContinuedAsNew",
        }
    }

    /// Reads a stored status; `None` if the text is not a status.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Tells whether the instance has ended, and not only this execution of it.
    pub(crate) fn ends_instance(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// Which orchestration an instance runs, and which parent started it.
///
/// ```
/// # async fn run(runtime: &duroxide::Runtime) {
/// if let Some(found) = runtime.get_orchestration_descriptor("order-7").await {
///     println!("{} {}, a child of {:?}", found.name, found.version, found.parent_instance);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrchestrationDescriptor {
    /// The orchestration's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The parent, if the instance is a child.
    pub parent_instance: Option<String>,
    /// The parent's event that scheduled this instance.
    pub parent_id: Option<u64>,
}

impl OrchestrationDescriptor {
    /// Takes the description from the newest start event.
    pub(crate) fn from_history(history: &[Event]) -> Option<Self> {
        history.iter().rev().find_map(|event| match &event.kind {
            EventKind::OrchestrationStarted { name, version, parent_instance, parent_id, .. } => Some(Self {
                name: name.clone(),
                version: version.clone(),
                parent_instance: parent_instance.clone(),
                parent_id: *parent_id,
            }),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ExecutionStatus;

    #[test]
    fn a_status_is_read_as_it_was_written_and_other_texts_are_none() {
        for status in ExecutionStatus::ALL {
            assert_eq!(ExecutionStatus::parse(status.as_str()), Some(status));
        }
        for other in ["", "running", "Running ", "Pending", "Unknown"] {
            assert_eq!(ExecutionStatus::parse(other), None, "{other}");
        }
    }
}
