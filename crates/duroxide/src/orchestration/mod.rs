//! The tools of an orchestration author: the context, durable futures, ways to combine them, retries, typed values and
//! the key-value store.

mod activities;
mod cancellation;
mod children;
mod combinators;
mod context;
mod continuation;
mod durable_future;
mod either;
mod join;
mod retry;
mod saga;
mod state;
pub(crate) mod system;
mod tracing;
mod typed;
mod waits;

pub use cancellation::{Cancellation, Cancelled};
pub use children::OnCancel;
pub use context::OrchestrationContext;
pub use durable_future::{DurableFuture, ScheduleKind};
pub use either::{Either2, Either3};
pub use retry::{BackoffStrategy, RetryOptions, RetryPolicy};
pub use saga::Saga;
pub(crate) use typed::RecordedOutcome;

/// Levels of log lines. Nothing in the crate takes one; see
/// [`OrchestrationContext::trace_info`] and its siblings.
#[derive(Debug, Clone)]
pub enum LogLevel {
    /// For information.
    Info,
    /// Something may need attention.
    Warn,
    /// Something failed.
    Error,
}
