//! What an orchestration function is to the library.

use std::future::Future;
use std::panic::Location;

use crate::orchestration::OrchestrationContext;

use super::{ArgList, Payload, StepError};

/// An orchestration: its recorded name and version, its types and its code. `#[orchestration]` implements this for a type
/// of its own.
///
/// A program names this trait only in bounds, for code that takes any orchestration.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an orchestration",
    note = "put `#[orchestration]` above the async function"
)]
pub trait Orchestration: 'static {
    /// The recorded name.
    const NAME: &'static str;
    /// The version of this code.
    const VERSION: &'static str;
    /// Where the code is, for messages about it.
    const PLACE: &'static Location<'static>;
    /// The arguments after the context.
    type Args: ArgList;
    /// The result.
    type Output: Payload;
    /// The error.
    type Error: StepError;

    /// Runs the code.
    fn body(
        ctx: OrchestrationContext,
        args: Self::Args,
    ) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;
}
