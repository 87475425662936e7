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
        let mut index = None;
        self.free.send_if_modified(|free| {
            index = free.pop_first();
            index.is_some()
        });
        index.map(|index| Slot { free: self.free.clone(), index })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_slot_is_taken_and_comes_back() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take_any().unwrap(), slots.take_any().unwrap());
        assert_eq!((first.index(), second.index()), (0, 1));
        assert!(slots.take_any().is_none() && slots.take(0).is_none());
        drop(first);
        assert_eq!(slots.take_any().map(|slot| slot.index()), Some(0));
    }
}
