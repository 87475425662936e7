//! The exchange between the clients and the runtimes of one store handle.
//!
//! A client that starts an instance usually shares a process with a runtime that will take its first turn. Through the
//! exchange the client offers the start to the runtime first. The runtime takes the turn and stores both in one commit;
//! if it cannot, the client enqueues the start.
//!
//! The other way round, a runtime announces how an instance ends if a client waits for that, before it stores the end.
//! When the store wakes the client, the client only has to hear whether the end is stored, and reads nothing.
//!
//! A client that waits for an instance which it has just started that way need not look at the store first, because the
//! instance runs.
//!
//! And a client tells the runtimes to which instances it sends messages, so that they know which are not idle.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::model::{OrchestrationStatus, WorkItem};

/// How long a client waits for an instance that has just begun, before it looks at the store.
pub(crate) const JUST_BEGUN: Duration = Duration::from_millis(20);
/// How many instances that have just begun the exchange remembers.
const MOST_BEGUN: usize = 64;

/// Where the clients and the runtimes of one store handle meet.
///
/// A store makes one and returns it from [`ExtendedProvider::local_exchange`](super::ExtendedProvider::local_exchange);
/// clients and runtimes do the rest.
#[derive(Default)]
pub struct LocalExchange {
    takers: Mutex<Vec<Arc<dyn TakesStarts>>>,
    ends: Mutex<Ends>,
}

/// The instances whose end a client waits for.
#[derive(Default)]
struct Ends {
    awaited: HashMap<String, AwaitedEnd>,
    /// Counts registrations and announcements. A waiter ignores an end that was announced before it registered.
    moment: u64,
    /// Instances that began through the exchange, whose end it has not seen, and for which no client waits yet. The latest is
    /// at the back.
    begun: VecDeque<String>,
}

impl Ends {
    fn note_begun(&mut self, instance: &str) {
        if self.begun.len() == MOST_BEGUN {
            self.begun.pop_front();
        }
        self.begun.push_back(instance.to_string());
    }

    /// Forgets the instance; `false` if it is not known.
    fn forget_begun(&mut self, instance: &str) -> bool {
        let before = self.begun.len();
        self.begun.retain(|begun| begun != instance);
        self.begun.len() < before
    }
}

struct AwaitedEnd {
    waiters: usize,
    /// The last announced end, and when it was announced.
    announced: Option<(u64, watch::Receiver<EndState>)>,
}

#[derive(Clone)]
enum EndState {
    /// The end is on its way to the store.
    Announced,
    Stored(OrchestrationStatus),
}

/// A runtime that may take the first turn of an instance before its start is stored.
#[async_trait]
pub(crate) trait TakesStarts: Send + Sync {
    /// Takes the first turn and stores it together with the start, unless this runtime is busy or does not know the
    /// orchestration, or the id is taken.
    async fn take_start(&self, start: &WorkItem) -> TakenStart;

    /// Hears that a message for an instance is about to be enqueued.
    fn note_message(&self, instance: &str);
}

