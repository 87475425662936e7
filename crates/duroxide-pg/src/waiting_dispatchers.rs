//! Dispatchers that wait for an instance, so that the commit of a message can lease one for them.
//!
//! A message leads to a claim, usually in the same process. If a dispatcher of this process waits just then, the commit that
//! enqueues the message also leases the instance for it, and the dispatcher begins the turn without asking the database.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::fetch::{Fetched, InstanceOrder};
use crate::shared_connection::within;

/// How long a dispatcher that has something else to do waits for a commit that is leasing for it. Later leases go back.
const PATIENCE: Duration = Duration::from_millis(50);

/// A dispatcher that waits, as a committer sees it.
pub(crate) struct WaitingDispatcher {
    number: u64,
    /// The order that the dispatcher would place.
    pub(crate) order: InstanceOrder,
    /// Where the leased instances go. The store gives back those that the dispatcher does not take.
    pub(crate) filled: oneshot::Sender<Fetched>,
}

/// The dispatchers of a store that wait, the one that has waited longest first.
#[derive(Default)]
pub(crate) struct WaitingDispatchers(Mutex<WaitList>);

#[derive(Default)]
struct WaitList {
    /// How many dispatchers have ever waited; gives each a number.
    count: u64,
    dispatchers: VecDeque<WaitingDispatcher>,
}

impl WaitingDispatchers {
    /// Lets a dispatcher wait until a commit fills its order.
    pub(crate) fn wait_for(&self, order: InstanceOrder) -> DispatcherWait<'_> {
        let (sender, filled) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.count += 1;
        let number = waiting.count;
        waiting.dispatchers.push_back(WaitingDispatcher { number, order, filled: sender });
        DispatcherWait { number, filled, all: self }
    }

    /// Takes the dispatcher that has waited longest, to lease something for it.
    pub(crate) fn take(&self) -> Option<WaitingDispatcher> {
        self.lock().dispatchers.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, WaitList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wait as the dispatcher sees it. Dropping it ends the wait.
pub(crate) struct DispatcherWait<'a> {
    number: u64,
    filled: oneshot::Receiver<Fetched>,
    all: &'a WaitingDispatchers,
}

impl DispatcherWait<'_> {
    /// Waits until a commit has leased something; `None` if that commit failed.
    pub(crate) async fn filled(&mut self) -> Option<Fetched> {
        (&mut self.filled).await.ok()
    }

    /// Ends the wait. If a commit is leasing for this dispatcher just now, waits for its leases.
    pub(crate) async fn end(mut self) -> Option<Fetched> {
        if self.remove() {
            return None;
        }
        within(PATIENCE, self.filled()).await.flatten()
    }

    fn remove(&self) -> bool {
        let mut waiting = self.all.lock();
        let before = waiting.dispatchers.len();
        waiting.dispatchers.retain(|dispatcher| dispatcher.number != self.number);
        waiting.dispatchers.len() < before
    }
}

impl Drop for DispatcherWait<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}
