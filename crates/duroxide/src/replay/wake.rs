//! Wakers that the engine understands.
//!
//! The engine polls orchestration code with wakers of its own. They serve two ends: a `join` of thousands of steps
//! polls only the ones with news, and a waker that foreign code keeps shows that the orchestration waits for something
//! that is not durable. The tree of wakers has one root, the orchestration, and one node for each member of a `join`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

/// The strong references to a node when only its owner knows it: the node itself and the waker made of it.
const REFERENCES_AT_REST: usize = 2;

/// A target of wake-ups: the orchestration as a whole, or one member of a `join`.
#[derive(Debug)]
pub(crate) struct Node {
    woken: AtomicBool,
    /// Set when a durable future below was polled with a waker that is not this node's: an adaptor with wakers of its
    /// own sits between. Such an adaptor has a good reason to keep this node's waker.
    adaptor_below: AtomicBool,
    position: NodePosition,
}

#[derive(Debug)]
enum NodePosition {
    Root,
    Member { of: Arc<Members>, index: usize },
}

/// The members of one `join` that have news, and the listener that polls the `join`.
#[derive(Debug, Default)]
pub(crate) struct Members {
    woken: Mutex<Vec<usize>>,
    above: Mutex<Option<Listener>>,
}

/// The listener to wake when a step has a result.
#[derive(Debug)]
pub(crate) enum Listener {
    /// One of our nodes. The reference is weak, so that counting a node's strong references shows who else keeps its
    /// waker.
    Node(Weak<Node>),
    /// The waker of a foreign adaptor.
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

    /// Sets the listener that polls the `join` now.
    pub(crate) fn set_above(&self, listener: Listener) {
        // Kept until the lock is released: dropping a foreign waker may run code.
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

    /// Forgets earlier wake-ups; call it right before a poll, which sees everything up to now.
    pub(crate) fn rest(&self) {
        self.node.woken.store(false, Ordering::Release);
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.node.woken.load(Ordering::Acquire)
    }

    /// Tells whether anything but the owner keeps the waker.
    pub(crate) fn is_kept_by_others(&self) -> bool {
        Arc::strong_count(&self.node) > REFERENCES_AT_REST
    }

    /// Tells whether something that is not durable keeps the waker, as far as this node can see.
    pub(crate) fn awaits_foreign(&self) -> bool {
        self.is_kept_by_others() && !self.node.adaptor_below.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded values are whole after every statement, so a panic elsewhere does not spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
