//! Wakers that the engine understands.
//!
//! The engine polls orchestration code with wakers of its own. They serve two ends: a `join` of thousands of steps
//! polls only the ones with news, and a waker that foreign code keeps shows that the orchestration waits for something
//! that is not durable. The tree of wakers has one root, the orchestration, and one node for each member of a `join`.
//!
//! Adaptors with wakers of their own (`Shared`, `FuturesUnordered`, a long `join_all`) keep wakers with good reason: for
//! the durable futures inside them, and also when nothing is left inside. So a node knows whether durable futures below
//! it wait with other wakers than its own; and a [`Probe`] shows who keeps the waker of a poll that brought nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Wake, Waker};

/// The strong references to a node or probe when only its owner knows it: the thing itself and the waker made of it.
const REFERENCES_AT_REST: usize = 2;

/// A target of wake-ups: the orchestration as a whole, or one member of a `join`.
#[derive(Debug)]
pub(crate) struct Node {
    woken: AtomicBool,
    /// Made when the first durable future below was polled with a waker that is not this node's: an adaptor with wakers
    /// of its own sits between. Each durable future that waits in this way has a clone.
    adaptors: OnceLock<Arc<()>>,
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
    Foreign(ForeignListener),
}

/// The waker of a foreign adaptor, and marks of the nodes whose wakers that adaptor keeps.
#[derive(Debug)]
pub(crate) struct ForeignListener {
    waker: Waker,
    nodes: Vec<Arc<()>>,
}

impl Listener {
    /// The listener for a future that is polled with a foreign waker, somewhere below `node`.
    pub(crate) fn foreign(waker: &Waker, node: Option<&Node>) -> Self {
        let nodes = node.map(|node| Arc::clone(node.adaptors.get_or_init(Arc::default)));
        Self::Foreign(ForeignListener { waker: waker.clone(), nodes: nodes.into_iter().collect() })
    }

    /// Puts a listener into the place of an earlier one, and returns that. One adaptor may sit below several nodes, as
    /// clones of a `Shared` do: it polls with the same waker below each of them, and keeps the wakers of all.
    pub(crate) fn replace(place: &mut Option<Self>, new: Self) -> Option<Self> {
        match (place, new) {
            (Some(Self::Foreign(old)), Self::Foreign(new)) if old.waker.will_wake(&new.waker) => {
                for node in new.nodes {
                    if !old.nodes.iter().any(|known| Arc::ptr_eq(known, &node)) {
                        old.nodes.push(node);
                    }
                }
                None
            }
            (place, new) => place.replace(new),
        }
    }

    pub(crate) fn wake(self) {
        match self {
            Self::Node(node) => {
                if let Some(node) = node.upgrade() {
                    node.notify();
                }
            }
            Self::Foreign(listener) => listener.waker.wake(),
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
        let _before = Listener::replace(&mut lock(&self.above), listener);
    }

    /// Forgets who polled the `join`, which waits for nothing any more.
    pub(crate) fn clear_above(&self) {
        let _before = lock(&self.above).take();
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
        let node = Arc::new(Node { woken: AtomicBool::new(false), adaptors: OnceLock::new(), position });
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

    /// Tells whether durable futures wait below an adaptor with wakers of its own, which keeps the waker for them.
    pub(crate) fn has_adaptor(&self) -> bool {
        self.node.adaptors.get().is_some_and(|adaptors| Arc::strong_count(adaptors) > 1)
    }

    /// Tells whether there ever was such an adaptor.
    pub(crate) fn has_had_adaptor(&self) -> bool {
        self.node.adaptors.get().is_some()
    }
}

/// Another waker of a node, for one poll: it shows who keeps the waker of that poll, and not of an earlier one.
#[derive(Debug)]
pub(crate) struct Probe {
    target: Arc<ProbeTarget>,
    waker: Waker,
}

#[derive(Debug)]
struct ProbeTarget {
    node: Weak<Node>,
}

impl Probe {
    pub(crate) fn of(node: &OwnedNode) -> Self {
        let target = Arc::new(ProbeTarget { node: node.downgrade() });
        let waker = Waker::from(Arc::clone(&target));
        Self { target, waker }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn is_kept_by_others(&self) -> bool {
        Arc::strong_count(&self.target) > REFERENCES_AT_REST
    }
}

impl Wake for ProbeTarget {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(node) = self.node.upgrade() {
            node.notify();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded values are whole after every statement, so a panic elsewhere does not spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
