//! The outcome of a turn.

use crate::model::{Action, ActivityOptions, AppErrorKind, ConfigErrorKind, ErrorDetails, Event};

/// How a turn left its execution.
#[derive(Debug)]
pub enum TurnResult {
    /// The orchestration waits for more.
    Continue,
    /// The orchestration returned this output.
    Completed(String),
    /// The orchestration failed.
    Failed(ErrorDetails),
    /// The execution ends and the next begins.
    ContinueAsNew {
        /// The input of the next execution.
        input: String,
        /// The version that it runs; `None` leaves the choice to the registry.
        version: Option<String>,
        /// Queue messages that the code did not read, with the names of their queues, in the order of arrival. `None`
        /// for executions that were started before 0.1.31.
        unconsumed_queue_arrivals: Option<Vec<(String, String)>>,
    },
    /// The instance was cancelled for this reason.
    Cancelled(String),
}

/// Everything that a turn produced. The runtime commits it in one piece.
#[derive(Debug)]
pub(crate) struct Turn {
    /// How the turn left the execution.
    pub(crate) result: TurnResult,
    /// The new events, in the order in which they are stored: completions, requests, cancellations.
    pub(crate) events: Vec<Event>,
    /// The new requests, with the ids of their events.
    pub(crate) actions: Vec<Action>,
    /// The options of new activities, where the code gave any, by the ids of their schedule events.
    pub(crate) activity_options: Vec<(u64, ActivityOptions)>,
    /// Activities whose futures the code dropped: the ids of their schedule events.
    pub(crate) cancelled_activities: Vec<u64>,
    /// Children whose futures the code dropped: their ids as recorded.
    pub(crate) cancelled_children: Vec<String>,
    /// Whether the code waits for something that is not durable.
    pub(crate) awaits_foreign: bool,
    /// Whether something that is not durable woke the code, so that it went on without a step that brought it anything.
    pub(crate) woken_by_foreign: bool,
}

/// A failure because code and history do not fit.
pub(crate) fn nondeterminism(message: String) -> ErrorDetails {
    ErrorDetails::Configuration {
        kind: ConfigErrorKind::Nondeterminism,
        resource: String::new(),
        message: Some(message),
    }
}

/// A failure of user code.
pub(crate) fn application(kind: AppErrorKind, message: String) -> ErrorDetails {
    ErrorDetails::Application { kind, message, retryable: false }
}
