//! The replay engine: history and messages in, events and actions out.
//!
//! The engine is pure. It reads no clock (the time of a turn is an argument), does no I/O and knows no runtime.
//! [`Execution`] is the state machine: it takes events in order and holds the suspended code of the orchestration
//! between turns, so that a turn costs only the new events. Replaying a history and taking the next turn are the same
//! steps.

mod carried_messages;
mod completion;
mod dropped_futures;
mod execution;
mod journal;
mod key_values;
mod matching;
mod message_events;
mod outcome;
mod policy;
mod queues;
mod recording;
mod replayer;
mod shared_state;
mod signals;
mod wake;

pub use completion::CompletionResult;
pub use outcome::TurnResult;

pub(crate) use carried_messages::{carry_forward, legacy_unread};
pub(crate) use execution::{Ending, Execution, RequestPlace};
pub(crate) use journal::Journal;
pub(crate) use matching::{at_place, describe_event, loggable, of_code, records_action};
pub(crate) use message_events::admit;
pub(crate) use outcome::{Turn, application};
pub(crate) use policy::{DecodeWords, RacePolicy};
pub(crate) use recording::PENDING_CHILD_PREFIX;
pub(crate) use replayer::Program;
pub(crate) use shared_state::{ForeignWait, Keeper, Request, SharedState};
pub(crate) use wake::{Members, OwnedNode};
#[cfg(feature = "testing")]
pub(crate) use {
    matching::describe_action,
    replayer::{ProgramEnd, Unmatched},
};
