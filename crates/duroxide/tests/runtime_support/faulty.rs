//! A store that forwards every call to another, and fails, holds or counts some of them on request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::Event;
use duroxide::providers::*;
use tokio::sync::Semaphore;

use super::forwarding::forwarding_provider;

/// The calls that can be made to fail, or be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    FetchTurn,
    AckTurn,
    FetchWork,
    AckWork,
    RenewWork,
    RenewTurn,
    Recover,
    Progress,
    /// After the call took effect in the store, and before its caller hears of it.
    ProgressDone,
    Unbegun,
    /// After the call took effect in the store, and before its caller hears of it.
    UnbegunDone,
    AbandonTurn,
    Read,
    KvValue,
    Load,
    SweepSessions,
    Block,
    /// After the call took effect in the store, and before its caller hears of it.
    FetchTurnDone,
    AckTurnDone,
    FetchWorkDone,
    AckWorkDone,
    /// After a result was committed: whether it is durable.
    SyncResult,
    Step,
}

/// A call of `abandon_*`: delay and whether the attempt is not counted.
pub type Abandon = (Option<Duration>, bool);

#[derive(Default)]
struct Plan {
    errors: HashMap<Call, VecDeque<ProviderError>>,
    gates: HashMap<Call, Arc<Semaphore>>,
    counts: HashMap<Call, usize>,
    abandoned_turns: Vec<Abandon>,
    abandoned_work: Vec<Abandon>,
    acked_turns: Vec<Vec<Event>>,
    acked_metadata: Vec<ExecutionMetadata>,
    attempts: Option<u32>,
    injected: Option<OrchestrationItem>,
    injected_work: VecDeque<(WorkItem, u32)>,
}

/// The lock token of a turn that does not come from the store behind.
const INJECTED: &str = "injected";

pub struct Faulty {
    inner: Arc<dyn Provider>,
    extended: bool,
    /// Whether it also takes steps, and brings clients and runtimes together.
    whole: bool,
    /// Whether it also takes the reports of runtimes, and tells operators of them.
    inspected: bool,
    plan: Mutex<Plan>,
}

impl Faulty {
    /// Keeps the abilities of the store: signals, batches, cheap reads. Steps go the long way.
    pub fn new(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { inner, extended: true, whole: false, inspected: false, plan: Mutex::default() })
    }

    /// Keeps the short path, too.
    pub fn whole(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { inner, extended: true, whole: true, inspected: false, plan: Mutex::default() })
    }

    /// Keeps what operators see, too.
    pub fn inspected(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { inner, extended: true, whole: false, inspected: true, plan: Mutex::default() })
    }

    /// Hides everything beyond the documented contract, management included.
    pub fn plain(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { inner, extended: false, whole: false, inspected: false, plan: Mutex::default() })
    }

    /// Lets the next calls of this kind fail, one for each error.
    pub fn fail(&self, call: Call, errors: impl IntoIterator<Item = ProviderError>) {
        self.plan.lock().unwrap().errors.entry(call).or_default().extend(errors);
    }

    /// Lets calls of this kind fail no longer.
    pub fn forgive(&self, call: Call) {
        self.plan.lock().unwrap().errors.remove(&call);
    }

    /// Holds calls of this kind until permits are added to what this returns.
    pub fn hold(&self, call: Call) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.plan.lock().unwrap().gates.insert(call, gate.clone());
        gate
    }

    /// Reports this attempt count for everything that is fetched by the plain contract.
    pub fn report_attempts(&self, attempts: u32) {
        self.plan.lock().unwrap().attempts = Some(attempts);
    }

    pub fn count(&self, call: Call) -> usize {
        self.plan.lock().unwrap().counts.get(&call).copied().unwrap_or_default()
    }

    pub fn abandoned_turns(&self) -> Vec<Abandon> {
        self.plan.lock().unwrap().abandoned_turns.clone()
    }

    pub fn abandoned_work(&self) -> Vec<Abandon> {
        self.plan.lock().unwrap().abandoned_work.clone()
    }

    /// The new events of each turn that was acked, refused acks included.
    pub fn acked_turns(&self) -> Vec<Vec<Event>> {
        self.plan.lock().unwrap().acked_turns.clone()
    }

    /// What each of these turns changed about its instance.
    pub fn acked_metadata(&self) -> Vec<ExecutionMetadata> {
        self.plan.lock().unwrap().acked_metadata.clone()
    }

    /// Holds calls of this kind no longer.
    pub fn release(&self, call: Call) {
        self.plan.lock().unwrap().gates.remove(&call);
    }

    /// Lets the next fetch by the plain contract return this turn, whatever the store behind holds.
    pub fn inject_turn(&self, item: OrchestrationItem) {
        self.plan.lock().unwrap().injected = Some(item);
    }

    /// Lets the next fetches of work by the plain contract return these, with their attempt counts.
    pub fn inject_work(&self, items: impl IntoIterator<Item = (WorkItem, u32)>) {
        self.plan.lock().unwrap().injected_work.extend(items);
    }

    async fn before(&self, call: Call) -> Result<(), ProviderError> {
        let gate = {
            let mut plan = self.plan.lock().unwrap();
            *plan.counts.entry(call).or_default() += 1;
            plan.gates.get(&call).cloned()
        };
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        let error = self.plan.lock().unwrap().errors.get_mut(&call).and_then(VecDeque::pop_front);
        error.map_or(Ok(()), Err)
    }

    /// Tells whether one of these calls is to be held or to fail. Then nothing is claimed on the side either.
    fn has_plans_for(&self, calls: &[Call]) -> bool {
        let plan = self.plan.lock().unwrap();
        calls.iter().any(|call| {
            plan.gates.contains_key(call) || plan.errors.get(call).is_some_and(|errors| !errors.is_empty())
        })
    }

    fn attempts(&self, real: u32) -> u32 {
        self.plan.lock().unwrap().attempts.unwrap_or(real)
    }
}

