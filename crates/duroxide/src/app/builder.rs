//! What an application is made of, before it starts.

use std::sync::Arc;

use super::open::open;
use super::{Duroxide, StartError};
use crate::activity::States;
use crate::client::Client;
use crate::providers::Provider;
use crate::registry::{ActivityRegistry, OrchestrationRegistry};
use crate::runtime::{OnForeignWait, OnMismatch, OnUnregistered, Runtime, RuntimeOptions, TurnCheck};
use crate::typed::{ActivityEntry, ActivityFn, OrchestrationEntry, OrchestrationFn};

/// Collects what an application is made of: functions, services, options. See [`Duroxide::open`].
///
/// ```
/// use duroxide::prelude::*;
///
/// use duroxide::DuroxideBuilder;
///
/// # #[activity] async fn charge(card: String) -> Result<String, String> { Ok(card) }
/// # #[orchestration] async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> { charge(&ctx, card).await }
/// /// The program and its tests register the same functions.
/// fn functions(app: DuroxideBuilder) -> DuroxideBuilder {
///     app.activity(charge).orchestration(pay)
/// }
/// let app = functions(Duroxide::open("memory:")).max_activities(16);
/// ```
#[must_use = "an application does nothing until it is started"]
pub struct DuroxideBuilder {
    source: Source,
    activities: Vec<ActivityEntry>,
    orchestrations: Vec<OrchestrationEntry>,
    untyped_activities: Vec<ActivityRegistry>,
    untyped_orchestrations: Vec<OrchestrationRegistry>,
    states: States,
    options: RuntimeOptions,
}

pub(super) enum Source {
    Url(String),
    Store(Arc<dyn Provider>),
}

