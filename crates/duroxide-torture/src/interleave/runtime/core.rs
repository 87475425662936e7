//! Stands in for what the tasks of a runtime share, with a store of nothing but a queue of activities.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use duroxide::RuntimeOptions;
use duroxide::providers::{Clock, ManualClock, WorkItem};
use tokio_util::sync::CancellationToken;

use super::sessions::Sessions;
use super::worker::slot_queue::SlotQueue;
use crate::interleave::providers::{
    ProviderError, WorkClaim, WorkQueue, WorkRequest, WorkSignal, WorkSignalSource,
};
use crate::interleave::sync::{Arc, Mutex, a_while, watch};

pub const TARGET: &str = "duroxide_torture::interleave";

pub struct Core {
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub options: RuntimeOptions,
    pub stop: CancellationToken,
    pub work: Tasks,
    pub leases: Leases,
    pub sessions: Arc<Sessions>,
    pub slot_queue: Arc<SlotQueue>,
    /// The activities that ran, in this order.
    pub ran: watch::Sender<Vec<u64>>,
}

impl Core {
    pub fn new(slots: usize, clock: Arc<ManualClock>) -> Arc<Self> {
        Arc::new(Self {
            store: Store::new(clock.clone()),
            clock,
            options: RuntimeOptions { worker_concurrency: slots, ..RuntimeOptions::default() },
            stop: CancellationToken::new(),
            work: Tasks,
            leases: Leases,
            sessions: Arc::new(Sessions::new(4)),
            slot_queue: Arc::new(SlotQueue::new(slots)),
            ran: watch::Sender::new(Vec::new()),
        })
    }

    pub fn metrics(&self) -> Metrics {
        Metrics
    }

    pub fn session_owner(&self, slot: usize) -> String {
        format!("slot {slot}")
    }
}

pub struct Metrics;

impl Metrics {
    pub fn record_worker_dispatcher_items_fetched(&self, _: u64) {}
}

pub struct Tasks;

impl Tasks {
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(shuttle::future::spawn(task));
    }
}

pub struct Leases;

impl Leases {
    pub async fn catch_up(&self) {
        a_while().await;
    }
}

/// A queue of activities, which signals as the stores do.
pub struct Store {
    queue: Mutex<VecDeque<WorkItem>>,
    /// Which slot owns a session.
    owners: Mutex<BTreeMap<String, String>>,
    signal: WorkSignalSource,
}

impl Store {
    fn new(clock: Arc<ManualClock>) -> Self {
        Self { queue: Mutex::default(), owners: Mutex::default(), signal: WorkSignalSource::new(clock) }
    }

    pub fn extension(&self) -> &Self {
        self
    }

    pub fn leases_one_at_a_time(&self) -> bool {
        false
    }

    pub fn work_signal(&self, _: WorkQueue) -> WorkSignal {
        self.signal.subscribe()
    }

    pub fn enqueue(&self, item: WorkItem) {
        self.queue.lock().unwrap().push_back(item);
        self.signal.notify();
    }

    /// Claims in order, at most one of a session; those of a session only for the slot that owns it.
    pub async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        a_while().await;
        let claims = self.claim(request);
        a_while().await;
        Ok(claims)
    }

    fn claim(&self, request: &WorkRequest<'_>) -> Vec<WorkClaim> {
        let (mut queue, mut owners) = (self.queue.lock().unwrap(), self.owners.lock().unwrap());
        let mut claims: Vec<WorkClaim> = Vec::new();
        let mut left = VecDeque::new();
        let mut has_session = false;
        for item in queue.drain(..) {
            let WorkItem::ActivityExecute { session_id, .. } = &item else { continue };
            let is_for_it = match (session_id, request.session) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(session), Some(asker)) => {
                    let is_owner = owners.get(session).is_none_or(|owner| *owner == asker.owner_id);
                    !has_session && is_owner
                }
            };
            if claims.len() >= request.max || !is_for_it {
                left.push_back(item);
                continue;
            }
            if let (Some(session), Some(asker)) = (session_id, request.session) {
                owners.insert(session.clone(), asker.owner_id.clone());
                has_session = true;
            }
            let lock_token = String::new();
            claims.push(WorkClaim { item, lock_token, attempt_count: 1, record: Default::default() });
        }
        *queue = left;
        claims
    }
}
