//! The abilities of this store beyond the documented contract.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::error::StoreError;
use super::inbox::JobClass;
use super::large_payloads::HistoryRead;
use super::shared::clamp_ms;
use super::write_transaction::read_row;
use super::{SqliteProvider, blocked, dropped, history, kv, list_pages, quarantine, reads, turns, work};
use crate::model::{Clock, Event, WorkItem, whole_ms};
use crate::providers::awaited::AnswerSize;
use crate::providers::rows::lease_token;
use crate::providers::{
    AttemptToStore, AwaitedInstance, AwaitedLook, BlockedInstance, DeliveryOutcome, DroppedMessages,
    ExtendedProvider, HistoryPart, Inspector, InstanceClaim, InstanceMetadata, InstanceRequest,
    InstanceWatch, LeaseState, LocalExchange, ParkedMessage, ProviderError, QuarantineEntry, QuarantinePurge,
    QuarantineRetry, QuarantinedRow, RunningActivities, RunningInstances, RunningMark,
    ScheduledActivityIdentifier, SendOutcome, StartOutcome, StepOutcome, StepSupport, StepToStore,
    StoredResult, StoredTurn, TurnToStore, UnbegunOutcome, WorkClaim, WorkQueue, WorkRequest, WorkSignal,
    refusal,
};

#[async_trait]
impl ExtendedProvider for SqliteProvider {
    fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clone()
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        match queue {
            WorkQueue::Orchestrator => self.shared.orchestrator_signal.subscribe(),
            WorkQueue::Worker => self.shared.worker_signal.subscribe(),
        }
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.shared.watchers.watch(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        self.shared.takes_work.store(true, Ordering::Relaxed);
        let (claims, undelivered) = self.claim_turns("claim_instances", request).await?;
        undelivered.hand_over();
        Ok(claims)
    }

    async fn load_history(
        &self,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        self.load("load_history", lock_token, after_event_id).await
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        self.shared.takes_work.store(true, Ordering::Relaxed);
        self.claim_activities("claim_work", request).await
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        self.store_turn_and_claim(turn, claim).await
    }

    async fn store_result(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        self.store_result_and_claim(lock_token, completion, claim).await
    }

    fn step_support(&self) -> StepSupport {
        super::steps::SUPPORT
    }

    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        self.store_step_and_claim(step, claim).await
    }

    fn keeps_attempts(&self) -> bool {
        true
    }

    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.store_attempt(activity, give_back_after).await
    }

    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        self.complete_from_elsewhere(entry, &completion).await
    }

    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        self.fail_if_unbegun(activity).await
    }

    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        Some(self.shared.exchange.clone())
    }

    async fn recover_lease(
        &self,
        queue: WorkQueue,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        // An expired lease keeps its token until another caller takes over. So a renewal that accepts an expired lease
        // shows whether one has.
        const AT_ANY_TIME: i64 = i64::MIN;
        let token = lock_token.to_string();
        self.writer
            .submit("recover_lease", JobClass::Renewal, move |tx| {
                let renewed = match queue {
                    WorkQueue::Orchestrator => turns::renew(tx, &token, AT_ANY_TIME, extend_for),
                    WorkQueue::Worker => work::renew(tx, &token, AT_ANY_TIME, extend_for),
                };
                match renewed {
                    Ok(()) => Ok(LeaseState::Held),
                    Err(StoreError::Refused(_)) => Ok(LeaseState::Lost),
                    Err(error) => Err(error),
                }
            })
            .await
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        let instance = instance.to_string();
        self.read("read_metadata", move |connection| match reads::metadata(connection, &instance)? {
            Some(metadata) => Ok(Some(metadata)),
            None => Ok(reads::pending(connection, &instance)?),
        })
        .await
    }

    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        let awaited: Vec<(String, Option<u64>)> =
            awaited.iter().map(|one| (one.instance.to_string(), one.custom_status_after)).collect();
        self.read("read_awaited", move |connection| {
            let mut size = AnswerSize::default();
            let looks = awaited.iter().map(|(instance, custom_status_after)| {
                let one = AwaitedInstance { instance, custom_status_after: *custom_status_after };
                reads::look(connection, one).map(|look| size.bounded(look))
            });
            Ok(looks.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        const OPERATION: &str = "read_recent";
        let instance = instance.to_string();
        let texts = self
            .read(OPERATION, move |connection| {
                let execution_id = history::latest_execution(connection, &instance)?;
                Ok(history::read_recent(connection, &instance, execution_id, row_limit(limit))?)
            })
            .await?;
        reads::decode(&texts).map_err(|reason| refusal::undecodable_history(OPERATION, &reason))
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        self.start_if_absent(start).await
    }

    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        self.send_or_park(message).await
    }

    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        self.start_with_message(start, message).await
    }

    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        self.send_if_alive(message).await
    }

    async fn list_dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        let now = self.shared.now_ms();
        self.read("list_dropped", move |connection| Ok(dropped::list(connection, row_limit(limit), now)?))
            .await
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        let listed = self.list_quarantine(0, limit).await?;
        Ok(listed.into_iter().map(|entry| entry.row).collect())
    }

    async fn list_quarantine(
        &self,
        after_id: u64,
        limit: usize,
    ) -> Result<Vec<QuarantineEntry>, ProviderError> {
        let after_id = clamp_ms(after_id);
        self.read("list_quarantine", move |connection| {
            Ok(quarantine::list(connection, after_id, row_limit(limit))?)
        })
        .await
    }

    async fn retry_quarantined(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ProviderError> {
        let ids = ids.to_vec();
        self.writer
            .submit("retry_quarantined", JobClass::Data, move |batch| {
                batch.atomically(|batch| ids.iter().map(|id| quarantine::retry(batch, *id)).collect())
            })
            .await
    }

    async fn purge_quarantined(&self, purge: QuarantinePurge<'_>) -> Result<u64, ProviderError> {
        let (ids, before) = match purge {
            QuarantinePurge::Ids(ids) => (ids.to_vec(), None),
            QuarantinePurge::SetAsideBefore(time) => (Vec::new(), Some(clamp_ms(time))),
        };
        self.writer
            .submit("purge_quarantined", JobClass::Data, move |batch| {
                batch.atomically(|batch| Ok(quarantine::purge(batch, &ids, before)?))
            })
            .await
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        let parking_ms = clamp_ms(whole_ms(self.shared.parking_time));
        self.read("list_parked", move |connection| {
            Ok(reads::parked(connection, parking_ms, row_limit(limit))?)
        })
        .await
    }

    fn as_inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    async fn block_instance(&self, lock_token: &str, reason: &str) -> Result<(), ProviderError> {
        let (token, reason) = (lock_token.to_string(), reason.to_string());
        self.writer
            .submit("block_instance", JobClass::Data, move |tx| blocked::block(tx, &token, &reason))
            .await
    }

    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        let instance = instance.to_string();
        self.writer
            .submit("unblock_instance", JobClass::Data, move |tx| {
                tx.atomically(|tx| blocked::unblock(tx, &instance))
            })
            .await
    }

    async fn list_blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        self.read("list_blocked", move |connection| Ok(blocked::list(connection, row_limit(limit))?)).await
    }

    async fn count_running(&self, up_to: usize) -> Result<Option<Vec<RunningInstances>>, ProviderError> {
        let counted = self.read("count_running", move |connection| {
            Ok(list_pages::count_running(connection, row_limit(up_to))?)
        });
        counted.await.map(Some)
    }

    fn running_activities(&self) -> Option<Arc<RunningActivities>> {
        Some(self.shared.running.clone())
    }

    fn mark_running(&self, lock_token: &str) -> RunningMark {
        self.shared.mark_running(lock_token)
    }
}

