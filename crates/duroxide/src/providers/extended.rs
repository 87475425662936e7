//! The abilities of a store beyond the documented contract.
//!
//! [`Provider`](super::Provider) stays as published, so that a store written for it compiles unchanged. All new
//! abilities live in one trait that a store opts into by returning itself from
//! [`Provider::as_extended`](super::Provider::as_extended). A wrapper that does not forward the trait hides it: the
//! runtime then polls and loads whole histories, slower but just as correct.
//!
//! Nothing here weakens the contract: callers ack, renew and abandon a claim from a batch fetch with the same methods
//! and under the same rules as one from a single fetch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    AwaitedInstance, AwaitedLook, DeliveryOutcome, DispatcherCapabilityFilter, DroppedMessages, Inspector,
    InstanceWatch, LocalExchange, ProviderError, QuarantineEntry, QuarantinePurge, QuarantineRetry,
    RunningActivities, RunningMark, ScheduledActivityIdentifier, SendOutcome, SessionFetchConfig,
    StepOutcome, StepSupport, StepToStore, StoredResult, StoredTurn, TagFilter, TurnToStore, WorkSignal,
    refusal,
};
use crate::model::{
    ActivityOptions, ActivityProgress, ActivityRecord, Clock, Event, INITIAL_EXECUTION_ID, KvEntry, WorkItem,
};

/// Signals, batch fetches, partial histories and cheap reads.
#[async_trait]
pub trait ExtendedProvider: Send + Sync {
    /// Returns the clock by which this store decides which work is visible and which leases have expired.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Returns a signal that wakes when a fetch from this queue may find something, or when delayed work is due.
    ///
    /// Every cause counts: an enqueue, an ack with items, an abandon, a released or expired lease, a freed session, a
    /// change by another process on the same store.
    fn work_signal(&self, queue: WorkQueue) -> WorkSignal;

    /// Returns a watch that wakes when the status, custom status or key-value store of an instance may have changed.
    fn watch_instance(&self, instance: &str) -> InstanceWatch;

    /// Claims up to `max` instances in one step, oldest message first.
    ///
    /// As [`fetch_orchestration_item`](super::Provider::fetch_orchestration_item), without the history: each claim has
    /// its own token, lease and attempt count. Fewer than `max` means that nothing else is eligible; what becomes so
    /// later shows in the [signal](Self::work_signal), and so does what was left because there was
    /// [enough for one answer](super::StoreLimits::max_turn_bytes).
    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError>;

    /// Waits until [`claim_instances`](Self::claim_instances) may find something, by the signal of its queue.
    ///
    /// For a dispatcher that has just found less than it wanted. A store may do better than wake it: a call that
    /// enqueues a message through this handle may claim instances for the waiting dispatcher in the same step, which
    /// spares the next claim. This returns those claims, as `claim_instances` does; if there are none, the caller has
    /// to ask. If the caller drops the future, nothing stays claimed.
    async fn wait_for_instances(
        &self,
        request: &InstanceRequest<'_>,
        signal: &mut WorkSignal,
    ) -> Vec<InstanceClaim> {
        let _ = request;
        signal.wait().await;
        Vec::new()
    }

    /// Loads the history of a claimed instance after the event that the caller already holds; 0 loads all of it.
    ///
    /// With 0 the key-value snapshot comes too. Fails like an ack if the token is not live.
    async fn load_history(&self, lock_token: &str, after_event_id: u64)
    -> Result<HistoryPart, ProviderError>;

    /// Claims up to `max` activities in one step, first in, first out.
    ///
    /// As [`fetch_work_item`](super::Provider::fetch_work_item), each with its own token, lease and attempt count. At
    /// most one of them is bound to a session, for a session's items must not wait behind each other in one claimant.
    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError>;

    /// Stores a turn as [`ack_orchestration_item`](super::Provider::ack_orchestration_item) does, and claims activities
    /// in the same step as [`claim_work`](Self::claim_work) does: afterwards, so that new ones count.
    ///
    /// The answer comes when both are durable. If the store refuses the turn, it claims nothing.
    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError>;

