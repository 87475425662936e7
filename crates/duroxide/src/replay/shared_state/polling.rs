//! Polls the nodes of the waker tree, and finds out what each of them waits for.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::replay::RacePolicy;
use crate::replay::wake::{Listener, OwnedNode, Probe};

use super::SharedState;
use super::state::{Current, State, identity};

/// Who keeps the waker of a node that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// Nobody but durable futures, as far as this node can see.
    Nobody,
    /// An adaptor with wakers of its own, for durable futures inside it.
    Adaptor,
    /// Something that is not durable.
    Foreign,
}

/// The calls that the engine and combinators need to poll code node by node.
impl SharedState {
    /// Tells whether a combinator must poll every member every time, as the recorded turns of legacy executions did.
    pub(crate) fn polls_everything(&self) -> bool {
        self.lock().policy == RacePolicy::Legacy
    }

    /// Returns the listener to wake for a future that is polled with this waker.
    pub(crate) fn listener_for(&self, waker: &Waker) -> Listener {
        self.lock().listener_for(waker)
    }

    /// Polls the code of a node, and tells who keeps its waker afterwards.
    ///
    /// An adaptor that is empty keeps a waker as a sleep does, so a kept waker alone proves nothing. If nobody has a good
    /// reason to keep it, the code is polled a second time. Then only what it still waits for keeps the second waker; and
    /// code that goes on without news was woken, or had itself woken, by something foreign.
    pub(crate) fn poll_node<T>(
        self: &Arc<Self>,
        node: &OwnedNode,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> (Poll<T>, Keeper) {
        node.rest();
        let polled = self.poll_as(node, node.waker(), &mut poll);
        if polled.is_ready() || !node.is_kept_by_others() {
            return (polled, Keeper::Nobody);
        }
        if node.has_adaptor() {
            return (polled, Keeper::Adaptor);
        }
        // Recorded turns of legacy executions polled once; and code that woke itself is polled again anyway.
        if self.polls_everything() || node.is_woken() {
            let keeper = if node.has_had_adaptor() { Keeper::Adaptor } else { Keeper::Foreign };
            return (polled, keeper);
        }
        let before = self.lock().begin_probe();
        let probe = Probe::of(node);
        let polled = self.poll_as(node, probe.waker(), &mut poll);
        let has_moved = self.lock().end_probe(before) || polled.is_ready();
        if has_moved {
            self.lock().moved_unasked = true;
        }
        let keeper = match has_moved || probe.is_kept_by_others() {
            true => Keeper::Foreign,
            false => Keeper::Nobody,
        };
        (polled, keeper)
    }

    /// Polls with this waker, by which durable futures know the node.
    fn poll_as<T>(
        self: &Arc<Self>,
        node: &OwnedNode,
        waker: &Waker,
        poll: &mut impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let current = Current { waker: identity(waker), node: node.downgrade() };
        let before = self.lock().current.replace(current);
        let _entered = Entered { shared_state: Arc::clone(self), before };
        poll(&mut Context::from_waker(waker))
    }
}

/// Puts back, when it is dropped, which node was polled before.
struct Entered {
    shared_state: Arc<SharedState>,
    before: Option<Current>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared_state.lock().current = self.before.take();
    }
}

/// What the code had done before a poll that brings no news.
struct BeforeProbe {
    last_token: u64,
    progressed: bool,
}

impl State {
    fn begin_probe(&mut self) -> BeforeProbe {
        BeforeProbe { last_token: self.last_token, progressed: std::mem::take(&mut self.progressed) }
    }

    /// Tells whether the code has gone on: asked for something, or took an outcome.
    fn end_probe(&mut self, before: BeforeProbe) -> bool {
        let has_moved = self.progressed || self.last_token != before.last_token;
        self.progressed |= before.progressed;
        has_moved
    }
}

/// A member of a join that waits for something that is not durable, until this is dropped.
pub(crate) struct ForeignWait {
    shared_state: Arc<SharedState>,
}

impl ForeignWait {
    pub(crate) fn of(shared_state: &Arc<SharedState>) -> Self {
        shared_state.lock().foreign_waits += 1;
        Self { shared_state: Arc::clone(shared_state) }
    }
}

impl Drop for ForeignWait {
    fn drop(&mut self) {
        self.shared_state.lock().foreign_waits -= 1;
    }
}
