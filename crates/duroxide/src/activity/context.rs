//! Which step an activity is, and how it learns that its orchestration no longer wants the result.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::attempt::{AttemptFacts, AttemptSigns};
use super::state::{State, StateKey, States};
use crate::client::Client;
use crate::providers::Provider;

/// Where an activity belongs: the step that scheduled it, and the worker that runs it.
#[derive(Debug, Clone)]
pub(crate) struct ActivityIdentity {
    pub instance_id: String,
    pub execution_id: u64,
    pub orchestration_name: String,
    pub orchestration_version: String,
    pub activity_name: String,
    pub activity_id: u64,
    pub attempt: u32,
    pub worker_id: String,
    pub session_id: Option<String>,
    pub tag: Option<String>,
}

/// The identity of a running activity, and its tools besides its own work.
///
/// An activity may run more than once: the runtime runs it again if the process dies before the result is stored. Where
/// that matters, pass the [`idempotency_key`](Self::idempotency_key) to the service that does the work, so that it
/// recognises the second request. (With a [`RetryPolicy`](crate::RetryPolicy) each attempt is a step of its own; then pass
/// a key in the input.)
///
/// ```
/// use duroxide::ActivityContext;
///
/// # async fn charge_card(key: &str, card: &str) -> Result<String, String> { Ok(format!("{key} {card}")) }
/// async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
///     let key = ctx.idempotency_key();
///     tokio::select! {
///         receipt = charge_card(&key, &card) => receipt,
///         // The orchestration was cancelled, or no longer waits for this activity.
///         () = ctx.cancelled() => Err("given up".to_string()),
///     }
/// }
/// # duroxide::ActivityRegistry::builder().register("Charge", charge);
/// ```
#[derive(Clone)]
pub struct ActivityContext {
    identity: Arc<ActivityIdentity>,
    cancellation: CancellationToken,
    store: Arc<dyn Provider>,
    states: States,
    pub(super) facts: AttemptFacts,
    pub(super) signs: Arc<AttemptSigns>,
}

impl ActivityContext {
    pub(crate) fn new(
        identity: ActivityIdentity,
        cancellation: CancellationToken,
        store: Arc<dyn Provider>,
    ) -> Self {
        Self {
            identity: Arc::new(identity),
            cancellation,
            store,
            states: States::default(),
            facts: AttemptFacts::default(),
            signs: Arc::default(),
        }
    }

    /// Connects the activity with the worker that runs it.
    pub(crate) fn with_attempt(mut self, facts: AttemptFacts, signs: Arc<AttemptSigns>) -> Self {
        (self.facts, self.signs) = (facts, signs);
        self
    }

    /// Hands the activity the services that the application gave at start.
    pub(crate) fn with_states(mut self, states: States) -> Self {
        self.states = states;
        self
    }

