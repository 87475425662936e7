//! Why a command failed: what happened, what to do about it, and the exit code.

use std::fmt;

use duroxide::ClientError;
use duroxide::client::SendError;
use duroxide::providers::ProviderError;

/// The exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it was asked for.
    Ok = 0,
    /// The command failed.
    Failed = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// The instance or row that the command names does not exist.
    NotFound = 3,
    /// The command waited until its time was up.
    TimedOut = 4,
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What commands return.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Something went wrong.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into(), hint: None }
    }

    /// The arguments make no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into(), hint: None }
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { exit: Exit::NotFound, message: message.into(), hint: None }
    }

    /// There is no such instance.
    pub fn no_instance(id: &str) -> Self {
        Self::not_found(format!("there is no instance '{}'", crate::output::printable(id))).hint(
            "`duroxide list` shows which there are; `duroxide list --contains TEXT` looks for a part of the id",
        )
    }

    /// The instance has ended.
    pub fn has_ended(id: &str) -> Self {
        Self::failed(format!(
            "instance '{}' has ended; nothing was sent, because nobody would receive it",
            crate::output::printable(id)
        ))
    }

    /// The time was up.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self { exit: Exit::TimedOut, message: message.into(), hint: None }
    }

    /// The program that read the output has ended, as `head` does, so no error is shown.
    fn nobody_listens() -> Self {
        Self { exit: Exit::Ok, message: String::new(), hint: None }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what failed.
    #[must_use]
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::nobody_listens(),
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        let failure = Self::failed(format!("{}: {}", error.operation, error.message));
        if error.retryable { failure.hint("this may pass: try again") } else { failure }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Provider(error) => error.into(),
            ClientError::InstanceNotFound { instance_id } => Self::no_instance(&instance_id),
            ClientError::InvalidInput { message } => Self::usage(message),
            ClientError::Timeout => Self::timed_out("it took too long"),
            ClientError::InstanceStillRunning { instance_id } => {
                Self::failed(format!("instance '{instance_id}' is still running"))
                    .hint("cancel it first (`duroxide cancel`), or delete it all the same with --force")
            }
            ClientError::CannotDeleteSubOrchestration { instance_id } => {
                Self::failed(format!("instance '{instance_id}' is a child of another"))
                    .hint("delete its root, which takes its children along; `duroxide show` names the parent")
            }
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotFound { instance } => Self::no_instance(&instance),
            SendError::Ended { instance } => Self::has_ended(&instance),
            SendError::Client(error) => error.into(),
            other => Self::failed(other.to_string()),
        }
    }
}
