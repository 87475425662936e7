//! The slots in which user code runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

/// A fixed number of numbered slots.
#[derive(Clone)]
pub(crate) struct Slots {
    free: Arc<watch::Sender<BTreeSet<usize>>>,
}

impl Slots {
    pub fn new(count: usize) -> Self {
        Self { free: Arc::new(watch::Sender::new((0..count).collect())) }
    }

    /// Takes one slot, unless it is in use.
    pub fn take(&self, index: usize) -> Option<Slot> {
        let taken = self.free.send_if_modified(|free| free.remove(&index));
        taken.then(|| Slot { free: self.free.clone(), index })
    }

    /// Takes the lowest free slot.
    pub fn take_any(&self) -> Option<Slot> {
        let index = self.free.borrow().first().copied()?;
        self.take(index)
    }

    /// Lists the free slots.
    pub fn free(&self) -> BTreeSet<usize> {
        self.free.borrow().clone()
    }

    /// Waits until any slot is free.
    pub async fn any_free(&self) {
        self.until(|free| !free.is_empty()).await;
    }

    /// Waits until a given slot is free.
    pub async fn is_free(&self, index: usize) {
        self.until(|free| free.contains(&index)).await;
    }

    /// Waits until more slots are free than those given.
    pub async fn more_free_than(&self, known: &BTreeSet<usize>) {
        self.until(|free| !free.is_subset(known)).await;
    }

    async fn until(&self, condition: impl Fn(&BTreeSet<usize>) -> bool) {
        let mut free = self.free.subscribe();
        // The sender lives as long as `self`.
        let _ = free.wait_for(|free| condition(free)).await;
    }
}

/// A slot in use; free again when this is dropped.
pub(crate) struct Slot {
    free: Arc<watch::Sender<BTreeSet<usize>>>,
    index: usize,
}

impl Slot {
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.free.send_modify(|free| {
            free.insert(self.index);
        });
    }
}
