//! Waiting for many steps at once.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::replay::{ForeignWait, Keeper, Members, OwnedNode, SharedState};

/// Waits for all members and keeps their order.
///
/// Each member has a waker of its own, and the join polls only members with news. So a turn that brings one result of
/// ten thousand costs one poll, not ten thousand.
pub(crate) struct JoinAll<F: Future> {
    shared_state: Arc<SharedState>,
    woken_members: Arc<Members>,
    members: Vec<Member<F>>,
    pending: usize,
    has_started: bool,
    /// Members whose wakers others keep, and whose wake-ups may not reach the join reliably: it polls them every time.
    restless: BTreeSet<usize>,
}

enum Member<F: Future> {
    Running { future: Pin<Box<F>>, node: OwnedNode, foreign_wait: Option<ForeignWait> },
    Done(Option<F::Output>),
}

// The members are boxed, so that the collection itself may move.
impl<F: Future> Unpin for JoinAll<F> {}

impl<F: Future> JoinAll<F> {
    pub(crate) fn new(shared_state: &Arc<SharedState>, futures: Vec<F>) -> Self {
        let woken_members = Arc::new(Members::default());
        let members: Vec<_> = futures
            .into_iter()
            .enumerate()
            .map(|(index, future)| Member::Running {
                future: Box::pin(future),
                node: OwnedNode::member(&woken_members, index),
                foreign_wait: None,
            })
            .collect();
        let pending = members.len();
        Self {
            shared_state: Arc::clone(shared_state),
            woken_members,
            members,
            pending,
            has_started: false,
            restless: BTreeSet::new(),
        }
    }

    fn due(&mut self) -> Vec<usize> {
        let woken = self.woken_members.take_woken();
        if !self.has_started || self.shared_state.polls_everything() {
            self.has_started = true;
            return (0..self.members.len()).collect();
        }
        if self.restless.is_empty() {
            return woken;
        }
        let due: BTreeSet<usize> = woken.into_iter().chain(self.restless.iter().copied()).collect();
        due.into_iter().collect()
    }

    fn poll_member(&mut self, index: usize) {
        let Some(Member::Running { future, node, foreign_wait }) = self.members.get_mut(index) else {
            return;
        };
        let (polled, keeper) = self.shared_state.poll_node(node, |cx| future.as_mut().poll(cx));
        match polled {
            Poll::Ready(output) => {
                self.restless.remove(&index);
                self.members[index] = Member::Done(Some(output));
                self.pending -= 1;
            }
            Poll::Pending => {
                let is_foreign = keeper == Keeper::Foreign;
                *foreign_wait = is_foreign.then(|| ForeignWait::of(&self.shared_state));
                match keeper {
                    Keeper::Nobody => self.restless.remove(&index),
                    Keeper::Adaptor | Keeper::Foreign => self.restless.insert(index),
                };
            }
        }
    }
}

impl<F: Future> Drop for JoinAll<F> {
    fn drop(&mut self) {
        // Whoever keeps the waker of a member keeps this, too.
        self.woken_members.clear_above();
    }
}

impl<F: Future> Future for JoinAll<F> {
    type Output = Vec<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.woken_members.set_above(self.shared_state.listener_for(cx.waker()));
        for index in self.due() {
            self.poll_member(index);
        }
        if self.pending > 0 {
            return Poll::Pending;
        }
        self.woken_members.clear_above();
        let members = std::mem::take(&mut self.members).into_iter();
        Poll::Ready(
            members
                .filter_map(|member| match member {
                    Member::Done(output) => output,
                    Member::Running { .. } => None,
                })
                .collect(),
        )
    }
}
