//! The call of an orchestration: as a child, detached, or as the next execution.

use std::fmt;
use std::future::{Future, Pending};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::model::error_text::{self, TypedError};
use crate::orchestration::{DurableFuture, OnCancel, OrchestrationContext, RecordedOutcome};

use super::{Failure, FailureKind, Orchestration};

/// A call of an orchestration.
///
/// Awaited, it runs as a child of this one; dropping it before it has its result cancels the child. It runs exactly the
/// function that the code names, in its version, whichever other versions are registered.
///
/// ```
/// use duroxide::prelude::*;
///
/// #[orchestration]
/// async fn ship(ctx: OrchestrationContext, order: u32) -> Result<String, String> {
///     Ok(format!("parcel {order} from {}", ctx.instance_id()))
/// }
///
/// #[orchestration]
/// async fn audit(ctx: OrchestrationContext, order: u32) -> Result<(), String> {
///     ctx.trace_info(format!("order {order} was shipped"));
///     Ok(())
/// }
///
/// #[orchestration]
/// async fn fulfil(ctx: OrchestrationContext, order: u32) -> Result<String, String> {
///     let parcel = ship(&ctx, order).timeout(hours(2)).await?;        // a child
///     audit(&ctx, order).detached(format!("audit-{order}"));          // an instance of its own
///     Ok(parcel)
/// }
/// # let _ = Duroxide::open("memory:").orchestration(ship).orchestration(audit).orchestration(fulfil);
/// ```
#[must_use = "an orchestration runs only if its call is awaited, or detached"]
pub struct OrchestrationCall<O: Orchestration> {
    stage: Stage,
    _code: std::marker::PhantomData<fn() -> O>,
}

type Outcome<O> = Result<<O as Orchestration>::Output, <O as Orchestration>::Error>;

enum Stage {
    Planned(Plan),
    Running {
        ctx: OrchestrationContext,
        child: DurableFuture<RecordedOutcome>,
        limit: Option<(Duration, DurableFuture<()>)>,
    },
    /// The outcome was known without a step.
    Known(Option<Failure>),
    Over,
}

struct Plan {
    ctx: OrchestrationContext,
    /// Where the code makes the call. Its steps are taken elsewhere: when the call is polled.
    place: &'static Location<'static>,
    input: Result<String, String>,
    version: Option<String>,
    instance: Option<String>,
    timeout: Option<Duration>,
    on_cancel: OnCancel,
}

impl<O: Orchestration> OrchestrationCall<O> {
    #[track_caller]
    pub(super) fn new(ctx: &OrchestrationContext, input: Result<String, String>) -> Self {
        let version = Some(O::VERSION.to_string());
        let (instance, timeout, on_cancel) = (None, None, OnCancel::default());
        let (ctx, place) = (ctx.clone(), Location::caller());
        Self::at(Stage::Planned(Plan { ctx, place, input, version, instance, timeout, on_cancel }))
    }

    fn at(stage: Stage) -> Self {
        Self { stage, _code: std::marker::PhantomData }
    }

    fn plan(mut self, what: &str, change: impl FnOnce(&mut Plan)) -> Self {
        match &mut self.stage {
            Stage::Planned(plan) => change(plan),
            _ => panic!(
                "{what} is called on a call of orchestration '{}' that has already been started",
                O::NAME
            ),
        }
        self
    }

    /// Runs the child under this id. Without one, the library makes an id from the parent's.
    ///
    /// The result is a [`Failure`] if the id begins with `sub::` or is taken.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn ship(_ctx: OrchestrationContext, item: String) -> Result<String, String> { Ok(item) }
    /// # #[orchestration] async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    /// ship(&ctx, item).id("shipment-7").await
    /// # }
    /// # let _ = Duroxide::open("memory:").orchestration(ship).orchestration(order);
    /// ```
    pub fn id(self, instance: impl Into<String>) -> Self {
        let instance = instance.into();
        self.plan("id()", |plan| plan.instance = Some(instance))
    }

