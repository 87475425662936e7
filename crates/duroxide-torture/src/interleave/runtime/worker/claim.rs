//! Stands in for an activity that the runtime has leased.

use std::time::Duration;

use duroxide::providers::WorkItem;

use crate::interleave::providers::WorkClaim;
use crate::interleave::runtime::core::Core;

pub struct ActivityWork {
    pub id: u64,
    pub session_id: Option<String>,
}

pub struct ClaimedActivity {
    pub work: ActivityWork,
    item: WorkItem,
}

impl ClaimedActivity {
    pub fn of(item: WorkItem) -> Option<Self> {
        let WorkItem::ActivityExecute { id, session_id, .. } = &item else { return None };
        Some(Self { work: ActivityWork { id: *id, session_id: session_id.clone() }, item })
    }

    pub async fn take(_: &Core, claim: WorkClaim) -> Option<Self> {
        Self::of(claim.item)
    }

    pub async fn give_back(self, core: &Core, _: Option<Duration>) {
        core.store.enqueue(self.item);
    }
}
