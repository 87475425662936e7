//! The environment of a test: the real runtime on a store in memory, and time that skips ahead.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::TestEnvBuilder;
use super::calls::{ActivityCall, Calls};
use super::clock::WaitingClock;
use super::crash::CrashPlan;
use super::driver::Driver;
use super::history::RecordedHistory;
use super::script::Script;
use super::typed::ActivityName;
use crate::app::DuroxideBuilder;
use crate::client::Client;
use crate::model::{Clock, ManualClock, OrchestrationStatus};
use crate::providers::instrumented::InstrumentedProvider;
use crate::providers::memory::MemoryProvider;
use crate::providers::{ExtendedProvider, Provider, ProviderAdmin};
use crate::registry::{ActivityRegistry, OrchestrationRegistry};
use crate::runtime::{OnUnregistered, Runtime, RuntimeOptions, blocked};

/// A test environment: the real engine on a store in memory, with time that skips ahead. See the [module](super).
///
/// Dropping it stops its runtime.
///
/// ```
/// # use duroxide::prelude::*;
/// # use duroxide::testing::{Mock, TestEnv};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
/// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt")).start().await;
/// env.start("p-1", "Pay", "visa").await;
/// assert_eq!(env.output("p-1").await, "receipt");
/// assert_eq!(env.calls("Charge").len(), 1);
/// # }
/// ```
pub struct TestEnv {
    shared: Arc<Shared>,
    supervisor: tokio::task::JoinHandle<()>,
}

/// What an environment is made of.
pub(super) struct Parts {
    pub time: Arc<ManualClock>,
    pub waiting: WaitingClock,
    pub store: Arc<MemoryProvider>,
    pub calls: Calls,
    pub activities: ActivityRegistry,
    pub orchestrations: OrchestrationRegistry,
    pub options: RuntimeOptions,
    pub plan: CrashPlan,
}

struct Shared {
    driver: Driver,
    activities: ActivityRegistry,
    plan: CrashPlan,
    running: Mutex<Running>,
    /// Held while a runtime takes the place of another.
    exchange: tokio::sync::Mutex<()>,
}

/// The runtime, and what the next one is made of.
struct Running {
    runtime: Option<Arc<Runtime>>,
    orchestrations: OrchestrationRegistry,
    options: RuntimeOptions,
    deployments: u32,
}

impl TestEnv {
    /// Says what the environment consists of.
    ///
    /// ```
    /// use duroxide::testing::TestEnv;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let env = TestEnv::builder().start().await;
    /// # }
    /// ```
    pub fn builder() -> TestEnvBuilder {
        TestEnvBuilder::default()
    }

    /// Says that the environment consists of the functions and services of an application, as the program registers them.
    ///
    /// ```
    /// use duroxide::{Duroxide, DuroxideBuilder};
    /// use duroxide::testing::TestEnv;
    ///
    /// fn functions(app: DuroxideBuilder) -> DuroxideBuilder {
    ///     app // .activity(charge).orchestration(fulfil).state(services)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let env = TestEnv::of(functions(Duroxide::open("memory:"))).start().await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If a name is registered twice.
    #[track_caller]
    pub fn of(app: DuroxideBuilder) -> TestEnvBuilder {
        Self::builder().app(app)
    }

    pub(super) async fn start_parts(parts: Parts) -> Self {
        let Parts { time, waiting, store, calls, activities, orchestrations, options, plan } = parts;
        let client = Client::new(store.clone()).with_clock(Arc::new(waiting.clone()));
        let lease = options.worker_lock_timeout;
        let driver = Driver {
            time,
            waiting,
            store,
            calls,
            script: Script::default(),
            client,
            activities: activities.clone(),
            blocks_on_unregistered: options.on_unregistered == OnUnregistered::Block,
            lease,
        };
        let running = Running { runtime: None, orchestrations, options, deployments: 0 };
        let (running, exchange) = (Mutex::new(running), tokio::sync::Mutex::default());
        let shared = Arc::new(Shared { driver, activities, plan, running, exchange });
        shared.start_runtime().await;
        let supervisor = tokio::spawn(supervise(shared.clone()));
        Self { shared, supervisor }
    }