    /// Runs another version than the one of the function that the code names.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn ship(_ctx: OrchestrationContext, item: String) -> Result<String, String> { Ok(item) }
    /// # #[orchestration] async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    /// ship(&ctx, item).version("1.2.0").await
    /// # }
    /// # let _ = Duroxide::open("memory:").orchestration(ship).orchestration(order);
    /// ```
    pub fn version(self, version: impl Into<String>) -> Self {
        let version = version.into();
        self.plan("version()", |plan| plan.version = Some(version))
    }

    /// Runs the version that the registry of the process chooses that starts it: the latest, unless it has a policy.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn ship(_ctx: OrchestrationContext, item: String) -> Result<String, String> { Ok(item) }
    /// # #[orchestration] async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    /// ship(&ctx, item).any_version().await
    /// # }
    /// # let _ = Duroxide::open("memory:").orchestration(ship).orchestration(order);
    /// ```
    pub fn any_version(self) -> Self {
        self.plan("any_version()", |plan| plan.version = None)
    }

    /// Bounds the child: when the time is up, it is cancelled, and the result is a [`Failure`] of the kind
    /// [`TimedOut`](FailureKind::TimedOut).
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn ship(_ctx: OrchestrationContext, item: String) -> Result<String, String> { Ok(item) }
    /// # #[orchestration] async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    /// ship(&ctx, item).timeout(days(3)).await
    /// # }
    /// # let _ = Duroxide::open("memory:").orchestration(ship).orchestration(order);
    /// ```
    pub fn timeout(self, timeout: Duration) -> Self {
        self.plan("timeout()", |plan| plan.timeout = Some(timeout))
    }

    /// Says what becomes of the child when this orchestration gives it up: because it is cancelled or fails, or drops the call. By
    /// default the child is cancelled, too.
    ///
    /// With [`OnCancel::Abandon`] the child lives on: for what must be done to its end once it has begun, such as a transfer.
    /// If the result is never wanted, use [`detached`](Self::detached).
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// use duroxide::OnCancel;
    ///
    /// # #[orchestration] async fn transfer(_ctx: OrchestrationContext, cents: u64) -> Result<u64, String> { Ok(cents) }
    /// #[orchestration]
    /// async fn pay(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
    ///     transfer(&ctx, cents).on_cancel(OnCancel::Abandon).await
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(transfer).orchestration(pay);
    /// ```
    pub fn on_cancel(self, policy: OnCancel) -> Self {
        self.plan("on_cancel()", |plan| plan.on_cancel = policy)
    }

    /// Starts the child now, so that it runs while the code goes on.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn ship(_ctx: OrchestrationContext, item: String) -> Result<String, String> { Ok(item) }
    /// # #[orchestration] async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    /// let parcel = ship(&ctx, item).start();
    /// ctx.timer(secs(1)).await;               // the child runs meanwhile
    /// parcel.await
    /// # }
    /// # let _ = Duroxide::open("memory:").orchestration(ship).orchestration(order);
    /// ```
    pub fn start(mut self) -> Self {
        self.schedule();
        self
    }

    /// Starts the orchestration as an instance of its own, and does not wait for it.
    ///
    /// If the id is taken, nothing happens.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration] async fn ship(_ctx: OrchestrationContext, item: String) -> Result<String, String> { Ok(item) }
    /// # #[orchestration] async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    /// ship(&ctx, item).detached("shipment-7");
    /// Ok("on its way".to_string())
    /// # }
    /// # let _ = Duroxide::open("memory:").orchestration(ship).orchestration(order);
    /// ```
    ///
    /// # Panics
    /// If the id is reserved for children (`sub::`), or the input cannot be serialized.
    pub fn detached(self, instance: impl Into<String>) {
        let plan = self.into_plan("detached()");
        let input = plan.input.unwrap_or_else(|reason| panic!("{}", unencodable::<O>(&reason)));
        plan.ctx.asked_at(plan.place, || {
            plan.ctx.schedule_orchestration_versioned(O::NAME, plan.version.clone(), instance, input);
        });
    }

