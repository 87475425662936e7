//! Says what an environment consists of, and starts it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{Calls, Recorded};
use super::clock::WaitingClock;
use super::crash::{CrashFinding, CrashPlan, CrashReport, crash_everywhere};
use super::env::{Parts, TestEnv};
use super::mock::Mock;
use super::typed::{ActivityName, Arguments};
use crate::activity::ActivityContext;
use crate::app::DuroxideBuilder;
use crate::orchestration::OrchestrationContext;
use crate::providers::TagFilter;
use crate::providers::memory::MemoryProvider;
use crate::registry::{ActivityHandler, ActivityRegistry, OrchestrationRegistry};
use crate::runtime::{OnForeignWait, OnMismatch, OnUnregistered, RuntimeOptions, TurnCheck};
use crate::typed::{Activity, ActivityFn};

/// How long leases last in a test. A runtime renews them, and a crash ends them at once.
const LEASE: Duration = Duration::from_secs(60 * 60);

/// What a [`TestEnv`] consists of.
///
/// By default every turn is [taken twice](RuntimeOptions::turn_check) and compared, and an instance that its code cannot
/// take further is blocked, with the reason in the panic of the call that waits for it.
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::testing::{Mock, TestEnv, TestEnvBuilder};
///
/// async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> {
///     ctx.schedule_activity("Charge", card).await
/// }
///
/// fn environment() -> TestEnvBuilder {
///     TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let env = environment().start().await;
/// env.start("p-1", "Pay", "visa").await;
/// assert_eq!(env.output("p-1").await, "receipt");
/// // A builder makes as many environments as you like.
/// let declined = environment().mock("Charge", Mock::fails("declined")).start().await;
/// declined.start("p-1", "Pay", "visa").await;
/// assert_eq!(declined.failure("p-1").await, "declined");
/// # }
/// ```
#[derive(Clone)]
pub struct TestEnvBuilder {
    orchestrations: OrchestrationRegistry,
    activities: ActivityRegistry,
    mocks: BTreeMap<String, Mock>,
    /// Services that activities need and the application does not give: the activity, and what to say.
    missing_states: Vec<(&'static str, String)>,
    options: RuntimeOptions,
}

impl Default for TestEnvBuilder {
    fn default() -> Self {
        Self {
            orchestrations: OrchestrationRegistry::default(),
            activities: ActivityRegistry::default(),
            mocks: BTreeMap::new(),
            missing_states: Vec::new(),
            options: options(),
        }
    }
}

fn options() -> RuntimeOptions {
    RuntimeOptions {
        worker_concurrency: 1_000,
        worker_lock_timeout: LEASE,
        orchestrator_lock_timeout: LEASE,
        session_lock_timeout: LEASE,
        session_idle_timeout: 2 * LEASE,
        max_sessions_per_runtime: 1_000,
        worker_tag_filter: TagFilter::Any,
        turn_check: TurnCheck::Every,
        on_mismatch: OnMismatch::Block,
        on_unregistered: OnUnregistered::Block,
        on_foreign_wait: OnForeignWait::Block,
        ..RuntimeOptions::default()
    }
}

impl TestEnvBuilder {
    /// Adds orchestrations, as the program registers them.
    ///
    /// ```
    /// use duroxide::prelude::*;
    /// use duroxide::testing::TestEnv;
    ///
    /// fn registry() -> OrchestrationRegistry {
    ///     let echo = |_: OrchestrationContext, input: String| async move { Ok(input) };
    ///     OrchestrationRegistry::builder().register("Echo", echo).build()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let env = TestEnv::builder().orchestrations(registry()).start().await;
    /// env.start("e-1", "Echo", "hello").await;
    /// assert_eq!(env.output("e-1").await, "hello");
    /// # }
    /// ```
    #[must_use]
    pub fn orchestrations(mut self, orchestrations: OrchestrationRegistry) -> Self {
        self.orchestrations =
            OrchestrationRegistry::builder_from(&self.orchestrations).merge(orchestrations).build();
        self
    }

