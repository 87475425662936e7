//! The stored types: events, work items, errors, ids and limits; and the types that describe an instance.
//!
//! Everything else in the crate speaks in these types, and this module depends on nothing else in the crate. The
//! JSON of [`Event`] and [`WorkItem`] is the stored format: it only ever grows, and each shape has a golden line in
//! `tests/stored_format.rs`.

mod action;
mod activity_options;
mod activity_record;
mod block_reason;
pub(crate) mod cancellation;
pub(crate) mod clock;
pub(crate) mod codec;
mod completion_token;
mod error_details;
pub(crate) mod error_text;
mod event;
mod event_view;
mod ids;
mod instance_state;
mod kv;
pub mod limits;
pub(crate) mod payload;
mod queued;
mod quote;
pub(crate) mod requests;
mod start_reminder;
mod stats;
mod status;
mod waits;
mod work_item;
mod worker_info;

pub use action::Action;
pub(crate) use activity_options::{ACTIVITY_TIMED_OUT, begun_too_late};
pub use activity_options::{ActivityOptions, StoredRetry};
pub use activity_record::{ActivityProgress, ActivityRecord};
pub(crate) use block_reason::{BlockCause, BlockReason};
pub(crate) use clock::whole_ms;
pub use clock::{Clock, ClockSleep, ManualClock, SystemClock};
pub use completion_token::{CompletionToken, InvalidCompletionToken};
pub(crate) use error_details::poison_message;
pub use error_details::{AppErrorKind, ConfigErrorKind, ErrorDetails, PoisonMessageType};
pub use event::{Event, EventKind};
pub use event_view::{EventView, cut_text};
pub use ids::{
    INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, SUB_ORCH_AUTO_PREFIX, build_child_instance_id,
    is_auto_generated_sub_orch_id,
};
pub use instance_state::{InstanceState, UnknownState};
pub use kv::KvEntry;
pub use queued::{MessageSource, QueuedActivity, QueuedMessage};
pub(crate) use quote::{QUOTE_LIMIT, quote};
pub(crate) use start_reminder::{reminded_activity, start_reminder};
pub use stats::SystemStats;
pub(crate) use status::ExecutionStatus;
pub use status::{OrchestrationDescriptor, OrchestrationStatus};
pub use waits::{
    ActivityStage, ActivityWait, Blocked, BlockedReason, Wait, WaitFor, WaitSources, Waits, waits,
};
pub use work_item::{WorkItem, kind_of};
pub use worker_info::{
    Obstacle, ObstacleKind, RegisteredOrchestration, RunningActivity, ServedTags, WorkerInfo,
};

/// The version of this package; every event that it makes carries it.
pub(crate) const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");
