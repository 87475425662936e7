//! A process's handle on the simulated store: calls go through faults, and a dead process's calls go nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::Event;
use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::*;

use super::twin::Twin;
use super::world::{Fate, World};
use crate::forwarding::forwarding_provider;

/// The calls that do not wait for the disk, or change nothing.
const UNSYNCED: [&str; 15] = [
    "store_result",
    "ack_work_item",
    "claim_instances",
    "claim_work",
    "load_history",
    "abandon_orchestration_item",
    "abandon_work_item",
    "renew_orchestration_item_lock",
    "renew_work_item_lock",
    "recover_lease",
    "read_metadata",
    "read_awaited",
    "read_recent",
    "unblock_instance",
    "list_blocked",
];
/// The disk has a result so long after its commit at the latest, in milliseconds.
const LATEST_SYNC_MS: u64 = 400;

/// A handle, as a process of its own would have it.
pub struct SimStore {
    world: Arc<World>,
    memory: Arc<MemoryProvider>,
    name: String,
    clock: Arc<dyn Clock>,
    is_dead: AtomicBool,
    /// Whether a call may fail after it took effect. Senders that must not send twice cannot have that.
    is_vague: bool,
    exchange: Arc<LocalExchange>,
    running: Arc<RunningActivities>,
    twin: Option<Twin>,
}

