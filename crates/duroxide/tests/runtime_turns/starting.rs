//! How instances begin: which code runs them, in which version, and what happens if there is none.

use std::time::Duration;

use duroxide::providers::SemverRange;
use duroxide::runtime::VersionPolicy;
use duroxide::{ErrorDetails, EventKind, OrchestrationContext, PoisonMessageType, RuntimeOptions};
use semver::Version;

use crate::runtime_support::{
    World, activities, details, echo, family, faulty_world, few_attempts, kinds, orchestrations, output,
};

/// Waits for two signals one after the other.
async fn two_signals(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    let first = ctx.schedule_wait("a").await;
    let second = ctx.schedule_wait("b").await;
    Ok(format!("{first}{second}"))
}

#[tokio::test]
async fn a_second_start_of_an_instance_has_no_effect() {
    let world = World::new();
    let runtime = world.start(echo(), orchestrations().register("Two", two_signals)).await;
    world.client.start_orchestration("i", "Two", "first").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.start_orchestration("i", "Two", "second").await.unwrap();
    world.client.raise_event("i", "a", "1").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { name } if name == "b")).await;
    world.client.raise_event("i", "b", "2").await.unwrap();
    assert_eq!(world.output("i").await, "12");
    world.client.start_orchestration("i", "Two", "third").await.unwrap();
    let starts = world.history("i").await.iter().filter(|event| event.event_id == 1).count();
    assert_eq!(starts, 1);
    assert_eq!(world.output("i").await, "12");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_unregistered_orchestration_is_deferred_longer_each_time_and_then_poisoned() {
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(activities(), orchestrations(), few_attempts(3)).await;
    world.client.start_orchestration("i", "Nobody", "in").await.unwrap();
    let details = details(world.end_in_time("i", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { attempt_count: 4, max_attempts: 3, message_type, message } = details else {
        panic!("{details:?}")
    };
    assert_eq!(message_type, PoisonMessageType::Orchestration { instance: "i".into(), execution_id: 1 });
    assert!(message.contains("StartOrchestration"));
    let counted = |ms| (Some(Duration::from_millis(ms)), false);
    assert_eq!(faulty.abandoned_turns(), [counted(100), counted(200), counted(400)]);
    let history = world.history("i").await;
    assert_eq!(kinds(&history), ["OrchestrationStarted", "OrchestrationFailed"]);
    let info = world.client.get_instance_info("i").await.unwrap();
    assert_eq!((info.orchestration_name.as_str(), info.status.as_str()), ("Nobody", "Failed"));
    assert_eq!(runtime.metrics_snapshot().unwrap().orch_poison, 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_unregistered_orchestration_is_taken_by_a_runtime_that_knows_it() {
    let world = World::new();
    let ignorant = world.start_with(activities(), orchestrations(), few_attempts(10)).await;
    world.client.start_orchestration("i", "Two", "").await.unwrap();
    ignorant.shutdown(None).await;
    let knowing = world
        .start_with(
            activities(),
            orchestrations()
                .register("Two", |_: OrchestrationContext, _: String| async { Ok("done".into()) }),
            few_attempts(10),
        )
        .await;
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "done");
    knowing.shutdown(None).await;
}

#[tokio::test]
async fn an_execution_keeps_the_version_that_it_began_with() {
    let world = World::new();
    let version = |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_wait("go").await;
        Ok(ctx.orchestration_version())
    };
    let old = orchestrations().register_versioned("V", "1.0.2", version);
    let first = world.start(activities(), old).await;
    world.client.start_orchestration("i", "V", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    first.shutdown(None).await;
    let both =
        orchestrations().register_versioned("V", "1.0.2", version).register_versioned("V", "1.0.3", version);
    let second = world.start(activities(), both).await;
    world.client.raise_event("i", "go", "").await.unwrap();
    assert_eq!(world.output("i").await, "1.0.2");
    world.client.start_orchestration("j", "V", "").await.unwrap();
    world.client.start_orchestration_versioned("k", "V", "1.0.2", "").await.unwrap();
    for (instance, expected) in [("j", "1.0.3"), ("k", "1.0.2")] {
        world.recorded(instance, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
        world.client.raise_event(instance, "go", "").await.unwrap();
        assert_eq!(world.output(instance).await, expected);
    }
    second.shutdown(None).await;
}

#[tokio::test]
async fn a_policy_that_is_set_later_decides_which_version_starts() {
    let world = World::new();
    let version = |ctx: OrchestrationContext, _: String| async move { Ok(ctx.orchestration_version()) };
    let registry = orchestrations()
        .register("V", version)
        .register_versioned("V", "2.0.0", version)
        .build_result()
        .unwrap();
    let runtime = duroxide::runtime::Runtime::start_with_store(
        world.store.clone(),
        activities().build(),
        registry.clone(),
    )
    .await;
    world.client.start_orchestration("a", "V", "").await.unwrap();
    assert_eq!(world.output("a").await, "2.0.0");
    registry.set_version_policy("V", VersionPolicy::Exact(Version::new(1, 0, 0)));
    world.client.start_orchestration("b", "V", "").await.unwrap();
    assert_eq!(world.output("b").await, "1.0.0");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_execution_outside_of_the_supported_versions_is_left_alone() {
    let world = World::new();
    let runtime = world.start(activities(), orchestrations().register("Two", two_signals)).await;
    world.client.start_orchestration("i", "Two", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    runtime.shutdown(None).await;
    let range = SemverRange::new(Version::new(9, 0, 0), Version::new(9, 9, 9));
    let options = RuntimeOptions { supported_replay_versions: Some(range), ..Default::default() };
    let other = world.start_with(activities(), orchestrations().register("Two", two_signals), options).await;
    world.client.raise_event("i", "a", "1").await.unwrap();
    world.client.start_orchestration("j", "Two", "").await.unwrap();
    world.recorded("j", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    assert_eq!(world.history("i").await.len(), 2);
    other.shutdown(None).await;
}

#[tokio::test]
async fn messages_for_instances_that_do_not_exist_are_in_nobodys_way() {
    let world = World::new();
    let runtime = world.start(echo(), family()).await;
    world.client.raise_event("nobody", "go", "").await.unwrap();
    world.client.cancel_instance("nobody", "why").await.unwrap();
    world.client.enqueue_event("nobody", "inbox", "").await.unwrap();
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(world.output("i").await, "fine");
    runtime.shutdown(None).await;
}