forwarding_provider! {
    Faulty => inner;
    forwards: [
        read_with_execution, append_with_execution, enqueue_for_worker, renew_session_lock, enqueue_for_orchestrator, get_custom_status, get_kv_all_values, get_instance_stats,
    ];

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        self.before(Call::FetchTurn).await?;
        if let Some(item) = self.plan.lock().unwrap().injected.take() {
            return Ok(Some((item, INJECTED.to_string(), 1)));
        }
        let fetched = self.inner.fetch_orchestration_item(lock_timeout, poll_timeout, filter).await?;
        self.before(Call::FetchTurnDone).await?;
        Ok(fetched.map(|(item, token, attempts)| (item, token, self.attempts(attempts))))
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        {
            let mut plan = self.plan.lock().unwrap();
            plan.acked_turns.push(history_delta.clone());
            plan.acked_metadata.push(metadata.clone());
        }
        self.before(Call::AckTurn).await?;
        if lock_token == INJECTED {
            return Ok(());
        }
        self.inner
            .ack_orchestration_item(
                lock_token,
                execution_id,
                history_delta,
                worker_items,
                orchestrator_items,
                metadata,
                cancelled,
            )
            .await?;
        self.before(Call::AckTurnDone).await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.plan.lock().unwrap().abandoned_turns.push((delay, ignore_attempt));
        self.before(Call::AbandonTurn).await?;
        self.inner.abandon_orchestration_item(lock_token, delay, ignore_attempt).await
    }

    async fn renew_orchestration_item_lock(&self, token: &str, time: Duration) -> Result<(), ProviderError> {
        self.before(Call::RenewTurn).await?;
        self.inner.renew_orchestration_item_lock(token, time).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.before(Call::Read).await?;
        self.inner.read(instance).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        self.before(Call::FetchWork).await?;
        if let Some((item, attempts)) = self.plan.lock().unwrap().injected_work.pop_front() {
            return Ok(Some((item, INJECTED.to_string(), attempts)));
        }
        let fetched = self.inner.fetch_work_item(lock_timeout, poll_timeout, session, tag_filter).await?;
        self.before(Call::FetchWorkDone).await?;
        Ok(fetched.map(|(item, token, attempts)| (item, token, self.attempts(attempts))))
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.before(Call::AckWork).await?;
        if token == INJECTED {
            return Ok(());
        }
        self.inner.ack_work_item(token, completion).await?;
        self.before(Call::AckWorkDone).await
    }

    async fn renew_work_item_lock(&self, token: &str, time: Duration) -> Result<(), ProviderError> {
        self.before(Call::RenewWork).await?;
        self.inner.renew_work_item_lock(token, time).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.plan.lock().unwrap().abandoned_work.push((delay, ignore_attempt));
        self.inner.abandon_work_item(token, delay, ignore_attempt).await
    }

    async fn cleanup_orphaned_sessions(&self, idle: Duration) -> Result<usize, ProviderError> {
        self.before(Call::SweepSessions).await?;
        self.inner.cleanup_orphaned_sessions(idle).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        if self.extended { self.inner.as_management_capability() } else { None }
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        // The store behind is asked, so that this one pretends to nothing.
        if self.extended && self.inner.as_extended().is_some() { Some(self) } else { None }
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.before(Call::KvValue).await?;
        self.inner.get_kv_value(instance, key).await
    }
}

