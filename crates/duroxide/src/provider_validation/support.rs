//! The tools of the checks: a store under test, the ways to drive it, and time that passes.
//!
//! The defaults are those of nearly every check: no waiting, no filter, no session, untagged activities, leases of 30
//! seconds, and the items of [`items`](super::items).

#![allow(dead_code, reason = "each helper serves several modules; which ones changes with the kit")]

use std::sync::Arc;
use std::time::Duration;

pub(crate) use super::items::*;
use super::{Event, ExecutionMetadata, ProviderFactory};
use crate::model::WorkItem;
use crate::providers::{
    DispatcherCapabilityFilter, ExtendedProvider, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
    ScheduledActivityIdentifier, SessionFetchConfig, TagFilter,
};

/// The lease of a turn where a check does not wait for its end.
pub(crate) const TURN_LEASE: Duration = Duration::from_secs(30);

/// The lease of an activity where a check does not wait for its end.
pub(crate) const WORK_LEASE: Duration = Duration::from_secs(30);

/// A little more than a lease, so that it has surely run out.
pub(crate) const MARGIN: Duration = Duration::from_millis(100);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Lets time pass: moves the store's clock if the factory has one, sleeps otherwise.
pub(crate) async fn pass_time(factory: &dyn ProviderFactory, duration: Duration) {
    match factory.clock() {
        Some(clock) => clock.advance(duration),
        None => tokio::time::sleep(duration).await,
    }
}

/// A turn that the check holds.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) item: OrchestrationItem,
    pub(crate) token: String,
    pub(crate) attempts: u32,
}

/// An activity that the check holds.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) item: WorkItem,
    pub(crate) token: String,
    pub(crate) attempts: u32,
}

impl Work {
    /// The id under which the activity was scheduled.
    pub(crate) fn id(&self) -> u64 {
        activity_id(&self.item)
    }
}

/// The changes that a turn writes; the default writes nothing, to execution 1.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    pub(crate) execution_id: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) work: Vec<WorkItem>,
    pub(crate) messages: Vec<WorkItem>,
    pub(crate) metadata: ExecutionMetadata,
    pub(crate) cancelled: Vec<ScheduledActivityIdentifier>,
}

impl Default for Commit {
    fn default() -> Self {
        Self {
            execution_id: 1,
            events: Vec::new(),
            work: Vec::new(),
            messages: Vec::new(),
            metadata: ExecutionMetadata::default(),
            cancelled: Vec::new(),
        }
    }
}

impl Commit {
    /// Makes the commit of an instance's first turn: the start event, name and version.
    pub(crate) fn creating(instance: &str) -> Self {
        Self { events: vec![started(instance, 1)], metadata: named(), ..Self::default() }
    }

    /// Writes these events only.
    pub(crate) fn of_events(events: Vec<Event>) -> Self {
        Self { events, ..Self::default() }
    }
}

/// A fresh store and the ways in which checks drive it.
pub(crate) struct Store<'a> {
    pub(crate) factory: &'a dyn ProviderFactory,
    pub(crate) provider: Arc<dyn Provider>,
}

impl<'a> Store<'a> {
    /// Makes an empty store.
    pub(crate) async fn new(factory: &'a dyn ProviderFactory) -> Self {
        Self { factory, provider: factory.create_provider().await }
    }

    /// The lease time of checks that wait for its end.
    pub(crate) fn lease(&self) -> Duration {
        self.factory.lock_timeout()
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, duration: Duration) {
        pass_time(self.factory, duration).await;
    }

    /// Lets a lease of the factory's lock time-out run out.
    pub(crate) async fn outlive_lease(&self) {
        self.pass(self.lease() + MARGIN).await;
    }

    /// The management interface; every store under test has it.
    pub(crate) fn admin(&self) -> &dyn ProviderAdmin {
        self.provider.as_management_capability().expect("the store should offer ProviderAdmin")
    }

    /// The abilities beyond the published contract, if the store has them.
    pub(crate) fn extended(&self) -> Option<&dyn ExtendedProvider> {
        self.provider.as_extended()
    }

    // Enqueueing.

    /// Enqueues a start with the usual name, version and input.
    pub(crate) async fn start(&self, instance: &str) {
        self.send(start_item(instance)).await;
    }

    /// Enqueues an orchestrator message, visible at once.
    pub(crate) async fn send(&self, message: WorkItem) {
        self.provider
            .enqueue_for_orchestrator(message, None)
            .await
            .expect("enqueue_for_orchestrator should work");
    }

