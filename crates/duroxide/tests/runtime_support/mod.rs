//! The tools that the tests of the runtime share: a store in memory, a clock that they move by hand, and short names.

#![allow(dead_code, reason = "each test file uses its part of this")]

pub mod unregistered_activities;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{Clock, ManualClock, Provider, WorkItem};
use duroxide::runtime::registry::{ActivityRegistry, ActivityRegistryBuilder};
use duroxide::runtime::{Runtime, UnregisteredBackoffConfig};
use duroxide::{
    ActivityContext, Client, ErrorDetails, Event, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationRegistryBuilder, OrchestrationStatus, RuntimeOptions,
};

/// Longer than anything that happens at all; no test waits for it to pass.
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

    /// Waits until an instance waits for a signal of this name.
    pub async fn waits_for(&self, instance: &str, signal: &str) {
        self.recorded(
            instance,
            |kind| matches!(kind, EventKind::ExternalSubscribed { name } if name == signal),
        )
        .await;
    }

    /// Waits until no message waits for any instance. Only for instances whose messages are due.
    pub async fn drained(&self) {
        while self.client.get_queue_depths().await.unwrap().orchestrator_queue > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass in small steps until the instance has ended.
    pub async fn end_in_time(&self, instance: &str, step: Duration) -> OrchestrationStatus {
        loop {
            if let Ok(status) = self.client.wait_for_orchestration(instance, Duration::ZERO).await {
                return status;
            }
            self.clock.advance(step);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Stores a history as another runtime would have left it.
    pub async fn seed(&self, instance: &str, execution_id: u64, events: Vec<Event>) {
        self.store.append_with_execution(instance, execution_id, events).await.unwrap();
    }
}

/// The details of a failure.
pub fn details(status: OrchestrationStatus) -> ErrorDetails {
    match status {
        OrchestrationStatus::Failed { details, .. } => details,
        other => panic!("not failed: {other:?}"),
    }
}

/// The output of an instance that completed.
pub fn output(status: OrchestrationStatus) -> String {
    match status {
        OrchestrationStatus::Completed { output, .. } => output,
        other => panic!("not completed: {other:?}"),
    }
}

/// The first event of an execution.
pub fn start_of(instance: &str, execution_id: u64, name: &str, input: &str) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: name.into(),
        version: "1.0.0".into(),
        input: input.into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event::with_event_id(1, instance, execution_id, None, kind)
}

/// The last event of a first execution that continues as new.
pub fn continued(instance: &str, event_id: u64) -> Event {
    let kind = EventKind::OrchestrationContinuedAsNew { input: "second".into() };
    Event::with_event_id(event_id, instance, 1, None, kind)
}

/// The start of the next execution, with the messages that it carries along.
pub fn successor(instance: &str, name: &str, carried: &[(&str, &str)]) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.into(),
        orchestration: name.into(),
        input: "second".into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: carried
            .iter()
            .map(|(queue, data)| (queue.to_string(), data.to_string()))
            .collect(),
        initial_custom_status: None,
    }
}

/// Few attempts, and little time between them.
pub fn few_attempts(max_attempts: u32) -> RuntimeOptions {
    RuntimeOptions {
        max_attempts,
        unregistered_backoff: UnregisteredBackoffConfig {
            base_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(1),
        },
        ..Default::default()
    }
}

/// An activity that returns its input.
pub fn echo() -> ActivityRegistryBuilder {
    activities().register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
}

pub fn activities() -> ActivityRegistryBuilder {
    ActivityRegistry::builder()
}

pub fn orchestrations() -> OrchestrationRegistryBuilder {
    OrchestrationRegistry::builder()
}

/// Runs the activity that its input names and returns its result.
pub fn one_activity() -> OrchestrationRegistryBuilder {
    orchestrations().register("One", |ctx: OrchestrationContext, name: String| async move {
        ctx.schedule_activity(name, "in").await
    })
}

/// A parent of any child, and children that end in every way.
pub fn family() -> OrchestrationRegistryBuilder {
    orchestrations()
        .register("Parent", |ctx: OrchestrationContext, child: String| async move {
            match ctx.schedule_sub_orchestration(child, "in").await {
                Ok(output) => Ok(format!("child said {output}")),
                Err(error) => Ok(format!("child failed: {error}")),
            }
        })
        .register("Named", |ctx: OrchestrationContext, id: String| async move {
            let result = ctx.schedule_sub_orchestration_with_id("Waiting", id, "in").await;
            Ok(format!("{result:?}"))
        })
        .register("Waiting", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Fails", |_: OrchestrationContext, _: String| async move { Err("bad".to_string()) })
        .register("TooMuchStatus", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("x".repeat(262_145));
            Ok("never".to_string())
        })
        .register("Continues", |ctx: OrchestrationContext, input: String| async move {
            if input == "in" { ctx.continue_as_new("again").await } else { Ok(input) }
        })
}

