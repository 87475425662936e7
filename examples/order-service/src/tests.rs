//! What else can go wrong; the bank and the parcel service are mocks.

use std::sync::Arc;

use duroxide::InstanceHandle;
use duroxide::testing::{Mock, TestEnv, TestEnvBuilder};

use super::*;

fn shop() -> TestEnvBuilder {
    TestEnv::of(functions(Duroxide::open("memory:")))
}

async fn order(env: &TestEnv, cents: u64) -> InstanceHandle<String, OrderError> {
    env.client().start(fulfil, "o-1", Order { apples: 4, cents }).await.unwrap()
}

#[tokio::test]
async fn an_order_that_cannot_be_shipped_is_refunded_and_released() {
    let env = shop().mock(ship, Mock::fails("the depot is on fire")).start().await;
    let failed = env.run(order(&env, 500).await.result()).await.unwrap_err();
    assert!(failed.to_string().contains("the depot is on fire"), "{failed}");
    assert_eq!((env.calls(refund).len(), env.calls(release).len()), (1, 1));
}

#[tokio::test]
async fn an_order_that_is_cancelled_while_the_parcel_is_packed_is_refunded() {
    let env = shop().mock(ship, Mock::never()).start().await;
    let order = order(&env, 500).await;
    env.after(mins(1), |client| async move { client.cancel("o-1").reason("too slow").await.unwrap() });
    assert!(env.run(order.result()).await.is_err());
    assert_eq!((env.calls(refund).len(), env.calls(release).len()), (1, 1));
}

#[tokio::test]
async fn a_bank_whose_first_answer_is_lost_sees_one_key_and_refunds_nothing() {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = keys.clone();
    let bank = Mock::with_context(move |ctx, _| {
        let mut seen = seen.lock().unwrap();
        seen.push(ctx.idempotency_key());
        if seen.len() == 1 { Err("the bank does not answer".to_string()) } else { Ok("\"paid\"".to_string()) }
    });
    let env = shop().mock(charge, bank).start().await;
    assert_eq!(env.run(order(&env, 500).await.result()).await.unwrap(), "parcel with 4 apples, paid");
    let keys = keys.lock().unwrap();
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    assert!(env.calls(refund).is_empty());
}

#[tokio::test]
async fn a_bank_that_never_answers_is_asked_five_times_in_one_step() {
    let env = shop().mock(charge, Mock::never()).start().await;
    assert!(env.run(order(&env, 500).await.result()).await.is_err());
    let calls = env.calls("charge");
    assert_eq!(calls.len(), 5);
    assert!(calls.iter().all(|call| call.activity_id == calls[0].activity_id), "{calls:?}");
    assert_eq!(env.calls(refund).len(), 1, "it may have taken the money all the same");
}