impl SimStore {
    /// Opens a handle for a process.
    pub fn new(
        world: &Arc<World>,
        name: String,
        clock: Arc<dyn Clock>,
        is_vague: bool,
        twin: Option<Twin>,
    ) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            memory: world.memory.clone(),
            name,
            clock,
            is_dead: AtomicBool::new(false),
            is_vague,
            exchange: Arc::default(),
            running: Arc::default(),
            twin,
        })
    }

    /// Lets the process die: no call of it takes effect or returns any more.
    pub fn kill(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    async fn unless_dead(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Makes a call, with whatever the dice have for it.
    async fn call<T>(
        &self,
        operation: &'static str,
        subject: &str,
        effect: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let effect = async {
            let answer = effect.await;
            // What is only leased or given back is not synced, nor are results.
            let is_synced = !UNSYNCED.contains(&operation) && self.twin != Some(Twin::LosesSynced);
            if is_synced && answer.is_ok() {
                self.world.sync();
            }
            answer
        };
        self.unless_dead().await;
        self.world.saw_clock();
        let fate = match self.world.fate() {
            Fate::FailsAfter if !self.is_vague => Fate::FailsBefore,
            fate => fate,
        };
        let failed = || Err(ProviderError::retryable(operation, "simulated failure"));
        let answer = match fate {
            Fate::Fine => effect.await,
            Fate::FailsBefore => failed(),
            Fate::FailsAfter => match effect.await {
                Ok(_) => failed(),
                Err(error) => Err(error),
            },
            Fate::LateEffect(late) => {
                tokio::time::sleep(late).await;
                self.unless_dead().await;
                effect.await
            }
            Fate::LateAnswer(late) => {
                let answer = effect.await;
                tokio::time::sleep(late).await;
                answer
            }
        };
        self.unless_dead().await;
        let outcome = match &answer {
            Ok(_) => "ok".to_string(),
            Err(error) if error.is_retryable() => "failed".to_string(),
            Err(_) => {
                self.world.count("refused_writes", 1);
                "refused".to_string()
            }
        };
        self.world.line(|| format!("{} {operation} {subject}: {fate:?} {outcome}", self.name));
        answer
    }

    /// Whether this call is one that a broken twin of the store gets wrong.
    fn is_broken(&self, twin: Twin, one_in: u64) -> bool {
        self.twin == Some(twin) && self.world.below(one_in) == 0
    }

    fn gate(&self) -> Result<(), ProviderError> {
        if self.is_dead.load(Ordering::Relaxed) || self.world.fate() != Fate::Fine {
            return Err(ProviderError::retryable("read", "simulated failure"));
        }
        Ok(())
    }

    /// What becomes of a turn's messages in a twin.
    fn messages(&self, items: &[WorkItem]) -> Vec<WorkItem> {
        let mut kept = Vec::new();
        for item in items {
            match item {
                WorkItem::TimerFired { instance, execution_id, id, fire_at_ms }
                    if self.twin == Some(Twin::FiresEarly) =>
                {
                    kept.push(WorkItem::TimerFired {
                        instance: instance.clone(),
                        execution_id: *execution_id,
                        id: *id,
                        fire_at_ms: fire_at_ms.saturating_sub(10_000),
                    });
                }
                _ if self.is_broken(Twin::ForgetsMessages, 12) => {}
                item => kept.push(item.clone()),
            }
        }
        kept
    }
}

forwarding_provider! {
    SimStore => memory, first gate;
    forwards: [
        fetch_orchestration_item, fetch_work_item, read, read_with_execution, append_with_execution,
        renew_session_lock, cleanup_orphaned_sessions, enqueue_for_worker, get_custom_status, get_kv_value,
        get_kv_all_values, get_instance_stats,
    ];

    async fn ack_orchestration_item(
        &self,
        token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let subject = history_delta.first().map_or_else(String::new, |event| event.instance_id.clone());
        self.call("ack_orchestration_item", &subject, async {
            let events = history_delta.clone();
            self.memory
                .ack_orchestration_item(
                    token, execution_id, history_delta, worker_items, orchestrator_items, metadata, cancelled,
                )
                .await?;
            self.world.accepted(token, "a turn");
            self.world.recorded(&events);
            Ok(())
        })
        .await
    }

    async fn abandon_orchestration_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.call("abandon_orchestration_item", "", async {
            self.memory.abandon_orchestration_item(token, delay, ignore_attempt).await?;
            self.world.accepted(token, "a turn given back");
            Ok(())
        })
        .await
    }

    async fn renew_orchestration_item_lock(&self, token: &str, time: Duration) -> Result<(), ProviderError> {
        self.call("renew_orchestration_item_lock", "", async {
            self.memory.renew_orchestration_item_lock(token, time).await?;
            self.world.accepted(token, "a renewal");
            Ok(())
        })
        .await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.call("ack_work_item", "", async {
            self.memory.ack_work_item(token, completion).await?;
            self.world.accepted(token, "a result");
            Ok(())
        })
        .await
    }

    async fn renew_work_item_lock(&self, token: &str, time: Duration) -> Result<(), ProviderError> {
        self.call("renew_work_item_lock", "", async {
            self.memory.renew_work_item_lock(token, time).await?;
            self.world.accepted(token, "a renewal");
            Ok(())
        })
        .await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.call("abandon_work_item", "", async {
            self.memory.abandon_work_item(token, delay, ignore_attempt).await?;
            self.world.accepted(token, "an activity given back");
            Ok(())
        })
        .await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        if self.is_broken(Twin::LosesAcknowledged, 6) {
            return Ok(());
        }
        self.call("enqueue_for_orchestrator", "", self.memory.enqueue_for_orchestrator(item, delay)).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.memory.as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        Some(self)
    }
}

