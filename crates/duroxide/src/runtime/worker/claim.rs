//! An activity that this runtime has leased.

use std::time::Duration;

use crate::model::{ActivityRecord, WorkItem, kind_of};
use crate::providers::{Registration, ScheduledActivityIdentifier, WorkClaim};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::leases::Lease;

/// The work of an activity, and the step that asked for it.
#[derive(Debug, Clone)]
pub(super) struct ActivityWork {
    pub instance: String,
    pub execution_id: u64,
    pub id: u64,
    pub name: String,
    pub input: String,
    pub session_id: Option<String>,
    pub tag: Option<String>,
}

impl ActivityWork {
    pub fn identifier(&self) -> ScheduledActivityIdentifier {
        ScheduledActivityIdentifier {
            instance: self.instance.clone(),
            execution_id: self.execution_id,
            activity_id: self.id,
        }
    }

    /// Returns the work item that this came from.
    pub fn into_item(self) -> WorkItem {
        let Self { instance, execution_id, id, name, input, session_id, tag } = self;
        WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
    }
}

/// A leased activity. The runtime renews the lease until this is dropped.
pub(super) struct ClaimedActivity {
    pub work: ActivityWork,
    pub token: String,
    pub attempt_count: u32,
    pub record: ActivityRecord,
    pub registration: Registration,
    _lease: Lease,
}

impl ClaimedActivity {
    /// Takes over a claim. Anything but an activity in the worker queue is its sender's mistake: this puts such an item
    /// back with a delay, so that it blocks no other item, and drops it after too many attempts.
    pub async fn take(core: &Core, claim: WorkClaim) -> Option<Self> {
        let WorkClaim { item, lock_token: token, attempt_count, record } = claim;
        let work = match item {
            WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag } => {
                ActivityWork { instance, execution_id, id, name, input, session_id, tag }
            }
            other => {
                refuse(core, &other, &token, attempt_count).await;
                return None;
            }
        };
        let registration = core.running.add(work.identifier());
        let lease = core.leases.keep(core.activity_lease(), &token, registration.cancellation.token.clone());
        Some(Self { work, token, attempt_count, record, registration, _lease: lease })
    }

    /// Gives the activity back unrun; the attempt does not count.
    pub async fn give_back(self, core: &Core, delay: Option<Duration>) {
        if self.registration.cancellation.is_removed() {
            return;
        }
        if let Err(error) = core.store.abandon_work_item(&self.token, delay, true).await {
            tracing::debug!(target: TARGET, instance = %self.work.instance, activity_id = self.work.id, %error,
                "activity not given back; it returns when its lease ends");
        }
    }
}

#[cfg(test)]
impl ClaimedActivity {
    /// A claim that no store knows about.
    pub fn of_nobody(id: u64) -> Self {
        use crate::model::ManualClock;
        use crate::providers::RunningActivities;
        use crate::providers::memory::MemoryProvider;
        use crate::runtime::leases::{LeaseKind, LeaseTerms, Leases};
        use crate::runtime::store::Store;
        use std::sync::Arc;

        let work = ActivityWork {
            instance: "i".into(),
            execution_id: 1,
            id,
            name: "Act".into(),
            input: String::new(),
            session_id: None,
            tag: None,
        };
        let registration = Arc::new(RunningActivities::default()).add(work.identifier());
        let store = Store::extended(Arc::new(MemoryProvider::new()));
        let leases = Arc::new(Leases::new(store, Arc::new(ManualClock::default()), Arc::default()));
        let minute = Duration::from_secs(60);
        let terms = LeaseTerms { kind: LeaseKind::Activity, duration: minute, interval: minute };
        let lease = leases.keep(terms, "token", registration.cancellation.token.clone());
        let record = ActivityRecord::default();
        Self { work, token: "token".into(), attempt_count: 1, record, registration, _lease: lease }
    }
}

async fn refuse(core: &Core, item: &WorkItem, token: &str, attempt_count: u32) {
    let kind = kind_of(item);
    tracing::error!(target: TARGET, kind, attempt_count, "only activities belong into the worker queue");
    let result = if attempt_count > core.options.max_attempts {
        core.store.ack_work_item(token, None).await
    } else {
        let delay = core.options.unregistered_backoff.delay(attempt_count);
        core.store.abandon_work_item(token, Some(delay), false).await
    };
    if let Err(error) = result {
        tracing::warn!(target: TARGET, kind, %error, "stray item not put aside");
    }
}
