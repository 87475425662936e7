//! Cancellation that the code hears of, so that it can clean up.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use crate::replay::SharedState;

use super::OrchestrationContext;

/// Why an instance was cancelled. It can be part of a typed error: `Cancelled(#[from] Cancellation)`.
///
/// ```
/// use duroxide::Cancellation;
///
/// // The error of an orchestration, which a scope or a step returns if it was cancelled.
/// #[derive(Debug)]
/// enum OrderError {
///     Cancelled(Cancellation),
///     SoldOut,
/// }
///
/// impl From<Cancellation> for OrderError {
///     fn from(cancellation: Cancellation) -> Self {
///         Self::Cancelled(cancellation)
///     }
/// }
/// # let _ = OrderError::SoldOut;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancellation {
    /// What the caller gave as the reason.
    pub reason: String,
}

impl fmt::Display for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "canceled: {}", self.reason)
    }
}

impl std::error::Error for Cancellation {}

impl From<Cancellation> for String {
    fn from(cancellation: Cancellation) -> Self {
        cancellation.to_string()
    }
}

/// The future of [`OrchestrationContext::cancelled`].
///
/// ```
/// use duroxide::prelude::*;
///
/// #[orchestration]
/// async fn watch(ctx: OrchestrationContext) -> Result<String, String> {
///     match ctx.select2(ctx.timer(days(30)), ctx.cancelled()).await {
///         Either2::First(()) => Ok("a month is over".to_string()),
///         Either2::Second(cancellation) => Ok(format!("stopped: {}", cancellation.reason)),
///     }
/// }
/// # let _ = Duroxide::open("memory:").orchestration(watch);
/// ```
pub struct Cancelled {
    shared_state: Arc<SharedState>,
    listener: u64,
}

impl Future for Cancelled {
    type Output = Cancellation;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Cancellation> {
        self.shared_state.poll_cancellation(self.listener, cx.waker()).map(|reason| Cancellation { reason })
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.shared_state.stop_listening(self.listener);
    }
}

impl OrchestrationContext {
    /// Waits until the instance is cancelled.
    ///
    /// An orchestration that does not listen ends at once when it is cancelled. One that holds this future when the request
    /// arrives goes on instead, and ends itself: what it returns decides. An `Err` makes it a cancelled instance, an `Ok` a
    /// completed one. If the caller gave a [grace period](crate::client::Cancel::grace), it is ended when that is over.
    ///
    /// ```
    /// # use duroxide::{Either2, OrchestrationContext};
    /// async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     ctx.schedule_activity("Reserve", &order).await?;
    ///     match ctx.select2(ctx.schedule_wait("Paid"), ctx.cancelled()).await {
    ///         Either2::First(payment) => ctx.schedule_activity("Ship", payment).await,
    ///         Either2::Second(cancellation) => {
    ///             ctx.schedule_activity("Release", &order).await?;
    ///             Err(cancellation.to_string())
    ///         }
    ///     }
    /// }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn cancelled(&self) -> Cancelled {
        let listener = self.shared_state().start_listening();
        Cancelled { shared_state: Arc::clone(self.shared_state()), listener }
    }
}