/// The outcome of offering a start to a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenStart {
    /// The start is stored, and the id was free.
    Stored,
    /// The start is stored nowhere.
    Not,
    /// The store did not say whether it has the start.
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
        let WorkItem::StartOrchestration { instance, .. } = start else { return TakenStart::Not };
        for taker in takers {
            // Before the runtime takes it: the instance may have ended before this call returns.
            self.ends().note_begun(instance);
            let taken = taker.take_start(start).await;
            if taken != TakenStart::Stored {
                self.ends().forget_begun(instance);
            }
            if taken != TakenStart::Not {
                return taken;
            }
        }
        TakenStart::Not
    }

    /// Tells the runtimes that a message for an instance is about to be enqueued.
    pub(crate) fn note_message(&self, instance: &str) {
        for taker in self.lock().iter() {
            taker.note_message(instance);
        }
    }

    /// Notes that a client waits for the end of an instance, until the waiter is dropped.
    pub(crate) fn await_end(self: &Arc<Self>, instance: &str) -> EndWaiter {
        let mut ends = self.ends();
        ends.moment += 1;
        let since = ends.moment;
        let awaited = ends.awaited.entry(instance.to_string());
        awaited.or_insert(AwaitedEnd { waiters: 0, announced: None }).waiters += 1;
        EndWaiter { exchange: self.clone(), instance: instance.to_string(), since }
    }

    /// Announces the end of an instance before the runtime stores it, if a client waits for it.
    pub(crate) fn announce_end(
        &self,
        instance: &str,
        status: impl FnOnce() -> OrchestrationStatus,
    ) -> Option<AnnouncedEnd> {
        let mut ends = self.ends();
        ends.forget_begun(instance);
        let Ends { awaited, moment, .. } = &mut *ends;
        let awaited = awaited.get_mut(instance)?;
        *moment += 1;
        let (sender, receiver) = watch::channel(EndState::Announced);
        awaited.announced = Some((*moment, receiver));
        Some(AnnouncedEnd { sender, status: status() })
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
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

/// An end that is on its way to the store. If this is dropped, the waiters look for themselves.
pub(crate) struct AnnouncedEnd {
    sender: watch::Sender<EndState>,
    status: OrchestrationStatus,
}

impl AnnouncedEnd {
    /// Tells the waiters that the end is stored.
    pub(crate) fn confirm(self) {
        let Self { sender, status } = self;
        sender.send_replace(EndState::Stored(status));
    }
}

/// A client that waits for the end of an instance.
pub(crate) struct EndWaiter {
    exchange: Arc<LocalExchange>,
    instance: String,
    since: u64,
}

impl EndWaiter {
    /// Tells whether the instance has just begun in this process, and this process has not seen its end. Only the first caller
    /// is told so.
    pub(crate) fn take_just_begun(&self) -> bool {
        self.exchange.ends().forget_begun(&self.instance)
    }

    /// Waits for the outcome of an end that is announced; `None` if none is, or if it was not stored.
    pub(crate) async fn outcome(&self) -> Option<OrchestrationStatus> {
        let mut announced = {
            let ends = self.exchange.ends();
            let (moment, announced) = ends.awaited.get(&self.instance)?.announced.as_ref()?;
            (*moment > self.since).then(|| announced.clone())?
        };
        let settled = announced.wait_for(|state| matches!(state, EndState::Stored(_))).await.ok()?;
        match &*settled {
            EndState::Stored(status) => Some(status.clone()),
            EndState::Announced => None,
        }
    }
}

impl Drop for EndWaiter {
    fn drop(&mut self) {
        let mut ends = self.exchange.ends();
        if let Some(awaited) = ends.awaited.get_mut(&self.instance) {
            awaited.waiters -= 1;
            if awaited.waiters == 0 {
                ends.awaited.remove(&self.instance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(output: &str) -> OrchestrationStatus {
        OrchestrationStatus::Completed {
            output: output.into(),
            custom_status: None,
            custom_status_version: 0,
        }
    }

    fn start(instance: &str) -> WorkItem {
        WorkItem::StartOrchestration {
            instance: instance.into(),
            orchestration: "Order".into(),
            input: String::new(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: 1,
        }
    }

    /// Takes the starts of most instances, and ends one at once.
    struct Eager(Arc<LocalExchange>);

    #[async_trait]
    impl TakesStarts for Eager {
        async fn take_start(&self, start: &WorkItem) -> TakenStart {
            let WorkItem::StartOrchestration { instance, .. } = start else { return TakenStart::Not };
            match instance.as_str() {
                "refused" => return TakenStart::Not,
                "ends" => drop(self.0.announce_end(instance, || completed(""))),
                _ => {}
            }
            TakenStart::Stored
        }

        fn note_message(&self, _: &str) {}
    }

    #[tokio::test]
    async fn only_what_began_here_and_has_not_ended_has_just_begun() {
        let exchange = Arc::new(LocalExchange::default());
        let _runtime = exchange.register(Arc::new(Eager(exchange.clone())));
        for instance in ["runs", "ends", "refused"] {
            exchange.take_start(&start(instance)).await;
        }
        let take_just_begun = |instance: &str| exchange.await_end(instance).take_just_begun();
        assert!(take_just_begun("runs"));
        assert!(!take_just_begun("runs"), "one waits");
        assert!(!take_just_begun("ends") && !take_just_begun("refused") && !take_just_begun("unknown"));
        exchange.take_start(&start("runs")).await;
        for number in 0..MOST_BEGUN {
            exchange.take_start(&start(&number.to_string())).await;
        }
        assert!(!take_just_begun("runs"), "only the latest are remembered");
    }

    #[tokio::test]
    async fn whoever_waits_hears_of_an_end_that_is_stored() {
        let exchange = Arc::new(LocalExchange::default());
        let waiter = exchange.await_end("i");
        assert!(waiter.outcome().await.is_none(), "nothing is announced");
        let announced = exchange.announce_end("i", || completed("42")).unwrap();
        let (outcome, ()) = tokio::join!(waiter.outcome(), async { announced.confirm() });
        assert_eq!(outcome, Some(completed("42")));
        let late = exchange.await_end("i");
        assert!(late.outcome().await.is_none(), "who comes later looks for himself");
        drop((waiter, late));
        assert!(exchange.ends().awaited.is_empty());
    }

    #[tokio::test]
    async fn an_end_that_is_not_stored_is_none() {
        let exchange = Arc::new(LocalExchange::default());
        assert!(exchange.announce_end("i", || completed("nobody waits")).is_none());
        let waiter = exchange.await_end("i");
        let announced = exchange.announce_end("i", || completed("42"));
        let (outcome, ()) = tokio::join!(waiter.outcome(), async { drop(announced) });
        assert_eq!(outcome, None);
    }
}
