//! Typed inputs and outcomes of steps, and the error when one does not decode.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::codec::{self, DecodeError};
use crate::replay::{CompletionResult, DecodeWords};

use super::OrchestrationContext;

/// The outcome of a step as the history has it, for typed calls.
#[derive(Debug)]
pub(crate) struct RecordedOutcome {
    /// The error has the value of a typed error behind its words.
    pub(crate) result: Result<String, String>,
    /// The id of the event that recorded the step, if there is one.
    pub(crate) step: Option<u64>,
}

impl RecordedOutcome {
    pub(super) fn new(outcome: CompletionResult, step: Option<u64>) -> Self {
        Self { result: outcome.into_recorded(), step }
    }
}

/// The text of a typed input.
pub(super) fn encode_input<T: Serialize>(input: &T) -> String {
    match codec::encode(input) {
        Ok(text) => text,
        Err(error) => panic!("encode: the input cannot be serialized: {error}"),
    }
}

impl OrchestrationContext {
    /// Returns the function that decodes the outcome of an activity or a child. `payload` names the outcome in the
    /// error.
    pub(super) fn result_decoder<T: DeserializeOwned>(
        &self,
        payload: String,
    ) -> impl FnOnce(CompletionResult, Option<u64>) -> Result<T, String> + Send + 'static {
        let ctx = self.clone();
        move |outcome, step| ctx.decode_payload(&outcome.into_result()?, &payload, step)
    }

    /// Returns the function that decodes the data of a signal or a message. `payload` names the data in the error.
    pub(super) fn data_decoder<T: DeserializeOwned>(
        &self,
        payload: String,
    ) -> impl FnOnce(CompletionResult, Option<u64>) -> Result<T, String> + Send + 'static {
        let ctx = self.clone();
        move |outcome, step| ctx.decode_payload(&outcome.into_data(), &payload, step)
    }

    /// Decodes a payload. The error names the payload and the step that brought it.
    pub(crate) fn decode_payload<T: DeserializeOwned>(
        &self,
        text: &str,
        payload: &str,
        step: Option<u64>,
    ) -> Result<T, String> {
        codec::decode(text).map_err(|error| {
            let step = step.map(|step| format!("step {step} ")).unwrap_or_default();
            self.word(&error, |error| error.of(&format!("{payload} ({step}of '{}')", self.instance_id())))
        })
    }

    /// Puts a decode error into the words that this execution has always used.
    pub(super) fn word(&self, error: &DecodeError, own: impl FnOnce(&DecodeError) -> String) -> String {
        match self.shared_state().decode_words() {
            DecodeWords::Published => error.published().to_string(),
            DecodeWords::Own => own(error),
        }
    }
}
