//! The mark that the user's code of a lease is running.

/// Says that the user's code of a lease is running, until it is dropped.
///
/// See [`ExtendedProvider::mark_running`](super::ExtendedProvider::mark_running).
#[must_use = "the mark ends when this is dropped"]
pub struct RunningMark {
    erase: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl RunningMark {
    /// Makes a mark for a store that does not keep any.
    pub fn none() -> Self {
        Self { erase: None }
    }

    /// Makes a mark; `erase` takes it back.
    pub fn new(erase: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { erase: Some(Box::new(erase)) }
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        if let Some(erase) = self.erase.take() {
            erase();
        }
    }
}

impl std::fmt::Debug for RunningMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningMark").field("kept", &self.erase.is_some()).finish()
    }
}
