//! Functions as handlers of a registry.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;

use crate::activity::{ActivityContext, StateKey, States};
use crate::model::{codec, error_text};
use crate::orchestration::OrchestrationContext;
use crate::registry::{ActivityRegistryBuilder, OrchestrationRegistryBuilder};

use super::{Activity, ActivityFn, ArgList, Orchestration, OrchestrationFn};

type BoxedResult = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// An activity on its way into a registry.
pub(crate) struct ActivityEntry {
    pub(crate) name: &'static str,
    pub(crate) states: Vec<StateKey>,
    run: fn(ActivityContext, String) -> BoxedResult,
}

impl ActivityEntry {
    pub(crate) fn of<A: Activity>() -> Self {
        Self { name: A::NAME, states: A::states(), run: |ctx, input| Box::pin(run_activity::<A>(ctx, input)) }
    }

    /// Adds the activity to a registry; it finds its services in `states`.
    pub(crate) fn register(
        &self,
        builder: ActivityRegistryBuilder,
        states: States,
    ) -> ActivityRegistryBuilder {
        let run = self.run;
        builder.register(self.name, move |ctx: ActivityContext, input| {
            run(ctx.with_states(states.clone()), input)
        })
    }
}

/// An orchestration on its way into a registry.
pub(crate) struct OrchestrationEntry {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    place: &'static Location<'static>,
    run: fn(OrchestrationContext, String) -> BoxedResult,
}

impl OrchestrationEntry {
    pub(crate) fn of<O: Orchestration>() -> Self {
        let run = |ctx, input| -> BoxedResult { Box::pin(run_orchestration::<O>(ctx, input)) };
        Self { name: O::NAME, version: O::VERSION, place: O::PLACE, run }
    }

    pub(crate) fn register(&self, builder: OrchestrationRegistryBuilder) -> OrchestrationRegistryBuilder {
        builder.add_version(self.name, self.version, self.run, self.place)
    }
}

async fn run_activity<A: Activity>(ctx: ActivityContext, input: String) -> Result<String, String> {
    let args = A::Args::decode(&input).map_err(|error| error.0.of(&payload(&ctx, "input")))?;
    let outcome = A::body(ctx.clone(), args).await;
    encode_outcome::<A>(&ctx, outcome)
}

fn payload(ctx: &ActivityContext, which: &str) -> String {
    codec::activity_payload(which, ctx.activity_name(), ctx.activity_id(), ctx.instance_id())
}

/// Writes the outcome of an activity as it is recorded.
pub(crate) fn encode_outcome<A: Activity>(
    ctx: &ActivityContext,
    outcome: Result<A::Output, A::Error>,
) -> Result<String, String> {
    match outcome {
        Ok(output) => codec::encode_exactly::<A::Output, _>(&output)
            .map_err(|error| format!("{} does not encode: {error}", payload(ctx, "output"))),
        Err(error) => Err(error_text::encode(&error, !A::is_retryable(&error))),
    }
}

/// Reads the arguments of an activity. The error is the reason.
#[cfg(feature = "testing")]
pub(crate) fn decode_arguments<A: Activity>(input: &str) -> Result<A::Args, String> {
    A::Args::decode(input).map_err(|error| error.0.of(&format!("input of activity '{}'", A::NAME)))
}

async fn run_orchestration<O: Orchestration>(
    ctx: OrchestrationContext,
    input: String,
) -> Result<String, String> {
    let own = ctx.clone();
    let payload = |which: &str| {
        format!("{which} of orchestration '{}' (of '{}')", own.orchestration_name(), own.instance_id())
    };
    let args = O::Args::decode(&input).map_err(|error| error.0.of(&payload("input")))?;
    match O::body(ctx, args).await {
        Ok(output) => codec::encode_exactly::<O::Output, _>(&output)
            .map_err(|error| format!("{} does not encode: {error}", payload("output"))),
        Err(error) => Err(error_text::encode(&error, false)),
    }
}

/// Functions made by `#[activity]`.
impl ActivityRegistryBuilder {
    /// Registers a function made by `#[activity]`, under its name.
    ///
    /// It finds no `State`; [`Duroxide`](crate::Duroxide) and [`activity_with`](Self::activity_with) give it one.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// #[activity]
    /// async fn greet(name: String) -> Result<String, String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    ///
    /// let activities = ActivityRegistry::builder().activity(greet).build_result().unwrap();
    /// assert!(activities.has("greet"));
    /// ```
    pub fn activity<Args, F: ActivityFn<Args>>(self, function: F) -> Self {
        let _ = function;
        ActivityEntry::of::<F::Activity>().register(self, States::default())
    }

    /// Registers a function made by `#[activity]` with the service of its `State` argument.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use duroxide::prelude::*;
    ///
    /// struct Prices(Vec<u32>);
    ///
    /// #[activity]
    /// async fn price(State(prices): State<Prices>, item: usize) -> Result<u32, String> {
    ///     prices.0.get(item).copied().ok_or(format!("no item {item}"))
    /// }
    ///
    /// let prices = Arc::new(Prices(vec![3, 5]));
    /// let activities = ActivityRegistry::builder().activity_with(price, prices).build_result().unwrap();
    /// assert!(activities.has("price"));
    /// ```
    pub fn activity_with<Args, F: ActivityFn<Args>, T: Send + Sync + 'static>(
        self,
        function: F,
        state: Arc<T>,
    ) -> Self {
        let _ = function;
        let mut states = States::default();
        states.insert(state);
        ActivityEntry::of::<F::Activity>().register(self, states)
    }
}

/// Functions made by `#[orchestration]`.
impl OrchestrationRegistryBuilder {
    /// Registers a function made by `#[orchestration]`, under its name and version. The versions of a name may come in any
    /// order.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// #[orchestration(version = "2.0.0")]
    /// async fn hello(_ctx: OrchestrationContext, name: String) -> Result<String, String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    ///
    /// let orchestrations = OrchestrationRegistry::builder().orchestration(hello).build_result().unwrap();
    /// assert_eq!(orchestrations.list_versions("hello")[0].to_string(), "2.0.0");
    /// ```
    pub fn orchestration<Args, F: OrchestrationFn<Args>>(self, function: F) -> Self {
        let _ = function;
        OrchestrationEntry::of::<F::Orchestration>().register(self)
    }
}
