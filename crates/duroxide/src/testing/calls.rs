//! The record of all calls of activities, and which of them only wait for time to pass.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use crate::activity::ActivityContext;
use crate::model::codec;
use crate::providers::ScheduledActivityIdentifier;
use crate::providers::memory::MemoryProvider;
use crate::registry::ActivityHandler;

/// One call of an activity, real or mocked.
///
/// ```
/// # use duroxide::prelude::*;
/// # use duroxide::testing::{Mock, TestEnv};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
/// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt")).start().await;
/// env.start("p-1", "Pay", "visa").await;
/// env.output("p-1").await;
/// let calls = env.calls("Charge");
/// assert_eq!((calls[0].input.as_str(), calls[0].attempt), ("visa", 1));
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityCall {
    /// The name of the activity.
    pub name: String,
    /// The input of the call.
    pub input: String,
    /// What it returned; `None` while it runs, and for a call that a crash or a cancellation ended.
    pub result: Option<Result<String, String>>,
    /// The instance that asked for it.
    pub instance: String,
    /// The id of the step, the same for every attempt.
    pub activity_id: u64,
    /// How often the step was delivered, this time included.
    pub attempt: u32,
    /// The session it was bound to.
    pub session: Option<String>,
    /// The tag it was sent to.
    pub tag: Option<String>,
}

impl ActivityCall {
    /// Decodes the input.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, _: String| async move {
    /// #     ctx.schedule_activity_typed::<_, String>("Charge", &("visa", 300)).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns_typed(&"receipt")).start().await;
    /// env.start("p-1", "Pay", "").await;
    /// env.output("p-1").await;
    /// assert_eq!(env.calls("Charge")[0].input_as::<(String, u64)>(), ("visa".to_string(), 300));
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it does not decode.
    #[track_caller]
    pub fn input_as<T: DeserializeOwned>(&self) -> T {
        match codec::decode(&self.input) {
            Ok(input) => input,
            Err(error) => panic!("the input of {} does not decode: {}", self.name, error.of(&self.input)),
        }
    }
}

/// The calls of one environment.
#[derive(Clone, Default)]
pub(super) struct Calls {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Vec<ActivityCall>,
    dozing: BTreeSet<(String, u64, u64)>,
}

impl Calls {
    pub fn all(&self) -> Vec<ActivityCall> {
        self.lock().calls.clone()
    }

    /// Tells whether an activity only waits for time to pass.
    pub fn is_dozing(&self, id: &ScheduledActivityIdentifier) -> bool {
        self.lock().dozing.contains(&(id.instance.clone(), id.execution_id, id.activity_id))
    }

    /// Marks an activity as one that only waits for time to pass, until the guard is dropped.
    pub fn doze(&self, ctx: &ActivityContext, store: &Arc<MemoryProvider>) -> Dozing {
        let id = (ctx.instance_id().to_string(), ctx.execution_id(), ctx.activity_id());
        self.lock().dozing.insert(id.clone());
        store.beat();
        Dozing { calls: self.clone(), store: store.clone(), id }
    }

    fn begin(&self, ctx: &ActivityContext, input: &str) -> usize {
        let mut state = self.lock();
        state.calls.push(ActivityCall {
            name: ctx.activity_name().to_string(),
            input: input.to_string(),
            result: None,
            instance: ctx.instance_id().to_string(),
            activity_id: ctx.activity_id(),
            attempt: ctx.attempt(),
            session: ctx.session_id().map(str::to_string),
            tag: ctx.tag().map(str::to_string),
        });
        state.calls.len() - 1
    }

    fn end(&self, call: usize, result: &Result<String, String>) {
        if let Some(call) = self.lock().calls.get_mut(call) {
            call.result = Some(result.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Calls::doze`].
pub(super) struct Dozing {
    calls: Calls,
    store: Arc<MemoryProvider>,
    id: (String, u64, u64),
}

impl Drop for Dozing {
    fn drop(&mut self) {
        self.calls.lock().dozing.remove(&self.id);
        self.store.beat();
    }
}

/// An activity whose calls are recorded.
pub(super) struct Recorded {
    pub inner: Arc<dyn ActivityHandler>,
    pub calls: Calls,
}

#[async_trait]
impl ActivityHandler for Recorded {
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String> {
        let call = self.calls.begin(&ctx, &input);
        let result = self.inner.invoke(ctx, input).await;
        self.calls.end(call, &result);
        result
    }
}
