//! The store as the runtime sees it.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::rows::row_number;
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ExtendedProvider, HistoryPart, InstanceRequest,
    OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, TurnToStore, WorkItem, WorkQueue, WorkRequest, inspect, refusal,
};
use duroxide::{Event, SystemStats};

use crate::PostgresProvider;
use crate::committer::Committer;
use crate::encode::{self, TurnCommit, WorkAck, leased_by, leased_work};
use crate::error::StoreError;
use crate::fetch::{Fetched, InstanceOrder, WorkOrder};
use crate::functions::{Function, owned_params, params};
use crate::jobs::{Answer, Job, Pending, Reply, ResultToCommit, TurnStored, TurnToCommit};
use crate::renewals::{Leased, LiveSince};
use crate::shared::whole_ms;
use crate::text::stored;

static RENEW_SESSIONS: Function = Function::value("renew_sessions_1");
static REMOVE_SESSIONS: Function = Function::value("remove_sessions_1");
const ACK_WORK: &str = "ack_work_item";
static APPEND: Function = Function::value("append_events_1");

#[async_trait]
impl Provider for PostgresProvider {
    fn name(&self) -> &str {
        "duroxide-pg"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        _poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        const OPERATION: &str = "fetch_orchestration_item";
        self.shared.holder.note_unmarked();
        let request = InstanceRequest { max: 1, lock_timeout, filter };
        let (mut claims, held) = self.claim(OPERATION, &request).await?;
        let Some(claim) = claims.pop() else { return Ok(None) };
        // If this fails, or the caller goes away meanwhile, the store gives the lease back.
        let part = match claim.is_fresh() {
            true => HistoryPart::default(),
            false => self.load(OPERATION, &claim.lock_token, 0).await?,
        };
        held.hand_over();
        let item = OrchestrationItem {
            instance: claim.instance,
            orchestration_name: claim.orchestration_name,
            execution_id: claim.execution_id,
            version: claim.version,
            history: part.events,
            messages: claim.messages,
            history_error: part.history_error,
            kv_snapshot: part.kv_snapshot.unwrap_or_default(),
        };
        Ok(Some((item, claim.lock_token, claim.attempt_count)))
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let turn = TurnToStore {
            lock_token,
            execution_id,
            history_delta: &history_delta,
            worker_items: &worker_items,
            activity_options: &[],
            orchestrator_items: &orchestrator_items,
            metadata: &metadata,
            cancelled_activities: &cancelled_activities,
        };
        self.commit_turn(turn, None).await.map(drop)
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "abandon_orchestration_item";
        let delay_ms = delay.map_or(0, whole_ms);
        let done = self
            .returner
            .give_back_patiently(WorkQueue::Orchestrator, lock_token, delay_ms, ignore_attempt)
            .await;
        match done.map_err(|error| error.into_provider_error(OPERATION))? {
            true => Ok(()),
            false => Err(refusal::unknown_turn_token(OPERATION)),
        }
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "renew_orchestration_item_lock";
        let instance = leased_by(token).ok_or_else(refusal::turn_not_renewable)?;
        let leased = Leased::Turn(instance.to_string());
        let renewed = self.renew(OPERATION, leased, token, LiveSince::Now, extend_for).await?;
        if renewed { Ok(()) } else { Err(refusal::turn_not_renewable()) }
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read", instance, None).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read_with_execution", instance, Some(execution_id)).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "append_with_execution";
        let limits = &self.shared.limits;
        limits.check_instance(OPERATION, instance)?;
        let stored_execution = row_number(OPERATION, "execution id", execution_id)?;
        let events = encode::events(limits, OPERATION, instance, execution_id, &new_events)?;
        let name = instance.to_string();
        let call = APPEND.call(owned_params![
            p_now: self.shared.time.given_ms(),
            p_slot: self.shared.slot,
            p_instance: stored(instance).into_owned(),
            p_execution: stored_execution,
            p_id: events.iter().map(|event| event.event_id).collect::<Vec<_>>(),
            p_type: events.iter().map(|event| event.event_type).collect::<Vec<_>>(),
            p_data: events.into_iter().map(|event| event.text).collect::<Vec<_>>(),
        ]);
        self.call(&self.committer, OPERATION, call, move |rows, effects| {
            let taken: Option<i64> = rows.first().and_then(|row| row.get(0));
            effects.instances_touched = true;
            effects.changed_instances.push(name.clone());
            match taken {
                None => Ok(()),
                Some(id) => {
                    let id = id.unsigned_abs();
                    Err(refusal::duplicate_event(OPERATION, &name, execution_id, id).into())
                }
            }
        })
        .await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_for_worker";
        let activity = encode::activity(&self.shared.limits, OPERATION, &item, None, None)?;
        self.commit_early(OPERATION, activity, Job::Activity).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        _poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        self.shared.holder.note_unmarked();
        let request = WorkRequest { max: 1, lock_timeout, session, tag_filter };
        let claim = self.claim_activities("fetch_work_item", &request).await?.pop();
        Ok(claim.map(|claim| (claim.item, claim.lock_token, claim.attempt_count)))
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.commit_result(token, completion).await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        const OPERATION: &str = "renew_work_item_lock";
        let id = leased_work(token).ok_or_else(refusal::work_not_renewable)?;
        let renewed = self.renew(OPERATION, Leased::Work(id), token, LiveSince::Now, extend_for).await?;
        if renewed { Ok(()) } else { Err(refusal::work_not_renewable()) }
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let delay_ms = delay.map_or(0, whole_ms);
        let done =
            self.returner.give_back_patiently(WorkQueue::Worker, token, delay_ms, ignore_attempt).await;
        match done.map_err(|error| error.into_provider_error("abandon_work_item"))? {
            true => Ok(()),
            false => Err(refusal::unknown_work_token()),
        }
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        let owners: Vec<_> = owner_ids.iter().map(|owner| stored(owner)).collect();
        let owners: Vec<&str> = owners.iter().map(AsRef::as_ref).collect();
        let (now, extend_ms, idle_ms) =
            (self.shared.time.given_ms(), whole_ms(extend_for), whole_ms(idle_timeout));
        let params = params![p_now: now, p_owners: owners, p_extend_ms: extend_ms, p_idle_ms: idle_ms];
        let (sql, values) = RENEW_SESSIONS.call(params);
        self.count("renew_session_lock", sql, &values).await
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        let now = self.shared.time.given_ms();
        let (sql, values) = REMOVE_SESSIONS.call(params![p_now: now]);
        self.count("cleanup_orphaned_sessions", sql, &values).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_for_orchestrator";
        let mut message = encode::message(&self.shared.limits, OPERATION, &item)?;
        message.delay_ms = delay.map_or(0, whole_ms);
        self.commit_early(OPERATION, message, Job::Message).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        Some(self)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.custom_status(instance, last_seen_version).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.kv_values("get_kv_all_values", instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.instance_stats(instance).await
    }
}

