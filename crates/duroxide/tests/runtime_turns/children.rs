//! Children and detached orchestrations: how they begin, end and collide, and what their parents hear.

use std::time::Duration;

use duroxide::{
    ErrorDetails, Event, EventKind, OrchestrationContext, OrchestrationStatus, PoisonMessageType,
};

use crate::runtime_support::{World, activities, details, family, few_attempts, orchestrations};

#[tokio::test]
async fn a_child_tells_its_parent_how_it_ended() {
    let world = World::new();
    let runtime = world.start(activities(), family()).await;
    for (child, expected) in [
        ("Echo", "child said in"),
        ("Fails", "child failed: bad"),
        ("Continues", "child said again"),
        ("TooMuchStatus", "child failed: Custom status size (262145 bytes) exceeds limit (262144 bytes)"),
    ] {
        world.client.start_orchestration(child, "Parent", child).await.unwrap();
        assert_eq!(world.output(child).await, expected);
    }
    let metrics = runtime.metrics_snapshot().unwrap();
    assert_eq!(metrics.suborchestration_calls, 4);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_cancelled_parent_cancels_its_child() {
    let world = World::new();
    let runtime = world.start(activities(), family()).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    world.recorded("p::sub::2", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.cancel_instance("p", "by test").await.unwrap();
    world.client.cancel_instance("p", "again").await.unwrap();
    assert_eq!(world.failure("p").await, "canceled: by test");
    assert_eq!(world.failure("p::sub::2").await, "canceled: parent canceled");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_child_whose_id_is_taken_fails_fast_and_leaves_the_other_alone() {
    let world = World::new();
    let runtime = world.start(activities(), family()).await;
    world.client.start_orchestration("first", "Named", "shared").await.unwrap();
    world.recorded("shared", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.start_orchestration("second", "Named", "shared").await.unwrap();
    assert_eq!(
        world.output("second").await,
        "Err(\"sub-orchestration instance id 'shared' already exists\")"
    );
    world.client.raise_event("shared", "go", "on").await.unwrap();
    assert_eq!(world.output("first").await, "Ok(\"on\")");
    world.client.start_orchestration("third", "Named", "shared").await.unwrap();
    assert_eq!(
        world.output("third").await,
        "Err(\"sub-orchestration instance id 'shared' already exists and is terminal\")"
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn two_starts_of_one_child_in_one_batch_leave_nobody_waiting() {
    let world = World::new();
    let parents = orchestrations().register("Named", |ctx: OrchestrationContext, id: String| async move {
        let result = ctx.schedule_sub_orchestration_with_id("Waiting", id, "in").await;
        Ok(format!("{result:?}"))
    });
    // The runtime does not have the child's code yet, so both starts wait for it and come in one batch.
    let first = world.start(activities(), parents).await;
    world.client.start_orchestration("a", "Named", "shared").await.unwrap();
    world.client.start_orchestration("b", "Named", "shared").await.unwrap();
    for parent in ["a", "b"] {
        world.recorded(parent, |kind| matches!(kind, EventKind::SubOrchestrationScheduled { .. })).await;
    }
    first.shutdown(None).await;
    let second = world.start(activities(), family()).await;
    world.clock.advance(Duration::from_secs(5));
    world.recorded("shared", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.raise_event("shared", "go", "on").await.unwrap();
    let mut outputs = [world.output("a").await, world.output("b").await];
    outputs.sort();
    assert_eq!(outputs, ["Err(\"sub-orchestration instance id 'shared' already exists\")", "Ok(\"on\")"]);
    second.shutdown(None).await;
}

#[tokio::test]
async fn a_child_that_never_came_to_be_is_not_cancelled_into_being_an_orphan() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            family().register("Hasty", |ctx: OrchestrationContext, _: String| async move {
                drop(ctx.schedule_sub_orchestration_with_id("Waiting", "unborn", ""));
                Ok("done".to_string())
            }),
        )
        .await;
    world.client.start_orchestration("h", "Hasty", "").await.unwrap();
    assert_eq!(world.output("h").await, "done");
    let extended = world.store.as_extended().unwrap();
    assert_eq!(extended.list_parked(10).await.unwrap(), []);
    assert_eq!(world.client.get_queue_depths().await.unwrap().orchestrator_queue, 0);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_detached_start_goes_out_however_the_turn_ends() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            family()
                .register("CompletesNow", |ctx: OrchestrationContext, _: String| async move {
                    ctx.schedule_orchestration("Echo", "of-completed", "1");
                    Ok(String::new())
                })
                .register("FailsNow", |ctx: OrchestrationContext, _: String| async move {
                    ctx.schedule_orchestration("Echo", "of-failed", "2");
                    Err("bad".to_string())
                })
                .register("ContinuesNow", |ctx: OrchestrationContext, input: String| async move {
                    if input == "again" {
                        return Ok(input);
                    }
                    ctx.schedule_orchestration("Echo", "of-continued", "3");
                    ctx.continue_as_new("again").await
                })
                .register("CancelledNow", |ctx: OrchestrationContext, _: String| async move {
                    ctx.schedule_orchestration("Echo", "of-cancelled", "4");
                    ctx.schedule_wait("never").await;
                    Ok(String::new())
                }),
        )
        .await;
    world.run("a", "CompletesNow", "").await;
    world.run("b", "FailsNow", "").await;
    world.run("c", "ContinuesNow", "").await;
    // Start and cancellation in one batch: the turn that starts the instance ends it.
    runtime.shutdown(None).await;
    world.client.start_orchestration("d", "CancelledNow", "").await.unwrap();
    world.client.cancel_instance("d", "at once").await.unwrap();
    let runtime = world
        .start(
            activities(),
            family().register("CancelledNow", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_orchestration("Echo", "of-cancelled", "4");
                ctx.schedule_wait("never").await;
                Ok(String::new())
            }),
        )
        .await;
    assert_eq!(world.failure("d").await, "canceled: at once");
    for (instance, output) in
        [("of-completed", "1"), ("of-failed", "2"), ("of-continued", "3"), ("of-cancelled", "4")]
    {
        assert_eq!(world.output(instance).await, output);
    }
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_poisoned_child_fails_its_parent_with_the_same_details() {
    let world = World::new();
    let runtime = world.start_with(activities(), family(), few_attempts(2)).await;
    world.client.start_orchestration("p", "Parent", "Nobody").await.unwrap();
    let details = details(world.end_in_time("p", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { attempt_count: 3, message_type, .. } = details else { panic!("{details:?}") };
    assert_eq!(
        message_type,
        PoisonMessageType::Orchestration { instance: "p::sub::2".into(), execution_id: 1 }
    );
    runtime.shutdown(None).await;
}

#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn the_parent_of_a_child_whose_history_cannot_be_decoded_is_told() {
    use duroxide::providers::{ManualClock, memory::MemoryProvider};
    let clock = std::sync::Arc::new(ManualClock::default());
    let memory = std::sync::Arc::new(MemoryProvider::with_clock(clock.clone()));
    let world = World::on(memory.clone(), clock);
    let runtime = world.start_with(activities(), family(), few_attempts(2)).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    let child = "p::sub::2";
    world.recorded(child, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    runtime.shutdown(None).await;
    memory.corrupt_history(child);
    world.client.raise_event(child, "go", "on").await.unwrap();
    let runtime = world.start_with(activities(), family(), few_attempts(2)).await;
    let details = details(world.end_in_time("p", Duration::from_millis(500)).await);
    assert!(details.display_message().contains("deserialization"), "{details:?}");
    let status = world.client.get_orchestration_status(child).await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Failed { .. }));
    let recent = memory_recent(&world, child).await;
    assert_eq!(recent.event_id, 99_999);
    // Later messages are consumed, and hold up nothing.
    world.client.raise_event(child, "go", "again").await.unwrap();
    world.drained().await;
    runtime.shutdown(None).await;
}

#[cfg(feature = "test-hooks")]
async fn memory_recent(world: &World, instance: &str) -> Event {
    world.store.as_extended().unwrap().read_recent(instance, 1).await.unwrap().remove(0)
}

// semantics: CHILD-10
#[tokio::test]
async fn a_detached_start_of_a_taken_id_is_ignored() {
    let world = World::new();
    let code = family().register("Again", |ctx: OrchestrationContext, id: String| async move {
        ctx.schedule_orchestration("Echo", id, "again");
        Ok("sent".to_string())
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("taken", "Waiting", "").await.unwrap();
    world.waits_for("taken", "go").await;
    world.client.start_orchestration("a", "Again", "taken").await.unwrap();
    assert_eq!(world.output("a").await, "sent");
    world.drained().await;
    world.client.raise_event("taken", "go", "first").await.unwrap();
    assert_eq!(world.output("taken").await, "first");
    world.client.start_orchestration("b", "Again", "taken").await.unwrap();
    assert_eq!(world.output("b").await, "sent");
    world.drained().await;
    assert_eq!(world.output("taken").await, "first");
    runtime.shutdown(None).await;
}
