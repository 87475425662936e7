//! Waiting for several steps: all of them, or the first.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::join::JoinAll;
use super::{Either2, Either3, OrchestrationContext};

impl OrchestrationContext {
    /// Waits for all futures and returns their outputs in the order of the arguments. A failed member does not end
    /// the wait for the others.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // All parcels are on their way at once, however many there are.
    /// let parcels = order.split(',').map(|item| ctx.schedule_activity("Ship", item)).collect();
    /// let shipped = ctx.join(parcels).await;
    /// let failed = shipped.iter().filter(|parcel| parcel.is_err()).count();
    /// Ok(format!("{failed} of {} parcels failed", shipped.len()))
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn join<T, F>(&self, futures: Vec<F>) -> Vec<T>
    where
        F: Future<Output = T>,
    {
        JoinAll::new(self.shared_state(), futures).await
    }

    /// Waits for both futures.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let stock = ctx.schedule_activity("Reserve", &order);
    /// let credit = ctx.schedule_activity_typed::<_, bool>("CheckCredit", &order);
    /// let (stock, credit) = ctx.join2(stock, credit).await;
    /// if credit? { stock } else { Err("no credit".to_string()) }
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn join2<T1, T2, F1, F2>(&self, f1: F1, f2: F2) -> (T1, T2)
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
    {
        let (mut f1, mut f2) = (pin!(f1), pin!(f2));
        let (mut o1, mut o2) = (None, None);
        poll_fn(move |cx| {
            poll_into(f1.as_mut(), &mut o1, cx);
            poll_into(f2.as_mut(), &mut o2, cx);
            match (o1.take(), o2.take()) {
                (Some(a), Some(b)) => Poll::Ready((a, b)),
                (a, b) => {
                    (o1, o2) = (a, b);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits for all three futures.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let mail = ctx.schedule_activity("Mail", &order);
    /// let label = ctx.schedule_activity("PrintLabel", &order);
    /// let approval = ctx.schedule_wait("approved");
    /// let (mail, label, approver) = ctx.join3(mail, label, approval).await;
    /// Ok(format!("{} with {}, approved by {approver}", mail?, label?))
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn join3<T1, T2, T3, F1, F2, F3>(&self, f1: F1, f2: F2, f3: F3) -> (T1, T2, T3)
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
        F3: Future<Output = T3>,
    {
        let ((a, b), c) = self.join2(self.join2(f1, f2), f3).await;
        (a, b, c)
    }

    /// Waits for the future that is ready first. Drops the other, which cancels its step.
    ///
    /// The future whose result was recorded first wins; the order of the arguments decides only if the same event made
    /// both ready.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{Either2, OrchestrationContext};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let payment = ctx.schedule_wait("paid");
    /// let deadline = ctx.schedule_timer(Duration::from_secs(24 * 60 * 60));
    /// match ctx.select2(payment, deadline).await {
    ///     Either2::First(receipt) => Ok(receipt),
    ///     Either2::Second(()) => Err("not paid within a day".to_string()),
    /// }
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn select2<T1, T2, F1, F2>(&self, f1: F1, f2: F2) -> Either2<T1, T2>
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
    {
        let (mut f1, mut f2) = (pin!(f1), pin!(f2));
        poll_fn(move |cx| {
            if let Poll::Ready(output) = f1.as_mut().poll(cx) {
                return Poll::Ready(Either2::First(output));
            }
            f2.as_mut().poll(cx).map(Either2::Second)
        })
        .await
    }

    /// Waits for the future that is ready first, like [`select2`](Self::select2).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::{Either3, OrchestrationContext};
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let (paid, withdrawn) = (ctx.schedule_wait("paid"), ctx.schedule_wait("withdrawn"));
    /// let deadline = ctx.schedule_timer(Duration::from_secs(24 * 60 * 60));
    /// match ctx.select3(paid, withdrawn, deadline).await {
    ///     Either3::First(receipt) => Ok(receipt),
    ///     Either3::Second(reason) => Err(format!("withdrawn: {reason}")),
    ///     Either3::Third(()) => Err("not paid within a day".to_string()),
    /// }
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub async fn select3<T1, T2, T3, F1, F2, F3>(&self, f1: F1, f2: F2, f3: F3) -> Either3<T1, T2, T3>
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
        F3: Future<Output = T3>,
    {
        let (mut f1, mut f2, mut f3) = (pin!(f1), pin!(f2), pin!(f3));
        poll_fn(move |cx| {
            if let Poll::Ready(output) = f1.as_mut().poll(cx) {
                return Poll::Ready(Either3::First(output));
            }
            if let Poll::Ready(output) = f2.as_mut().poll(cx) {
                return Poll::Ready(Either3::Second(output));
            }
            f3.as_mut().poll(cx).map(Either3::Third)
        })
        .await
    }
}

/// Polls a future unless its output is already there.
fn poll_into<F: Future>(future: Pin<&mut F>, output: &mut Option<F::Output>, cx: &mut Context<'_>) {
    if output.is_none()
        && let Poll::Ready(value) = future.poll(cx)
    {
        *output = Some(value);
    }
}