    /// Returns a service that the application gave at start, or `None` if it gave none of this type.
    pub(crate) fn find_state<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        self.states.find()
    }

    /// Returns a service that the application gave at start ([`Duroxide`](crate::Duroxide)`::state`).
    ///
    /// `#[activity]` sees this call in the body, so that a service that is missing is an error at start. As an argument,
    /// `State<T>` does the same.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// struct Prices { apple: u32 }
    ///
    /// #[activity]
    /// async fn price(ctx: ActivityContext, count: u32) -> u32 {
    ///     ctx.state::<Prices>().apple * count
    /// }
    /// # let _ = Duroxide::open("memory:").state(Prices { apple: 3 }).activity(price);
    /// ```
    ///
    /// # Panics
    /// If there is none, which fails the activity. With `#[activity]` that cannot happen unless a helper function asks.
    pub fn state<T: Send + Sync + 'static>(&self) -> State<T> {
        match self.find_state() {
            Some(state) => state,
            None => panic!("{}", StateKey::of::<T>().missing_in(self.activity_name())),
        }
    }

    /// Returns the instance that scheduled this activity.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // The bank shows the reference on the statement; support finds the order by it.
    /// let reference = format!("order {}", ctx.instance_id());
    /// charge_card(&card, &reference).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn instance_id(&self) -> &str {
        &self.identity.instance_id
    }

    /// Returns the execution of that instance.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // An order that repeats itself each month with continue-as-new has several rounds.
    /// let reference = format!("{}, round {}", ctx.instance_id(), ctx.execution_id());
    /// charge_card(&card, &reference).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn execution_id(&self) -> u64 {
        self.identity.execution_id
    }

    /// Returns the name of the orchestration; `unknown` if its record is gone.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // Several orchestrations use this activity.
    /// let account = if ctx.orchestration_name() == "TrialOrder" { "test" } else { "live" };
    /// charge_card(&card, account).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn orchestration_name(&self) -> &str {
        &self.identity.orchestration_name
    }

    /// Returns the version of the orchestration; `unknown` if its record is gone.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// let reference = format!("{} {}", ctx.orchestration_name(), ctx.orchestration_version());
    /// charge_card(&card, &reference).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn orchestration_version(&self) -> &str {
        &self.identity.orchestration_version
    }

    /// Returns the name under which this activity was scheduled.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // One function can be registered as `Charge` and as `Preauthorize`.
    /// let kind = if ctx.activity_name() == "Preauthorize" { "hold" } else { "charge" };
    /// charge_card(&card, kind).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn activity_name(&self) -> &str {
        &self.identity.activity_name
    }

    /// Returns the id of the event that scheduled this activity.
    ///
    /// Together with instance and execution, this id names the step, also when the step runs again after a crash. Each
    /// attempt of a retry policy is a step of its own.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // Names the step in the bank's log; every attempt of a `StoredRetry` has the same name.
    /// let step = format!("{}, {}, {}", ctx.instance_id(), ctx.execution_id(), ctx.activity_id());
    /// charge_card(&card, &step).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn activity_id(&self) -> u64 {
        self.identity.activity_id
    }

    /// Returns which attempt at this step this is: how often workers have begun it, this time included; 1 the first time.
    /// Attempts that ended with their process count.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// # async fn find_charge(_key: &str) -> Result<Option<String>, String> { Ok(None) }
    /// let key = ctx.idempotency_key();
    /// // An earlier attempt may have charged, and died before it could tell.
    /// if ctx.attempt() > 1 && let Some(receipt) = find_charge(&key).await? {
    ///     return Ok(receipt);
    /// }
    /// charge_card(&card, &key).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn attempt(&self) -> u32 {
        self.identity.attempt
    }

    /// Returns the worker slot that runs this activity.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // The bank's log then says which of our workers called.
    /// let caller = format!("shop/{}", ctx.worker_id());
    /// charge_card(&card, &caller).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn worker_id(&self) -> &str {
        &self.identity.worker_id
    }

    /// Returns the session that the orchestration bound this activity to.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// # async fn print_all(_folder: std::path::PathBuf) -> Result<String, String> { Ok(String::new()) }
    /// // Activities of a session run on the same worker, so they can share a folder of its disk.
    /// let folder = std::env::temp_dir().join(ctx.session_id().unwrap_or("no-session"));
    /// print_all(folder).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn session_id(&self) -> Option<&str> {
        self.identity.session_id.as_deref()
    }

    /// Returns the tag that routed this activity.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // The orchestration chose the region with `with_tag`.
    /// let region = ctx.tag().unwrap_or("eu");
    /// charge_card(&card, &format!("https://{region}.bank.example")).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn tag(&self) -> Option<&str> {
        self.identity.tag.as_deref()
    }

    /// Tells whether the orchestration no longer wants the result.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// for page in 1..=1_000 {
    ///     if ctx.is_cancelled() {
    ///         return Err(format!("given up before page {page}"));
    ///     }
    ///     // ... print the page ...
    /// }
    /// # Ok(card)
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until the orchestration no longer wants the result.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// tokio::select! {
    ///     receipt = charge_card(&card, "order") => receipt,
    ///     () = ctx.cancelled() => Err("the order was withdrawn".to_string()),
    /// }
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }

    /// Returns a token that fires when the orchestration no longer wants the result, for tasks that this activity
    /// spawns.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// let token = ctx.cancellation_token();
    /// let charge = tokio::spawn(async move {
    ///     tokio::select! {
    ///         receipt = charge_card(&card, "order") => receipt,
    ///         () = token.cancelled() => Err("the order was withdrawn".to_string()),
    ///     }
    /// });
    /// charge.await.map_err(|e| e.to_string())?
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        self.cancellation.clone()
    }

    /// Returns a client on the store that this activity came from.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // The order is told how far the work has come. An attempt that is made again tells it again.
    /// let client = ctx.get_client();
    /// let told = client.enqueue_event(ctx.instance_id(), "progress", "the card is valid").await;
    /// told.map_err(|e| e.to_string())?;
    /// # Ok(card)
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn get_client(&self) -> Client {
        Client::new(self.store.clone())
    }
}

