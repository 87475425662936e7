//! Leases on their way from a store to a caller that may have gone away.
//!
//! A caller may drop a future at any point: also after the store committed its claims and before the next poll, or
//! while it loads what goes with them. Then no caller knows of the leases, so the store gives them back at once instead
//! of letting them run out.

use crate::providers::WorkQueue;

/// How a store gives leases back as if they had never been taken.
pub trait GiveBack: Clone {
    /// Begins to give these leases back, and does not wait for the end.
    fn give_back(&self, queue: WorkQueue, tokens: Vec<String>);
}

/// Leases that no caller has taken over yet. Dropping this gives them back.
#[derive(Debug)]
pub struct UndeliveredLeases<G: GiveBack> {
    queue: WorkQueue,
    tokens: Vec<String>,
    store: G,
}

impl<G: GiveBack> UndeliveredLeases<G> {
    /// Holds these leases.
    pub fn new(queue: WorkQueue, tokens: Vec<String>, store: G) -> Self {
        Self { queue, tokens, store }
    }

    /// Holds no lease yet.
    pub fn none(queue: WorkQueue, store: G) -> Self {
        Self::new(queue, Vec::new(), store)
    }

    /// Holds these leases as well.
    pub fn extend(&mut self, tokens: impl IntoIterator<Item = String>) {
        self.tokens.extend(tokens);
    }

    /// Holds the leases of `other` as well.
    pub fn add(&mut self, mut other: Self) {
        self.tokens.append(&mut other.tokens);
    }

    /// Splits the first `count` leases off, for another caller.
    pub fn split(&mut self, count: usize) -> Self {
        let rest = self.tokens.split_off(count.min(self.tokens.len()));
        let tokens = std::mem::replace(&mut self.tokens, rest);
        Self { queue: self.queue, tokens, store: self.store.clone() }
    }

    /// Leaves the leases to the caller, who is responsible for them from now on.
    pub fn hand_over(mut self) {
        self.tokens.clear();
    }
}

impl<G: GiveBack> Drop for UndeliveredLeases<G> {
    fn drop(&mut self) {
        let tokens = std::mem::take(&mut self.tokens);
        if !tokens.is_empty() {
            self.store.give_back(self.queue, tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Given(Rc<RefCell<Vec<String>>>);

    impl GiveBack for Given {
        fn give_back(&self, _: WorkQueue, tokens: Vec<String>) {
            self.0.borrow_mut().extend(tokens);
        }
    }

    #[test]
    fn what_no_caller_takes_over_is_given_back_once() {
        let given = Given::default();
        let tokens = ["a", "b", "c", "d"].map(str::to_string).to_vec();
        let mut leases = UndeliveredLeases::new(WorkQueue::Worker, tokens, given.clone());
        leases.split(1).hand_over();
        let second = leases.split(1);
        leases.add(second);
        leases.extend(["e".to_string()]);
        assert!(given.0.borrow().is_empty());
        drop(leases);
        assert_eq!(*given.0.borrow(), ["c", "d", "b", "e"]);
        drop(UndeliveredLeases::none(WorkQueue::Orchestrator, given.clone()));
        assert_eq!(given.0.borrow().len(), 4);
    }
}
