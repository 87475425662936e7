//! What the code that the macros make calls. It changes without notice.

#[cfg(feature = "macros")]
pub use duroxide_macros::select_in;
use serde::Serialize;

use crate::activity::{ActivityContext, State, StateKey};
use crate::model::codec;
use crate::orchestration::OrchestrationContext;

use super::{
    Activity, ActivityCall, Failure, FailureKind, Orchestration, OrchestrationCall, Payload, Retryable,
    StepError,
};

/// What an alias of `Result` stands for.
pub trait ResultType {
    /// The output.
    type Output;
    /// The error.
    type Error;
}

impl<T, E> ResultType for Result<T, E> {
    type Output = T;
    type Error = E;
}

/// Says in our words what is wrong with the types of a function.
pub fn check_types<Output: Payload, Error: StepError>() {}

/// Makes the call of an activity.
#[track_caller]
pub fn activity_call<A: Activity>(
    ctx: &OrchestrationContext,
    input: Result<String, String>,
) -> ActivityCall<A> {
    ActivityCall::new(ctx, input)
}

/// Makes the call of an orchestration.
#[track_caller]
pub fn orchestration_call<O: Orchestration>(
    ctx: &OrchestrationContext,
    input: Result<String, String>,
) -> OrchestrationCall<O> {
    OrchestrationCall::new(ctx, input)
}

/// Writes no arguments.
///
/// # Errors
/// None.
pub fn encode_none() -> Result<String, String> {
    codec::encode(&())
}

/// Writes one argument that is passed by value.
///
/// # Errors
/// The reason why it cannot be serialized.
pub fn encode_one<T: Payload>(argument: &T) -> Result<String, String> {
    codec::encode_exactly::<T, T>(argument)
}

/// Writes one argument that is passed by reference; the worker gets a value of the type `Owned`.
///
/// # Errors
/// The reason why it cannot be serialized.
pub fn encode_borrowed<Owned: Payload, T: Serialize + ?Sized>(argument: &T) -> Result<String, String> {
    codec::encode_exactly::<Owned, T>(argument)
}

/// Writes several arguments.
///
/// # Errors
/// The reason why one cannot be serialized.
pub fn encode_many<T: Serialize>(arguments: &T) -> Result<String, String> {
    codec::encode(arguments)
}

/// Finds a service.
///
/// # Errors
/// A failure that says what is missing.
pub fn state<T: Send + Sync + 'static>(ctx: &ActivityContext) -> Result<State<T>, Failure> {
    ctx.find_state().ok_or_else(|| {
        let message = StateKey::of::<T>().missing_in(ctx.activity_name());
        Failure::new(FailureKind::Other, message)
    })
}

/// Asks an error whether it is retryable, if it can tell.
///
/// Two traits have the method. That of a `Judge` exists only for errors that are [`Retryable`], and is found first; that of
/// a `&Judge` exists for all.
pub struct Judge<'a, E>(
    /// The error.
    pub &'a E,
);

/// For errors that can tell.
pub trait ByTrait {
    /// Tells whether another attempt can help.
    fn is_retryable(&self) -> bool;
}

impl<E: Retryable> ByTrait for Judge<'_, E> {
    fn is_retryable(&self) -> bool {
        self.0.is_retryable()
    }
}

/// For all others.
pub trait ByDefault {
    /// Another attempt may help.
    fn is_retryable(&self) -> bool {
        true
    }
}

impl<E> ByDefault for &Judge<'_, E> {}
