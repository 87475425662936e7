//! The replay engine: history and messages in, events and actions out.
//!
//! It is pure. It reads no clock (the time of a turn is an argument), does no I/O and knows no runtime. [`Execution`] is
//! the state machine: it is fed events in order and holds the suspended code of the orchestration between turns, so
//! that a turn costs what is new. Replaying a history and taking the next turn are the same steps.

mod batch;
mod carry;
mod completion;
mod desk;
mod drops;
mod execution;
mod journal;
mod key_values;
mod matching;
mod outcome;
mod policy;
mod queues;
mod recording;
mod signals;
mod wake;
mod walk;

pub use completion::CompletionResult;
pub use outcome::TurnResult;

pub(crate) use batch::admit;
pub(crate) use carry::{carry_forward, legacy_unread};
pub(crate) use desk::{Desk, Request};
pub(crate) use execution::{Ending, Execution};
pub(crate) use journal::Journal;
pub(crate) use matching::loggable;
pub(crate) use outcome::{Turn, application};
pub(crate) use policy::{DecodeWords, RacePolicy};
pub(crate) use recording::PENDING_CHILD_PREFIX;
pub(crate) use wake::{Members, OwnedNode};
pub(crate) use walk::Program;
