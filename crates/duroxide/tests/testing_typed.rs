//! The test environment with typed functions: mocks and records with the types of `#[activity]` functions.

#![cfg(all(feature = "macros", feature = "testing"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use duroxide::prelude::*;
use duroxide::testing::{Mock, TestEnv};
use duroxide::{DuroxideBuilder, FailureKind, Retryable, RunError};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    item: String,
    cents: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum ChargeError {
    #[error("the card was declined with code {0}")]
    Declined(u32),
    #[error("the bank is down")]
    BankIsDown,
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Retryable for ChargeError {
    fn is_retryable(&self) -> bool {
        matches!(self, Self::BankIsDown)
    }
}

struct Bank;

#[activity]
async fn charge(State(_bank): State<Bank>, order: &Order) -> Result<String, ChargeError> {
    Ok(format!("receipt for {}", order.item))
}

#[activity]
async fn reserve(item: String, count: u32) -> Result<u32, String> {
    Ok(item.len() as u32 + count)
}

#[activity]
async fn open_shop() -> Result<(), String> {
    Ok(())
}

#[orchestration]
async fn fulfil(ctx: OrchestrationContext, order: Order) -> Result<String, ChargeError> {
    open_shop(&ctx).await.map_err(|_| ChargeError::Declined(0))?;
    reserve(&ctx, order.item.clone(), 2).await.map_err(|_| ChargeError::Declined(1))?;
    charge(&ctx, &order).retry(RetryPolicy::fixed(3, secs(60))).await
}

fn shop() -> DuroxideBuilder {
    Duroxide::open("memory:").activity(charge).activity(reserve).activity(open_shop).orchestration(fulfil)
}

fn order() -> Order {
    Order { item: "apple".to_string(), cents: 300 }
}

// semantics: TEST-6
#[tokio::test]
#[should_panic(expected = "activity `charge` needs a `authoring::testing_typed::Bank`")]
async fn a_service_that_was_forgotten_is_told_when_the_environment_starts() {
    TestEnv::of(shop()).mock(reserve, Mock::never()).start().await;
}

// semantics: TEST-6
#[tokio::test]
async fn an_activity_that_is_mocked_needs_no_service() {
    let env = TestEnv::of(shop()).mock(charge, Mock::never()).start().await;
    assert!(env.calls(charge).is_empty());
    let env = TestEnv::of(shop().state(Bank)).start().await;
    assert!(env.calls(charge).is_empty());
}

// semantics: TEST-4
#[tokio::test]
async fn mocks_and_records_have_the_types_of_the_function() {
    let env = TestEnv::of(shop())
        .mock_with(charge, |order| Ok(format!("{} cents", order.cents)))
        .mock_with(reserve, |(item, count)| if item == "apple" { Ok(count) } else { Err("none".to_string()) })
        .start()
        .await;
    let instance = env.client().start(fulfil, "o-1", order()).await.unwrap();
    assert_eq!(env.run(instance.result()).await.unwrap(), "300 cents");
    let calls = env.calls(charge);
    assert_eq!((calls.len(), &calls[0].input), (1, &order()));
    assert_eq!(calls[0].result, Some(Ok("300 cents".to_string())));
    assert_eq!((calls[0].instance.as_str(), calls[0].attempt), ("o-1", 1));
    assert_eq!(env.calls(reserve)[0].input, ("apple".to_string(), 2));
    assert_eq!(env.calls(open_shop)[0].result, Some(Ok(())), "a real one is recorded, too");
    assert_eq!(env.calls("reserve")[0].input, r#"["apple",2]"#);
}

// semantics: TEST-4
#[tokio::test]
async fn the_error_of_a_mock_is_retried_as_that_of_the_activity() {
    let declined = TestEnv::of(shop()).mock_with(charge, |_| Err(ChargeError::Declined(7))).start().await;
    let instance = declined.client().start(fulfil, "o-1", order()).await.unwrap();
    let failed = declined.run(instance.result()).await.unwrap_err();
    assert_eq!(failed, RunError::Failed(ChargeError::Declined(7)));
    assert_eq!(declined.calls(charge).len(), 1, "a declined card is not tried again");

    let down = TestEnv::of(shop()).mock_with(charge, |_| Err(ChargeError::BankIsDown)).start().await;
    let instance = down.client().start(fulfil, "o-1", order()).await.unwrap();
    let failed = down.run(instance.result()).await.unwrap_err();
    assert_eq!(failed, RunError::Failed(ChargeError::BankIsDown));
    let results: Vec<_> = down.calls(charge).into_iter().map(|call| call.result).collect();
    assert_eq!(results, vec![Some(Err(ChargeError::BankIsDown)); 3]);
    assert_eq!(down.elapsed(), mins(2));
}

#[tokio::test]
async fn services_of_the_application_are_there_and_untyped_mocks_take_functions_too() {
    let env = TestEnv::of(shop().state(Bank))
        .mock(reserve, Mock::of(reserve, |_| Ok(1)).after(hours(3)))
        .mock(open_shop, Mock::returns_typed(&()))
        .start()
        .await;
    let instance = env.client().start(fulfil, "o-1", order()).await.unwrap();
    assert_eq!(env.run(instance.result()).await.unwrap(), "receipt for apple");
    assert_eq!(env.elapsed(), hours(3));
}

#[orchestration]
async fn careful(ctx: OrchestrationContext, item: String) -> Result<u32, Failure> {
    let reserved = ctx.saga(async |saga| {
        saga.undo(open_shop(&ctx));
        let reserved =
            reserve(&ctx, item.clone(), 1).await.map_err(|text| Failure::new(FailureKind::Other, text))?;
        saga.undo(reserve(&ctx, item.clone(), 0));
        ctx.timer(hours(1)).await;
        if item == "pear" { Err(Failure::new(FailureKind::Other, "no pears")) } else { Ok(reserved) }
    });
    reserved.await
}

// semantics: CANCEL-8
#[tokio::test]
async fn a_call_that_undoes_is_made_only_if_the_scope_does_not_succeed_and_the_last_first() {
    let setup = || TestEnv::of(shop().state(Bank).orchestration(careful));
    let env = setup().start().await;
    let good = env.client().start(careful, "good", "apple".to_string()).await.unwrap();
    assert_eq!(env.run(good.result()).await.unwrap(), 6);
    assert_eq!((env.calls(reserve).len(), env.calls(open_shop).len()), (1, 0));

    let bad = env.client().start(careful, "bad", "pear".to_string()).await.unwrap();
    assert!(env.run(bad.result()).await.is_err());
    let undone: Vec<String> = env.all_calls().into_iter().skip(2).map(|call| call.name).collect();
    assert_eq!(undone, ["reserve", "open_shop"]);

    let late = env.client().start(careful, "late", "apple".to_string()).await.unwrap();
    env.after(mins(30), |client| async move { client.cancel("late").reason("enough").await.unwrap() });
    let Err(RunError::Failed(failure)) = env.run(late.result()).await else { panic!("it was cancelled") };
    assert_eq!((failure.kind(), failure.message()), (FailureKind::Cancelled, "canceled: enough"));
    let undone: Vec<String> = env.all_calls().into_iter().skip(5).map(|call| call.name).collect();
    assert_eq!(undone, ["reserve", "open_shop"]);
}