#[async_trait]
impl ExtendedProvider for SimStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        self.memory.work_signal(queue)
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.memory.watch_instance(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        self.call("claim_instances", "", async {
            let claims = self.memory.claim_instances(request).await?;
            self.world.granted_instances(&claims);
            Ok(claims)
        })
        .await
    }

    async fn load_history(&self, token: &str, after: u64) -> Result<HistoryPart, ProviderError> {
        self.call("load_history", "", self.memory.load_history(token, after)).await
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        self.call("claim_work", "", async {
            let claims = self.memory.claim_work(request).await?;
            self.world.granted_work(&claims);
            Ok(claims)
        })
        .await
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        let subject = subject_of(&turn);
        let messages = self.messages(turn.orchestrator_items);
        let told = TurnToStore { orchestrator_items: &messages, ..turn };
        self.call("store_turn", &subject, async {
            let stored = match self.memory.store_turn(told, claim).await {
                Err(error) if self.twin == Some(Twin::IgnoresLeases) && !error.is_retryable() => {
                    StoredTurn::default()
                }
                answer => answer?,
            };
            self.world.accepted(turn.lock_token, "a turn");
            self.world.recorded(turn.history_delta);
            self.world.granted_work(&stored.claims);
            Ok(stored)
        })
        .await
    }

    async fn store_result(
        &self,
        token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        self.call("store_result", "", async {
            self.world.before_unsynced();
            let mut stored = match self.memory.store_result(token, completion, claim).await {
                Err(error) if self.twin == Some(Twin::IgnoresLeases) && !error.is_retryable() => {
                    StoredResult { claims: Vec::new(), durable: Durable::already() }
                }
                answer => answer?,
            };
            self.world.accepted(token, "a result");
            self.world.granted_instances(&stored.claims);
            if self.twin == Some(Twin::LosesSynced) {
                return Ok(stored);
            }
            stored.durable = self.world.durable();
            let (world, late) = (self.world.clone(), self.world.below(LATEST_SYNC_MS));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(late)).await;
                world.sync();
            });
            Ok(stored)
        })
        .await
    }

    fn step_support(&self) -> StepSupport {
        self.memory.step_support()
    }

    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        let subject: Vec<String> = step.turns.iter().map(|turn| subject_of(&turn.turn)).collect();
        let messages: Vec<Vec<WorkItem>> =
            step.turns.iter().map(|turn| self.messages(turn.turn.orchestrator_items)).collect();
        let turns: Vec<StepTurn<'_>> = step
            .turns
            .iter()
            .zip(&messages)
            .map(|(turn, messages)| StepTurn {
                held: turn.held,
                turn: TurnToStore {
                    orchestrator_items: messages,
                    worker_items: match turn.turn.worker_items {
                        [kept @ .., _] if self.is_broken(Twin::ForgetsActivities, 3) => kept,
                        items => items,
                    },
                    ..turn.turn
                },
            })
            .collect();
        let told = StepToStore { cause: step.cause, turns: &turns };
        self.call("store_step", &subject.join("+"), async {
            let outcome = self.memory.store_step(told, claim).await?;
            let StepOutcome::Stored(stored) = &outcome else {
                self.world.count("step_conflicts", 1);
                return Ok(outcome);
            };
            self.world.count("steps", 1);
            match step.cause {
                StepCause::Lease => {
                    step.turns
                        .iter()
                        .take(1)
                        .for_each(|turn| self.world.accepted(turn.turn.lock_token, "a step"));
                }
                StepCause::Results(results) => {
                    results
                        .iter()
                        .for_each(|result| self.world.accepted(result.lock_token, "a result in a step"));
                }
                StepCause::Start(_) | StepCause::Timer(_) => {}
            }
            step.turns.iter().for_each(|turn| self.world.recorded(turn.turn.history_delta));
            self.world.granted_work(&stored.claims);
            Ok(outcome)
        })
        .await
    }

    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        Some(self.exchange.clone())
    }

    fn running_activities(&self) -> Option<Arc<RunningActivities>> {
        Some(self.running.clone())
    }

    async fn recover_lease(
        &self,
        queue: WorkQueue,
        token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        self.call("recover_lease", "", async {
            let state = self.memory.recover_lease(queue, token, extend_for).await?;
            if state == LeaseState::Held {
                self.world.accepted(token, "a recovery");
            }
            Ok(state)
        })
        .await
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        self.call("read_metadata", instance, self.memory.read_metadata(instance)).await
    }

    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        self.call("read_awaited", "", self.memory.read_awaited(awaited)).await
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        self.call("read_recent", instance, self.memory.read_recent(instance, limit)).await
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        self.call("enqueue_start_if_absent", "", self.memory.enqueue_start_if_absent(start)).await
    }

    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        self.call("enqueue_or_park", "", self.memory.enqueue_or_park(message)).await
    }

    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        self.call("enqueue_start_with_message", "", self.memory.enqueue_start_with_message(start, message))
            .await
    }

    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        self.call("enqueue_if_alive", "", self.memory.enqueue_if_alive(message)).await
    }

    fn keeps_attempts(&self) -> bool {
        self.memory.keeps_attempts()
    }

    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.call("store_progress", "", async {
            match self.memory.store_progress(activity, give_back_after).await {
                Err(error) if self.twin == Some(Twin::IgnoresLeases) && !error.is_retryable() => {}
                answer => answer?,
            }
            self.world.accepted(activity.lock_token, "what an attempt leaves behind");
            if give_back_after.is_some() {
                self.world.count("attempts_given_back", 1);
            }
            Ok(())
        })
        .await
    }

    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        if self.is_broken(Twin::LosesAcknowledged, 3) {
            return Ok(true);
        }
        self.call("complete_activity", "", self.memory.complete_activity(entry, completion)).await
    }

    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        self.call("fail_unbegun", &activity.instance, self.memory.fail_unbegun(activity)).await
    }

    async fn wait_for_instances(
        &self,
        request: &InstanceRequest<'_>,
        signal: &mut WorkSignal,
    ) -> Vec<InstanceClaim> {
        let claims = self.memory.wait_for_instances(request, signal).await;
        self.unless_dead().await;
        self.world.granted_instances(&claims);
        claims
    }

    fn mark_running(&self, token: &str) -> RunningMark {
        self.memory.mark_running(token)
    }

    async fn list_dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        self.memory.list_dropped(limit).await
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        self.memory.list_quarantined(limit).await
    }

    async fn list_quarantine(&self, after: u64, limit: usize) -> Result<Vec<QuarantineEntry>, ProviderError> {
        self.memory.list_quarantine(after, limit).await
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        self.memory.list_parked(limit).await
    }

    async fn block_instance(&self, token: &str, reason: &str) -> Result<(), ProviderError> {
        self.call("block_instance", reason, self.memory.block_instance(token, reason)).await
    }

    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        self.call("unblock_instance", instance, self.memory.unblock_instance(instance)).await
    }

    async fn retry_quarantined(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ProviderError> {
        self.call("retry_quarantined", "", self.memory.retry_quarantined(ids)).await
    }

    async fn purge_quarantined(&self, purge: QuarantinePurge<'_>) -> Result<u64, ProviderError> {
        self.call("purge_quarantined", "", self.memory.purge_quarantined(purge)).await
    }

    async fn count_running(&self, among: usize) -> Result<Option<Vec<RunningInstances>>, ProviderError> {
        self.memory.count_running(among).await
    }

    fn as_inspector(&self) -> Option<&dyn Inspector> {
        self.memory.as_inspector()
    }

    async fn list_blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        self.memory.list_blocked(limit).await
    }
}