/// The names of the events of a history, in order.
pub fn kinds(history: &[Event]) -> Vec<&'static str> {
    history.iter().map(|event| duroxide::providers::inspect::event_type(&event.kind)).collect()
}

pub mod faulty;
#[path = "../support/forwarding.rs"]
pub mod forwarding;
pub mod logs;

/// A world whose store can be made to fail.
pub fn faulty_world() -> (World, Arc<faulty::Faulty>) {
    let world = World::new();
    let faulty = faulty::Faulty::new(world.store.clone());
    (World::on(faulty.clone(), world.clock), faulty)
}

/// A world whose store offers the documented contract and nothing more. Its time is the machine's.
pub fn plain_world() -> (World, Arc<faulty::Faulty>) {
    let store: Arc<dyn Provider> = Arc::new(MemoryProvider::new());
    let faulty = faulty::Faulty::plain(store);
    (World::on(faulty.clone(), Arc::new(ManualClock::default())), faulty)
}

/// The result of an activity.
pub type BoxedResult = std::pin::Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// A place where activities report, and where they wait to be let go.
#[derive(Clone, Default)]
pub struct Stage {
    inner: Arc<StageInner>,
}

#[derive(Default)]
struct StageInner {
    log: std::sync::Mutex<Vec<String>>,
    changed: tokio::sync::Notify,
    gate: tokio::sync::Notify,
    running: std::sync::atomic::AtomicUsize,
    peak: std::sync::atomic::AtomicUsize,
}

impl Stage {
    pub fn report(&self, line: impl Into<String>) {
        self.inner.log.lock().unwrap().push(line.into());
        self.inner.changed.notify_waiters();
    }

    pub fn log(&self) -> Vec<String> {
        self.inner.log.lock().unwrap().clone()
    }

    /// Waits until a line was reported this many times.
    pub async fn seen(&self, line: &str, times: usize) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.log().iter().filter(|other| *other == line).count() >= times {
                return;
            }
            changed.await;
        }
    }

    /// An activity that is handed this stage with each call.
    pub fn activity<F, Fut>(
        &self,
        body: F,
    ) -> impl Fn(ActivityContext, String) -> Fut + Clone + Send + Sync + 'static + use<F, Fut>
    where
        F: Fn(Stage, ActivityContext, String) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        let stage = self.clone();
        move |ctx, input| body(stage.clone(), ctx, input)
    }

    /// An activity that runs until it is cancelled. It reports `running` and `cancelled`.
    pub fn until_cancelled(
        &self,
    ) -> impl Fn(ActivityContext, String) -> BoxedResult + Clone + Send + Sync + 'static {
        self.activity(|stage, ctx, _| -> BoxedResult {
            Box::pin(async move {
                stage.report("running");
                ctx.cancelled().await;
                stage.report("cancelled");
                Ok("too late".to_string())
            })
        })
    }

    /// An activity that reports the instance that it runs for.
    pub fn naming_instances(
        &self,
    ) -> impl Fn(ActivityContext, String) -> BoxedResult + Clone + Send + Sync + 'static {
        self.activity(|stage, ctx, _| -> BoxedResult {
            stage.report(ctx.instance_id());
            Box::pin(async { Ok(String::new()) })
        })
    }

    /// Counts as running until the guard is dropped.
    pub fn enter(&self) -> Running {
        use std::sync::atomic::Ordering::SeqCst;
        let now = self.inner.running.fetch_add(1, SeqCst) + 1;
        self.inner.peak.fetch_max(now, SeqCst);
        Running { stage: self.clone() }
    }

    pub fn peak(&self) -> usize {
        self.inner.peak.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Waits to be let go.
    pub async fn wait(&self) {
        self.inner.gate.notified().await;
    }

    /// Lets one waiter go, now or later.
    pub fn let_go(&self) {
        self.inner.gate.notify_one();
    }
}

pub struct Running {
    stage: Stage,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stage.inner.running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
    }
}
