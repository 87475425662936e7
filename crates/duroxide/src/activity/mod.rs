//! What an activity author holds.

mod context;

pub use context::ActivityContext;
pub(crate) use context::ActivityIdentity;