impl PostgresProvider {
    /// Hands a request to a committer and waits until it is durable.
    pub(crate) async fn commit<O, T>(
        &self,
        committer: &Committer,
        operation: &'static str,
        request: O,
        job: impl FnOnce(Pending<O, T>) -> Job,
    ) -> Result<T, ProviderError> {
        let (reply, answer) = Reply::new(operation);
        let pending = Pending { request, arrived: self.shared.time.monotonic(), reply };
        committer.submit(operation, job(pending), answer).await
    }

    /// Commits a request that dispatchers see before it is durable, and waits until it is durable.
    pub(crate) async fn commit_early<O, T>(
        &self,
        operation: &'static str,
        request: O,
        job: impl FnOnce(Pending<O, T>) -> Job,
    ) -> Result<T, ProviderError> {
        self.commit(&self.early, operation, request, job).await
    }

    /// Commits a turn, and leases the activities that its caller orders along with it.
    pub(crate) async fn commit_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<WorkOrder>,
    ) -> Result<TurnStored, ProviderError> {
        let request = TurnToCommit { turn: TurnCommit::new(&self.shared.limits, turn)?, claim };
        let job = |turn| Job::AckTurn(Box::new(turn));
        self.commit(&self.committer, "ack_orchestration_item", request, job).await
    }

    /// Commits the end of an activity.
    pub(crate) async fn commit_result(
        &self,
        token: &str,
        completion: Option<WorkItem>,
    ) -> Result<(), ProviderError> {
        let request = ResultToCommit { ack: self.encode_result(token, completion)?, claim: None };
        self.commit_early(ACK_WORK, request, |ack| Job::AckWork(Box::new(ack))).await
    }

    /// Commits the end of an activity, and leases the instances that its caller orders along with it. Those come when
    /// the end is committed, the answer when it is durable.
    pub(crate) async fn commit_result_and_claim(
        &self,
        token: &str,
        completion: Option<WorkItem>,
        order: InstanceOrder,
    ) -> Result<(Option<Fetched>, Answer<()>), ProviderError> {
        let closed = |_| Err(StoreError::Closed.into_provider_error(ACK_WORK));
        let (claim_reply, claims) = Reply::new(ACK_WORK);
        let claim = Some((order, claim_reply));
        let request = ResultToCommit { ack: self.encode_result(token, completion)?, claim };
        let (reply, durable) = Reply::new(ACK_WORK);
        let pending = Pending { request, arrived: self.shared.time.monotonic(), reply };
        self.early.hand_in(ACK_WORK, Job::AckWork(Box::new(pending))).await?;
        Ok((claims.await.unwrap_or_else(closed)?, durable))
    }

    fn encode_result(&self, token: &str, completion: Option<WorkItem>) -> Result<WorkAck, ProviderError> {
        if completion.as_ref().is_some_and(|item| !inspect::is_activity_completion(item)) {
            return Err(refusal::wrong_completion());
        }
        let completion =
            completion.map(|item| encode::message(&self.shared.limits, ACK_WORK, &item)).transpose()?;
        let id = leased_work(token).ok_or_else(refusal::work_not_held)?;
        self.shared.holder.held.end(token);
        Ok(WorkAck { id, token: token.to_string(), completion })
    }

    /// Extends a lease, live or not, unless another worker has taken over; tells whether it did.
    pub(crate) async fn recover(
        &self,
        queue: WorkQueue,
        token: &str,
        extend_for: Duration,
    ) -> Result<bool, ProviderError> {
        const OPERATION: &str = "recover_lease";
        let leased = match queue {
            WorkQueue::Orchestrator => leased_by(token).map(|instance| Leased::Turn(instance.to_string())),
            WorkQueue::Worker => leased_work(token).map(Leased::Work),
        };
        let Some(leased) = leased else { return Ok(false) };
        self.renew(OPERATION, leased, token, LiveSince::Ever, extend_for).await
    }

    async fn renew(
        &self,
        operation: &'static str,
        leased: Leased,
        token: &str,
        since: LiveSince,
        extend_for: Duration,
    ) -> Result<bool, ProviderError> {
        let renewed = self.renewals.renew(leased, token, since, whole_ms(extend_for)).await;
        renewed.map_err(|error| error.into_provider_error(operation))
    }

    async fn count(
        &self,
        operation: &'static str,
        sql: &'static str,
        params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<usize, ProviderError> {
        let rows = self.returner.connection.query(sql, params).await;
        let rows =
            rows.map_err(|failure| crate::error::StoreError::from(failure).into_provider_error(operation))?;
        Ok(rows.first().and_then(|row| usize::try_from(row.get::<_, i64>(0)).ok()).unwrap_or(0))
    }
}
