//! An instance that this runtime has leased for a turn.

use std::collections::HashMap;

use super::residents::Resident;
use crate::model::{Event, ExecutionStatus, INITIAL_EXECUTION_ID, KvEntry, WorkItem};
use crate::providers::{HistoryPart, InstanceClaim, ScheduledActivityIdentifier};

/// A leased instance and the messages for its turn.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub instance: String,
    pub execution_id: u64,
    /// Which creation of the id this is; 0 if unknown.
    pub incarnation: u64,
    /// The newest event of the current execution.
    pub last_event_id: u64,
    /// The orchestration's name as the store knows it.
    pub orchestration_name: String,
    /// The orchestration's version as the store knows it; `unknown` if it does not.
    pub version: String,
    pub status: Option<String>,
    pub messages: Vec<WorkItem>,
    pub token: String,
    pub attempt_count: u32,
}

impl Claim {
    /// Makes the claim of a turn without a lease: of an instance in memory, with messages that are stored nowhere.
    pub fn of_resident(instance: &str, resident: &Resident, messages: Vec<WorkItem>) -> Self {
        Self {
            instance: instance.to_string(),
            execution_id: resident.execution_id,
            incarnation: resident.incarnation,
            last_event_id: resident.execution.last_event_id(),
            orchestration_name: resident.beginning.name.clone(),
            version: resident.beginning.version.clone(),
            status: None,
            messages,
            token: String::new(),
            attempt_count: 1,
        }
    }

    /// Makes the claim of a first turn whose start is stored nowhere.
    pub fn of_new(instance: &str, orchestration: &str, start: WorkItem) -> Self {
        Self {
            instance: instance.to_string(),
            execution_id: INITIAL_EXECUTION_ID,
            incarnation: 0,
            last_event_id: 0,
            orchestration_name: orchestration.to_string(),
            version: "unknown".to_string(),
            status: None,
            messages: vec![start],
            token: String::new(),
            attempt_count: 1,
        }
    }

    /// Tells whether the store holds nothing but messages for the instance: there is no history to load.
    pub fn is_fresh(&self) -> bool {
        self.incarnation == 0 && self.last_event_id == 0 && self.status.is_none()
    }

    /// Tells whether the store knows that the instance has ended, whatever its history says.
    pub fn is_known_to_have_ended(&self) -> bool {
        self.status.as_deref().and_then(ExecutionStatus::parse).is_some_and(ExecutionStatus::ends_instance)
    }
}

impl From<InstanceClaim> for Claim {
    fn from(claim: InstanceClaim) -> Self {
        Self {
            instance: claim.instance,
            execution_id: claim.execution_id,
            incarnation: claim.incarnation,
            last_event_id: claim.last_event_id,
            orchestration_name: claim.orchestration_name,
            version: claim.version,
            status: claim.status,
            messages: claim.messages,
            token: claim.lock_token,
            attempt_count: claim.attempt_count,
        }
    }
}

/// The recorded history of the current execution.
#[derive(Debug, Clone)]
pub(crate) enum StoredHistory {
    Decoded {
        events: Vec<Event>,
        kv: HashMap<String, KvEntry>,
    },
    /// It cannot be decoded.
    Undecodable {
        reason: String,
        /// The activities that the store still has for the instance: no history tells them.
        queued: Vec<ScheduledActivityIdentifier>,
    },
}

impl StoredHistory {
    /// The history of an execution that has not begun.
    pub fn nothing() -> Self {
        Self::Decoded { events: Vec::new(), kv: HashMap::new() }
    }
}

impl From<HistoryPart> for StoredHistory {
    fn from(part: HistoryPart) -> Self {
        match part.history_error {
            Some(reason) => Self::Undecodable { reason, queued: Vec::new() },
            None => Self::Decoded { events: part.events, kv: part.kv_snapshot.unwrap_or_default() },
        }
    }
}
