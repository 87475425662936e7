//! Leases on their way to a caller that may have gone away.
//!
//! A caller may drop its future at any point, also after the server committed its claims and before the caller saw
//! them. Then the store gives the leases back at once, instead of letting them run out. A claim that finds nothing
//! waits for that, because what the store gives back may be what the claim looks for.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::providers::{WorkQueue, rows};
use tokio::sync::{oneshot, watch};

use crate::encode::{leased_by, leased_work};
use crate::error::StoreError;
use crate::functions::{Function, params};
use crate::renewals::busy;
use crate::shared::{Effects, Shared};
use crate::shared_connection::{SharedConnection, Trials};

static ABANDON_TURN: Function = Function::value("abandon_turn_2");
static ABANDON_WORK: Function = Function::value("abandon_work_2");

/// Counts the give-backs that are under way for callers that have gone away.
#[derive(Clone)]
pub(crate) struct PendingGiveBacks(Arc<watch::Sender<usize>>);

impl Default for PendingGiveBacks {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

/// A give-back under way; dropping it ends it.
struct PendingGiveBack(PendingGiveBacks);

impl Drop for PendingGiveBack {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl PendingGiveBacks {
    fn begin(&self) -> PendingGiveBack {
        self.0.send_modify(|count| *count += 1);
        PendingGiveBack(self.clone())
    }

    /// Waits until no give-back is under way; tells whether one was.
    pub(crate) async fn finish(&self) -> bool {
        let mut count = self.0.subscribe();
        let waited = *count.borrow_and_update() > 0;
        // The sender lives as long as `self`, so this cannot fail.
        let _ = count.wait_for(|count| *count == 0).await;
        waited
    }

    /// Runs a claim to its end, whether or not its caller stays for it.
    pub(crate) async fn see_through<T: Send + 'static>(
        &self,
        claim: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let caller = Caller { give_backs: self.clone(), slot: Arc::default(), stayed: false };
        let slot = caller.slot.clone();
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            // If the caller has gone away, this drops the claims, which gives them back.
            drop(sender.send(claim.await));
            drop(slot);
        });
        let answer = receiver.await.unwrap_or(Err(StoreError::Closed));
        caller.stay();
        answer
    }
}

/// The caller of a claim. If it goes away, the rest of the claim counts as a pending give-back.
struct Caller {
    give_backs: PendingGiveBacks,
    slot: Arc<Mutex<Option<PendingGiveBack>>>,
    stayed: bool,
}

impl Caller {
    fn stay(mut self) {
        self.stayed = true;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.stayed {
            // The give-back ends when the claim's task drops the slot.
            *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.give_backs.begin());
        }
    }
}

/// Gives leases back.
#[derive(Clone)]
pub(crate) struct LeaseReturner {
    pub(crate) connection: Arc<SharedConnection>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) give_backs: PendingGiveBacks,
    /// How long to retry while another transaction holds the row that the call is about.
    pub(crate) patience: Duration,
}

/// The outcome of a give-back, as the functions answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GiveBackOutcome {
    Done,
    /// The token no longer holds the lease.
    NotHeld,
    /// Another transaction holds the lease's row just now.
    Busy,
}

impl GiveBackOutcome {
    fn read(code: i32) -> Self {
        match code {
            1 => Self::Done,
            2 => Self::Busy,
            _ => Self::NotHeld,
        }
    }
}

/// Leases that their caller has not taken over yet.
pub(crate) type UndeliveredLeases = rows::UndeliveredLeases<LeaseReturner>;

impl rows::GiveBack for LeaseReturner {
    fn give_back(&self, queue: WorkQueue, tokens: Vec<String>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (returner, pending) = (self.clone(), self.give_backs.begin());
        runtime.spawn(async move {
            let mut busy = Vec::new();
            for token in &tokens {
                if let Ok(GiveBackOutcome::Busy) = returner.try_to_give_back(queue, token, 0, true).await {
                    busy.push(token);
                }
            }
            // From here on no claim waits: other transactions hold the rows of the remaining leases.
            drop(pending);
            for token in busy {
                // A lease that cannot be given back runs out by itself.
                let _ = returner.give_back_patiently(queue, token, 0, true).await;
            }
        });
    }
}

impl LeaseReturner {
    /// Ends a lease without an ack; `false` if the token no longer holds it.
    pub(crate) async fn give_back_patiently(
        &self,
        queue: WorkQueue,
        token: &str,
        delay_ms: i64,
        ignore_attempt: bool,
    ) -> Result<bool, StoreError> {
        let mut trials = Trials::new(self.patience);
        loop {
            match self.try_to_give_back(queue, token, delay_ms, ignore_attempt).await? {
                GiveBackOutcome::Done => return Ok(true),
                GiveBackOutcome::NotHeld => return Ok(false),
                GiveBackOutcome::Busy if trials.wait().await => {}
                GiveBackOutcome::Busy => return Err(busy().into()),
            }
        }
    }

    async fn try_to_give_back(
        &self,
        queue: WorkQueue,
        token: &str,
        delay_ms: i64,
        ignore_attempt: bool,
    ) -> Result<GiveBackOutcome, StoreError> {
        let now = self.shared.time.given_ms();
        let (instance, id) = (leased_by(token), leased_work(token));
        let mut params = params![
            p_now: now,
            p_token: token,
            p_delay_ms: delay_ms,
            p_ignore_attempt: ignore_attempt,
        ];
        let (sql, values) = match (queue, &instance, &id) {
            (WorkQueue::Orchestrator, Some(instance), _) => {
                params.push(("p_instance", instance));
                ABANDON_TURN.call(params)
            }
            (WorkQueue::Worker, _, Some(id)) => {
                params.push(("p_id", id));
                ABANDON_WORK.call(params)
            }
            _ => return Ok(GiveBackOutcome::NotHeld),
        };
        let rows = self.connection.query(sql, &values).await?;
        let outcome = rows.first().map_or(GiveBackOutcome::NotHeld, |row| GiveBackOutcome::read(row.get(0)));
        if outcome != GiveBackOutcome::Busy {
            self.shared.holder.held.end(token);
        }
        if outcome == GiveBackOutcome::Done {
            self.shared.announce(match queue {
                WorkQueue::Orchestrator => Effects { instances_touched: true, ..Effects::default() },
                WorkQueue::Worker => Effects { work_ready: true, ..Effects::default() },
            });
        }
        Ok(outcome)
    }
}
