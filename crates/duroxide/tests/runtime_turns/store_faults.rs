//! Turns that the store cannot or will not take.

use std::time::Duration;

use duroxide::providers::ProviderError;
use duroxide::{ErrorDetails, EventKind, OrchestrationContext};

use crate::runtime_support::faulty::Call;
use crate::runtime_support::{
    SOON, details, echo, family, faulty_world, few_attempts, kinds, orchestrations, output,
};

fn busy() -> ProviderError {
    ProviderError::retryable("ack_orchestration_item", "busy")
}

fn refusal() -> ProviderError {
    ProviderError::permanent("ack_orchestration_item", "refused")
}

#[tokio::test]
async fn a_commit_that_fails_for_a_moment_is_tried_again() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    faulty.fail(Call::AckTurn, vec![busy(); 5]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(10)).await), "fine");
    assert_eq!(faulty.count(Call::AckTurn), 6);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_turn_that_the_store_refuses_fails_the_instance_and_tells_its_parent() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    let child = "p::sub::2";
    world.recorded(child, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    faulty.fail(Call::AckTurn, [refusal()]);
    world.client.raise_event(child, "go", "on").await.unwrap();
    let details = details(world.end("p").await);
    assert_eq!(
        details,
        ErrorDetails::Infrastructure {
            operation: "ack_orchestration_item".into(),
            message: "refused".into(),
            retryable: false
        }
    );
    let history = world.history(child).await;
    assert_eq!(kinds(&history), ["OrchestrationStarted", "ExternalSubscribed", "OrchestrationFailed"]);
    assert!(runtime.metrics_snapshot().unwrap().orch_infrastructure_errors >= 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_first_turn_that_the_store_refuses_leaves_an_instance_that_can_be_found() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    faulty.fail(Call::AckTurn, [refusal()]);
    world.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(world.failure("i").await, "infrastructure:ack_orchestration_item: refused");
    assert_eq!(kinds(&world.history("i").await), ["OrchestrationStarted", "OrchestrationFailed"]);
    assert_eq!(world.client.get_instance_info("i").await.unwrap().status, "Failed");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_turn_that_cannot_even_be_failed_is_given_back_and_taken_again() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    faulty.fail(Call::AckTurn, vec![refusal(); 2]);
    world.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(world.output("i").await, "x");
    assert_eq!(faulty.abandoned_turns(), [(None, false)]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_refused_turn_drops_the_resident_and_the_next_turn_is_right() {
    let (world, faulty) = faulty_world();
    let runtime = world
        .start(
            echo(),
            orchestrations().register("Sum", |ctx: OrchestrationContext, _: String| async move {
                let mut sum = 0;
                for _ in 0..4 {
                    let next = ctx.dequeue_event("numbers").await;
                    sum += next.parse::<u32>().unwrap();
                    ctx.set_custom_status(sum.to_string());
                }
                Ok(sum.to_string())
            }),
        )
        .await;
    world.client.start_orchestration("i", "Sum", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::QueueSubscribed { .. })).await;
    for number in 1..=4 {
        if number == 3 {
            // The turn and its failure are both refused: the message comes again, to an instance that is rebuilt.
            faulty.fail(Call::AckTurn, vec![refusal(); 2]);
        }
        world.client.enqueue_event("i", "numbers", number.to_string()).await.unwrap();
        let version = number as u64;
        world.client.wait_for_status_change("i", version - 1, Duration::ZERO, SOON).await.unwrap();
    }
    assert_eq!(world.output("i").await, "10");
    runtime.shutdown(None).await;
}

// semantics: DUR-7
#[tokio::test]
async fn an_outage_that_outlasts_the_retries_loses_no_instance_and_counts_no_attempt() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    // The turn is tried six times and its failure once; then it waits, and is tried again.
    faulty.fail(Call::AckTurn, vec![busy(); 10]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(10)).await), "fine");
    assert_eq!(faulty.abandoned_turns(), [(Some(Duration::from_secs(1)), true)]);
    assert_eq!(faulty.count(Call::AckTurn), 11);
    runtime.shutdown(None).await;
}

// semantics: DUR-7
#[tokio::test]
async fn a_long_outage_uses_up_no_attempts() {
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), family(), few_attempts(2)).await;
    faulty.fail(Call::AckTurn, vec![busy(); 700]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "fine");
    runtime.shutdown(None).await;
}

// The seventh commit holds the failure, and a store that takes just this one has decided.
#[tokio::test]
async fn a_store_that_takes_the_failure_and_not_the_turn_fails_the_instance() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    faulty.fail(Call::AckTurn, vec![busy(); 6]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    let details = details(world.end_in_time("i", Duration::from_millis(10)).await);
    assert!(matches!(details, ErrorDetails::Infrastructure { retryable: true, .. }), "{details:?}");
    assert_eq!(kinds(&world.history("i").await), ["OrchestrationStarted", "OrchestrationFailed"]);
    runtime.shutdown(None).await;
}