/// What a turn is about, without anything that differs between two runs of a seed.
fn subject_of(turn: &TurnToStore<'_>) -> String {
    match (turn.history_delta.first(), turn.history_delta.last()) {
        (Some(first), Some(last)) => format!("{} {}..{}", first.instance_id, first.event_id, last.event_id),
        _ => "nothing new".to_string(),
    }
}

#[cfg(test)]
mod tests {
    /// The method names that a source has with this indentation of an item in a trait or in an implementation.
    fn methods(source: &str) -> Vec<&str> {
        let lines = source.lines().filter_map(|line| line.strip_prefix("    "));
        let signatures =
            lines.filter_map(|line| line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")));
        signatures.filter_map(|line| line.split(['(', '<']).next()).collect()
    }

    #[test]
    fn the_whole_extended_contract_goes_through_the_simulated_store() {
        let contract = include_str!("../../../duroxide/src/providers/extended.rs");
        let begin = contract.find("pub trait ExtendedProvider").unwrap();
        let end = begin + contract[begin..].find("\n}\n").unwrap();
        let asked = methods(&contract[begin..end]);
        assert!(asked.len() > 30, "{asked:?}");
        let own = include_str!("store.rs");
        let begin = own.find("impl ExtendedProvider for SimStore").unwrap();
        let end = begin + own[begin..].find("\n}\n").unwrap();
        let forwarded = methods(&own[begin..end]);
        let missing: Vec<&&str> = asked.iter().filter(|method| !forwarded.contains(method)).collect();
        assert!(missing.is_empty(), "the simulation hides {missing:?}");
    }
}