    /// Stores the result of an activity as [`ack_work_item`](super::Provider::ack_work_item) does, and claims instances
    /// in the same step as [`claim_instances`](Self::claim_instances) does: afterwards, so that the result counts.
    ///
    /// The answer comes when both are committed, which may be before they are durable: see [`Durable`](super::Durable).
    /// If the store refuses the result, it claims nothing.
    async fn store_result(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError>;

    /// Tells which steps [`store_step`](Self::store_step) takes. The default takes none.
    ///
    /// A wrapper that forwards claims has to forward this and `store_step` together.
    fn step_support(&self) -> StepSupport {
        StepSupport::NONE
    }

    /// Stores a step: the turns together with the cause of the first, wholly or not at all, and claims activities in the
    /// same commit. The answer comes when everything is durable.
    ///
    /// The store takes the turns in their order, and checks the conditions of each against what the ones before it have
    /// left. If any condition does not hold, it writes nothing and answers [`Conflict`](StepOutcome::Conflict). The
    /// caller then drops what it holds in memory, and the cause goes the long way.
    ///
    /// **The cause.**
    /// - *Lease:* as for [`store_turn`](Self::store_turn). The first turn has no other condition; if the lease is not
    ///   live, the call fails as `store_turn` does. The messages of the lease are deleted, and the lease ends.
    /// - *Results:* each lease must be live, as for [`store_result`](Self::store_result): by the time at which the call
    ///   arrived, with the token still in place. The activities are deleted, and their completions enter no queue. An
    ///   activity of a session counts as a use of the session, as with `store_result`.
    /// - *Start:* no further condition. The start enters no queue.
    /// - *Timer:* the instance has exactly one visible message, and its stored text is that of this item. That message is
    ///   deleted.
    ///
    /// **The instance of a turn**, except of the first one of a lease:
    /// 1. it is not leased: there is no lease on it, neither a live one nor an expired one that no caller has taken over,
    /// 2. it is not [blocked](Self::block_instance),
    /// 3. no message for it is visible (except the timer that is the cause), and none is parked. Messages that become
    ///    visible later do not matter,
    /// 4. with an incarnation: its row has this incarnation and this current execution, and the highest event id in the
    ///    history of that execution is `last_event_id`,
    /// 5. without (0): the id is free in the sense of [`enqueue_start_if_absent`](Self::enqueue_start_if_absent): no row,
    ///    no history, no execution, no queued start, visible or not. `last_event_id` is 0.
    ///
    /// **The turn** is stored as `store_turn` stores it: history, status, values, activities, cancellations, messages, and
    /// what ends with an instance. No lease is taken for it and none is left behind. Every event id must be higher than
    /// `last_event_id` if the turn belongs to that execution.
    ///
    /// **The claim.** `claim` asks for up to `max` activities, as for [`claim_work`](Self::claim_work), and never for those
    /// of sessions. If the oldest ready activity that matches it has been in its queue for less than
    /// [`LONGEST_OVERTAKING`](super::LONGEST_OVERTAKING), or there is none, the new activities of these turns come first,
    /// in their order: they are entered as leased, with an attempt counted, and are never ready. What is left of `max`
    /// goes to the oldest ready ones, as in `store_turn`; so does all of it if an older activity has waited for longer.
    ///
    /// # Errors
    /// Bad input and what the store refuses for good (a text that is too long, an event id that is taken) is an error, as
    /// for `store_turn`, and nothing is written. An error that may pass says nothing about whether the step is stored,
    /// as for every call.
    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        let _ = (step, claim);
        Err(refusal::not_supported("store_step"))
    }

