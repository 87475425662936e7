//! Instances whose history does not decode: they fail, and leave nothing behind.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{ManualClock, Provider};
use duroxide::{OrchestrationContext, OrchestrationStatus};

use crate::runtime_support::{World, activities, few_attempts, orchestrations};

const STEP: Duration = Duration::from_millis(500);

// semantics: FAIL-8
#[tokio::test]
async fn the_activities_of_an_instance_whose_history_does_not_decode_go_with_it() {
    let clock = Arc::new(ManualClock::default());
    let memory = Arc::new(MemoryProvider::with_clock(clock.clone()));
    let world = World::on(memory.clone(), clock);
    let code = || {
        orchestrations().register("Charges", |ctx: OrchestrationContext, _: String| async move {
            // No worker of this test serves the tag.
            let charges: Vec<_> =
                (0..3).map(|n| ctx.schedule_activity("Charge", n.to_string()).with_tag("cards")).collect();
            ctx.join(charges).await;
            Ok(String::new())
        })
    };
    let runtime = world.start_with(activities(), code(), few_attempts(2)).await;
    world.client.start_orchestration("i", "Charges", "").await.unwrap();
    let depth = async || {
        let admin = memory.as_management_capability().unwrap();
        admin.get_queue_depths().await.unwrap().worker_queue
    };
    while depth().await < 3 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown(None).await;
    memory.corrupt_history("i");
    world.client.raise_event("i", "go", "").await.unwrap();
    let runtime = world.start_with(activities(), code(), few_attempts(2)).await;
    let status = world.end_in_time("i", STEP).await;
    assert!(matches!(status, OrchestrationStatus::Failed { .. }), "{status:?}");
    assert_eq!(depth().await, 0, "no worker shall charge a card for an instance that has failed");
    runtime.shutdown(None).await;
}