/// Writes one line to the log with the activity's identity in fields. It is a macro because the level must be a
/// constant.
macro_rules! trace_line {
    ($self:ident, $level:ident, $message:ident) => {{
        let identity = &$self.identity;
        let message: String = $message.into();
        tracing::$level!(
            target: "duroxide::activity",
            instance_id = %identity.instance_id,
            execution_id = identity.execution_id,
            orchestration_name = %identity.orchestration_name,
            orchestration_version = %identity.orchestration_version,
            activity_name = %identity.activity_name,
            activity_id = identity.activity_id,
            worker_id = %identity.worker_id,
            "{message}"
        );
    }};
}

impl ActivityContext {
    /// Logs at level INFO.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// // The line has the instance, the activity and the worker in fields. Every attempt writes it.
    /// ctx.trace_info(format!("attempt {} to charge", ctx.attempt()));
    /// charge_card(&card, "order").await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn trace_info(&self, message: impl Into<String>) {
        trace_line!(self, info, message);
    }

    /// Logs at level WARN.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// if ctx.attempt() > 3 {
    ///     ctx.trace_warn("the bank does not answer");
    /// }
    /// charge_card(&card, "order").await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn trace_warn(&self, message: impl Into<String>) {
        trace_line!(self, warn, message);
    }

    /// Logs at level ERROR.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// let charged = charge_card(&card, "order").await;
    /// if let Err(error) = &charged {
    ///     ctx.trace_error(format!("the bank refused: {error}"));
    /// }
    /// charged
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn trace_error(&self, message: impl Into<String>) {
        trace_line!(self, error, message);
    }

    /// Logs at level DEBUG.
    ///
    /// ```
    /// # use duroxide::ActivityContext;
    /// # async fn charge_card(_card: &str, _text: &str) -> Result<String, String> { Ok(String::new()) }
    /// # async fn charge(ctx: ActivityContext, card: String) -> Result<String, String> {
    /// ctx.trace_debug(format!("asking the bank with key {}", ctx.idempotency_key()));
    /// charge_card(&card, &ctx.idempotency_key()).await
    /// # }
    /// # duroxide::ActivityRegistry::builder().register("Charge", charge);
    /// ```
    pub fn trace_debug(&self, message: impl Into<String>) {
        trace_line!(self, debug, message);
    }
}

impl fmt::Debug for ActivityContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = &self.identity;
        f.debug_struct("ActivityContext")
            .field("instance_id", &identity.instance_id)
            .field("execution_id", &identity.execution_id)
            .field("orchestration_name", &identity.orchestration_name)
            .field("orchestration_version", &identity.orchestration_version)
            .field("activity_name", &identity.activity_name)
            .field("activity_id", &identity.activity_id)
            .field("attempt", &identity.attempt)
            .field("worker_id", &identity.worker_id)
            .field("session_id", &identity.session_id)
            .field("tag", &identity.tag)
            .field("cancellation_token", &self.cancellation)
            .field("store", &"<Provider>")
            .finish()
    }
}
