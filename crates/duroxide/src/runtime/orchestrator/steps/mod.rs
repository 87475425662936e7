//! The short path: a turn that is taken before its cause is stored, and stored together with it.
//!
//! When an activity ends in a process that has its instance in memory, nothing has to pass through a queue. The worker
//! that holds the result takes the turn itself ([`results`]), and one commit removes the activity, appends the history
//! and enters the next activity, already leased for this process. A client's start goes the same way if a runtime on the
//! same store handle has room ([`starts`]).
//!
//! Nobody leases the instance meanwhile; the store checks in the commit that it has not changed. If it has, nothing of
//! the turn remains, and the cause goes the long way: into the queue. So the short path never decides anything that the
//! long path would not, and a crash at any point leaves what the long path understands: the activity and its lease.
//!
//! [`under_way`] knows the instances with such a turn. Results that come meanwhile wait for it, and take the next turn
//! together.

mod results;
mod starts;
mod turns;
mod under_way;

use std::sync::{Arc, Mutex, PoisonError};

use crate::providers::{Provider, StartTaker, StepSupport};
use under_way::UnderWay;

pub(crate) use results::{Offered, OfferedResult, offer};
pub(crate) use starts::register;

/// The steps of a runtime.
pub(crate) struct Steps {
    support: StepSupport,
    under_way: Arc<UnderWay>,
    start_taker: Mutex<Option<StartTaker>>,
}

impl Steps {
    pub(crate) fn new(store: &dyn Provider) -> Self {
        let support = store.as_extended().map_or(StepSupport::NONE, |store| store.step_support());
        Self { support, under_way: Arc::default(), start_taker: Mutex::default() }
    }

    /// Takes no more starts from clients.
    pub(crate) fn close(&self) {
        self.set_start_taker(None);
    }

    fn set_start_taker(&self, taker: Option<StartTaker>) {
        let mut current = self.start_taker.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, taker);
        drop(current);
        drop(before);
    }

    /// Waits until no turn of an instance is on the short path. Its outcome is known soon: while somebody has leased the
    /// instance, the store takes no such turn.
    pub(super) async fn until_idle(&self, instance: &str) {
        self.under_way.until_idle(instance).await;
    }
}