    /// Returns the exchange through which clients and runtimes on this handle reach each other without the store.
    ///
    /// A store makes one for each handle. Without one, a client enqueues every start, and reads every result. A wrapper
    /// that forwards `store_step` has to forward this too.
    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        None
    }

    /// Takes up a lease again and extends it, as a renewal does, but also if the lease has run out. It fails only if
    /// another caller has taken over, or if the leased work is gone.
    ///
    /// For a holder whose renewal or ack the store refused, or got late. A lease that is taken up again is live.
    ///
    /// The default answers that it cannot tell. The holder then has only the refused renewal to go by.
    async fn recover_lease(
        &self,
        queue: WorkQueue,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        let _ = (queue, lock_token, extend_for);
        Ok(LeaseState::Unknown)
    }

    /// Describes an instance without reading its history; `None` if the store knows nothing of it but a history.
    ///
    /// Also describes an instance whose start is queued and that has taken no turn yet, with the status
    /// [`PENDING`](InstanceMetadata::PENDING).
    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError>;

    /// Looks at many instances on behalf of those who wait for them, in one step; answers in the same order.
    ///
    /// The default reads one after the other.
    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        let mut looks = Vec::with_capacity(awaited.len());
        for one in awaited {
            let metadata = self.read_metadata(one.instance).await?;
            looks.push(metadata.map_or(AwaitedLook::Unclear, |metadata| one.judge(metadata)));
        }
        Ok(looks)
    }

    /// Reads the newest `limit` events of the latest execution, in ascending order.
    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError>;

    /// Enqueues a start unless the id is taken: by a row, by history, or by a start that is already queued.
    ///
    /// Check and enqueue are one step. The store refuses anything but `StartOrchestration`.
    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError>;

    /// Enqueues a signal or a queue message that can wait for its instance. If there is none, the store does not drop
    /// the message: it parks it like a signal, until a start arrives or the parking time is over.
    ///
    /// The store refuses any other message. A store without this ability refuses every message
    /// ([`refusal::not_supported`]).
    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        let _ = message;
        Err(refusal::not_supported("enqueue_or_park"))
    }

    /// Sends a queue message to an instance, and starts the instance if its id is free, in the sense of
    /// [`enqueue_start_if_absent`](Self::enqueue_start_if_absent).
    ///
    /// Check, start and message are one step: the store enqueues both or neither, and of several callers at once one
    /// starts the instance and all deliver. The store refuses anything but a `StartOrchestration` and a `QueueMessage`
    /// for the same instance. A store without this ability refuses every call ([`refusal::not_supported`]).
    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        let _ = (start, message);
        Err(refusal::not_supported("enqueue_start_with_message"))
    }

    /// Enqueues a signal or a queue message if its instance exists and has not ended. An id that is taken in the sense of
    /// [`enqueue_start_if_absent`](Self::enqueue_start_if_absent) is an instance.
    ///
    /// Check and enqueue are one step: if the instance ends at the same time, the message comes before its end, and goes with
    /// it, or is not sent. The store refuses any other message. A store without this ability refuses every message
    /// ([`refusal::not_supported`]).
    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        let _ = message;
        Err(refusal::not_supported("enqueue_if_alive"))
    }

    /// Tells whether the store keeps the options of activities ([`TurnToStore::activity_options`]), and what their
    /// attempts leave behind: whether it has [`store_progress`](Self::store_progress) and
    /// [`complete_activity`](Self::complete_activity), and tells the [entry](ActivityRecord::entry) of each activity.
    ///
    /// The options of an activity come with every claim of it ([`WorkClaim::record`]). The plain
    /// [`fetch_work_item`](super::Provider::fetch_work_item) does not return them.
    fn keeps_attempts(&self) -> bool {
        false
    }

    /// Keeps what an attempt leaves behind. With a delay, gives the activity back as well: the attempt does not count, and
    /// callers can claim the activity again when the delay is over.
    ///
    /// All of it is one step, and durable. As with [`abandon_work_item`](super::Provider::abandon_work_item), the lease may
    /// have run out as long as no other caller has taken over; otherwise the store refuses
    /// ([`refusal::unknown_work_token`]) and changes nothing.
    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let _ = (activity, give_back_after);
        Err(refusal::not_supported("store_progress"))
    }

    /// Ends an activity from elsewhere: removes it, whether or not a worker runs it, and enqueues its completion.
    ///
    /// Both are one step, and durable. Returns `false` and does nothing if there is no such activity, or if it is another
    /// [entry](ActivityRecord::entry): it has ended, was cancelled, or its instance is gone. So of several callers one
    /// ends it. The store refuses anything but the completion or failure of this activity.
    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        let _ = (entry, completion);
        Err(refusal::not_supported("complete_activity"))
    }

    /// Fails an activity that no worker has begun in time: removes it and enqueues its failure
    /// ([`inspect::failure_of_unbegun`](super::inspect::failure_of_unbegun)).
    ///
    /// Check, removal and failure are one step, and durable. An activity has been begun if a caller has claimed it, unless the
    /// claim was given back and does not count, or if an attempt has left something behind.
    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        let _ = activity;
        Err(refusal::not_supported("fail_unbegun"))
    }

    /// Lists messages that the store dropped because their instance did not exist, up to `limit`, and counts them.
    ///
    /// These are messages from senders: queue messages, and messages parked for too long; stale completions are not
    /// among them. A store keeps the newest [`KEPT`](super::DroppedMessage::KEPT) for
    /// [`KEPT_FOR`](super::DroppedMessage::KEPT_FOR). A store that keeps no record lists none.
    async fn list_dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        let _ = limit;
        Ok(DroppedMessages::default())
    }

    /// Lists rows that do not decode and that the store has set aside, oldest first.
    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError>;

    /// Lists rows that were set aside with their ids, oldest first: up to `limit` of those with an id above `after_id`.
    ///
    /// Refused by a store that cannot retry or purge them ([`refusal::not_supported`]).
    async fn list_quarantine(
        &self,
        after_id: u64,
        limit: usize,
    ) -> Result<Vec<QuarantineEntry>, ProviderError> {
        let _ = (after_id, limit);
        Err(refusal::not_supported("list_quarantine"))
    }

    /// Puts rows that were set aside back into their queues, in the order of `ids`; answers in the same order.
    ///
    /// Each goes to the end of its queue with its text as it was, as if it had never been delivered. A message for an
    /// instance that does not exist is parked, and not dropped. A row that still does not decode stays where it is. All of
    /// it is one step, and a row is put back once, however many retry it.
    async fn retry_quarantined(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ProviderError> {
        let _ = ids;
        Err(refusal::not_supported("retry_quarantined"))
    }

    /// Removes rows that were set aside, for good. Returns how many.
    async fn purge_quarantined(&self, purge: QuarantinePurge<'_>) -> Result<u64, ProviderError> {
        let _ = purge;
        Err(refusal::not_supported("purge_quarantined"))
    }

    /// Lists messages that wait for an instance that does not exist, oldest first.
    ///
    /// The store delivers them when the instance is started. After a day it drops them and lists them among the
    /// [dropped](Self::list_dropped).
    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError>;

    /// Blocks a leased instance because the store can take neither its turn nor its failure.
    ///
    /// Ends the lease. History, status and messages stay as they are, new messages queue up, and no caller can claim
    /// the instance until an operator [unblocks](Self::unblock_instance) or deletes it. The store keeps reason and time
    /// for [`list_blocked`](Self::list_blocked). Fails like an ack if the lease is not live.
    async fn block_instance(&self, lock_token: &str, reason: &str) -> Result<(), ProviderError> {
        let _ = (lock_token, reason);
        Err(ProviderError::permanent("block_instance", "the store has no such ability"))
    }

    /// Makes a blocked instance claimable again; its messages count as never delivered. Returns whether it was blocked.
    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        let _ = instance;
        Ok(false)
    }

    /// Lists blocked instances, the one blocked longest first.
    async fn list_blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        let _ = limit;
        Ok(Vec::new())
    }

    /// Counts running instances by orchestration and version, those of each up to `up_to`, ordered by name and version.
    ///
    /// What it costs must depend on these numbers, and not on how many other instances there are. `None` if the store
    /// has no index for that.
    async fn count_running(&self, up_to: usize) -> Result<Option<Vec<RunningInstances>>, ProviderError> {
        let _ = up_to;
        Ok(None)
    }

    /// Notes that the user's code of a lease is about to run, until the caller drops the returned mark.
    ///
    /// A store that notices the death of a process can then tell the work that was running, and may have been the
    /// cause, from work that was only leased: only running work has its attempt counted. The runtime calls this before
    /// each run, so it must cost little and must not wait. A wrapper that forwards claims has to forward this too.
    fn mark_running(&self, lock_token: &str) -> RunningMark {
        let _ = lock_token;
        RunningMark::none()
    }

    /// Returns the list through which runtimes on this handle tell each other's activities that they are cancelled.
    ///
    /// A store makes one for each handle. On a store without one, such an activity learns it at the next renewal of its
    /// lease. A wrapper that forwards claims has to forward this too.
    fn running_activities(&self) -> Option<Arc<RunningActivities>> {
        None
    }

    /// Returns the store as operators look into it; `None` if it cannot be looked into. A wrapper has to forward this.
    fn as_inspector(&self) -> Option<&dyn Inspector> {
        None
    }
}

