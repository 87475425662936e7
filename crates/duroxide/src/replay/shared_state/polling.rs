//! Which node of the waker tree the engine is polling.

use std::sync::Arc;
use std::task::Waker;

use crate::replay::RacePolicy;
use crate::replay::wake::{Listener, OwnedNode};

use super::SharedState;
use super::state::{Current, identity};

/// The calls that combinators need to poll their members one by one.
impl SharedState {
    /// Tells whether a combinator must poll every member every time, as the recorded turns of legacy executions did.
    pub(crate) fn polls_everything(&self) -> bool {
        self.lock().policy == RacePolicy::Legacy
    }

    /// Returns the listener to wake for a future that is polled with this waker.
    pub(crate) fn listener_for(&self, waker: &Waker) -> Listener {
        self.lock().listener_for(waker)
    }

    /// Marks a node as the one being polled, until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, node: &OwnedNode) -> Entered {
        let current = Current { waker: identity(node.waker()), node: node.downgrade() };
        let before = self.lock().current.replace(current);
        Entered { shared_state: Arc::clone(self), before }
    }

    pub(crate) fn note_foreign(&self) {
        self.lock().foreign = true;
    }
}

/// See [`SharedState::enter`].
pub(crate) struct Entered {
    shared_state: Arc<SharedState>,
    before: Option<Current>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared_state.lock().current = self.before.take();
    }
}
