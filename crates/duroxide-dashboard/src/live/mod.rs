//! The live stream: one look at the store for all browsers, and what changed, sent to each.

mod changes;
pub(crate) mod hub;
mod ring;
pub(crate) mod stream;
