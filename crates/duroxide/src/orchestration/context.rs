//! The handle of orchestration code on the runtime.

use std::panic::Location;
use std::sync::Arc;

use crate::model::{Event, clock};
use crate::replay::SharedState;

/// The handle through which an orchestration asks for its steps.
///
/// It is cheap to clone, and clones are the same handle. The runtime records every step in the order of the calls, and runs
/// the code again over that record. So orchestration code must ask for the same steps each time it runs: no clocks, no
/// random numbers, no I/O except through this handle.
///
/// ```
/// use std::time::Duration;
/// use duroxide::{Either2, OrchestrationContext};
///
/// async fn approve(ctx: OrchestrationContext, document: String) -> Result<String, String> {
///     // Steps that are asked for before they are awaited run side by side.
///     let checks = vec![
///         ctx.schedule_activity("CheckSpelling", &document),
///         ctx.schedule_activity("CheckFacts", &document),
///     ];
///     for check in ctx.join(checks).await {
///         check?;
///     }
///     // The first to come wins; `select2` drops the other.
///     let answer = ctx.schedule_wait("Approved");
///     let deadline = ctx.schedule_timer(Duration::from_secs(3 * 24 * 60 * 60));
///     match ctx.select2(answer, deadline).await {
///         Either2::First(editor) => Ok(format!("approved by {editor}")),
///         Either2::Second(()) => Err("nobody answered in three days".to_string()),
///     }
/// }
/// # duroxide::OrchestrationRegistry::builder().register("Approve", approve);
/// ```
#[derive(Clone)]
pub struct OrchestrationContext {
    inner: Arc<Inner>,
}

struct Inner {
    instance_id: String,
    execution_id: u64,
    orchestration_name: String,
    orchestration_version: String,
    shared_state: Arc<SharedState>,
}

impl OrchestrationContext {
    /// Makes a context that no engine drives yet. The engine and tests call this; it ignores `history` and `worker_id`.
    pub fn new(
        _history: Vec<Event>,
        execution_id: u64,
        instance_id: String,
        orchestration_name: String,
        orchestration_version: String,
        _worker_id: Option<String>,
    ) -> Self {
        let shared_state = Arc::new(SharedState::new(clock::system_now_ms));
        let inner =
            Inner { instance_id, execution_id, orchestration_name, orchestration_version, shared_state };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn shared_state(&self) -> &Arc<SharedState> {
        &self.inner.shared_state
    }

    /// Takes steps for a call that the code makes at this place: mismatches and foreign waits name it.
    pub(crate) fn asked_at<T>(&self, place: &'static Location<'static>, take: impl FnOnce() -> T) -> T {
        self.shared_state().set_asking_place(Some(place));
        let _until_taken = AskingPlace(self.shared_state());
        take()
    }

    /// Tells whether the code runs over events that were stored before this turn.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let receipt = ctx.schedule_activity("Charge", &order).await?;
    /// // For output only: code whose steps depend on the answer would not ask for the same steps in a replay.
    /// if !ctx.is_replaying() {
    ///     println!("{order} is paid: {receipt}");
    /// }
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn is_replaying(&self) -> bool {
        self.shared_state().is_replaying()
    }

    /// Returns the id of the instance.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Whoever prints the label can put the id into a link by which the customer finds the order.
    /// let link = format!("https://shop.example/orders/{}", ctx.instance_id());
    /// ctx.schedule_activity("PrintLabel", link).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn instance_id(&self) -> String {
        self.inner.instance_id.clone()
    }

    /// Returns the number of the execution, from 1. Continue-as-new begins the next.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Only the first execution greets; those that continue-as-new begins do not.
    /// if ctx.execution_id() == 1 {
    ///     ctx.schedule_activity("Greet", &order).await?;
    /// }
    /// let item = ctx.dequeue_event("items").await;
    /// ctx.schedule_activity("Pack", item).await?;
    /// ctx.continue_as_new(order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn execution_id(&self) -> u64 {
        self.inner.execution_id
    }

    /// Returns the name under which the orchestration was started.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // One function can be registered as `Order` and as `TrialOrder`.
    /// if ctx.orchestration_name() != "TrialOrder" {
    ///     ctx.schedule_activity("Charge", &order).await?;
    /// }
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn orchestration_name(&self) -> String {
        self.inner.orchestration_name.clone()
    }

    /// Returns the version of the orchestration that runs.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Operators see at a glance which orders the old version still handles.
    /// ctx.set_custom_status(format!("version {}", ctx.orchestration_version()));
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn orchestration_version(&self) -> String {
        self.inner.orchestration_version.clone()
    }

    /// Returns `false`. There is no such switch; the method stays for programs that call it.
    pub fn is_logging_enabled(&self) -> bool {
        false
    }
}

/// Steps are taken for the call of another place until this is dropped, also by a panic.
struct AskingPlace<'a>(&'a SharedState);

impl Drop for AskingPlace<'_> {
    fn drop(&mut self) {
        self.0.set_asking_place(None);
    }
}
