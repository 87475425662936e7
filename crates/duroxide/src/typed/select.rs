//! `select!`.

/// Waits for the first of its futures, and drops the others, which cancels their steps.
///
/// In a replay the same one wins: the one whose result was recorded first.
///
/// With futures alone it is itself a future, of an [`Either2`](crate::Either2) to
/// [`Either12`](crate::Either12). With arms it awaits, and any number of branches may take part:
///
/// ```
/// # use duroxide::prelude::*;
/// #[orchestration]
/// async fn approval(ctx: OrchestrationContext) -> Result<bool, Failure> {
///     let first = select!(ctx.event::<bool>("approve"), ctx.timer(days(1))).await;
///     if let Either2::First(approved) = first {
///         return approved;
///     }
///     select! {
///         approved = ctx.event::<bool>("approve by the boss") => approved,
///         () = ctx.timer(days(1)) => Ok(false),
///     }
/// }
/// # let _ = Duroxide::open("memory:").orchestration(approval);
/// ```
#[macro_export]
macro_rules! select {
    ($($race:tt)*) => {
        // By its own path, so that it works under whatever name a program knows this crate.
        $crate::typed::macros::select_in!($crate; $($race)*)
    };
}
