//! What an activity author holds.

/// The handle of a running activity.
#[derive(Clone)]
pub struct ActivityContext {}
