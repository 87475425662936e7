//! Activities and orchestrations as functions: names, types and errors that the compiler checks.
//!
//! `#[activity]` and `#[orchestration]` turn an async function into one that returns a *call*: a future with builder
//! methods. The recorded events are those of the untyped interface: a typed orchestration can call an untyped activity, and
//! the other way round.
//!
//! | file | what it holds |
//! |---|---|
//! | `activity`, `orchestration` | what a function is to the library: [`Activity`], [`Orchestration`] |
//! | `activity_call`, `orchestration_call` | the calls |
//! | `arguments` | several arguments as one payload |
//! | `errors`, `any_error` | what can go wrong, and how errors of the application cross the boundary |
//! | `functions`, `run` | functions as values: to register, to start, to test |
//! | `handlers` | functions as handlers of a registry |
//! | `context` | timers, events, queues, values and status with types |
//! | `starts` | starting and looking with types: [`InstanceHandle`] |
//! | `requests`, `ask` | requests that an orchestration answers: [`Request`], [`ReceivedRequest`], [`Ask`] |
//! | `saga` | calls that undo something |
//! | `select` | races: the macro that names this crate to what expands it |
//! | `either` | the winners of a race of more than three |
//! | `durations` | `secs`, `mins`, `hours`, `days` |

mod activity;
mod activity_call;
mod any_error;
mod arguments;
mod ask;
mod completions;
mod context;
pub(crate) mod durations;
mod either;
mod errors;
mod functions;
mod handlers;
#[doc(hidden)]
pub mod macros;
mod orchestration;
mod orchestration_call;
mod requests;
mod run;
mod saga;
#[cfg(feature = "macros")]
mod select;
mod starts;

pub use activity::Activity;
pub use activity_call::ActivityCall;
pub use any_error::AnyError;
pub use arguments::ArgList;
pub use ask::Ask;
pub use either::{Either4, Either5, Either6, Either7, Either8, Either9, Either10, Either11, Either12};
pub use errors::{Failure, FailureKind, Payload, Retryable, StepError};
pub use functions::{ActivityFn, OrchestrationFn};
pub(crate) use handlers::{ActivityEntry, OrchestrationEntry};
#[cfg(feature = "testing")]
pub(crate) use handlers::{decode_arguments, encode_outcome};
pub use orchestration::Orchestration;
pub use orchestration_call::OrchestrationCall;
pub use requests::{NextRequest, ReceivedRequest, Request};
pub use run::{Run0, Run1, Run2, Run3, Run4, Run5, Run6, Run7, Run8};
pub use starts::{InstanceHandle, RunError};