    /// Ends this execution and begins the next, with a fresh history and these arguments: for code that runs for ever.
    ///
    /// The future never resolves; return what it would resolve to. Values, custom status and unread messages stay.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// #[orchestration]
    /// async fn count(ctx: OrchestrationContext, n: u32) -> Result<u32, String> {
    ///     if n >= 1_000 {
    ///         return Ok(n);
    ///     }
    ///     count(&ctx, n + 1).continue_as_new().await
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(count);
    /// ```
    ///
    /// # Panics
    /// If this is another orchestration than the one that runs, or the input cannot be serialized.
    pub fn continue_as_new<T>(self) -> Pending<T> {
        let plan = self.into_plan("continue_as_new()");
        let running = plan.ctx.orchestration_name();
        if running != O::NAME {
            panic!("orchestration '{running}' cannot continue as '{}'; an instance keeps its name", O::NAME);
        }
        let input = plan.input.unwrap_or_else(|reason| panic!("{}", unencodable::<O>(&reason)));
        plan.ctx.next_execution(input, plan.version)
    }

    /// The recorded input, for a start from outside.
    pub(super) fn into_input(self) -> Result<String, String> {
        self.into_plan("a start").input
    }

    fn into_plan(self, what: &str) -> Plan {
        match self.stage {
            Stage::Planned(plan) => plan,
            _ => panic!(
                "{what} is called on a call of orchestration '{}' that has already been started",
                O::NAME
            ),
        }
    }

    fn schedule(&mut self) {
        let Stage::Planned(_) = &self.stage else { return };
        let Stage::Planned(plan) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        let Plan { ctx, place, input, version, instance, timeout, on_cancel } = plan;
        self.stage = match input {
            Err(reason) => Stage::Known(Some(unencodable::<O>(&reason))),
            Ok(input) => {
                let (child, limit) = ctx.asked_at(place, || {
                    let child = ctx.recorded_child(O::NAME, version, instance, input, on_cancel);
                    (child, timeout.map(|timeout| (timeout, ctx.schedule_timer(timeout))))
                });
                Stage::Running { ctx, child, limit }
            }
        };
    }
}

fn ended<O: Orchestration>(ctx: &OrchestrationContext, recorded: RecordedOutcome) -> Outcome<O> {
    let RecordedOutcome { result, step } = recorded;
    match result {
        Ok(text) => {
            let payload = format!("result of child orchestration '{}'", O::NAME);
            ctx.decode_payload(&text, &payload, step).map_err(|reason| Failure::undecodable(reason).into())
        }
        Err(text) => match error_text::decode::<O::Error>(&text) {
            TypedError { error: Ok(error), .. } => Err(error),
            TypedError { error: Err(words), .. } => Err(Failure::recorded(words).into()),
        },
    }
}

fn unencodable<O: Orchestration>(reason: &str) -> Failure {
    Failure::unencodable(&format!("input of orchestration '{}'", O::NAME), reason)
}

impl<O: Orchestration> Future for OrchestrationCall<O> {
    type Output = Outcome<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<O>> {
        self.schedule();
        let outcome = match &mut self.stage {
            Stage::Running { ctx, child, limit } => {
                if let Poll::Ready(recorded) = Pin::new(child).poll(cx) {
                    ended::<O>(ctx, recorded)
                } else if let Some((limit, timer)) = limit
                    && Pin::new(timer).poll(cx).is_ready()
                {
                    let message =
                        format!("orchestration '{}' took longer than {limit:?}, which is its limit", O::NAME);
                    Err(Failure::new(FailureKind::TimedOut, message).into())
                } else {
                    return Poll::Pending;
                }
            }
            Stage::Known(failure) => match failure.take() {
                Some(failure) => Err(failure.into()),
                None => return Poll::Pending,
            },
            // As every durable future: polled again after its end, it stays pending.
            Stage::Planned(_) | Stage::Over => return Poll::Pending,
        };
        self.stage = Stage::Over;
        Poll::Ready(outcome)
    }
}

impl<O: Orchestration> fmt::Debug for OrchestrationCall<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrchestrationCall").field("name", &O::NAME).finish_non_exhaustive()
    }
}
