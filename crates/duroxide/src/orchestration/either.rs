//! Which branch of a race won.

/// The winner of [`select2`](crate::OrchestrationContext::select2).
///
/// ```
/// use duroxide::prelude::*;
///
/// #[orchestration]
/// async fn approval(ctx: OrchestrationContext) -> Result<String, Failure> {
///     match ctx.select2(ctx.event::<String>("approved by"), ctx.timer(days(1))).await {
///         Either2::First(name) => Ok(format!("{} has approved", name?)),
///         Either2::Second(()) => Ok("a day is over".to_string()),
///     }
/// }
/// # let _ = Duroxide::open("memory:").orchestration(approval);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Either2<A, B> {
    /// The first argument won.
    First(A),
    /// The second argument won.
    Second(B),
}

impl<A, B> Either2<A, B> {
    /// Tells whether the first argument won.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let answer = ctx.schedule_wait("confirmed");
    /// let hour = ctx.schedule_timer(Duration::from_secs(60 * 60));
    /// let is_confirmed = ctx.select2(answer, hour).await.is_first();
    /// ctx.set_custom_status(if is_confirmed { "confirmed" } else { "silent" });
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn is_first(&self) -> bool {
        matches!(self, Self::First(_))
    }

    /// Tells whether the second argument won.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let charge = ctx.schedule_activity("Charge", &order);
    /// let minute = ctx.schedule_timer(Duration::from_secs(60));
    /// if ctx.select2(charge, minute).await.is_second() {
    ///     return Err("the bank took longer than a minute".to_string());
    /// }
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn is_second(&self) -> bool {
        matches!(self, Self::Second(_))
    }

    /// Returns the position of the winner, from 0.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Two carriers bid; the first to answer gets the parcel.
    /// let bids = (ctx.schedule_wait("bid of North"), ctx.schedule_wait("bid of South"));
    /// let carrier = ["North", "South"][ctx.select2(bids.0, bids.1).await.index()];
    /// ctx.schedule_activity("Ship", carrier).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn index(&self) -> usize {
        match self {
            Self::First(_) => 0,
            Self::Second(_) => 1,
        }
    }
}

impl<T> Either2<T, T> {
    /// Returns the position of the winner, from 0, and its value.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let near = ctx.schedule_activity_typed::<_, u64>("Quote", &("North", &order));
    /// let far = ctx.schedule_activity_typed::<_, u64>("Quote", &("South", &order));
    /// let (carrier, cents) = ctx.select2(near, far).await.into_tuple();
    /// Ok(format!("{} for {} cents", ["North", "South"][carrier], cents?))
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn into_tuple(self) -> (usize, T) {
        match self {
            Self::First(value) => (0, value),
            Self::Second(value) => (1, value),
        }
    }
}

/// The winner of [`select3`](crate::OrchestrationContext::select3).
///
/// ```
/// use duroxide::prelude::*;
///
/// #[orchestration]
/// async fn approval(ctx: OrchestrationContext) -> Result<String, Failure> {
///     let (yes, no) = (ctx.event::<String>("approved by"), ctx.event::<String>("rejected by"));
///     match ctx.select3(yes, no, ctx.timer(days(1))).await {
///         Either3::First(name) => Ok(format!("{} has approved", name?)),
///         Either3::Second(name) => Ok(format!("{} has rejected", name?)),
///         Either3::Third(()) => Ok("a day is over".to_string()),
///     }
/// }
/// # let _ = Duroxide::open("memory:").orchestration(approval);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Either3<A, B, C> {
    /// The first argument won.
    First(A),
    /// The second argument won.
    Second(B),
    /// The third argument won.
    Third(C),
}

impl<A, B, C> Either3<A, B, C> {
    /// Returns the position of the winner, from 0.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let (paid, withdrawn) = (ctx.schedule_wait("paid"), ctx.schedule_wait("withdrawn"));
    /// let deadline = ctx.schedule_timer(Duration::from_secs(24 * 60 * 60));
    /// let end = ctx.select3(paid, withdrawn, deadline).await.index();
    /// ctx.set_custom_status(["paid", "withdrawn", "late"][end]);
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn index(&self) -> usize {
        match self {
            Self::First(_) => 0,
            Self::Second(_) => 1,
            Self::Third(_) => 2,
        }
    }
}

impl<T> Either3<T, T, T> {
    /// Returns the position of the winner, from 0, and its value.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let bid = |carrier: &str| ctx.schedule_activity("Quote", format!("{order} by {carrier}"));
    /// let winner = ctx.select3(bid("North"), bid("South"), bid("West")).await;
    /// let (carrier, price) = winner.into_tuple();
    /// Ok(format!("{} for {}", ["North", "South", "West"][carrier], price?))
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn into_tuple(self) -> (usize, T) {
        match self {
            Self::First(value) => (0, value),
            Self::Second(value) => (1, value),
            Self::Third(value) => (2, value),
        }
    }
}