    /// Adds an orchestration.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let echo = |_: OrchestrationContext, input: String| async move { Ok(input) };
    /// let env = TestEnv::builder().orchestration("Echo", echo).start().await;
    /// env.start("e-1", "Echo", "hello").await;
    /// assert_eq!(env.output("e-1").await, "hello");
    /// # let _ = Mock::never();
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn orchestration<F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.orchestrations(OrchestrationRegistry::builder().register(name, f).build())
    }

    /// Adds activities, as the program registers them.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let charge = |_: ActivityContext, card: String| async move { Ok(format!("charged {card}")) };
    /// let activities = ActivityRegistry::builder().register("Charge", charge).build();
    /// let env = TestEnv::builder().orchestration("Pay", pay).activities(activities).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.output("p-1").await, "charged visa");
    /// # let _ = Mock::never();
    /// # }
    /// ```
    #[must_use]
    pub fn activities(mut self, activities: ActivityRegistry) -> Self {
        self.activities = ActivityRegistry::builder_from(&self.activities).merge(activities).build();
        self
    }

    /// Adds an activity.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let charge = |_: ActivityContext, card: String| async move { Ok(format!("charged {card}")) };
    /// let env = TestEnv::builder().orchestration("Pay", pay).activity("Charge", charge).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.output("p-1").await, "charged visa");
    /// # let _ = Mock::never();
    /// # }
    /// ```
    #[must_use]
    pub fn activity<F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        F: Fn(ActivityContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.activities(ActivityRegistry::builder().register(name, f).build())
    }

    /// Puts a mock in the place of an activity, registered or not: a function with `#[activity]`, or a recorded name.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::fails("declined")).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.failure("p-1").await, "declined");
    /// # }
    /// ```
    #[must_use]
    pub fn mock<Marker>(mut self, activity: impl ActivityName<Marker>, mock: Mock) -> Self {
        self.mocks.insert(activity.activity_name(), mock);
        self
    }

    /// Puts a function in the place of an activity, with the types of the activity; see [`Mock::of`].
    ///
    /// ```
    /// use duroxide::prelude::*;
    /// use duroxide::testing::TestEnv;
    ///
    /// #[activity]
    /// async fn charge(card: String, cents: u64) -> Result<String, String> {
    ///     Err(format!("there is no bank for {card} and {cents}"))
    /// }
    ///
    /// #[orchestration]
    /// async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> {
    ///     charge(&ctx, card, 300).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let env = TestEnv::of(Duroxide::open("memory:").activity(charge).orchestration(pay))
    ///     .mock_with(charge, |(card, cents)| Ok(format!("{cents} from {card}")))
    ///     .start()
    ///     .await;
    /// let payment = env.client().start(pay, "p-1", "visa".to_string()).await.unwrap();
    /// assert_eq!(env.run(payment.result()).await.unwrap(), "300 from visa");
    /// assert_eq!(env.calls(charge)[0].input, ("visa".to_string(), 300));
    /// # }
    /// ```
    #[must_use]
    pub fn mock_with<Args, F: ActivityFn<Args>>(
        self,
        activity: F,
        answer: impl Fn(
            <<F::Activity as Activity>::Args as Arguments>::Input,
        ) -> Result<<F::Activity as Activity>::Output, <F::Activity as Activity>::Error>
        + Send
        + Sync
        + 'static,
    ) -> Self
    where
        <F::Activity as Activity>::Args: Arguments,
    {
        self.mock(activity, Mock::of(activity, answer))
    }

