//! A store with a runtime on it, and histories that other versions recorded.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::provider_validation::support::*;
use crate::provider_validation::{Event, EventKind, ProviderFactory};
use crate::providers::WorkItem;
use crate::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use crate::runtime::{OrchestrationStatus, Runtime, RuntimeOptions, UnregisteredBackoffConfig};

/// The version since which the engine cancels a dropped future at once.
pub(super) const NEW_POLICY: &str = "0.1.31";

/// The last version before that.
pub(super) const OLD_POLICY: &str = "0.1.30";

/// The orchestration that the checks run.
pub(super) const NAME: &str = "Raced";

/// How long a check waits for an instance to end before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far a clock that a test moves by hand moves at a time while a runtime works.
const TICK: Duration = Duration::from_millis(2);

/// A store with a client.
pub(super) struct Lab<'a> {
    pub(super) store: Store<'a>,
    pub(super) client: Client,
}

impl<'a> Lab<'a> {
    pub(super) async fn new(factory: &'a dyn ProviderFactory) -> Self {
        let store = Store::new(factory).await;
        let client = Client::new(store.provider.clone());
        Self { store, client }
    }

    /// Starts a runtime with these orchestrations and no activities.
    pub(super) async fn start(
        &self,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
    ) -> Arc<Runtime> {
        let activities = ActivityRegistry::builder().build();
        Runtime::start_with_options(self.store.provider.clone(), activities, orchestrations, options).await
    }

    /// Stops a runtime after it has finished its work.
    pub(super) async fn stop(&self, runtime: Arc<Runtime>) {
        self.while_time_passes(runtime.shutdown(Some(5_000))).await;
    }

    /// Runs a runtime until the instance has ended, and returns how.
    pub(super) async fn run_to_end(
        &self,
        instance: &str,
        orchestrations: OrchestrationRegistry,
    ) -> OrchestrationStatus {
        let runtime = self.start(orchestrations, options()).await;
        let status = self.end_of(instance).await;
        self.stop(runtime).await;
        status
    }

    /// Waits until the instance has ended, and returns how.
    pub(super) async fn end_of(&self, instance: &str) -> OrchestrationStatus {
        let ended = self.while_time_passes(self.client.wait_for_orchestration(instance, PATIENCE)).await;
        ended.unwrap_or_else(|error| panic!("{instance} should end: {error}"))
    }

    /// Waits for something to come true, looking at it again and again.
    pub(super) async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let looks = PATIENCE.as_millis() / TICK.as_millis();
        for _ in 0..looks {
            if is_so().await {
                return;
            }
            self.while_time_passes(tokio::time::sleep(TICK)).await;
        }
        panic!("this should come true: {what}");
    }

    /// Waits until no other caller can fetch a message: a runtime has hidden or consumed all, or is about to.
    pub(super) async fn until_nothing_is_visible(&self) {
        self.until("a runtime takes all visible messages", async || self.nothing_is_visible().await).await;
    }

    /// Looks for a message that could be fetched, and gives back what it fetches without a trace.
    async fn nothing_is_visible(&self) -> bool {
        match self.store.try_turn().await {
            None => true,
            Some(turn) => {
                self.store.abandon_with(&turn, None, true).await;
                false
            }
        }
    }

    /// Lets runtimes work until all messages are hidden or consumed, and no runtime holds any of them.
    ///
    /// A runtime that stops gives back the claims that it has not begun; then the next one goes on.
    pub(super) async fn stop_when_nothing_is_visible(
        &self,
        mut runtime: Arc<Runtime>,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
    ) {
        loop {
            self.until_nothing_is_visible().await;
            self.stop(runtime).await;
            if self.nothing_is_visible().await {
                return;
            }
            runtime = self.start(orchestrations.clone(), options.clone()).await;
        }
    }

    /// Waits for a future; moves a manual clock on meanwhile.
    pub(super) async fn while_time_passes<T>(&self, future: impl Future<Output = T>) -> T {
        let Some(clock) = self.store.factory.clock() else {
            return future.await;
        };
        let mut future = pin!(future);
        loop {
            tokio::select! {
                output = &mut future => return output,
                () = tokio::time::sleep(TICK) => clock.advance(TICK),
            }
        }
    }

    /// Writes the history of execution 1 as if a runtime of that version had recorded it.
    ///
    /// Call it before other messages are queued, because the instance must be the next to take a turn.
    pub(super) async fn seed(&self, history: &Recorded) {
        let (instance, events) = (history.instance, history.events.clone());
        self.store.send(start_named(instance, history.name, Some(VERSION))).await;
        let turn = self.store.turn_of(instance).await;
        let mut commit = Commit::of_events(events).pinned(&history.stamp);
        commit.metadata.orchestration_name = Some(history.name.to_string());
        commit.metadata.orchestration_version = Some(VERSION.to_string());
        let has_continued =
            |event: &Event| matches!(event.kind, EventKind::OrchestrationContinuedAsNew { .. });
        if history.events.iter().any(has_continued) {
            commit = commit.status("ContinuedAsNew");
        }
        self.store.ack(&turn, commit).await;
    }

    /// Enqueues these messages, in order.
    pub(super) async fn send_all(&self, messages: impl IntoIterator<Item = WorkItem>) {
        for message in messages {
            self.store.send(message).await;
        }
    }
}