impl DuroxideBuilder {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            activities: Vec::new(),
            orchestrations: Vec::new(),
            untyped_activities: Vec::new(),
            untyped_orchestrations: Vec::new(),
            states: States::default(),
            options: default_options(),
        }
    }

    /// Registers a function made by `#[activity]`.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[activity] async fn greet(name: String) -> Result<String, String> { Ok(name) }
    /// let app = Duroxide::open("memory:").activity(greet);
    /// ```
    pub fn activity<Args, F: ActivityFn<Args>>(mut self, function: F) -> Self {
        let _ = function;
        self.activities.push(ActivityEntry::of::<F::Activity>());
        self
    }

    /// Registers a function made by `#[orchestration]`. Several versions of one name may be registered, in any order.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn hello(_ctx: OrchestrationContext, name: String) -> Result<String, String> { Ok(name) }
    /// let app = Duroxide::open("memory:").orchestration(hello);
    /// ```
    pub fn orchestration<Args, F: OrchestrationFn<Args>>(mut self, function: F) -> Self {
        let _ = function;
        self.orchestrations.push(OrchestrationEntry::of::<F::Orchestration>());
        self
    }

    /// Gives activities a service: they find it by its type, as an argument `State<T>` or with `ctx.state::<T>()`.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// struct Prices(Vec<u32>);
    ///
    /// #[activity]
    /// async fn price(State(prices): State<Prices>, item: usize) -> Result<u32, String> {
    ///     prices.0.get(item).copied().ok_or(format!("no item {item}"))
    /// }
    ///
    /// let app = Duroxide::open("memory:").state(Prices(vec![3, 5])).activity(price);
    /// ```
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.shared_state(Arc::new(state))
    }

    /// As [`state`](Self::state), with a service that the program shares with them.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// let prices = std::sync::Arc::new(vec![3_u32, 5]);
    /// let app = Duroxide::open("memory:").shared_state(prices.clone());
    /// ```
    pub fn shared_state<T: Send + Sync + 'static>(mut self, state: Arc<T>) -> Self {
        self.states.insert(state);
        self
    }

    /// Adds activities of the untyped interface.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// let old = ActivityRegistry::builder()
    ///     .register("Greet", |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) })
    ///     .build();
    /// let app = Duroxide::open("memory:").activities(old);
    /// ```
    pub fn activities(mut self, registry: ActivityRegistry) -> Self {
        self.untyped_activities.push(registry);
        self
    }

    /// Adds orchestrations of the untyped interface.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// let old = OrchestrationRegistry::builder()
    ///     .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
    ///     .build();
    /// let app = Duroxide::open("memory:").orchestrations(old);
    /// ```
    pub fn orchestrations(mut self, registry: OrchestrationRegistry) -> Self {
        self.untyped_orchestrations.push(registry);
        self
    }

    /// Sets how many activities run at once; 64 by default.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// let app = Duroxide::open("memory:").max_activities(8);
    /// ```
    pub fn max_activities(mut self, count: usize) -> Self {
        self.options.worker_concurrency = count;
        self
    }

    /// Changes the options of the runtime, beginning with the defaults of the front door.
    ///
    /// ```
    /// use duroxide::Duroxide;
    ///
    /// let app = Duroxide::open("memory:").options(|options| options.max_attempts = 20);
    /// ```
    pub fn options(mut self, change: impl FnOnce(&mut RuntimeOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Opens the store, checks that everything is there, and starts the runtime.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn hello(_ctx: OrchestrationContext, name: String) -> Result<String, String> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").orchestration(hello).start().await?;
    /// app.shutdown().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the store cannot be opened, a service is missing, or a name is registered twice. Nothing runs then.
    pub async fn start(self) -> Result<Duroxide, StartError> {
        self.check_states()?;
        let (activities, orchestrations) = self.registries()?;
        let store = self.source.open().await?;
        let runtime =
            Runtime::start_with_options(store.clone(), activities, orchestrations, self.options).await;
        Ok(Duroxide { client: Client::new(store.clone()), store, runtime })
    }

    /// Opens the store without a runtime: for a process that starts and watches orchestrations which others run.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Duroxide::open("sqlite:orders.db").connect().await?;
    /// let stock = client.query_value::<u32>("stock", "apples").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub async fn connect(self) -> Result<Client, StartError> {
        Ok(Client::new(self.source.open().await?))
    }

    /// The services that activities need and nobody gave: the name of the activity, and what to say.
    pub(crate) fn missing_states(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.activities.iter().flat_map(|activity| {
            let missing = activity.states.iter().filter(|key| !self.states.has(**key));
            missing.map(|key| (activity.name, key.missing_in(activity.name)))
        })
    }

    fn check_states(&self) -> Result<(), StartError> {
        let missing: Vec<String> = self.missing_states().map(|(_, text)| text).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(StartError::MissingState(missing.join("; "))),
        }
    }

    /// The functions as registries, with the services that there are.
    pub(crate) fn registries(&self) -> Result<(ActivityRegistry, OrchestrationRegistry), StartError> {
        let activities = self.activities.iter().fold(ActivityRegistry::builder(), |builder, activity| {
            activity.register(builder, self.states.clone())
        });
        let activities =
            self.untyped_activities.iter().cloned().fold(activities, |all, more| all.merge(more));
        let orchestrations = self
            .orchestrations
            .iter()
            .fold(OrchestrationRegistry::builder(), |builder, orchestration| orchestration.register(builder));
        let orchestrations =
            self.untyped_orchestrations.iter().cloned().fold(orchestrations, |all, more| all.merge(more));
        let activities = activities.build_result().map_err(StartError::Registration)?;
        let orchestrations = orchestrations.build_result().map_err(StartError::Registration)?;
        Ok((activities, orchestrations))
    }
}

impl Source {
    async fn open(self) -> Result<Arc<dyn Provider>, StartError> {
        match self {
            Self::Url(url) => open(&url).await,
            Self::Store(store) => Ok(store),
        }
    }
}

/// Better ones than the published interface may have.
fn default_options() -> RuntimeOptions {
    RuntimeOptions {
        worker_concurrency: 64,
        orchestration_concurrency: 8,
        on_mismatch: OnMismatch::Block,
        on_unregistered: OnUnregistered::Block,
        on_foreign_wait: OnForeignWait::Block,
        turn_check: if cfg!(debug_assertions) { TurnCheck::Every } else { TurnCheck::Off },
        ..RuntimeOptions::default()
    }
}