    /// Adds the functions and services of an application, as the program registers them. Its store and options stay out.
    ///
    /// As in the program, a service that an activity needs and nobody gave is an error [at start](Self::start), unless the
    /// activity is mocked.
    ///
    /// ```
    /// use duroxide::prelude::*;
    /// use duroxide::testing::TestEnv;
    ///
    /// #[activity]
    /// async fn charge(card: String) -> Result<String, String> {
    ///     Ok(format!("charged {card}"))
    /// }
    ///
    /// #[orchestration]
    /// async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> {
    ///     charge(&ctx, card).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let app = Duroxide::open("sqlite:payments.db").activity(charge).orchestration(pay);
    /// let env = TestEnv::builder().app(app).start().await; // the file is not touched
    /// let payment = env.client().start(pay, "p-1", "visa".to_string()).await.unwrap();
    /// assert_eq!(env.run(payment.result()).await.unwrap(), "charged visa");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If a name is registered twice.
    #[must_use]
    #[track_caller]
    pub fn app(mut self, app: DuroxideBuilder) -> Self {
        self.missing_states.extend(app.missing_states());
        match app.registries() {
            Ok((activities, orchestrations)) => self.activities(activities).orchestrations(orchestrations),
            Err(error) => panic!("the application cannot be registered: {error}"),
        }
    }

    /// Changes the options of the runtime, which begin with those that suit a test.
    ///
    /// ```
    /// use duroxide::testing::TestEnv;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let env = TestEnv::builder().options(|options| options.max_attempts = 3).start().await;
    /// # }
    /// ```
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut RuntimeOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Starts the environment.
    ///
    /// ```
    /// use duroxide::testing::TestEnv;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let env = TestEnv::builder().start().await;
    /// assert_eq!(env.elapsed(), std::time::Duration::ZERO);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If an activity that is not mocked needs a service that the application does not give.
    pub async fn start(self) -> TestEnv {
        self.start_with(CrashPlan::none()).await
    }

    /// Runs a test on environments like this one, with a crash at every place; see [`crash_everywhere`].
    ///
    /// ```
    /// use duroxide::prelude::*;
    /// use duroxide::testing::{Mock, TestEnv};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let builder = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt"));
    /// let report = builder
    ///     .crash_everywhere(async |env| {
    ///         env.start("p-1", "Pay", "visa").await;
    ///         env.output("p-1").await
    ///     })
    ///     .await;
    /// assert!(report.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    /// Says where a crash changes the outcome.
    pub async fn crash_everywhere<T: PartialEq + std::fmt::Debug>(
        &self,
        test: impl AsyncFn(&TestEnv) -> T,
    ) -> Result<CrashReport, CrashFinding> {
        crash_everywhere(|| self.clone(), test).await
    }

    pub(super) async fn start_with(self, plan: CrashPlan) -> TestEnv {
        self.check_states();
        let time = Arc::new(crate::model::ManualClock::default());
        let store = Arc::new(MemoryProvider::with_clock(time.clone()));
        let waiting = WaitingClock::new(time.clone());
        let calls = Calls::default();
        let activities = self.recorded(&calls, &store, &waiting);
        let Self { orchestrations, options, .. } = self;
        TestEnv::start_parts(Parts { time, waiting, store, calls, activities, orchestrations, options, plan })
            .await
    }

    fn check_states(&self) {
        let is_needed = |missing: &&(&'static str, String)| !self.mocks.contains_key(missing.0);
        let missing: Vec<&str> =
            self.missing_states.iter().filter(is_needed).map(|(_, text)| text.as_str()).collect();
        assert!(missing.is_empty(), "the application lacks a service: {}", missing.join("; "));
    }

    /// The activities and mocks, with their calls recorded.
    fn recorded(&self, calls: &Calls, store: &Arc<MemoryProvider>, clock: &WaitingClock) -> ActivityRegistry {
        let mut handlers = self.activities.handlers().clone();
        for (name, mock) in &self.mocks {
            let handler: Arc<dyn ActivityHandler> = Arc::new(mock.handler(calls, store, clock));
            let versions = handlers.entry(name.clone()).or_default();
            versions.clear();
            versions.insert(semver::Version::new(1, 0, 0), handler);
        }
        for handler in handlers.values_mut().flat_map(BTreeMap::values_mut) {
            *handler = Arc::new(Recorded { inner: handler.clone(), calls: calls.clone() });
        }
        ActivityRegistry::new(handlers, self.activities.policies())
    }
}