impl SqliteProvider {
    /// Loads the history of a leased instance.
    pub(super) async fn load(
        &self,
        operation: &'static str,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        let (token, now) = (lock_token.to_string(), self.shared.now_ms());
        let after = clamp_ms(after_event_id);
        let shared = self.shared.clone();
        let (texts, kv_snapshot, decoding) = self
            .read(operation, move |connection| {
                let instance = live_lease(connection, operation, &token, now)?;
                let execution_id = current_execution(connection, instance)?;
                let mut read = HistoryRead::new(&shared, &token, instance);
                let texts = history::read_noting(connection, instance, execution_id, after, |bytes| {
                    read.note(bytes)
                })?;
                let snapshot = (after == 0).then(|| kv::snapshot(connection, instance)).transpose()?;
                Ok((texts, snapshot, read.into_mark()))
            })
            .await?;
        let decoded = reads::decode(&texts);
        drop(decoding);
        Ok(match decoded {
            Ok(events) => HistoryPart { events, history_error: None, kv_snapshot },
            Err(reason) => HistoryPart {
                events: Vec::new(),
                history_error: Some(refusal::history_error(&reason)),
                kv_snapshot: kv_snapshot.map(|_| Default::default()),
            },
        })
    }
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Checks that a token stands for a live lease, and returns the leased instance.
fn live_lease<'t>(
    connection: &Connection,
    operation: &str,
    token: &'t str,
    now: i64,
) -> Result<&'t str, StoreError> {
    let unknown = || refusal::unknown_turn_token(operation);
    let instance = lease_token::leased_by(token).ok_or_else(unknown)?;
    let locked_until: Option<i64> = read_row(
        connection,
        "SELECT locked_until FROM instance_schedule WHERE instance_id = ?1 AND lock_token = ?2",
        params![instance, token],
        |row| row.get(0),
    )?;
    match locked_until {
        Some(until) if until > now => Ok(instance),
        Some(_) => Err(ProviderError::permanent(operation, "Instance lock expired").into()),
        None => Err(unknown().into()),
    }
}

/// The execution whose history a turn needs: the one in the row, or the highest with a record or a history.
fn current_execution(connection: &Connection, instance: &str) -> rusqlite::Result<i64> {
    let current = read_row(
        connection,
        "SELECT current_execution_id FROM instances WHERE instance_id = ?1",
        [instance],
        |row| row.get(0),
    )?;
    match current {
        Some(execution_id) => Ok(execution_id),
        None => history::highest_execution(connection, instance),
    }
}
