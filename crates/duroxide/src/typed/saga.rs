//! Calls that undo something.

use crate::orchestration::Saga;

use super::{Activity, ActivityCall};

impl Saga {
    /// Undoes something with a call of an activity, which is made only if the scope does not succeed.
    ///
    /// The call keeps its own retries and limits; give it enough of them.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # #[activity] async fn reserve(order: &str) -> Result<String, String> { Ok(order.to_string()) }
    /// # #[activity] async fn release(reservation: String) -> Result<(), String> { drop(reservation); Ok(()) }
    /// # #[activity] async fn charge(order: &str) -> Result<String, String> { Ok(order.to_string()) }
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     ctx.saga(async |saga| {
    ///         let reservation = reserve(&ctx, &order).await?;
    ///         saga.undo(release(&ctx, reservation).retry(RetryPolicy::exponential(10)));
    ///         charge(&ctx, &order).await
    ///     })
    ///     .await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(reserve).activity(release).activity(charge).orchestration(order);
    /// ```
    pub fn undo<A: Activity>(&self, call: ActivityCall<A>) {
        self.defer_with(move |_| async move { call.await.map(drop).map_err(|error| error.to_string()) });
    }
}
