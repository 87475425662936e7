//! Ending an execution and beginning the next.

use std::future::{Pending, pending};

use serde::Serialize;

use crate::model::{Action, codec};

use super::OrchestrationContext;

impl OrchestrationContext {
    /// Ends this execution and begins the next with a fresh history.
    ///
    /// The call takes effect at the end of the turn, whether awaited or not, and wins over a return value; of several
    /// calls the first counts. The future never resolves: `return ctx.continue_as_new(input).await;`. The next
    /// execution runs the version that the registry chooses. It takes over the key-value store, the custom status and
    /// unread queue messages.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // An orchestration that never ends: each execution handles one item, so that no history grows long.
    /// let item = ctx.dequeue_event("items").await;
    /// ctx.schedule_activity("Pack", item).await?;
    /// ctx.continue_as_new(order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn continue_as_new(&self, input: impl Into<String>) -> Pending<Result<String, String>> {
        self.next_execution(input.into(), None)
    }

    /// Ends this execution and begins the next with a typed input.
    ///
    /// ```
    /// use duroxide::OrchestrationContext;
    ///
    /// async fn import(ctx: OrchestrationContext, page: u64) -> Result<String, String> {
    ///     match ctx.schedule_activity_typed("ImportPage", &page).await? {
    ///         true => ctx.continue_as_new_typed(&(page + 1)).await,
    ///         false => Ok(format!("{page} pages")),
    ///     }
    /// }
    /// # duroxide::OrchestrationRegistry::builder().register_typed("Import", import);
    /// ```
    ///
    /// # Panics
    /// If the input cannot be serialized.
    #[track_caller]
    pub fn continue_as_new_typed<In: Serialize>(&self, input: &In) -> Pending<Result<String, String>> {
        match codec::encode(input) {
            Ok(input) => self.next_execution(input, None),
            Err(error) => panic!("Serialization should never fail for valid input: {error}"),
        }
    }

    /// Ends this execution and begins the next, which runs exactly this version.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Version 2 of the orchestration takes over, with an input of the form that it expects.
    /// ctx.continue_as_new_versioned("2.0.0", format!("order:{order}")).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn continue_as_new_versioned(
        &self,
        version: impl Into<String>,
        input: impl Into<String>,
    ) -> Pending<Result<String, String>> {
        self.next_execution(input.into(), Some(version.into()))
    }

    #[track_caller]
    pub(crate) fn next_execution<T>(&self, input: String, version: Option<String>) -> Pending<T> {
        self.shared_state().hand_open_requests_over();
        self.shared_state().decide(Action::ContinueAsNew { input, version });
        pending()
    }
}
