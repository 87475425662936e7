//! The short path: a turn that is taken before its cause is stored, and stored together with it.
//!
//! This module stands between `worker` and `orchestrator`, and has the whole way: a worker hands a result in ([`offer`]), and
//! gets the activities that follow from it. The turns themselves are those of `orchestrator`.
//!
//! When an activity ends in a process that has its instance in memory, nothing has to pass through a queue. The worker
//! that holds the result takes the turn itself ([`results`]), and one commit removes the activity, appends the history
//! and enters the next activity, already leased for this process. A client's start goes the same way if a runtime on the
//! same store handle has room ([`starts`]).
//!
//! The instance is not leased meanwhile; the store checks in the commit that it has not changed. If it has, nothing of
//! the turn remains, and the cause goes the long way: into the queue. So the short path never decides anything that the
//! long path would not, and a crash at any point leaves what the long path understands: the activity and its lease.
//!
//! A turn may lead to others at once: the next execution of an instance that continues as new, the first turn of a child,
//! the turn of a parent whose child has ended. [`following`] takes them along in the same commit.
//!
//! A timer that is due goes the same way, if its instance is in memory ([`timers`]).
//!
//! [`under_way`] knows the instances with such a turn. Results that come meanwhile wait for it, and take the next turn
//! together.

mod following;
mod results;
mod starts;
mod timers;
mod turns;
mod under_way;

use std::sync::{Arc, Mutex, PoisonError};

use crate::model::WorkItem;
use crate::providers::{ExtendedProvider, LocalExchange, StartTaker, StepSupport};
use crate::runtime::core::Core;
use timers::Timers;
use under_way::UnderWay;

pub(crate) use results::{Offered, OfferedResult, offer};
pub(crate) use timers::{TimersFirst, note as note_timers, until_due as until_timers_are_due};

/// Takes steps from now on, if the store takes any: starts of clients, and timers that are due.
pub(crate) fn start(core: &Arc<Core>) {
    if core.options.orchestration_concurrency == 0 {
        return;
    }
    let shared = core.clone();
    core.work.spawn_supervised("timers", move || timers::run(shared.clone()));
    starts::register(core);
}

/// The steps of a runtime.
pub(crate) struct Steps {
    support: StepSupport,
    under_way: Arc<UnderWay>,
    /// The timers that this runtime has set, if the store takes them as causes of steps.
    timers: Option<Arc<Timers>>,
    exchange: Option<Arc<LocalExchange>>,
    start_taker: Mutex<Option<StartTaker>>,
}

impl Steps {
    pub(crate) fn new(store: &dyn ExtendedProvider) -> Self {
        let support = store.step_support();
        let timers = support.timers.then(|| Arc::new(Timers::new(store.clock(), support.in_order)));
        Self {
            support,
            under_way: Arc::default(),
            timers,
            exchange: store.local_exchange(),
            start_taker: Mutex::default(),
        }
    }

    /// Where this runtime meets the clients of its store handle.
    pub(crate) fn exchange(&self) -> Option<&Arc<LocalExchange>> {
        self.exchange.as_ref()
    }

    /// Notes that messages are on their way into the queues of instances: these are not idle, even if they are in
    /// memory. This is a hint: without it, the runtime would take turns that the store refuses.
    pub(crate) fn note_messages(&self, core: &Core, messages: &[WorkItem]) {
        if self.support == StepSupport::NONE {
            return;
        }
        for message in messages {
            if let WorkItem::SubOrchCompleted { parent_instance: to, .. }
            | WorkItem::SubOrchFailed { parent_instance: to, .. }
            | WorkItem::CancelInstance { instance: to, .. } = message
            {
                self.note_message(core, to);
            }
        }
    }

    fn note_message(&self, core: &Core, instance: &str) {
        self.under_way.note_message(&core.residents, instance);
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

    /// Waits until no turn of an instance is on the short path. The wait is short: the caller has leased the instance,
    /// so the store refuses such a turn.
    pub(crate) async fn until_idle(&self, instance: &str) {
        self.under_way.until_idle(instance).await;
    }
}

/// Tells whether a test holds up the turns of an instance: those go the long way.
#[cfg(feature = "test-hooks")]
fn is_held_for_test(instance: &str) -> bool {
    crate::runtime::test_hooks::get_orch_processing_delay(instance).is_some()
}

#[cfg(not(feature = "test-hooks"))]
fn is_held_for_test(_: &str) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use crate::model::{INITIAL_EXECUTION_ID, WorkItem};

    /// The start of an instance.
    pub(super) fn start(instance: &str) -> WorkItem {
        WorkItem::StartOrchestration {
            instance: instance.into(),
            orchestration: "O".into(),
            input: String::new(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: INITIAL_EXECUTION_ID,
        }
    }
}