    /// Enqueues an orchestrator message, visible after `delay`.
    pub(crate) async fn send_delayed(&self, message: WorkItem, delay: Duration) {
        self.provider
            .enqueue_for_orchestrator(message, Some(delay))
            .await
            .expect("enqueue_for_orchestrator should work");
    }

    /// Enqueues an activity.
    pub(crate) async fn send_work(&self, item: WorkItem) {
        self.provider.enqueue_for_worker(item).await.expect("enqueue_for_worker should work");
    }

    // Turns.

    /// Fetches a turn, if there is one.
    pub(crate) async fn try_turn(&self) -> Option<Turn> {
        self.try_turn_for(TURN_LEASE).await
    }

    /// Fetches a turn with this lease, if there is one.
    pub(crate) async fn try_turn_for(&self, lease: Duration) -> Option<Turn> {
        fetch_turn(&*self.provider, lease, None).await
    }

    /// Fetches a turn that this filter lets through, if there is one.
    pub(crate) async fn try_turn_with(&self, filter: &DispatcherCapabilityFilter) -> Option<Turn> {
        fetch_turn(&*self.provider, TURN_LEASE, Some(filter)).await
    }

    /// Fetches a turn; there must be one.
    pub(crate) async fn turn(&self) -> Turn {
        self.turn_for(TURN_LEASE).await
    }

    /// Fetches a turn with this lease; there must be one.
    pub(crate) async fn turn_for(&self, lease: Duration) -> Turn {
        self.try_turn_for(lease).await.expect("fetch_orchestration_item should return a turn")
    }

    /// Fetches a turn; it must be of this instance.
    pub(crate) async fn turn_of(&self, instance: &str) -> Turn {
        let turn = self.turn().await;
        assert_eq!(turn.item.instance, instance, "the turn should be of this instance");
        turn
    }

    /// Checks that no turn can be fetched.
    pub(crate) async fn expect_no_turn(&self, why: &str) {
        let turn = self.try_turn().await;
        assert!(turn.is_none(), "no turn should be available: {why}; got {turn:?}");
    }

    /// Commits a turn and returns the store's answer.
    pub(crate) async fn try_ack(&self, token: &str, commit: Commit) -> Result<(), ProviderError> {
        ack_turn(&*self.provider, token, commit).await
    }

    /// Commits a turn; the store must accept it.
    pub(crate) async fn ack(&self, turn: &Turn, commit: Commit) {
        self.try_ack(&turn.token, commit).await.expect("ack_orchestration_item should work");
    }

    /// Gives a turn back, visible at once and counted.
    pub(crate) async fn abandon(&self, turn: &Turn) {
        self.abandon_with(turn, None, false).await;
    }

    /// Gives a turn back.
    pub(crate) async fn abandon_with(&self, turn: &Turn, delay: Option<Duration>, ignore_attempt: bool) {
        self.provider
            .abandon_orchestration_item(&turn.token, delay, ignore_attempt)
            .await
            .expect("abandon_orchestration_item should work");
    }

    /// Enqueues a start, fetches the turn and commits it.
    pub(crate) async fn start_and_ack(&self, instance: &str, commit: Commit) {
        self.start(instance).await;
        let turn = self.turn_of(instance).await;
        self.ack(&turn, commit).await;
    }

    /// Creates an instance.
    pub(crate) async fn create(&self, instance: &str) {
        self.start_and_ack(instance, Commit::creating(instance)).await;
    }

    /// Creates an instance as the child of another.
    pub(crate) async fn create_child(&self, instance: &str, parent: &str) {
        let mut commit = Commit::creating(instance);
        commit.metadata.parent_instance_id = Some(parent.to_string());
        self.start_and_ack(instance, commit).await;
    }

    /// Creates an instance whose first execution has this status, with output `result`.
    pub(crate) async fn create_with_status(&self, instance: &str, status: &str) {
        let mut commit = Commit::creating(instance);
        commit.metadata.status = Some(status.to_string());
        commit.metadata.output = Some("result".to_string());
        self.start_and_ack(instance, commit).await;
    }

    /// Creates an instance whose first turn schedules these activities.
    pub(crate) async fn create_with_work(&self, instance: &str, work: Vec<WorkItem>) {
        self.start_and_ack(instance, Commit { work, ..Commit::creating(instance) }).await;
    }

