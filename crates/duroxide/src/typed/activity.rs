//! What an activity function is to the library.

use std::future::Future;
use std::time::Duration;

use crate::activity::{ActivityContext, StateKey};
use crate::orchestration::RetryPolicy;

use super::{ArgList, Payload, StepError};

/// An activity: its recorded name, its types and its code. `#[activity]` implements this for a type of its own.
///
/// A program names this trait only in bounds, for code that takes any activity.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an activity",
    note = "put `#[activity]` above the async function"
)]
pub trait Activity: 'static {
    /// The recorded name.
    const NAME: &'static str;
    /// The arguments that a caller passes.
    type Args: ArgList;
    /// The result.
    type Output: Payload;
    /// The error.
    type Error: StepError;

    /// Runs the code.
    fn body(
        ctx: ActivityContext,
        args: Self::Args,
    ) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// Returns the services that the code needs.
    fn states() -> Vec<StateKey> {
        Vec::new()
    }

    /// Returns the retry policy of calls that name none.
    fn retry() -> Option<RetryPolicy> {
        None
    }

    /// Returns how long an attempt may take, for calls that do not say.
    fn timeout() -> Option<Duration> {
        None
    }

    /// Tells whether another attempt can help after this error.
    fn is_retryable(_error: &Self::Error) -> bool {
        true
    }
}
