//! The mark of a lease whose user code is running.

/// Marks the user's code of a lease as running, until this is dropped.
///
/// See [`ExtendedProvider::mark_running`](super::ExtendedProvider::mark_running).
#[must_use = "the mark ends when this is dropped"]
pub struct RunningMark {
    erase: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl RunningMark {
    /// Makes a mark for a store that keeps none.
    pub fn none() -> Self {
        Self { erase: None }
    }

    /// Makes a mark; `erase` removes it.
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