impl Faulty {
    fn ext(&self) -> &dyn ExtendedProvider {
        self.inner.as_extended().expect("checked in as_extended")
    }
}

#[async_trait]
impl ExtendedProvider for Faulty {
    fn clock(&self) -> Arc<dyn Clock> {
        self.ext().clock()
    }

    fn as_inspector(&self) -> Option<&dyn Inspector> {
        if self.inspected { self.ext().as_inspector() } else { None }
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        self.ext().work_signal(queue)
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.ext().watch_instance(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        self.before(Call::FetchTurn).await?;
        let claims = self.ext().claim_instances(request).await?;
        if !claims.is_empty() {
            self.before(Call::FetchTurnDone).await?;
        }
        Ok(claims)
    }

    async fn load_history(&self, token: &str, after: u64) -> Result<HistoryPart, ProviderError> {
        self.before(Call::Load).await?;
        self.ext().load_history(token, after).await
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        self.before(Call::FetchWork).await?;
        let claims = self.ext().claim_work(request).await?;
        if !claims.is_empty() {
            self.before(Call::FetchWorkDone).await?;
        }
        Ok(claims)
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        {
            let mut plan = self.plan.lock().unwrap();
            plan.acked_turns.push(turn.history_delta.to_vec());
            plan.acked_metadata.push(turn.metadata.clone());
        }
        self.before(Call::AckTurn).await?;
        let claim = claim.filter(|_| !self.has_plans_for(&[Call::FetchWork, Call::FetchWorkDone]));
        let stored = self.ext().store_turn(turn, claim).await?;
        self.before(Call::AckTurnDone).await?;
        Ok(stored)
    }

    async fn store_result(
        &self,
        token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        self.before(Call::AckWork).await?;
        let claim = claim.filter(|_| !self.has_plans_for(&[Call::FetchTurn, Call::FetchTurnDone]));
        let mut stored = self.ext().store_result(token, completion, claim).await?;
        self.before(Call::AckWorkDone).await?;
        if let Err(error) = self.before(Call::SyncResult).await {
            let (tell, told) = tokio::sync::oneshot::channel();
            tell.send(Err(error)).unwrap();
            stored.durable = Durable::when(told);
        }
        Ok(stored)
    }

    fn step_support(&self) -> StepSupport {
        if self.whole { self.ext().step_support() } else { StepSupport::NONE }
    }

    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        self.before(Call::Step).await?;
        self.ext().store_step(step, claim).await
    }

    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        self.ext().local_exchange().filter(|_| self.whole)
    }

    fn keeps_attempts(&self) -> bool {
        self.ext().keeps_attempts()
    }

    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.before(Call::Progress).await?;
        self.ext().store_progress(activity, give_back_after).await?;
        self.before(Call::ProgressDone).await
    }

    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        self.ext().complete_activity(entry, completion).await
    }

    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        self.before(Call::Unbegun).await?;
        let outcome = self.ext().fail_unbegun(activity).await?;
        self.before(Call::UnbegunDone).await.map(|()| outcome)
    }

    async fn recover_lease(
        &self,
        queue: WorkQueue,
        token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        self.before(Call::Recover).await?;
        self.ext().recover_lease(queue, token, extend_for).await
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        self.before(Call::Read).await?;
        self.ext().read_metadata(instance).await
    }

    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        self.before(Call::Read).await?;
        self.ext().read_awaited(awaited).await
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        self.before(Call::Read).await?;
        self.ext().read_recent(instance, limit).await
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        self.ext().enqueue_start_if_absent(start).await
    }

    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        self.ext().enqueue_or_park(message).await
    }

    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        self.ext().enqueue_start_with_message(start, message).await
    }

    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        self.ext().enqueue_if_alive(message).await
    }

    async fn list_dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        self.ext().list_dropped(limit).await
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        self.ext().list_quarantined(limit).await
    }

    async fn block_instance(&self, token: &str, reason: &str) -> Result<(), ProviderError> {
        self.before(Call::Block).await?;
        self.ext().block_instance(token, reason).await
    }

    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        self.ext().unblock_instance(instance).await
    }

    async fn list_blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        self.ext().list_blocked(limit).await
    }

    async fn count_running(&self, up_to: usize) -> Result<Option<Vec<RunningInstances>>, ProviderError> {
        self.ext().count_running(up_to).await
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        self.ext().list_parked(limit).await
    }
}
