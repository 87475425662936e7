//! Who is being polled.

use std::sync::Arc;
use std::task::Waker;

use crate::replay::RacePolicy;
use crate::replay::wake::{Listener, OwnedNode};

use super::Desk;
use super::state::{Current, identity};

/// What combinators need to poll their members one by one.
impl Desk {
    /// Tells whether every member must be polled every time, as legacy executions were recorded.
    pub(crate) fn polls_everything(&self) -> bool {
        self.lock().policy == RacePolicy::Legacy
    }

    /// Returns who is being polled with this waker.
    pub(crate) fn listener_for(&self, waker: &Waker) -> Listener {
        self.lock().listener_for(waker)
    }

    /// Marks a node as the one being polled, until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, node: &OwnedNode) -> Entered {
        let current = Current { waker: identity(node.waker()), node: node.downgrade() };
        let before = self.lock().current.replace(current);
        Entered { desk: Arc::clone(self), before }
    }

    pub(crate) fn note_foreign(&self) {
        self.lock().foreign = true;
    }
}

/// See [`Desk::enter`].
pub(crate) struct Entered {
    desk: Arc<Desk>,
    before: Option<Current>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.desk.lock().current = self.before.take();
    }
}
