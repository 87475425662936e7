//! What the tests of the runtime share: a store in memory, a clock that is moved by hand, and short names.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{Clock, ManualClock, Provider};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::{ActivityRegistry, ActivityRegistryBuilder};
use duroxide::{
    Client, Event, EventKind, OrchestrationRegistry, OrchestrationRegistryBuilder, OrchestrationStatus,
    RuntimeOptions,
};

/// Long enough for anything that happens at all; nothing waits for it to pass.
pub const SOON: Duration = Duration::from_secs(60);

/// A store whose time stands still until it is moved.
pub struct World {
    pub clock: Arc<ManualClock>,
    pub store: Arc<dyn Provider>,
    pub client: Client,
}

impl World {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store: Arc<dyn Provider> = Arc::new(MemoryProvider::with_clock(clock.clone()));
        Self::on(store, clock)
    }

    /// The same over another store, such as a wrapper of the first.
    pub fn on(store: Arc<dyn Provider>, clock: Arc<ManualClock>) -> Self {
        let client = Client::new(store.clone());
        Self { clock, store, client }
    }

    pub async fn start(
        &self,
        activities: ActivityRegistryBuilder,
        orchestrations: OrchestrationRegistryBuilder,
    ) -> Arc<Runtime> {
        self.start_with(activities, orchestrations, RuntimeOptions::default()).await
    }

    pub async fn start_with(
        &self,
        activities: ActivityRegistryBuilder,
        orchestrations: OrchestrationRegistryBuilder,
        options: RuntimeOptions,
    ) -> Arc<Runtime> {
        let activities = activities.build_result().unwrap();
        let orchestrations = orchestrations.build_result().unwrap();
        Runtime::start_with_options(self.store.clone(), activities, orchestrations, options).await
    }

    /// Starts an instance and waits for its end.
    pub async fn run(&self, instance: &str, orchestration: &str, input: &str) -> OrchestrationStatus {
        self.client.start_orchestration(instance, orchestration, input).await.unwrap();
        self.end(instance).await
    }

    pub async fn end(&self, instance: &str) -> OrchestrationStatus {
        self.client.wait_for_orchestration(instance, SOON).await.unwrap()
    }

    /// Waits for the output of an instance that completes.
    pub async fn output(&self, instance: &str) -> String {
        match self.end(instance).await {
            OrchestrationStatus::Completed { output, .. } => output,
            other => panic!("{instance} did not complete: {other:?}"),
        }
    }

    /// Waits for the error text of an instance that fails.
    pub async fn failure(&self, instance: &str) -> String {
        match self.end(instance).await {
            OrchestrationStatus::Failed { details, .. } => details.display_message(),
            other => panic!("{instance} did not fail: {other:?}"),
        }
    }

    pub async fn history(&self, instance: &str) -> Vec<Event> {
        self.store.read(instance).await.unwrap()
    }

    /// Waits until the history of an instance has an event like this. A store in memory is watched, not asked.
    pub async fn recorded(&self, instance: &str, wanted: impl Fn(&EventKind) -> bool) -> Event {
        let extended = self.store.as_extended();
        loop {
            let mut watch = extended.map(|store| store.watch_instance(instance));
            let history = self.history(instance).await;
            if let Some(event) = history.into_iter().find(|event| wanted(&event.kind)) {
                return event;
            }
            match &mut watch {
                Some(watch) => watch.changed().await,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Waits until an instance has set a timer, then lets that much time pass.
    pub async fn pass(&self, instance: &str, time: Duration) {
        self.recorded(instance, |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
        self.clock.advance(time);
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}

pub fn activities() -> ActivityRegistryBuilder {
    ActivityRegistry::builder()
}

pub fn orchestrations() -> OrchestrationRegistryBuilder {
    OrchestrationRegistry::builder()
}

/// The names of the events of a history, in order.
pub fn kinds(history: &[Event]) -> Vec<&'static str> {
    history.iter().map(|event| duroxide::providers::inspect::event_type(&event.kind)).collect()
}
