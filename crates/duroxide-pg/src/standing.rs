//! Orders that dispatchers leave while they wait, for whoever enqueues messages to have filled.
//!
//! A message leads to a claim, usually in the same process. If its dispatcher waits just then, the commit that enqueues
//! the message leases the instance for it, and the dispatcher begins the turn without asking the database.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::fetch::{Fetched, InstanceOrder};
use crate::line::within;

/// An order that is being filled is waited for so long when there is something else to do. After that, what comes is given
/// back.
const PATIENCE: Duration = Duration::from_millis(50);

/// An order whose caller waits.
pub(crate) struct StandingOrder {
    number: u64,
    pub(crate) order: InstanceOrder,
    /// What nobody takes out of it is given back.
    pub(crate) filled: oneshot::Sender<Fetched>,
}

/// The orders of a store, the oldest first.
#[derive(Default)]
pub(crate) struct StandingOrders(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    left: u64,
    orders: VecDeque<StandingOrder>,
}

impl StandingOrders {
    /// Leaves an order.
    pub(crate) fn leave(&self, order: InstanceOrder) -> LeftOrder<'_> {
        let (sender, filled) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.left += 1;
        let number = waiting.left;
        waiting.orders.push_back(StandingOrder { number, order, filled: sender });
        LeftOrder { number, filled, orders: self }
    }

    /// Takes an order, to have it filled.
    pub(crate) fn take(&self) -> Option<StandingOrder> {
        self.lock().orders.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An order as its caller sees it. It is withdrawn when this is dropped.
pub(crate) struct LeftOrder<'a> {
    number: u64,
    filled: oneshot::Receiver<Fetched>,
    orders: &'a StandingOrders,
}

impl LeftOrder<'_> {
    /// Waits until it is filled; `None` if that failed.
    pub(crate) async fn filled(&mut self) -> Option<Fetched> {
        (&mut self.filled).await.ok()
    }

    /// Withdraws it, unless it is being filled just now: then that is waited for.
    pub(crate) async fn withdraw(mut self) -> Option<Fetched> {
        if self.remove() {
            return None;
        }
        within(PATIENCE, self.filled()).await.flatten()
    }

    fn remove(&self) -> bool {
        let mut waiting = self.orders.lock();
        let before = waiting.orders.len();
        waiting.orders.retain(|order| order.number != self.number);
        waiting.orders.len() < before
    }
}

impl Drop for LeftOrder<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}
