//! Corners of the runtime: long turns, parents of old children, versions that it cannot replay, sessions that it keeps,
//! options that it refuses, single turns.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ProviderError, WorkItem};
use duroxide::runtime::{FnOrchestration, HistoryManager, Runtime, WorkItemReader};
use duroxide::{
    ActivityContext, ErrorDetails, Event, EventKind, OrchestrationContext, OrchestrationStatus,
    PoisonMessageType, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::{Stage, World, activities, faulty_world, kinds, orchestrations};

fn started(name: &str, parent: Option<(&str, u64, Option<u64>)>) -> EventKind {
    EventKind::OrchestrationStarted {
        name: name.into(),
        version: "1.0.0".into(),
        input: "in".into(),
        parent_instance: parent.map(|(instance, _, _)| instance.to_string()),
        parent_id: parent.map(|(_, id, _)| id),
        parent_execution_id: parent.and_then(|(_, _, execution)| execution),
        carry_forward_events: None,
        initial_custom_status: None,
    }
}

fn waiting() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Waiting", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.schedule_wait("go").await)
    })
}

#[tokio::test]
async fn a_turn_that_takes_longer_than_its_lease_is_taken_once() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let gate = faulty.hold(Call::AckTurn);
    let reporter = stage.clone();
    let once = orchestrations().register("Once", move |_: OrchestrationContext, _: String| {
        reporter.report("turn");
        async { Ok("done".to_string()) }
    });
    let runtime = world.start(activities(), once).await;
    world.client.start_orchestration("i", "Once", "").await.unwrap();
    stage.seen("turn", 1).await;
    // The lease lasts five seconds; the commit takes twenty.
    while faulty.count(Call::RenewTurn) < 8 {
        world.clock.advance(Duration::from_millis(500));
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
    gate.add_permits(10);
    assert_eq!(world.output("i").await, "done");
    assert_eq!(stage.log(), ["turn"]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_child_of_an_old_parent_finds_the_execution_that_started_it() {
    let world = World::new();
    let family = waiting().register("Parent", |ctx: OrchestrationContext, input: String| async move {
        if input == "first" {
            return ctx.continue_as_new("second").await;
        }
        // No runtime has this child's code; the child below answers in its place.
        ctx.schedule_sub_orchestration("Nobody", "in").await
    });
    let runtime = world.start(activities(), family).await;
    world.client.start_orchestration("p", "Parent", "first").await.unwrap();
    world.recorded("p", |kind| matches!(kind, EventKind::SubOrchestrationScheduled { .. })).await;
    // Very old versions did not record the parent's execution; it is the second here.
    let child = vec![
        Event::with_event_id(1, "child", 1, None, started("Waiting", Some(("p", 2, None)))),
        Event::with_event_id(2, "child", 1, None, EventKind::ExternalSubscribed { name: "go".into() }),
    ];
    world.store.append_with_execution("child", 1, child).await.unwrap();
    world.client.raise_event("child", "go", "on").await.unwrap();
    assert_eq!(world.output("p").await, "on");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_poisoned_successor_of_a_child_tells_the_parent_of_the_first_execution() {
    let world = World::new();
    let family = orchestrations()
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration("Child", "").await
        })
        .register("Child", |ctx: OrchestrationContext, _: String| async move {
            ctx.continue_as_new_versioned("7.7.7", "next").await
        });
    let options = RuntimeOptions { max_attempts: 2, ..Default::default() };
    let runtime = world.start_with(activities(), family, options).await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    while world.client.wait_for_orchestration("p", Duration::ZERO).await.is_err() {
        world.clock.advance(Duration::from_millis(500));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    let OrchestrationStatus::Failed { details, .. } = world.end("p").await else { panic!() };
    let ErrorDetails::Poison { message_type, .. } = details else { panic!("{details:?}") };
    assert_eq!(
        message_type,
        PoisonMessageType::Orchestration { instance: "p::sub::2".into(), execution_id: 2 }
    );
    let second = world.store.read_with_execution("p::sub::2", 2).await.unwrap();
    assert!(matches!(&second[0].kind, EventKind::OrchestrationStarted { input, version, .. }
        if input == "next" && version == "7.7.7"));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_execution_of_a_version_that_cannot_be_replayed_is_put_back_for_a_second() {
    let (world, faulty) = faulty_world();
    // Without a stored pin the store lets it through; the stamp of its first event tells.
    let mut start = Event::with_event_id(1, "i", 1, None, started("Waiting", None));
    start.duroxide_version = "9.0.0".into();
    world.store.append_with_execution("i", 1, vec![start]).await.unwrap();
    world.client.raise_event("i", "go", "on").await.unwrap();
    let runtime = world.start(activities(), waiting()).await;
    while faulty.abandoned_turns().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(faulty.abandoned_turns(), [(Some(Duration::from_secs(1)), false)]);
    assert_eq!(world.history("i").await.len(), 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_running_session_is_kept_beyond_its_lease() {
    let world = World::new();
    let stage = Stage::default();
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report(ctx.worker_id());
        stage.wait().await;
        Ok(ctx.worker_id().to_string())
    });
    let session = orchestrations().register("Session", |ctx: OrchestrationContext, _: String| async move {
        let first = ctx.schedule_activity_on_session("Work", "", "s").await?;
        ctx.schedule_wait("go").await;
        let second = ctx.schedule_activity_on_session("Work", "", "s").await?;
        Ok((first == second).to_string())
    });
    let node = |name: &str, turns| RuntimeOptions {
        worker_node_id: Some(name.into()),
        orchestration_concurrency: turns,
        ..Default::default()
    };
    let first = world.start_with(activities().register("Work", work.clone()), session, node("one", 2)).await;
    world.client.start_orchestration("i", "Session", "").await.unwrap();
    stage.seen("work-0-one", 1).await;
    stage.let_go();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    let second =
        world.start_with(activities().register("Work", work), orchestrations(), node("two", 0)).await;
    // Two minutes: the session's lease of thirty seconds has been renewed several times.
    for _ in 0..120 {
        world.clock.advance(Duration::from_secs(1));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    world.client.raise_event("i", "go", "").await.unwrap();
    stage.seen("work-0-one", 2).await;
    stage.let_go();
    assert_eq!(world.output("i").await, "true");
    first.shutdown(None).await;
    second.shutdown(None).await;
}

#[tokio::test]
#[should_panic(
    expected = "session_idle_timeout (25s) must be greater than worker lock renewal interval (25s)."
)]
async fn sessions_that_would_be_idle_too_early_are_refused() {
    let world = World::new();
    let options = RuntimeOptions { session_idle_timeout: Duration::from_secs(25), ..Default::default() };
    world.start_with(activities(), orchestrations(), options).await;
}

#[tokio::test]
async fn a_runtime_without_slots_can_be_started_and_does_nothing() {
    let world = World::new();
    let options = RuntimeOptions {
        worker_concurrency: 0,
        orchestration_concurrency: 0,
        max_attempts: 0,
        ..Default::default()
    };
    let idle = world.start_with(activities(), waiting(), options).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    assert_eq!(world.client.get_orchestration_status("i").await.unwrap(), OrchestrationStatus::NotFound);
    idle.shutdown(None).await;
}

#[tokio::test]
async fn no_attempts_at_all_poison_the_first_delivery() {
    let world = World::new();
    let options = RuntimeOptions { max_attempts: 0, ..Default::default() };
    let runtime = world.start_with(activities(), waiting(), options).await;
    let status = world.run("i", "Waiting", "").await;
    assert!(matches!(
        status,
        OrchestrationStatus::Failed {
            details: ErrorDetails::Poison { attempt_count: 1, max_attempts: 0, .. },
            ..
        }
    ));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_idle_runtime_waits_for_signals_and_asks_without_one_twice_a_minute() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(activities(), waiting()).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    let claims = || [Call::FetchTurn, Call::FetchWork].map(|call| faulty.count(call));
    let other = || {
        [Call::AckTurn, Call::AckWork, Call::Load, Call::RenewTurn, Call::RenewWork]
            .map(|call| faulty.count(call))
    };
    let pass = async |seconds: usize| {
        for _ in 0..seconds {
            world.clock.advance(Duration::from_secs(1));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    };
    // The commit that was just seen may still be followed by a last look at the queue.
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let before = (claims(), other());
    pass(29).await;
    assert_eq!((claims(), other()), before, "nobody asks without a signal");
    pass(600).await;
    assert_eq!(other(), before.1);
    for (count, before) in claims().into_iter().zip(before.0) {
        // Each of the two worker slots may ask for itself.
        assert!((1..=2 * 21).contains(&(count - before)), "{} in ten minutes", count - before);
    }
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn claims_and_loads_that_fail_are_tried_again() {
    let (world, faulty) = faulty_world();
    for call in [Call::FetchTurn, Call::FetchWork, Call::Load] {
        faulty.fail(call, vec![ProviderError::retryable("claim", "busy"); 3]);
    }
    let echo = activities().register("Echo", |_: ActivityContext, text: String| async move { Ok(text) });
    let one = orchestrations().register("One", |ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_activity("Echo", input).await
    });
    // The second turn has to load its history.
    let options = RuntimeOptions { resident_instances: 0, ..Default::default() };
    let runtime = world.start_with(echo, one, options).await;
    world.client.start_orchestration("i", "One", "fine").await.unwrap();
    while world.client.wait_for_orchestration("i", Duration::ZERO).await.is_err() {
        world.clock.advance(Duration::from_millis(100));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(world.output("i").await, "fine");
    // Loads that failed were no fault of the messages.
    assert_eq!(faulty.abandoned_turns(), [(None, true); 3]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_status_is_read_without_reading_the_history() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(activities(), waiting()).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    let before = faulty.count(Call::Read);
    assert!(matches!(
        world.client.get_orchestration_status("i").await.unwrap(),
        OrchestrationStatus::Running { .. }
    ));
    assert_eq!(faulty.count(Call::Read), before + 1, "one read of the row");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_single_turn_can_be_taken_without_storing_it() {
    let world = World::new();
    let runtime = world.start(activities(), orchestrations()).await;
    let start = WorkItem::StartOrchestration {
        instance: "i".into(),
        orchestration: "Two".into(),
        input: "in".into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    let mut history = HistoryManager::from_history(&[]);
    let batch = WorkItemReader::from_messages(&[start], &history, "i");
    history.append(Event::with_event_id(1, "i", 1, None, started("Two", None)));
    let handler = Arc::new(FnOrchestration(|ctx: OrchestrationContext, _: String| async move {
        let (a, b) = ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")).await;
        Ok(format!("{}{}", a?, b?))
    }));
    let (events, work, messages, cancelled, result) = Runtime::run_single_execution_atomic(
        runtime.clone(),
        "i",
        &mut history,
        &batch,
        1,
        "worker",
        handler,
        "1.0.0".into(),
        HashMap::new(),
    )
    .await;
    assert_eq!(kinds(&events), ["ActivityScheduled", "ActivityScheduled"]);
    assert_eq!((work.len(), messages.len(), cancelled.len(), result), (2, 0, 0, Ok(String::new())));
    assert_eq!(world.history("i").await, []);
    runtime.shutdown(None).await;
}

#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn a_turn_can_be_delayed_for_a_test() {
    use duroxide::runtime::test_hooks::*;
    set_orch_processing_delay(Duration::from_secs(4), Some("slow-"));
    assert_eq!(get_orch_processing_delay("slow-1"), Some(Duration::from_secs(4)));
    assert_eq!(get_orch_processing_delay("quick-1"), None);
    let (world, faulty) = faulty_world();
    let options = RuntimeOptions { orchestrator_lock_timeout: Duration::from_secs(2), ..Default::default() };
    let runtime = world.start_with(activities(), waiting(), options).await;
    world.client.start_orchestration("slow-1", "Waiting", "").await.unwrap();
    while world.history("slow-1").await.is_empty() {
        world.clock.advance(Duration::from_millis(100));
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
    clear_orch_processing_delay();
    assert!(faulty.count(Call::RenewTurn) >= 3);
    assert_eq!(faulty.count(Call::AckTurn), 1);
    runtime.shutdown(None).await;
}
