//! Activities that do what a test says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use super::calls::Calls;
use super::clock::WaitingClock;
use crate::activity::ActivityContext;
use crate::model::{Clock, codec};
use crate::providers::memory::MemoryProvider;
use crate::registry::ActivityHandler;

type AnswerFn = dyn Fn(&ActivityContext, String) -> Result<String, String> + Send + Sync;

/// A stand-in for an activity.
///
/// ```
/// use std::time::Duration;
/// use duroxide::testing::Mock;
///
/// Mock::returns("receipt-1");
/// Mock::fails("card declined");
/// // The first call fails, all others succeed.
/// Mock::sequence([Err("busy"), Ok("done")]);
/// Mock::with(|input| Ok(input.to_uppercase()));
/// // Takes two minutes of the test's time, which costs no time.
/// Mock::returns("slow").after(Duration::from_secs(120));
/// // Never answers.
/// Mock::never();
/// ```
#[derive(Clone)]
pub struct Mock {
    /// Makes the answers of one environment: a sequence begins anew in each.
    make: Arc<dyn Fn() -> Box<AnswerFn> + Send + Sync>,
    duration: Option<Duration>,
}

impl Mock {
    /// Returns this text, every time.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt")).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.output("p-1").await, "receipt");
    /// # }
    /// ```
    pub fn returns(output: impl Into<String>) -> Self {
        let output = output.into();
        Self::with(move |_| Ok(output.clone()))
    }

    /// Returns this value as JSON, every time.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns_typed(&("receipt", 7))).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.output("p-1").await, r#"["receipt",7]"#);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the value does not encode.
    #[track_caller]
    pub fn returns_typed(output: &impl Serialize) -> Self {
        match codec::encode(output) {
            Ok(output) => Self::returns(output),
            Err(error) => panic!("the output of a mock does not encode: {error}"),
        }
    }

    /// Fails with this text, every time.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::fails("declined")).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.failure("p-1").await, "declined");
    /// # }
    /// ```
    pub fn fails(error: impl Into<String>) -> Self {
        let error = error.into();
        Self::with(move |_| Err(error.clone()))
    }

    /// Answers one after the other; the last one for all further calls. A step that is delivered again, because a crash
    /// lost its answer, gets its own answer again.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::sequence([Err("busy"), Ok("receipt")])).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// env.start("p-2", "Pay", "visa").await;
    /// let (first, second) = (env.end("p-1").await, env.end("p-2").await);
    /// println!("one of them fails: {first:?}, {second:?}");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    pub fn sequence<T: Into<String>, E: Into<String>>(
        answers: impl IntoIterator<Item = Result<T, E>>,
    ) -> Self {
        let answers = answers.into_iter().map(|answer| answer.map(Into::into).map_err(Into::into));
        let answers: Arc<[Result<String, String>]> = answers.collect();
        assert!(!answers.is_empty(), "a sequence needs an answer");
        let make = move || -> Box<AnswerFn> {
            let (answers, next) = (answers.clone(), AtomicUsize::new(0));
            let by_step = Mutex::new(BTreeMap::new());
            Box::new(move |ctx, _| {
                let step = (ctx.instance_id().to_string(), ctx.execution_id(), ctx.activity_id());
                let mut by_step = by_step.lock().unwrap_or_else(PoisonError::into_inner);
                let index = *by_step.entry(step).or_insert_with(|| next.fetch_add(1, Ordering::Relaxed));
                answers[index.min(answers.len() - 1)].clone()
            })
        };
        Self { make: Arc::new(make), duration: Some(Duration::ZERO) }
    }

    /// Answers what the function returns for the input.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::with(|card| Ok(format!("charged {card}")))).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.output("p-1").await, "charged visa");
    /// # }
    /// ```
    pub fn with(answer: impl Fn(String) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self::with_context(move |_, input| answer(input))
    }

    /// Answers what the function returns for the input, and the step that asks.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::with_context(|ctx, _| Ok(ctx.idempotency_key()))).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert!(!env.output("p-1").await.is_empty());
    /// # }
    /// ```
    pub fn with_context(
        answer: impl Fn(&ActivityContext, String) -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        let make = move || -> Box<AnswerFn> {
            let answer = answer.clone();
            Box::new(move |ctx, input| answer(ctx, input))
        };
        Self { make: Arc::new(make), duration: Some(Duration::ZERO) }
    }

    /// Never answers. If the orchestration gives the step up, it ends.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move {
    /// #     let charge = ctx.schedule_activity("Charge", card);
    /// #     match ctx.select2(charge, ctx.schedule_timer(hours(1))).await {
    /// #         Either2::First(receipt) => receipt,
    /// #         Either2::Second(()) => Err("the bank does not answer".to_string()),
    /// #     }
    /// # };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::never()).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.failure("p-1").await, "the bank does not answer");
    /// assert_eq!(env.elapsed(), hours(1));
    /// # }
    /// ```
    pub fn never() -> Self {
        Self { duration: None, ..Self::returns("") }
    }

    /// Takes this long, by the test's clock.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt").after(days(3))).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// assert_eq!(env.output("p-1").await, "receipt");
    /// assert_eq!(env.elapsed(), days(3));
    /// # }
    /// ```
    #[must_use]
    pub fn after(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Makes the activity of one environment.
    pub(super) fn handler(
        &self,
        calls: &Calls,
        store: &Arc<MemoryProvider>,
        clock: &WaitingClock,
    ) -> MockHandler {
        MockHandler {
            answer: (self.make)(),
            duration: self.duration,
            calls: calls.clone(),
            store: store.clone(),
            clock: clock.clone(),
        }
    }
}

/// A mock in an environment.
pub(super) struct MockHandler {
    answer: Box<AnswerFn>,
    duration: Option<Duration>,
    calls: Calls,
    store: Arc<MemoryProvider>,
    clock: WaitingClock,
}

#[async_trait]
impl ActivityHandler for MockHandler {
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String> {
        if self.duration != Some(Duration::ZERO) {
            let over = async {
                match self.duration {
                    Some(duration) => self.clock.sleep(duration).await,
                    None => std::future::pending().await,
                }
            };
            let dozing = self.calls.doze(&ctx, &self.store);
            tokio::select! {
                () = over => {}
                () = ctx.cancelled() => return Err("given up".to_string()),
            }
            drop(dozing);
        }
        (self.answer)(&ctx, input)
    }
}
