//! What operators see of instances and runtimes while these work.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::future::Future;
use std::time::Duration;

use duroxide::model::{ActivityStage, BlockedReason, WaitFor};
use duroxide::providers::{Count, InstanceQuery};
use duroxide::{ActivityContext, EventKind, InstanceState, OrchestrationContext, RuntimeOptions};
use runtime_support::{World, activities, orchestrations};

/// Looks again, and lets a little time pass, until there is something.
async fn until<T, F: Future<Output = Option<T>>>(world: &World, look: impl Fn() -> F) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        world.clock.advance(Duration::from_millis(500));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

// semantics: LOOK-8
#[tokio::test]
async fn a_runtime_is_listed_with_what_it_runs_until_it_shuts_down() {
    let world = World::new();
    let code = orchestrations().register("Order", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Pack", "7").await
    });
    let (begun, has_begun) = tokio::sync::oneshot::channel::<()>();
    let begun = std::sync::Mutex::new(Some(begun));
    let (release, released) = tokio::sync::watch::channel(false);
    let work = activities().register("Pack", move |_: ActivityContext, input: String| {
        begun.lock().unwrap().take().map(|begun| begun.send(()));
        let mut released = released.clone();
        async move {
            released.wait_for(|released| *released).await.unwrap();
            Ok(input)
        }
    });
    let options = RuntimeOptions { worker_node_id: Some("packer-1".into()), ..Default::default() };
    let runtime = world.start_with(work, code, options).await;
    world.client.start_orchestration("order-7", "Order", "").await.unwrap();
    has_begun.await.unwrap();
    let worker = until(&world, || async {
        world.client.list_workers().await.unwrap().into_iter().find(|worker| !worker.running.is_empty())
    })
    .await;
    assert_eq!((worker.name.as_str(), worker.process_id), ("packer-1", std::process::id()));
    assert_eq!(worker.version, env!("CARGO_PKG_VERSION"));
    assert!(worker.serves_orchestration("Order", Some("1.0.0")), "{worker:?}");
    assert!(worker.serves_activity("Pack", None) && !worker.serves_activity("Pack", Some("gpu")));
    assert_eq!((worker.activity_slots, worker.activity_slots_used), (2, 1));
    let running = &worker.running[0];
    assert_eq!((running.instance.as_str(), running.name.as_str(), running.attempt), ("order-7", "Pack", 1));

    let order = world.client.describe("order-7", 100).await.unwrap();
    let WaitFor::Activity(wait) = &order.waits[0].what else { panic!("{:?}", order.waits) };
    assert_eq!((wait.stage, wait.leased_by.as_deref()), (ActivityStage::Running, Some("packer-1")));
    assert!(wait.leased_until_ms.is_some() && wait.stage_since_ms.is_some(), "{wait:?}");
    release.send(true).unwrap();
    assert_eq!(world.output("order-7").await, "7");
    runtime.shutdown(None).await;
    assert_eq!(world.client.list_workers().await.unwrap(), []);
}

// semantics: LOOK-4
#[tokio::test]
async fn an_orchestration_that_nobody_has_registered_is_blocked_with_the_reason() {
    let world = World::new();
    let code = orchestrations()
        .register("Order", |_: OrchestrationContext, _: String| async move { Ok("done".to_string()) });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("typo-1", "Ordr", "").await.unwrap();
    let blocked = InstanceQuery::new().state(InstanceState::Blocked);
    let row = until(&world, || async { world.client.list(&blocked).await.unwrap().rows.pop() }).await;
    assert_eq!((row.instance.as_str(), row.name.as_str()), ("typo-1", "Ordr"));
    let described = world.client.describe("typo-1", 1_000).await.unwrap();
    assert_eq!(described.row.state, InstanceState::Blocked);
    let reason = BlockedReason::UnregisteredOrchestration { name: "Ordr".into(), version: None };
    assert_eq!(described.blocked.unwrap().reason, reason);
    let obstacles = world.client.list_obstacles(10).await.unwrap();
    assert!(obstacles[0].reason.contains("Ordr") && obstacles[0].attempts > 0, "{obstacles:?}");
    runtime.shutdown(None).await;
}

