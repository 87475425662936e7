//! The outcome of a step, as it reaches the future that waits for it.

use crate::model::error_text;

/// The outcome of a scheduled step.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub enum CompletionResult {
    /// An activity returned a result.
    ActivityOk(String),
    /// An activity failed with this text.
    ActivityErr(String),
    /// A timer came due.
    TimerFired,
    /// A child returned a result.
    SubOrchOk(String),
    /// A child failed with this text.
    SubOrchErr(String),
    /// A signal or a queue message arrived.
    ExternalData(String),
}

impl CompletionResult {
    /// The outcome as an activity or a child reports it. Of a typed error, only the words.
    pub(crate) fn into_result(self) -> Result<String, String> {
        self.into_recorded().map_err(|text| match error_text::words(&text) {
            words if words.len() == text.len() => text,
            words => words.to_string(),
        })
    }

    /// The outcome as the history has it, with the value of a typed error.
    pub(crate) fn into_recorded(self) -> Result<String, String> {
        match self {
            Self::ActivityOk(text) | Self::SubOrchOk(text) | Self::ExternalData(text) => Ok(text),
            Self::ActivityErr(text) | Self::SubOrchErr(text) => Err(text),
            Self::TimerFired => Ok(String::new()),
        }
    }

    /// The outcome as a wait sees it.
    pub(crate) fn into_data(self) -> String {
        match self.into_result() {
            Ok(text) | Err(text) => text,
        }
    }
}
