//! Turns whose leases run out before they are stored.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::EventKind;
use runtime_support::faulty::Call;
use runtime_support::{echo, family, faulty_world, kinds, output};

const STEP: Duration = Duration::from_millis(100);
/// Longer than any lease.
const NIGHT: Duration = Duration::from_secs(600);

// semantics: DUR-9
#[tokio::test]
async fn a_turn_whose_lease_ran_out_fails_no_instance_if_nobody_took_it() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    let (acks, renewals) = (faulty.hold(Call::AckTurn), faulty.hold(Call::RenewTurn));
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    while faulty.count(Call::AckTurn) == 0 {
        tokio::task::yield_now().await;
    }
    // Nobody else takes the instance.
    let _fetches = faulty.hold(Call::FetchTurn);
    world.clock.advance(NIGHT);
    while faulty.count(Call::RenewTurn) == 0 {
        tokio::task::yield_now().await;
    }
    acks.add_permits(1);
    while faulty.count(Call::AckTurn) == 1 {
        tokio::task::yield_now().await;
    }
    // The store has refused the turn. Now the late renewal takes the lease up again, so that the next commit is taken.
    faulty.release(Call::RenewTurn);
    renewals.add_permits(1);
    while faulty.count(Call::Recover) == 0 {
        tokio::task::yield_now().await;
    }
    faulty.release(Call::AckTurn);
    acks.add_permits(1);
    assert_eq!(output(world.end_in_time("i", STEP).await), "fine");
    assert_eq!(kinds(&world.history("i").await), ["OrchestrationStarted", "OrchestrationCompleted"]);
    runtime.shutdown(Some(0)).await;
}

#[tokio::test]
async fn an_instance_whose_history_was_refused_for_a_lease_that_ran_out_uses_up_no_attempt() {
    let (world, faulty) = faulty_world();
    let options = duroxide::RuntimeOptions { resident_instances: 0, ..Default::default() };
    let runtime = world.start_with(echo(), family(), options).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    let (loads, _renewals) = (faulty.hold(Call::Load), faulty.hold(Call::RenewTurn));
    world.client.raise_event("i", "go", "on").await.unwrap();
    while faulty.count(Call::Load) == 0 {
        tokio::task::yield_now().await;
    }
    let _fetches = faulty.hold(Call::FetchTurn);
    world.clock.advance(NIGHT);
    faulty.release(Call::Load);
    loads.add_permits(1);
    assert_eq!(output(world.end_in_time("i", STEP).await), "on");
    assert_eq!(faulty.abandoned_turns(), []);
    runtime.shutdown(Some(0)).await;
}