/// Options for a runtime that looks often, backs off briefly and does not give up soon.
pub(super) fn options() -> RuntimeOptions {
    RuntimeOptions {
        dispatcher_min_poll_interval: ms(10),
        dispatcher_long_poll_timeout: ms(100),
        unregistered_backoff: UnregisteredBackoffConfig { base_delay: ms(50), max_delay: ms(200) },
        max_attempts: 100,
        ..RuntimeOptions::default()
    }
}

/// The output of an instance that must have completed.
pub(super) fn output(status: OrchestrationStatus) -> String {
    match status {
        OrchestrationStatus::Completed { output, .. } => output,
        other => panic!("the instance should have completed, not {other:?}"),
    }
}

/// A history of execution 1 as some version recorded it.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) instance: &'static str,
    pub(super) name: &'static str,
    pub(super) stamp: String,
    pub(super) events: Vec<Event>,
}

impl Recorded {
    /// A history that consists of the start event.
    pub(super) fn started(instance: &'static str, stamp: &str, input: &str) -> Self {
        Self { instance, name: NAME, stamp: stamp.to_string(), events: Vec::new() }.then(
            EventKind::OrchestrationStarted {
                name: NAME.to_string(),
                version: VERSION.to_string(),
                input: input.to_string(),
                parent_instance: None,
                parent_id: None,
                parent_execution_id: None,
                carry_forward_events: None,
                initial_custom_status: None,
            },
        )
    }

    /// A history that has continued as new with this input.
    pub(super) fn continued(instance: &'static str, stamp: &str, next_input: &str) -> Self {
        Self::started(instance, stamp, "first")
            .then(EventKind::OrchestrationContinuedAsNew { input: next_input.to_string() })
    }

    /// Adds an event with the next id.
    pub(super) fn then(self, kind: EventKind) -> Self {
        self.push(None, kind)
    }

    /// Adds an event that ends or cancels what `source` scheduled.
    pub(super) fn then_of(self, source: u64, kind: EventKind) -> Self {
        self.push(Some(source), kind)
    }

    fn push(mut self, source: Option<u64>, kind: EventKind) -> Self {
        let event_id = self.events.len() as u64 + 1;
        let mut event = Event::with_event_id(event_id, self.instance, 1, source, kind);
        event.duroxide_version = self.stamp.clone();
        self.events.push(event);
        self
    }
}

/// The message that begins the next execution with this input and an unread queue message `carried`.
pub(super) fn continue_with(instance: &str, next_input: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.to_string(),
        orchestration: NAME.to_string(),
        input: next_input.to_string(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![("queue".to_string(), "carried".to_string())],
        initial_custom_status: None,
    }
}
