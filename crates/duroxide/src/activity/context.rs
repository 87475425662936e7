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
    pub fn instance_id(&self) -> &str {
        &self.identity.instance_id
    }

    /// Returns the execution of that instance.
    pub fn execution_id(&self) -> u64 {
        self.identity.execution_id
    }

    /// Returns the name of the orchestration; `unknown` if its record is gone.
    pub fn orchestration_name(&self) -> &str {
        &self.identity.orchestration_name
    }

    /// Returns the version of the orchestration; `unknown` if its record is gone.
    pub fn orchestration_version(&self) -> &str {
        &self.identity.orchestration_version
    }

    /// Returns the name under which this activity was scheduled.
    pub fn activity_name(&self) -> &str {
        &self.identity.activity_name
    }

    /// Returns the id of the event that scheduled this activity.
    ///
    /// Together with instance and execution, this id names the step, also when the step runs again after a crash. Each
    /// attempt of a retry policy is a step of its own.
    pub fn activity_id(&self) -> u64 {
        self.identity.activity_id
    }

    /// Returns which attempt at this step this is: how often workers have begun it, this time included; 1 the first time.
    /// Attempts that ended with their process count.
    pub fn attempt(&self) -> u32 {
        self.identity.attempt
    }

    /// Returns the worker slot that runs this activity.
    pub fn worker_id(&self) -> &str {
        &self.identity.worker_id
    }

    /// Returns the session that the orchestration bound this activity to.
    pub fn session_id(&self) -> Option<&str> {
        self.identity.session_id.as_deref()
    }

    /// Returns the tag that routed this activity.
    pub fn tag(&self) -> Option<&str> {
        self.identity.tag.as_deref()
    }

    /// Tells whether the orchestration no longer wants the result.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until the orchestration no longer wants the result.
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }

    /// Returns a token that fires when the orchestration no longer wants the result, for tasks that this activity
    /// spawns.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.cancellation.clone()
    }

    /// Returns a client on the store that this activity came from.
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
    pub fn trace_info(&self, message: impl Into<String>) {
        trace_line!(self, info, message);
    }

    /// Logs at level WARN.
    pub fn trace_warn(&self, message: impl Into<String>) {
        trace_line!(self, warn, message);
    }

    /// Logs at level ERROR.
    pub fn trace_error(&self, message: impl Into<String>) {
        trace_line!(self, error, message);
    }

    /// Logs at level DEBUG.
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
