//! Other orchestrations: children, whose result the parent awaits, and detached ones.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{Action, SUB_ORCH_AUTO_PREFIX, is_auto_generated_sub_orch_id};
use crate::replay::{CompletionResult, PENDING_CHILD_PREFIX, Request};

use super::typed::{RecordedOutcome, encode_input};
use super::{DurableFuture, OrchestrationContext, ScheduleKind};

/// What becomes of a child when its parent gives it up: because the parent is cancelled or fails, or because its code drops the call, as
/// a lost race and a time-out do. See [`OrchestrationCall::on_cancel`](crate::OrchestrationCall::on_cancel).
///
/// The code decides; nothing of it is recorded. So a new version of the code decides anew for instances that run.
///
/// ```
/// use duroxide::OnCancel;
///
/// assert_eq!(OnCancel::default(), OnCancel::Cancel);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnCancel {
    /// It is cancelled, and cleans up if its code does.
    #[default]
    Cancel,
    /// It lives on, and nobody waits for its result any more.
    Abandon,
}

/// A child to be started.
struct Child {
    name: String,
    version: Option<String>,
    instance: Option<String>,
    input: String,
}

impl OrchestrationContext {
    /// Starts a child and waits for its result. The library makes the child's id from this instance's.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Each parcel is an orchestration of its own; the order waits for both.
    /// let parcels = vec![
    ///     ctx.schedule_sub_orchestration("Parcel", "3 apples"),
    ///     ctx.schedule_sub_orchestration("Parcel", "2 pears"),
    /// ];
    /// let receipts: Result<Vec<String>, String> = ctx.join(parcels).await.into_iter().collect();
    /// receipts.map(|receipts| receipts.join(", "))
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_sub_orchestration(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.schedule_sub_orchestration_versioned(name, None, input)
    }