    /// Returns a client. Its waits end only inside [`run`](Self::run), because only there does time pass.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// let status = env.client().get_orchestration_status("r-1").await.unwrap();
    /// # }
    /// ```
    pub fn client(&self) -> Client {
        self.driver().client.clone()
    }

    /// Returns the store.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// let store = env.store(); // for a client or a dashboard of your own
    /// # }
    /// ```
    pub fn store(&self) -> Arc<dyn Provider> {
        self.driver().store.clone()
    }

    /// Returns the clock, which moves only while the environment waits.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// let clock = env.clock();
    /// env.output("r-1").await;
    /// assert_eq!(clock.monotonic(), days(30));
    /// # }
    /// ```
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.driver().waiting.clone())
    }

    /// Returns how much time has passed since the environment was started.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// assert_eq!(env.elapsed(), days(30));
    /// # }
    /// ```
    pub fn elapsed(&self) -> Duration {
        self.driver().time.monotonic()
    }

    /// Starts an instance.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// assert_eq!(env.output("r-1").await, "sent");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the store refuses the start.
    pub async fn start(&self, instance: &str, orchestration: &str, input: impl Into<String>) {
        let started = self.client().start_orchestration(instance, orchestration, input.into()).await;
        expect(started.map(drop), "start");
    }

    /// Raises a signal now.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.raise("r-1", "nobody-waits", "data").await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the store refuses it.
    pub async fn raise(&self, instance: &str, name: &str, data: impl Into<String>) {
        expect(self.client().raise_event(instance, name, data.into()).await, "raise");
    }

    /// Does something after `delay`, when time gets there: raises a signal, sends a message, cancels.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationContext;
    /// # use duroxide::testing::TestEnv;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let approve = |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("Approved").await) };
    /// let env = TestEnv::builder().orchestration("Approve", approve).start().await;
    /// env.start("a-1", "Approve", "").await;
    /// env.after(Duration::from_secs(3600), |client| async move {
    ///     client.raise_event("a-1", "Approved", "Ada").await.unwrap();
    /// });
    /// assert_eq!(env.output("a-1").await, "Ada");
    /// # }
    /// ```
    pub fn after<Fut>(&self, delay: Duration, act: impl FnOnce(Client) -> Fut + Send + 'static)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.driver().script.add(self.elapsed().saturating_add(delay), act);
    }

    /// Raises a signal after `delay`.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.raise_after(days(2), "r-1", "nobody-waits", "data");
    /// assert_eq!(env.output("r-1").await, "sent");
    /// # }
    /// ```
    pub fn raise_after(
        &self,
        delay: Duration,
        instance: impl Into<String>,
        name: impl Into<String>,
        data: impl Into<String>,
    ) {
        let (instance, name, data) = (instance.into(), name.into(), data.into());
        self.after(delay, move |client| async move {
            expect(client.raise_event(instance, name, data).await, "raise");
        });
    }

    /// Waits until an instance completes, and returns its output.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// assert_eq!(env.output("r-1").await, "sent");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it fails, is blocked, or waits for something that never comes. The text says which, and lists its steps.
    #[track_caller]
    pub fn output(&self, instance: &str) -> impl Future<Output = String> {
        let place = std::panic::Location::caller();
        async move {
            match self.end(instance).await {
                Ok(OrchestrationStatus::Completed { output, .. }) => output,
                Ok(OrchestrationStatus::Failed { details, .. }) => {
                    panic!(
                        "{place}: '{instance}' failed: {}{}",
                        details.display_message(),
                        self.steps(instance).await
                    )
                }
                Ok(other) => panic!("{place}: '{instance}' has not ended: {other:?}"),
                Err(why) => panic!("{place}: '{instance}' does not end: {why}{}", self.steps(instance).await),
            }
        }
    }

    /// Waits until an instance fails, and returns the error's text.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.client().cancel("r-1").reason("enough").await.unwrap();
    /// assert_eq!(env.failure("r-1").await, "canceled: enough");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it completes, is blocked, or waits for something that never comes.
    #[track_caller]
    pub fn failure(&self, instance: &str) -> impl Future<Output = String> {
        let place = std::panic::Location::caller();
        async move {
            match self.end(instance).await {
                Ok(OrchestrationStatus::Failed { details, .. }) => details.display_message(),
                Ok(other) => {
                    panic!("{place}: '{instance}' did not fail: {other:?}{}", self.steps(instance).await)
                }
                Err(why) => panic!("{place}: '{instance}' does not end: {why}{}", self.steps(instance).await),
            }
        }
    }

    /// Waits until an instance completes or fails.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// let ended = env.end("r-1").await.unwrap();
    /// assert!(matches!(ended, OrchestrationStatus::Completed { .. }));
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why it will do neither: it is blocked, or nothing is left that could happen.
    pub async fn end(&self, instance: &str) -> Result<OrchestrationStatus, String> {
        let client = self.client();
        let look = async || {
            if let Some(reason) = self.blocked(instance).await {
                return Some(Err(format!("it is blocked: {reason}")));
            }
            match client.get_orchestration_status(instance).await {
                Ok(status @ (OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. })) => {
                    Some(Ok(status))
                }
                Ok(_) => None,
                Err(error) => Some(Err(error.to_string())),
            }
        };
        let nothing =
            || Err("nothing runs and nothing is due; it waits for something that never comes".to_string());
        self.driver().until(look).await.unwrap_or_else(nothing)
    }

    /// Returns why an instance is blocked, as things are now; `None` if it is not. One that waits for an activity that is neither
    /// registered nor mocked is blocked.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.settle().await;
    /// assert_eq!(env.blocked("r-1").await, None);
    /// # }
    /// ```
    pub async fn blocked(&self, instance: &str) -> Option<String> {
        let blocked = self.driver().store.list_blocked(usize::MAX).await.unwrap_or_default();
        let by_runtime = blocked.into_iter().find(|blocked| blocked.instance == instance);
        by_runtime.map(|blocked| blocked.reason).or_else(|| self.driver().forgotten(Some(instance)))
    }

    /// Waits until nothing runs and nothing is ready. No time passes.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.settle().await;
    /// assert_eq!(env.elapsed(), secs(0)); // it waits for its timer, and no time has passed
    /// # }
    /// ```
    pub async fn settle(&self) {
        self.driver().quiet().await;
    }

    /// Lets time pass, with everything that falls due on the way.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.sleep(days(29)).await;
    /// assert!(env.calls("SendMail").is_empty());
    /// # }
    /// ```
    pub async fn sleep(&self, duration: Duration) {
        let until = self.elapsed().saturating_add(duration);
        // Time skips to the end of this wait, and no further.
        let _waiting = self.driver().waiting.sleep_until(until);
        self.driver().until(async || (self.elapsed() >= until).then_some(())).await;
    }

    /// Runs a future, such as a call of a client that waits. Time skips ahead whenever the future waits and nothing
    /// happens.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// let client = env.client();
    /// let sent = env.run(client.wait_for_orchestration_typed::<String>("r-1", days(31))).await.unwrap();
    /// assert_eq!(sent.unwrap(), "sent");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it waits while an instance waits for an activity that is neither registered nor mocked.
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.driver().run(future).await
    }

    /// Returns the calls of an activity so far, real or mocked, in the order in which they began.
    ///
    /// By the function with `#[activity]`, the records are [typed](super::TypedCall); by the recorded name, they are texts.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// assert_eq!(env.calls("SendMail")[0].input, "ada");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If an input is not of the type that the function has today.
    pub fn calls<Marker, N: ActivityName<Marker>>(&self, activity: N) -> Vec<N::Call> {
        let name = activity.activity_name();
        let calls = self.all_calls().into_iter().filter(|call| call.name == name);
        calls.map(|call| activity.call(call)).collect()
    }

    /// Returns the calls of all activities so far, in the order in which they began.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// assert_eq!(env.all_calls().len(), 1);
    /// # }
    /// ```
    pub fn all_calls(&self) -> Vec<ActivityCall> {
        self.driver().calls.all()
    }

    /// Returns the history of an instance's current execution.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// assert_eq!(env.history("r-1").await.timers(), [days(30)]);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the history cannot be read.
    pub async fn history(&self, instance: &str) -> RecordedHistory {
        RecordedHistory::new(instance, expect(self.driver().store.read(instance).await, "read"))
    }

    /// Exchanges the orchestrations for others, as a deployment does: stops the runtime, and starts one with another build.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let old = |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) };
    /// let env = TestEnv::builder().orchestration("Wait", old).start().await;
    /// env.start("w-1", "Wait", "").await;
    /// env.settle().await;
    /// let new = |ctx: OrchestrationContext, _: String| async move { Ok(format!("went {}", ctx.schedule_wait("go").await)) };
    /// env.deploy(OrchestrationRegistry::builder().register("Wait", new).build()).await;
    /// env.client().raise_event("w-1", "go", "home").await.unwrap();
    /// assert_eq!(env.output("w-1").await, "went home");
    /// # let _ = Mock::never();
    /// # }
    /// ```
    pub async fn deploy(&self, orchestrations: OrchestrationRegistry) {
        let shared = &self.shared;
        let _exchange = shared.exchange.lock().await;
        {
            let mut running = shared.running();
            running.orchestrations = orchestrations;
            running.deployments += 1;
        }
        shared.stop_runtime().await;
        shared.start_runtime().await;
    }

    /// Kills the runtime with everything that it holds in memory, and starts another, as after a crash.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.sleep(days(7)).await;
    /// env.crash().await;
    /// assert_eq!(env.output("r-1").await, "sent");
    /// # }
    /// ```
    pub async fn crash(&self) {
        self.shared.crash().await;
    }

    /// How all instances stand, for comparison.
    pub(super) async fn outcomes(&self) -> Vec<String> {
        let store = &self.driver().store;
        let mut instances = store.list_instances().await.unwrap_or_default();
        instances.sort_unstable();
        let mut outcomes = Vec::new();
        for instance in instances {
            let outcome = match (
                self.blocked(&instance).await,
                self.client().get_orchestration_status(&instance).await,
            ) {
                (Some(reason), _) => format!("blocked: {reason}"),
                (None, Ok(OrchestrationStatus::Completed { output, .. })) => format!("completed: {output}"),
                (None, Ok(OrchestrationStatus::Failed { details, .. })) => {
                    format!("failed: {}", details.display_message())
                }
                (None, Ok(_)) => "running".to_string(),
                (None, Err(error)) => error.to_string(),
            };
            outcomes.push(format!("'{instance}' {outcome}"));
        }
        outcomes
    }

    async fn steps(&self, instance: &str) -> String {
        match self.driver().store.read(instance).await {
            Ok(events) => format!("\n{}", RecordedHistory::new(instance, events)),
            Err(error) => format!("\n{error}"),
        }
    }

    fn driver(&self) -> &Driver {
        &self.shared.driver
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        self.supervisor.abort();
        if let Some(runtime) = self.shared.running().runtime.take() {
            kill(&runtime);
        }
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start_runtime(&self) {
        let (orchestrations, options) = {
            let running = self.running();
            let mut options = running.options.clone();
            let build = || format!("deployment {}", running.deployments);
            options.build_id.get_or_insert_with(build);
            (running.orchestrations.clone(), options)
        };
        let store =
            InstrumentedProvider::new(self.driver.store.clone(), None).with_gate(Arc::new(self.plan.gate()));
        let activities = self.activities.clone();
        let runtime = Runtime::start_with_options(Arc::new(store), activities, orchestrations, options).await;
        blocked::look_once(&runtime.core).await;
        self.running().runtime = Some(runtime);
    }

    /// Stops the runtime at once, and gives its leases back.
    async fn stop_runtime(&self) {
        let runtime = self.running().runtime.take();
        if let Some(runtime) = runtime {
            kill(&runtime);
            runtime.core.work.ended().await;
            runtime.core.upkeep.ended().await;
            runtime.core.residents.clear();
        }
        self.driver.store.release_leases();
    }

    async fn crash(&self) {
        let _exchange = self.exchange.lock().await;
        self.stop_runtime().await;
        self.start_runtime().await;
    }
}

/// Ends everything that a runtime does, wherever it stands.
fn kill(runtime: &Runtime) {
    runtime.core.stop.cancel();
    runtime.core.steps.close();
    runtime.core.work.abort_all();
    runtime.core.upkeep.abort_all();
}

/// Replaces a runtime that crashed.
async fn supervise(shared: Arc<Shared>) {
    loop {
        shared.plan.crashed().await;
        shared.crash().await;
    }
}

#[track_caller]
fn expect<T, E: std::fmt::Display>(result: Result<T, E>, call: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{call}: {error}"),
    }
}
