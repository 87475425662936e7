//! The exchange between the clients and the runtimes of one store handle.
//!
//! A client that starts an instance usually shares a process with a runtime that will take its first turn. Through the
//! exchange the client offers the start to the runtime first. The runtime takes the turn and stores both in one commit;
//! if it cannot, the client enqueues the start as ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::model::WorkItem;

/// Where the clients and the runtimes of one store handle meet.
///
/// A store makes one and returns it from [`ExtendedProvider::local_exchange`](super::ExtendedProvider::local_exchange);
/// clients and runtimes do the rest.
#[derive(Default)]
pub struct LocalExchange {
    takers: Mutex<Vec<Arc<dyn TakesStarts>>>,
}

/// A runtime that may take the first turn of an instance before its start is stored.
#[async_trait]
pub(crate) trait TakesStarts: Send + Sync {
    /// Takes the first turn and stores it together with the start, unless this runtime is busy or does not know the
    /// orchestration, or the id is taken.
    async fn take_start(&self, start: &WorkItem) -> TakenStart;
}

/// What became of a start that was offered to a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenStart {
    /// It is stored, and the id was free.
    Stored,
    /// It is stored nowhere.
    Not,
    /// The store did not say whether it has it.
    Perhaps,
}

impl LocalExchange {
    /// Adds a runtime, until the registration is dropped.
    pub(crate) fn register(self: &Arc<Self>, taker: Arc<dyn TakesStarts>) -> StartTaker {
        self.lock().push(taker.clone());
        StartTaker { exchange: self.clone(), taker }
    }

    /// Offers a start to the runtimes, one after the other.
    pub(crate) async fn take_start(&self, start: &WorkItem) -> TakenStart {
        let takers = self.lock().clone();
        for taker in takers {
            let taken = taker.take_start(start).await;
            if taken != TakenStart::Not {
                return taken;
            }
        }
        TakenStart::Not
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn TakesStarts>>> {
        self.takers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A runtime that is registered with an exchange.
pub(crate) struct StartTaker {
    exchange: Arc<LocalExchange>,
    taker: Arc<dyn TakesStarts>,
}

impl Drop for StartTaker {
    fn drop(&mut self) {
        self.exchange.lock().retain(|other| !Arc::ptr_eq(other, &self.taker));
    }
}