    /// Starts a child with a typed input and waits for its typed result.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let items = vec![("apples", 3), ("pears", 2)];
    /// let cents: u64 = ctx.schedule_sub_orchestration_typed("Invoice", &items).await?;
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    #[track_caller]
    pub fn schedule_sub_orchestration_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        let child = Child { name: name.into(), version: None, instance: None, input: encode_input(input) };
        let finish = self.result_decoder(result_of(&child.name));
        self.child(child, finish)
    }

    /// Starts a child under an id that the caller chooses, and waits for its result.
    ///
    /// The result is an `Err` if the id starts with `sub::` or is taken.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Others can send messages to the child, because they know its id.
    /// ctx.schedule_sub_orchestration_with_id("Payment", format!("payment-of-{order}"), &order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.schedule_sub_orchestration_versioned_with_id(name, None, instance, input)
    }

    /// Starts a child under an id that the caller chooses, with a typed input and a typed result.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let id = format!("payment-of-{order}");
    /// let paid: bool = ctx.schedule_sub_orchestration_with_id_typed("Payment", id, &1_200).await?;
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        let instance = Some(instance.into());
        let child = Child { name: name.into(), version: None, instance, input: encode_input(input) };
        let finish = self.result_decoder(result_of(&child.name));
        self.child(child, finish)
    }

    /// Starts a child of a certain version and waits for its result. Without a version the registry chooses.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The child runs the version that the parent runs, also when newer ones are registered.
    /// let version = Some(ctx.orchestration_version());
    /// ctx.schedule_sub_orchestration_versioned("Invoice", version, order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_sub_orchestration_versioned(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        let child = Child { name: name.into(), version, instance: None, input: input.into() };
        self.child(child, |outcome, _| outcome.into_result())
    }

    /// Starts a child of a certain version under an id that the caller chooses, and waits for its result.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let (version, id) = (Some("2.0.0".to_string()), format!("invoice-of-{order}"));
    /// ctx.schedule_sub_orchestration_versioned_with_id("Invoice", version, id, order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn schedule_sub_orchestration_versioned_with_id(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        let child =
            Child { name: name.into(), version, instance: Some(instance.into()), input: input.into() };
        self.child(child, |outcome, _| outcome.into_result())
    }

    /// Starts a child for a typed call, and returns the outcome as it is recorded.
    #[track_caller]
    pub(crate) fn recorded_child(
        &self,
        name: &str,
        version: Option<String>,
        instance: Option<String>,
        input: String,
        on_cancel: OnCancel,
    ) -> DurableFuture<RecordedOutcome> {
        let child = Child { name: name.to_string(), version, instance, input };
        self.child_that(on_cancel, child, RecordedOutcome::new)
    }

    #[track_caller]
    fn child<T>(
        &self,
        child: Child,
        finish: impl FnOnce(CompletionResult, Option<u64>) -> T + Send + 'static,
    ) -> DurableFuture<T> {
        self.child_that(OnCancel::Cancel, child, finish)
    }

    #[track_caller]
    fn child_that<T>(
        &self,
        on_cancel: OnCancel,
        child: Child,
        finish: impl FnOnce(CompletionResult, Option<u64>) -> T + Send + 'static,
    ) -> DurableFuture<T> {
        let request = match on_cancel {
            OnCancel::Cancel => Request::Child,
            OnCancel::Abandon => Request::LastingChild,
        };
        let Child { name, version, instance, input } = child;
        if let Some(id) = instance.as_deref().filter(|id| is_auto_generated_sub_orch_id(id)) {
            self.shared_state().waste_token();
            return DurableFuture::known(CompletionResult::SubOrchErr(reserved_child_id(id)), finish);
        }
        let token = self.shared_state().request(request, |token| Action::StartSubOrchestration {
            scheduling_event_id: 0,
            name,
            version,
            instance: instance.unwrap_or_else(|| format!("{PENDING_CHILD_PREFIX}{token}")),
            input,
        });
        DurableFuture::open(self.shared_state(), token, ScheduleKind::SubOrchestration { token }, finish)
    }

    /// Starts an independent orchestration under an id and does not wait for it.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The survey takes weeks; the order ends now.
    /// ctx.schedule_orchestration("Survey", format!("survey-of-{order}"), &order);
    /// Ok("shipped".to_string())
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the id starts with `sub::` or contains `::sub::`, which mark children.
    #[track_caller]
    pub fn schedule_orchestration(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) {
        self.detached(name.into(), None, instance.into(), input.into());
    }

    /// Starts an independent orchestration with a typed input.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// ctx.schedule_orchestration_typed("Survey", format!("survey-of-{order}"), &("Ada", 5));
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized, or the id is reserved for children.
    #[track_caller]
    pub fn schedule_orchestration_typed<In: Serialize>(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: &In,
    ) {
        self.detached(name.into(), None, instance.into(), encode_input(input));
    }

    /// Starts an independent orchestration of a certain version. Without a version the registry chooses.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let version = Some("2.0.0".to_string());
    /// ctx.schedule_orchestration_versioned("Survey", version, format!("survey-of-{order}"), &order);
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the id is reserved for children.
    #[track_caller]
    pub fn schedule_orchestration_versioned(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) {
        self.detached(name.into(), version, instance.into(), input.into());
    }

    /// Starts an independent orchestration of a certain version with a typed input.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let (version, id) = (Some("2.0.0".to_string()), format!("survey-of-{order}"));
    /// ctx.schedule_orchestration_versioned_typed("Survey", version, id, &("Ada", 5));
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized, or the id is reserved for children.
    #[track_caller]
    pub fn schedule_orchestration_versioned_typed<In: Serialize>(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        instance: impl Into<String>,
        input: &In,
    ) {
        self.detached(name.into(), version, instance.into(), encode_input(input));
    }

    #[track_caller]
    fn detached(&self, name: String, version: Option<String>, instance: String, input: String) {
        if is_auto_generated_sub_orch_id(&instance) || instance.contains("::sub::") {
            panic!(
                "detached orchestration instance id '{instance}' uses the reserved sub-orchestration marker 'sub::'; \
                 root instance ids must not start with it or contain '::sub::'"
            );
        }
        let scheduling_event_id = 0;
        let action =
            Action::StartOrchestrationDetached { scheduling_event_id, name, version, instance, input };
        self.shared_state().decide(action);
    }
}

fn result_of(child: &str) -> String {
    format!("result of child orchestration '{child}'")
}

fn reserved_child_id(id: &str) -> String {
    format!(
        "sub-orchestration instance id '{id}' starts with the reserved marker '{SUB_ORCH_AUTO_PREFIX}', which the \
         runtime uses to mark auto-generated child ids; use an id that does not begin with it"
    )
}
