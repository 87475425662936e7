//! The tools of an activity author.

mod context;

pub use context::ActivityContext;
pub(crate) use context::ActivityIdentity;