// semantics: LOOK-3, LOOK-4
#[tokio::test]
async fn instances_whose_activities_nobody_serves_are_named_beside_the_listings() {
    let world = World::new();
    let code = orchestrations()
        .register("Video", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Render", "").with_tag("gpu").await
        })
        .register("Patient", |ctx: OrchestrationContext, _: String| async move {
            let render = ctx.schedule_activity("Render", "").with_tag("gpu");
            let signal = ctx.schedule_wait("go");
            let _ = ctx.select2(render, signal).await;
            Ok("done".to_string())
        });
    let work = activities().register("Render", |_: ActivityContext, input: String| async move { Ok(input) });
    let runtime = world.start(work, code).await;
    for (id, name) in [("video-1", "Video"), ("patient-1", "Patient")] {
        world.client.start_orchestration(id, name, "").await.unwrap();
        world.recorded(id, |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await;
    }
    let unserved = until(&world, || async { world.client.list_unserved(10).await.unwrap().pop() }).await;
    assert_eq!((unserved.tag.as_deref(), unserved.ready), (Some("gpu"), Count::exact(2)));
    assert_eq!(unserved.instances, ["video-1", "patient-1"]);
    assert_eq!(world.client.overview(1).await.unwrap().unserved, [unserved]);

    // Only its history tells that one of them waits for nothing else.
    let video = world.client.describe("video-1", 100).await.unwrap();
    assert_eq!(video.row.state, InstanceState::Blocked);
    let reason = BlockedReason::NoWorkerForTag { activity: "Render".into(), tag: Some("gpu".into()) };
    assert_eq!(video.blocked.unwrap().reason, reason);
    let patient = world.client.describe("patient-1", 100).await.unwrap();
    assert_eq!((patient.row.state, patient.blocked), (InstanceState::Waiting, None));
    let waiting = InstanceQuery::new().state(InstanceState::Waiting);
    assert_eq!(world.client.list(&waiting).await.unwrap().rows.len(), 2);
    runtime.shutdown(None).await;
    assert_eq!(world.client.list_unserved(10).await.unwrap(), [], "nobody is alive");
}

// semantics: LOOK-5
#[tokio::test]
async fn a_description_tells_what_an_instance_waits_for() {
    let world = World::new();
    let code = orchestrations()
        .register("Waits", |ctx: OrchestrationContext, _: String| async move {
            let timer = ctx.schedule_timer(Duration::from_secs(3_600));
            let signal = ctx.schedule_wait("Approved");
            let queue = ctx.dequeue_event("inbox");
            let child = ctx.schedule_sub_orchestration("Child", "in");
            let _ = (ctx.join2(timer, signal).await, ctx.join2(queue, child).await);
            Ok("never".to_string())
        })
        .register("Child", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Waits", "the input").await.unwrap();
    world.waits_for("i::sub::5", "go").await;
    let described = until(&world, || async {
        let described = world.client.describe("i", 1_000).await.unwrap();
        (described.row.state == InstanceState::Waiting).then_some(described)
    })
    .await;
    assert_eq!(described.input.as_deref(), Some("the input"));
    assert!(described.waits_are_complete && described.blocked.is_none(), "{described:?}");
    let waits: Vec<&WaitFor> = described.waits.iter().map(|wait| &wait.what).collect();
    assert!(matches!(waits[0], WaitFor::Timer { until_ms } if *until_ms > world.now_ms()), "{waits:?}");
    assert_eq!(waits[1], &WaitFor::Signal { name: "Approved".into() });
    assert_eq!(waits[2], &WaitFor::Queue { name: "inbox".into() });
    let child = WaitFor::Child {
        instance: "i::sub::5".into(),
        name: "Child".into(),
        state: Some(InstanceState::Waiting),
    };
    assert_eq!(waits[3], &child);
    let children = world.client.list_children("i", None, 10).await.unwrap().rows;
    assert_eq!(children.len(), 1);
    assert_eq!(children[0].root.as_deref(), Some("i"));
    let overview = world.client.overview(5).await.unwrap();
    assert_eq!((overview.totals.waiting.value, overview.workers.len()), (2, 1));
    assert_eq!(overview.rates.iter().map(|rates| rates.started).sum::<u64>(), 2);
    assert!(overview.queues.iter().all(|queue| queue.workers == Some(1)), "{:?}", overview.queues);
    runtime.shutdown(None).await;
}
