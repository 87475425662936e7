//! Wakers that the engine understands.
//!
//! Orchestration code is polled with a waker of ours. It serves two ends: a `join` of thousands of steps polls only the
//! ones that have news, and a waker that somebody else keeps shows that the code waits for something that is not
//! durable. The tree of wakers has one root, the orchestration, and one node for each member of a `join`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

/// The strong references to a node when only its owner knows it: the node itself and the waker made of it.
const REFERENCES_AT_REST: usize = 2;

/// Somebody who can be woken: the orchestration as a whole, or one member of a `join`.
#[derive(Debug)]
pub(crate) struct Node {
    woken: AtomicBool,
    /// Set when a durable future below was polled with a waker that is not this node's: an adaptor with wakers of its
    /// own stands between. Such an adaptor keeps this node's waker for good reason.
    adaptor_below: AtomicBool,
    position: NodePosition,
}

#[derive(Debug)]
enum NodePosition {
    Root,
    Member { of: Arc<Members>, index: usize },
}

/// The members of one `join` that have news, and who polls the `join`.
#[derive(Debug, Default)]
pub(crate) struct Members {
    woken: Mutex<Vec<usize>>,
    above: Mutex<Option<Listener>>,
}

/// Who wants to hear that a step has a result.
#[derive(Debug)]
pub(crate) enum Listener {
    /// One of our nodes. It is not kept alive by those that it listens to, so that its references can be counted.
    Node(Weak<Node>),
    /// The waker of somebody else's adaptor.
    Foreign(Waker),
}

impl Listener {
    pub(crate) fn wake(self) {
        match self {
            Self::Node(node) => {
                if let Some(node) = node.upgrade() {
                    node.notify();
                }
            }
            Self::Foreign(waker) => waker.wake(),
        }
    }
}

impl Members {
    /// Takes the members that were woken since the last call, in ascending order.
    pub(crate) fn take_woken(&self) -> Vec<usize> {
        let mut woken = std::mem::take(&mut *lock(&self.woken));
        woken.sort_unstable();
        woken
    }

    /// Says who polls the `join` now.
    pub(crate) fn set_above(&self, listener: Listener) {
        // Kept until the lock is released: a waker of somebody else may run code when it is dropped.
        let _before = lock(&self.above).replace(listener);
    }
}

impl Node {
    fn notify(&self) {
        let already = self.woken.swap(true, Ordering::AcqRel);
        if let NodePosition::Member { of, index } = &self.position {
            if !already {
                lock(&of.woken).push(*index);
            }
            let above = lock(&of.above).take();
            if let Some(above) = above {
                above.wake();
            }
        }
    }

    pub(crate) fn note_adaptor(&self) {
        self.adaptor_below.store(true, Ordering::Relaxed);
    }
}

impl Wake for Node {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

/// A node together with its waker, as its owner holds it.
#[derive(Debug)]
pub(crate) struct OwnedNode {
    node: Arc<Node>,
    waker: Waker,
}

impl OwnedNode {
    pub(crate) fn root() -> Self {
        Self::new(NodePosition::Root)
    }

    pub(crate) fn member(of: &Arc<Members>, index: usize) -> Self {
        Self::new(NodePosition::Member { of: Arc::clone(of), index })
    }

    fn new(position: NodePosition) -> Self {
        let node =
            Arc::new(Node { woken: AtomicBool::new(false), adaptor_below: AtomicBool::new(false), position });
        let waker = Waker::from(Arc::clone(&node));
        Self { node, waker }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn downgrade(&self) -> Weak<Node> {
        Arc::downgrade(&self.node)
    }

    /// Forgets earlier wake-ups; called right before a poll, which sees everything up to now.
    pub(crate) fn rest(&self) {
        self.node.woken.store(false, Ordering::Release);
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.node.woken.load(Ordering::Acquire)
    }

    /// Tells whether somebody else keeps the waker.
    pub(crate) fn is_kept_by_others(&self) -> bool {
        Arc::strong_count(&self.node) > REFERENCES_AT_REST
    }

    /// Tells whether the waker is kept by something that is not durable, as far as one can see from here.
    pub(crate) fn awaits_foreign(&self) -> bool {
        self.is_kept_by_others() && !self.node.adaptor_below.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded values are whole after every statement, so a panic elsewhere does not spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
