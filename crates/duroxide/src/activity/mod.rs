//! The tools of an activity author.

mod attempt;
mod context;
mod state;

pub use attempt::AttemptError;
pub(crate) use attempt::{AttemptFacts, AttemptSigns};
pub use context::ActivityContext;
pub(crate) use context::ActivityIdentity;
pub(crate) use state::States;
pub use state::{State, StateKey};
