//! The mark of a lease whose user code is running.

/// Marks the user's code of a lease as running, until this is dropped.
///
/// See [`ExtendedProvider::mark_running`](super::ExtendedProvider::mark_running).
#[must_use = "the mark ends when this is dropped"]
pub struct RunningMark {
    noted: Option<tokio::sync::oneshot::Receiver<()>>,
    erase: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl RunningMark {
    /// Makes a mark for a store that keeps none.
    pub fn none() -> Self {
        Self { noted: None, erase: None }
    }

    /// Makes a mark; `erase` removes it.
    pub fn new(erase: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { noted: None, erase: Some(Box::new(erase)) }
    }

    /// Makes a mark that is on its way: `noted` hears of it, or is dropped, when the code may run. `erase` removes it.
    pub fn when_noted(
        noted: tokio::sync::oneshot::Receiver<()>,
        erase: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        Self { noted: Some(noted), erase: Some(Box::new(erase)) }
    }

    /// Waits until the store has noted the mark, or has given up. Most marks are there at once.
    pub async fn noted(&mut self) {
        if let Some(noted) = self.noted.take() {
            // A store that gives up counts this attempt by other means, or not at all.
            let _ = noted.await;
        }
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