/// How long a store keeps signals and cancellations for an instance that does not exist, unless configured otherwise.
pub const DEFAULT_PARKING_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The queue that a signal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkQueue {
    /// Messages for instances.
    Orchestrator,
    /// Activities.
    Worker,
}

/// Asks for instances to take a turn with.
#[derive(Debug, Clone)]
pub struct InstanceRequest<'a> {
    /// How many instances to lease at most.
    pub max: usize,
    /// How long each lease lasts.
    pub lock_timeout: Duration,
    /// Which executions the caller can replay; `None` for any.
    pub filter: Option<&'a DispatcherCapabilityFilter>,
}

/// An instance with messages, leased to the caller.
#[derive(Debug, Clone)]
pub struct InstanceClaim {
    /// The instance.
    pub instance: String,
    /// The orchestration that it runs.
    pub orchestration_name: String,
    /// The version of the orchestration; `unknown` when it is not known yet.
    pub version: String,
    /// Its current execution.
    pub execution_id: u64,
    /// Which creation of this id it is; differs after delete and re-create. 0 if the instance has no row: then a caller
    /// must not trust what it holds in memory, and must load the whole history.
    pub incarnation: u64,
    /// The highest event id in the history of the current execution; 0 if there is none.
    pub last_event_id: u64,
    /// The status of the current execution; `None` if there is no record of it.
    pub status: Option<String>,
    /// The messages, in the order in which they were enqueued.
    pub messages: Vec<WorkItem>,
    /// The lease.
    pub lock_token: String,
    /// The highest attempt count among the messages, this claim included.
    pub attempt_count: u32,
}

