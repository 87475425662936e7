//! Attempts at typed activities: retries in the store by the type of the error, time limits as typed failures, and results that
//! come from elsewhere with the types of the activity.

#![cfg(feature = "macros")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::typed_support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use duroxide::prelude::*;
use duroxide::{CompleteError, CompletionToken, EventKind, FailureKind, RunError};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use typed_support::on_every_store;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum ChargeError {
    #[error("declined with {code}")]
    Declined { code: u32 },
    #[error("the bank is down")]
    Down,
    #[error(transparent)]
    Failed(#[from] Failure),
}

#[derive(Default)]
struct Attempts(AtomicU32);

#[activity(non_retryable = ChargeError::Declined { .. })]
async fn charge(
    ctx: ActivityContext,
    State(attempts): State<Attempts>,
    cents: u32,
) -> Result<u32, ChargeError> {
    attempts.0.fetch_add(1, Ordering::SeqCst);
    match (cents, ctx.attempt()) {
        (0, _) => Err(ChargeError::Declined { code: 51 }),
        (1, _) | (_, 1) => Err(ChargeError::Down),
        (cents, _) => Ok(cents),
    }
}

#[orchestration]
async fn buy(ctx: OrchestrationContext, cents: u32) -> Result<u32, ChargeError> {
    charge(&ctx, cents).retry_in_store(StoredRetry::attempts(3).first_pause(millis(0))).await
}

// semantics: RETRY-10
#[tokio::test(flavor = "multi_thread")]
async fn errors_that_are_not_retryable_end_retries_in_the_store() {
    on_every_store(|builder| async move {
        let app =
            builder.activity(charge).orchestration(buy).state(Attempts::default()).start().await.unwrap();
        let paid = app.start(buy, "paid", 7).await.unwrap();
        assert_eq!(paid.result().await.unwrap(), 7);
        let declined = app.start(buy, "declined", 0).await.unwrap();
        assert_eq!(declined.result().await, Err(RunError::Failed(ChargeError::Declined { code: 51 })));
        let down = app.start(buy, "down", 1).await.unwrap();
        assert_eq!(down.result().await, Err(RunError::Failed(ChargeError::Down)));
        for instance in ["paid", "declined", "down"] {
            let history = app.client().read_execution_history(instance, 1).await.unwrap();
            let scheduled = |kind: &EventKind| matches!(kind, EventKind::ActivityScheduled { .. });
            assert_eq!(history.iter().filter(|event| scheduled(&event.kind)).count(), 1, "{instance}");
        }
        app.shutdown().await;
    })
    .await;
}

#[activity]
async fn hang() -> Result<u32, ChargeError> {
    std::future::pending().await
}

#[orchestration]
async fn wait(ctx: OrchestrationContext, by_heartbeat: bool) -> Result<u32, ChargeError> {
    match by_heartbeat {
        true => hang(&ctx).heartbeat(millis(1)).await,
        false => hang(&ctx).start_to_close(millis(1)).await,
    }
}

// semantics: ACT-21
#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_of_the_worker_is_a_typed_failure() {
    on_every_store(|builder| async move {
        let app = builder
            .activity(hang)
            .orchestration(wait)
            .options(|options| options.activity_cancellation_grace_period = millis(1))
            .start()
            .await
            .unwrap();
        for by_heartbeat in [true, false] {
            let instance = app.start(wait, &format!("{by_heartbeat}"), by_heartbeat).await.unwrap();
            match instance.result().await {
                Err(RunError::Failed(ChargeError::Failed(failure))) => {
                    assert_eq!(failure.kind(), FailureKind::TimedOut, "{failure}");
                }
                other => panic!("{other:?}"),
            }
        }
        app.shutdown().await;
    })
    .await;
}

struct Mail(Mutex<mpsc::UnboundedSender<CompletionToken>>);

#[activity]
async fn approve(ctx: ActivityContext, State(mail): State<Mail>, _order: u32) -> Result<u32, ChargeError> {
    let token = ctx.completion_token().unwrap();
    mail.0.lock().unwrap().send(token).unwrap();
    ctx.pending().await
}

#[orchestration]
async fn order(ctx: OrchestrationContext, number: u32) -> Result<u32, ChargeError> {
    approve(&ctx, number).await
}

// semantics: ACT-23
#[tokio::test(flavor = "multi_thread")]
async fn a_result_from_elsewhere_has_the_types_of_the_activity() {
    on_every_store(|builder| async move {
        let (sender, mut tokens) = mpsc::unbounded_channel();
        let mail = Mail(Mutex::new(sender));
        let app = builder.activity(approve).orchestration(order).state(mail).start().await.unwrap();
        let yes = app.start(order, "yes", 1).await.unwrap();
        let token = tokens.recv().await.unwrap();
        app.client().complete(approve, &token, Ok(42)).await.unwrap();
        assert_eq!(yes.result().await.unwrap(), 42);
        let again = app.client().complete(approve, &token, Ok(43)).await;
        assert!(matches!(again, Err(CompleteError::Ended { .. })), "{again:?}");
        let no = app.start(order, "no", 2).await.unwrap();
        let token = tokens.recv().await.unwrap();
        app.client().complete(approve, &token, Err(ChargeError::Declined { code: 3 })).await.unwrap();
        assert_eq!(no.result().await, Err(RunError::Failed(ChargeError::Declined { code: 3 })));
        app.shutdown().await;
    })
    .await;
}
