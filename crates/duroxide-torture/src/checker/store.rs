//! What is left in a store at the end, read by public interfaces alone.

use std::collections::BTreeMap;
use std::time::Duration;

use duroxide::providers::{Clock, QueueDepths};
use duroxide::{Client, ClientError, Event, OrchestrationRegistry, OrchestrationStatus};

use super::leftovers::Leftovers;
use super::{Invariant, Violation};
use crate::shared::program::Ending;

/// The histories by instance and execution.
pub type Histories = BTreeMap<(String, u64), Vec<Event>>;

/// How often a run that waits for the end looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A store after everything has ended, or should have.
#[derive(Debug, Default)]
pub struct Ended {
    /// How each instance stands.
    pub statuses: BTreeMap<String, OrchestrationStatus>,
    /// All that is recorded.
    pub histories: Histories,
    /// Messages and activities that are left over and that nobody holds.
    pub depths: Option<QueueDepths>,
    /// How many activities and instances are leased, delayed or ready; 0 if the store cannot tell.
    pub in_queues: u64,
    /// Rows that are left over, as the store itself has them.
    pub leftovers: Leftovers,
    /// Rows that the store set aside, by their reasons.
    pub quarantined: Vec<String>,
    /// Instances that are blocked, with the reasons.
    pub blocked: Vec<String>,
    /// Messages that wait for an instance that does not exist.
    pub parked: usize,
}

impl Ended {
    /// Waits until every instance has ended, the queues are empty, nobody holds anything and `rows` finds no row left over,
    /// but no longer than `bound`; then reads everything.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn read(
        client: &Client,
        clock: &dyn Clock,
        bound: Duration,
        rows: impl AsyncFn() -> Leftovers,
    ) -> Result<Self, ClientError> {
        let deadline = clock.monotonic() + bound;
        loop {
            let mut ended = Self::read_once(client).await?;
            ended.leftovers = rows().await;
            if ended.is_quiet() || clock.monotonic() >= deadline {
                return Ok(ended);
            }
            clock.sleep(BETWEEN_LOOKS).await;
        }
    }

    async fn read_once(client: &Client) -> Result<Self, ClientError> {
        let mut ended = Self { depths: Some(client.get_queue_depths().await?), ..Self::default() };
        for instance in client.list_all_instances().await? {
            let status = client.get_orchestration_status(&instance).await?;
            for execution in client.list_executions(&instance).await? {
                let events = client.read_execution_history(&instance, execution).await?;
                ended.histories.insert((instance.clone(), execution), events);
            }
            ended.statuses.insert(instance, status);
        }
        ended.quarantined =
            client.list_quarantined(0, 100).await?.into_iter().map(|row| format!("{row:?}")).collect();
        ended.blocked =
            client.list_blocked_instances(100).await?.into_iter().map(|row| format!("{row:?}")).collect();
        ended.parked = client.list_parked_messages(100).await?.len();
        if client.has_inspector() {
            for queue in client.queue_states().await? {
                ended.in_queues += queue.ready.value + queue.leased.value + queue.delayed.value;
            }
        }
        Ok(ended)
    }

    pub(super) fn is_quiet(&self) -> bool {
        let is_running = |status: &OrchestrationStatus| matches!(status, OrchestrationStatus::Running { .. });
        let left = self.depths.as_ref().map_or(0, |depths| depths.orchestrator_queue + depths.worker_queue);
        let is_held = self.in_queues > 0 || self.parked > 0 || !self.leftovers.is_empty();
        left == 0 && !is_held && !self.statuses.values().any(is_running)
    }

    /// I8, I13: nothing is left over, held or parked, and nothing was set aside.
    pub(super) fn check_leftovers(&self, expected: &BTreeMap<String, Ending>) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut report = |what| found.push(Violation::of_store(Invariant::CleanQueues, what));
        if self.in_queues > 0 {
            report(format!("{} activities and instances are held or queued at the end", self.in_queues));
        }
        for (rows, count) in self.leftovers.rows() {
            report(format!("rows are left at the end: {count} {rows}"));
        }
        // Messages may wait for an instance that nobody has started yet.
        if self.parked > 0 && expected.keys().all(|instance| self.statuses.contains_key(instance)) {
            report(format!("{} messages are parked, though every instance is there", self.parked));
        }
        if let Some(depths) = &self.depths
            && depths.orchestrator_queue + depths.worker_queue > 0
        {
            let what = format!("queues are not empty at the end: {depths:?}");
            found.push(Violation::of_store(Invariant::CleanQueues, what));
        }
        for row in &self.quarantined {
            let what = format!("a row was set aside though nothing was damaged: {row}");
            found.push(Violation::of_store(Invariant::LoudFailure, what));
        }
        for row in &self.blocked {
            let what = format!("an instance is blocked though its code fits: {row}");
            found.push(Violation::of_store(Invariant::LoudFailure, what));
        }
        found
    }

    /// I7: every history replays.
    pub(super) fn check_replay(&self, code: &OrchestrationRegistry) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut by_instance: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for ((instance, _), events) in &self.histories {
            by_instance.entry(instance).or_default().extend(events);
        }
        for (instance, events) in by_instance {
            let Ok(json) = serde_json::to_string(&events) else { continue };
            if let Err(difference) = duroxide::testing::replay([json], code) {
                let what = format!("does not replay: {difference}");
                found.push(Violation::new(Invariant::Replay, instance, what).at(difference.event_id));
            }
        }
        found
    }
}