impl InstanceClaim {
    /// Tells whether the store holds nothing but messages for the instance: there is no history to load.
    pub fn is_fresh(&self) -> bool {
        self.incarnation == 0 && self.last_event_id == 0 && self.status.is_none()
    }
}

/// The requested part of a history.
#[derive(Debug, Clone, Default)]
pub struct HistoryPart {
    /// The events, ascending; empty if `history_error` is set.
    pub events: Vec<Event>,
    /// Set when a stored event cannot be decoded.
    pub history_error: Option<String>,
    /// The key-value store as it was when the execution began; only with a full load.
    pub kv_snapshot: Option<HashMap<String, KvEntry>>,
}

/// Asks for activities to run.
#[derive(Debug, Clone)]
pub struct WorkRequest<'a> {
    /// How many activities to lease at most.
    pub max: usize,
    /// How long each lease lasts.
    pub lock_timeout: Duration,
    /// The claimant's session owner, if it takes activities of sessions.
    pub session: Option<&'a SessionFetchConfig>,
    /// Which tags the caller serves.
    pub tag_filter: &'a TagFilter,
}

/// An activity, leased to the caller.
#[derive(Debug, Clone)]
pub struct WorkClaim {
    /// The activity.
    pub item: WorkItem,
    /// The lease.
    pub lock_token: String,
    /// How often callers have claimed the activity, this claim included. Attempts that
    /// [reported their failure](ExtendedProvider::store_progress) do not count.
    pub attempt_count: u32,
    /// What the store keeps beside the activity.
    pub record: ActivityRecord,
}

/// What an attempt leaves behind for the next one.
#[derive(Debug, Clone, Copy)]
pub struct AttemptToStore<'a> {
    /// The lease on the activity.
    pub lock_token: &'a str,
    /// The activity, as it was claimed.
    pub item: &'a WorkItem,
    /// Its options, as the claim told them.
    pub options: Option<&'a ActivityOptions>,
    /// What its attempts leave behind.
    pub progress: &'a ActivityProgress,
}

