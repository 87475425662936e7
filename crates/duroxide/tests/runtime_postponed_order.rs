//! Messages keep their order while the store cannot take a turn.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::ProviderError;
use duroxide::{EventKind, OrchestrationContext};
use runtime_support::faulty::Call;
use runtime_support::{echo, faulty_world, orchestrations, output};

// semantics: DUR-7
#[tokio::test]
async fn messages_that_come_while_a_turn_waits_for_the_store_do_not_overtake_it() {
    let (world, faulty) = faulty_world();
    let list = |ctx: OrchestrationContext, _: String| async move {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(ctx.dequeue_event("numbers").await);
        }
        Ok(all.join(" "))
    };
    let runtime = world.start(echo(), orchestrations().register("List", list)).await;
    world.client.start_orchestration("i", "List", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::QueueSubscribed { .. })).await;
    let stored = faulty.count(Call::AckTurn);
    // All tries of one turn: then it waits.
    faulty.fail(Call::AckTurn, vec![ProviderError::retryable("ack_orchestration_item", "disk full"); 6]);
    world.client.enqueue_event("i", "numbers", "1").await.unwrap();
    while faulty.count(Call::AckTurn) < stored + 6 {
        world.clock.advance(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    for number in ["2", "3"] {
        world.client.enqueue_event("i", "numbers", number).await.unwrap();
    }
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(10)).await), "1 2 3");
    runtime.shutdown(None).await;
}
