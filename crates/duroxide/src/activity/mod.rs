//! The tools of an activity author.

mod context;
mod state;

pub use context::ActivityContext;
pub(crate) use context::ActivityIdentity;
pub(crate) use state::States;
pub use state::{State, StateKey};
