//! The storage contract: what a store must do, what it may do in addition, and the stores that come with the crate.
//!
//! A store keeps histories, two queues and leases, and decides nothing: names, ids and outcomes come from the runtime.
//! [`Provider`] is the contract, [`ProviderAdmin`] serves operators, [`ExtendedProvider`] makes a store fast.
//! [`memory`] is the reference: small enough to be read as a specification. `sqlite` (feature `sqlite`) is the embedded
//! store. The kit in `provider_validations` (feature `provider-test`) proves any store right.
//!
//! # Leases
//!
//! A fetch leases what it returns: an instance with its messages, or an activity. The lease has a token, lasts for a
//! time, and its holder can renew it while it is live. Ack and abandon consume it. Once it has run out, or another
//! caller has taken over, the token is dead: its holder cannot write. A lease is live while `locked_until > now`. A
//! store may let the holder take up an expired lease again if no other caller has taken over
//! ([`recover_lease`](ExtendedProvider::recover_lease)).

mod admin;
mod awaited;
#[cfg(feature = "testing")]
mod commit_gate;
mod delivery;
pub mod error;
mod extended;
mod filters;
mod gathered_looks;
mod hand_over;
pub mod inspect;
pub mod inspection;
pub mod instrumented;
mod items;
mod local_exchange;
pub mod management;
pub mod memory;
mod plain;
mod provider;
mod quarantine;
pub mod refusal;
pub mod rows;
mod running_activities;
mod running_mark;
mod signal;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod step;
mod store_limits;

pub use crate::model::limits::MAX_WORKER_TAGS;
pub use crate::model::{Clock, KvEntry, ManualClock, SystemClock, WorkItem};
pub use crate::observability::StoreMetrics;
pub use admin::ProviderAdmin;
pub use awaited::{AwaitedInstance, AwaitedLook};
#[cfg(feature = "testing")]
pub(crate) use commit_gate::{CommitGate, CommitKind};
pub use delivery::{DeliveryOutcome, DroppedMessage, DroppedMessages, SendOutcome};
pub use error::ProviderError;
pub use extended::{
    AttemptToStore, BlockedInstance, DEFAULT_PARKING_TIME, ExtendedProvider, HistoryPart, InstanceClaim,
    InstanceMetadata, InstanceRequest, LeaseState, ParkedMessage, QuarantinedRow, RunningInstances,
    StartOutcome, UnbegunOutcome, WorkClaim, WorkQueue, WorkRequest,
};
pub use filters::{DispatcherCapabilityFilter, SemverRange, TagFilter, current_build_version};
pub(crate) use gathered_looks::{Cause, GatheredLooks};
pub use hand_over::{Durable, StoredResult, StoredTurn, TurnToStore};
pub use inspection::{
    Count, EventOrder, EventRequest, ExecutionSummary, Inspector, InstanceDetail, InstancePage,
    InstanceQuery, InstanceRow, KvView, ListCursor, ListSort, MinuteRates, QueueState, StateTotals,
    WorkerReport,
};
pub use items::{ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier, SessionFetchConfig};
pub use local_exchange::LocalExchange;
pub(crate) use local_exchange::{AnnouncedEnd, EndWaiter, JUST_BEGUN, StartTaker, TakenStart, TakesStarts};
pub use management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, ManagementProvider,
    PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};
pub(crate) use plain::{PlainStore, Polling};
pub use provider::Provider;
pub use quarantine::{QuarantineEntry, QuarantinePurge, QuarantineRetry, decode_quarantined};
pub(crate) use running_activities::Registration;
pub use running_activities::RunningActivities;
pub use running_mark::RunningMark;
pub(crate) use signal::{Change, Looks};
pub use signal::{InstanceWatch, InstanceWatchers, WorkSignal, WorkSignalSource};
pub use step::{
    FinishedActivity, HeldInstance, LONGEST_OVERTAKING, StepCause, StepOutcome, StepSupport, StepToStore,
    StepTurn, StoredStep,
};
pub use store_limits::StoreLimits;