    /// Sends the instance a signal, fetches its turn and commits it.
    pub(crate) async fn next_turn(&self, instance: &str, commit: Commit) {
        self.send(raised(instance, "next", "")).await;
        let turn = self.turn_of(instance).await;
        self.ack(&turn, commit).await;
    }

    // Activities.

    /// Fetches an activity, if there is one.
    pub(crate) async fn try_work(&self) -> Option<Work> {
        self.try_work_for(WORK_LEASE).await
    }

    /// Fetches an activity with this lease, if there is one.
    pub(crate) async fn try_work_for(&self, lease: Duration) -> Option<Work> {
        fetch_work(&*self.provider, lease, None, &TagFilter::default()).await
    }

    /// Fetches an activity as this owner of sessions, if there is one.
    pub(crate) async fn try_session_work(
        &self,
        lease: Duration,
        session: &SessionFetchConfig,
    ) -> Option<Work> {
        fetch_work(&*self.provider, lease, Some(session), &TagFilter::default()).await
    }

    /// Fetches an activity that this filter lets through, if there is one.
    pub(crate) async fn try_tagged_work(&self, filter: &TagFilter) -> Option<Work> {
        fetch_work(&*self.provider, WORK_LEASE, None, filter).await
    }

    /// Fetches an activity; there must be one.
    pub(crate) async fn work(&self) -> Work {
        self.work_for(WORK_LEASE).await
    }

    /// Fetches an activity with this lease; there must be one.
    pub(crate) async fn work_for(&self, lease: Duration) -> Work {
        self.try_work_for(lease).await.expect("fetch_work_item should return an activity")
    }

    /// Checks that no activity can be fetched.
    pub(crate) async fn expect_no_work(&self, why: &str) {
        let work = self.try_work().await;
        assert!(work.is_none(), "no activity should be available: {why}; got {work:?}");
    }

    /// Completes an activity; the store must accept it.
    pub(crate) async fn complete(&self, work: &Work) {
        self.provider
            .ack_work_item(&work.token, Some(completion_of(&work.item, "done")))
            .await
            .expect("ack_work_item should work");
    }

    /// Gives an activity back.
    pub(crate) async fn abandon_work(&self, work: &Work, delay: Option<Duration>, ignore_attempt: bool) {
        self.provider
            .abandon_work_item(&work.token, delay, ignore_attempt)
            .await
            .expect("abandon_work_item should work");
    }

    // Reading.

    /// Reads the latest execution's history.
    pub(crate) async fn history(&self, instance: &str) -> Vec<Event> {
        self.provider.read(instance).await.expect("read should work")
    }

    /// Reads one execution's history.
    pub(crate) async fn history_of(&self, instance: &str, execution_id: u64) -> Vec<Event> {
        self.provider
            .read_with_execution(instance, execution_id)
            .await
            .expect("read_with_execution should work")
    }
}

/// Checks that the store refused a call for good, and returns the refusal.
pub(crate) fn assert_refused<T: std::fmt::Debug>(
    outcome: Result<T, ProviderError>,
    what: &str,
) -> ProviderError {
    match outcome {
        Ok(value) => panic!("{what} should be refused; got {value:?}"),
        Err(refusal) => {
            assert!(!refusal.is_retryable(), "{what} should be refused for good; got {refusal:?}");
            refusal
        }
    }
}

/// Fetches a turn without waiting.
pub(crate) async fn fetch_turn(
    provider: &dyn Provider,
    lease: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Option<Turn> {
    let fetched = provider.fetch_orchestration_item(lease, Duration::ZERO, filter).await;
    let fetched = fetched.expect("fetch_orchestration_item should work");
    fetched.map(|(item, token, attempts)| Turn { item, token, attempts })
}

/// Fetches an activity without waiting.
pub(crate) async fn fetch_work(
    provider: &dyn Provider,
    lease: Duration,
    session: Option<&SessionFetchConfig>,
    tag_filter: &TagFilter,
) -> Option<Work> {
    let fetched = provider.fetch_work_item(lease, Duration::ZERO, session, tag_filter).await;
    let fetched = fetched.expect("fetch_work_item should work");
    fetched.map(|(item, token, attempts)| Work { item, token, attempts })
}

/// Commits a turn and returns the store's answer.
pub(crate) async fn ack_turn(
    provider: &dyn Provider,
    token: &str,
    commit: Commit,
) -> Result<(), ProviderError> {
    let Commit { execution_id, events, work, messages, metadata, cancelled } = commit;
    provider.ack_orchestration_item(token, execution_id, events, work, messages, metadata, cancelled).await
}
