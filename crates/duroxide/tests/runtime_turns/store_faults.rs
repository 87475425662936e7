//! Turns that the store cannot or will not take.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::ProviderError;
use duroxide::{ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus};
use tokio::sync::Semaphore;

use crate::runtime_support::faulty::{Call, Faulty};
use crate::runtime_support::logs::Logs;
use crate::runtime_support::{
    World, details, echo, family, faulty_world, few_attempts, kinds, orchestrations, output,
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
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "x");
    let [(wait, ignore_attempt)] = faulty.abandoned_turns()[..] else { panic!("given back once") };
    assert!(is_wait(wait, 1) && !ignore_attempt, "{wait:?}");
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
            // The store refuses both the turn and its failure: the message comes again, to an instance that is rebuilt.
            faulty.fail(Call::AckTurn, vec![refusal(); 2]);
        }
        world.client.enqueue_event("i", "numbers", number.to_string()).await.unwrap();
        let version = number as u64;
        let has_heard = |status: OrchestrationStatus| match status {
            OrchestrationStatus::Running { custom_status_version, .. } => custom_status_version >= version,
            _ => true,
        };
        while !has_heard(world.client.get_orchestration_status("i").await.unwrap()) {
            world.clock.advance(Duration::from_millis(10));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    }
    assert_eq!(world.output("i").await, "10");
    runtime.shutdown(None).await;
}

/// Whether a wait is the one that follows the `times`th failure in a row.
fn is_wait(wait: Option<Duration>, times: u32) -> bool {
    let longest = Duration::from_secs(1 << (times - 1)).min(Duration::from_secs(60));
    wait.is_some_and(|wait| wait >= longest / 2 && wait <= longest)
}

/// Lets calls pass that are held, and those to come.
fn let_pass(faulty: &Faulty, held: [(Call, Arc<Semaphore>); 2]) {
    for (call, gate) in held {
        faulty.release(call);
        gate.add_permits(100);
    }
}

/// Waits until a call was made so often.
async fn until_called(faulty: &Faulty, call: Call, times: usize) {
    while faulty.count(call) < times {
        tokio::task::yield_now().await;
    }
}

// semantics: LEASE-8
#[tokio::test]
async fn a_turn_whose_lease_ran_out_before_it_was_stored_is_stored_if_nobody_took_it() {
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), family(), few_attempts(1)).await;
    let (acks, renewals) = (faulty.hold(Call::AckTurn), faulty.hold(Call::RenewTurn));
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    until_called(&faulty, Call::AckTurn, 1).await;
    // Nobody else asks for turns.
    let fetches = faulty.hold(Call::FetchTurn);
    world.clock.advance(Duration::from_secs(600));
    faulty.release(Call::AckTurn);
    acks.add_permits(1);
    assert_eq!(output(world.end("i").await), "fine");
    assert_eq!(kinds(&world.history("i").await), ["OrchestrationStarted", "OrchestrationCompleted"]);
    assert_eq!(faulty.abandoned_turns(), []);
    let_pass(&faulty, [(Call::FetchTurn, fetches), (Call::RenewTurn, renewals)]);
    runtime.shutdown(None).await;
}

// semantics: LEASE-8
#[tokio::test]
async fn a_history_that_is_loaded_after_its_lease_ran_out_is_loaded_if_nobody_took_the_turn() {
    let (world, faulty) = faulty_world();
    let options = duroxide::RuntimeOptions { resident_instances: 0, ..few_attempts(1) };
    let runtime = world.start_with(echo(), family(), options).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    let (loads, renewals) = (faulty.hold(Call::Load), faulty.hold(Call::RenewTurn));
    world.client.raise_event("i", "go", "on").await.unwrap();
    until_called(&faulty, Call::Load, 1).await;
    let fetches = faulty.hold(Call::FetchTurn);
    world.clock.advance(Duration::from_secs(600));
    faulty.release(Call::Load);
    loads.add_permits(1);
    assert_eq!(output(world.end("i").await), "on");
    assert_eq!(faulty.abandoned_turns(), []);
    let_pass(&faulty, [(Call::FetchTurn, fetches), (Call::RenewTurn, renewals)]);
    runtime.shutdown(None).await;
}