/// The fate of an activity that a worker had to begin by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnbegunOutcome {
    /// No worker had begun it. It is gone, and its failure is enqueued.
    Failed,
    /// A caller holds its first lease. Nothing has changed; if the lease is given back unused, the activity has not begun.
    Held {
        /// When the activity was put into the queue, in milliseconds since the epoch.
        entered_at_ms: u64,
    },
    /// A worker has begun it in time, it has ended, or it has no such deadline. Nothing has changed.
    Settled,
}

/// The state of a lease, as the store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The caller holds it, and it is live.
    Held,
    /// The token is of no use any more: its work was acked, given back or removed, or another caller took over.
    Lost,
    /// The store cannot tell.
    Unknown,
}

/// An instance as its row and its current execution describe it; or, before its first turn, its queued start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// The instance.
    pub instance_id: String,
    /// The orchestration that it runs.
    pub orchestration_name: String,
    /// The version of that orchestration.
    pub orchestration_version: String,
    /// The instance that started it as a child.
    pub parent_instance_id: Option<String>,
    /// Its current execution.
    pub current_execution_id: u64,
    /// Which creation of this id it is; 0 before its first turn.
    pub incarnation: u64,
    /// The status of the current execution; `Unknown` if there is no record of it, `Pending` before its first turn.
    pub status: String,
    /// Its result or the error's text, once it has one.
    pub output: Option<String>,
    /// The custom status.
    pub custom_status: Option<String>,
    /// How often the custom status has changed.
    pub custom_status_version: u64,
    /// When the instance was created, in milliseconds since the epoch; before its first turn, when it was started.
    pub created_at: u64,
    /// When it last took a turn, in milliseconds since the epoch; before its first turn, when it was started.
    pub updated_at: u64,
}

impl InstanceMetadata {
    /// The status of an instance whose start is queued and that has taken no turn yet.
    pub const PENDING: &'static str = "Pending";

    /// Describes an instance by its queued start; `None` if that is no start.
    pub fn pending(start: &WorkItem, started_at: u64) -> Option<Self> {
        let (instance, parent) = match start {
            WorkItem::StartOrchestration { instance, parent_instance, .. }
            | WorkItem::ContinueAsNew { instance, parent_instance, .. } => (instance, parent_instance),
            _ => return None,
        };
        let origin = super::inspect::origin_in_messages([start])?;
        Some(Self {
            instance_id: instance.clone(),
            orchestration_name: origin.name,
            orchestration_version: origin.version.unwrap_or_else(|| "unknown".to_string()),
            parent_instance_id: parent.clone(),
            current_execution_id: INITIAL_EXECUTION_ID,
            incarnation: 0,
            status: Self::PENDING.to_string(),
            output: None,
            custom_status: None,
            custom_status_version: 0,
            created_at: started_at,
            updated_at: started_at,
        })
    }
}

/// The fate of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartOutcome {
    /// The id was free; the store enqueued the start.
    New,
    /// The id is taken; the store enqueued nothing.
    Existing,
    /// The store enqueued the start, but cannot tell whether the id was free.
    Unknown,
}

/// A row that does not decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedRow {
    /// The queue that it was in.
    pub queue: WorkQueue,
    /// The instance that it was for, if known.
    pub instance: Option<String>,
    /// The row's text as it was stored.
    pub raw: String,
    /// Why it does not decode.
    pub reason: String,
    /// When the store set it aside, in milliseconds since the epoch.
    pub quarantined_at: u64,
}

/// A message for an instance that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedMessage {
    /// The instance that it is for.
    pub instance: String,
    /// The message's text as it is stored.
    pub raw: String,
    /// When the store will drop it, in milliseconds since the epoch.
    pub expires_at: u64,
}

/// An instance that no caller can claim, because the store could take neither its turn nor its failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedInstance {
    /// The instance.
    pub instance: String,
    /// The store's error.
    pub reason: String,
    /// When the store blocked it, in milliseconds since the epoch.
    pub blocked_at: u64,
}

/// How many instances of a version of an orchestration are running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningInstances {
    /// The orchestration.
    pub orchestration_name: String,
    /// Its version.
    pub orchestration_version: String,
    /// How many of its instances are running, up to the bound that the caller gave.
    pub instances: u64,
}