// semantics: LEASE-10
#[tokio::test]
async fn turns_that_others_took_over_while_they_were_being_stored_fail_nothing_however_many() {
    let behind = World::new();
    let faulty = Faulty::new(behind.store.clone());
    let world = World::on(faulty.clone(), behind.clock.clone());
    let runtime = world.start_with(echo(), family(), few_attempts(1)).await;
    let lease = Duration::from_secs(3_600);
    let mut acks = faulty.hold(Call::AckTurn);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    for round in 1..=5 {
        until_called(&faulty, Call::AckTurn, round).await;
        let (renewals, fetches) = (faulty.hold(Call::RenewTurn), faulty.hold(Call::FetchTurn));
        behind.clock.advance(Duration::from_secs(600));
        let taken = behind.store.fetch_orchestration_item(lease, Duration::ZERO, None).await.unwrap();
        let (_, token, attempts) = taken.expect("its lease is over");
        assert_eq!(attempts, u32::try_from(round).unwrap() + 1, "the takeover counts");
        let judged = faulty.count(Call::Recover);
        acks.add_permits(1);
        until_called(&faulty, Call::Recover, judged + 1).await;
        // The next turn waits too, unless it is the last.
        acks = faulty.hold(Call::AckTurn);
        if round == 5 {
            faulty.release(Call::AckTurn);
        }
        let_pass(&faulty, [(Call::FetchTurn, fetches), (Call::RenewTurn, renewals)]);
        behind.store.abandon_orchestration_item(&token, None, true).await.unwrap();
    }
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "fine");
    runtime.shutdown(None).await;
}

// semantics: DUR-7
#[tokio::test]
async fn an_outage_that_outlasts_the_retries_loses_no_instance_and_counts_no_attempt() {
    let (logs, _guard) = Logs::keep();
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    // The turn is tried six times each time; then it waits, longer and longer.
    faulty.fail(Call::AckTurn, vec![busy(); 6 * 8 + 1]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "fine");
    assert_eq!(faulty.abandoned_turns(), [(None, true); 8]);
    let waits = logs.with("the store cannot take this turn for now");
    assert_eq!(waits.len(), 8);
    for (times, line) in (1..).zip(waits) {
        let wait = line.field("wait_ms").parse().ok().map(Duration::from_millis);
        assert!(is_wait(wait, times), "{times}: {wait:?}");
    }
    assert_eq!(faulty.count(Call::AckTurn), 6 * 8 + 2);
    runtime.shutdown(None).await;
}

// semantics: DUR-7
#[tokio::test]
async fn a_long_outage_uses_up_no_attempts() {
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), family(), few_attempts(2)).await;
    faulty.fail(Call::AckTurn, vec![busy(); 50]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "fine");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_outage_in_which_turns_cannot_be_given_back_either_uses_up_no_attempts() {
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), family(), few_attempts(2)).await;
    faulty.fail(Call::AckTurn, vec![busy(); 30]);
    faulty.fail(Call::AbandonTurn, vec![busy(); 30]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "fine");
    runtime.shutdown(None).await;
}

// semantics: DUR-7
#[tokio::test]
async fn a_nearly_full_disk_that_takes_a_failure_but_not_the_turn_fails_no_instance() {
    let (logs, _guard) = Logs::keep();
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    let full = ProviderError::retryable("ack_orchestration_item", "Disk full: database or disk is full");
    // Six tries of the large turn; the seventh commit would have been the small failure.
    faulty.fail(Call::AckTurn, vec![full; 6]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(10)).await), "fine");
    assert_eq!(kinds(&world.history("i").await), ["OrchestrationStarted", "OrchestrationCompleted"]);
    // The log tells the operator once for each wait, not once for each try.
    let line = logs.one("the store cannot take this turn for now");
    assert_eq!((line.level, line.field("instance"), line.field("times")), (tracing::Level::WARN, "i", "1"));
    assert!(line.field("error").contains("Disk full"), "{line:?}");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_cancellation_that_is_refused_for_good_still_reaches_the_children() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    let child = "p::sub::2";
    world.waits_for(child, "go").await;
    faulty.fail(Call::AckTurn, [refusal()]);
    world.client.cancel_instance("p", "stop").await.unwrap();
    assert_eq!(world.failure("p").await, "infrastructure:ack_orchestration_item: refused");
    assert_eq!(world.failure(child).await, "canceled: parent canceled");
    runtime.shutdown(None).await;
}
