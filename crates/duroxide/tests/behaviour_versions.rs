//! Versions of orchestrations and of the framework.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::{SemverRange, current_build_version};
use duroxide::runtime::VersionPolicy;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Event, EventKind, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
    RuntimeOptions,
};
use runtime_support::logs::Logs;
use runtime_support::{Stage, World, activities, few_attempts, orchestrations, output, start_of};
use semver::Version;

fn waiting() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Waiting", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.schedule_wait("go").await)
    })
}

fn supporting(min: Version, max: Version) -> RuntimeOptions {
    RuntimeOptions { supported_replay_versions: Some(SemverRange::new(min, max)), ..Default::default() }
}

/// Stores an execution that waits for `go`, as a framework of this version left it.
async fn seed_pinned(world: &World, instance: &str, stamp: &str) {
    let mut start = start_of(instance, 1, "Waiting", "");
    start.duroxide_version = stamp.into();
    let wait = EventKind::ExternalSubscribed { name: "go".into() };
    let wait = Event::with_event_id(2, instance, 1, None, wait);
    let created = duroxide::providers::WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Waiting".into(),
        input: String::new(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    world.store.enqueue_for_orchestrator(created, None).await.unwrap();
    let lease = Duration::from_secs(5);
    let (_, token, _) =
        world.store.fetch_orchestration_item(lease, Duration::ZERO, None).await.unwrap().unwrap();
    let metadata = duroxide::providers::ExecutionMetadata {
        orchestration_name: Some("Waiting".into()),
        orchestration_version: Some("1.0.0".into()),
        pinned_duroxide_version: Some(stamp.parse().unwrap()),
        ..Default::default()
    };
    let events = vec![start, wait];
    world.store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata, vec![]).await.unwrap();
}

// semantics: OBS-7
#[tokio::test]
async fn a_miss_in_a_registry_is_logged_for_those_who_debug() {
    let (logs, _guard) = Logs::keep();
    let registry: OrchestrationRegistry = waiting().build();
    assert!(registry.resolve_handler("Nobody").is_none());
    assert!(registry.resolve_handler_exact("Waiting", &Version::new(9, 0, 0)).is_none());
    registry.set_version_policy("Waiting", VersionPolicy::Exact(Version::new(7, 0, 0)));
    assert!(registry.resolve_version("Waiting").is_none());
    assert!(ActivityRegistry::default().resolve_handler("Nothing").is_none());
    let lines = logs.of_target("duroxide::runtime::registry");
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line.level == tracing::Level::DEBUG));
}

// semantics: VER-2
#[tokio::test]
async fn an_instance_of_an_old_version_stays_with_it_over_an_upgrade_and_in_its_next_turns() {
    let world = World::new();
    let stage = Stage::default();
    let step = |version: &'static str| {
        let stage = stage.clone();
        move |ctx: OrchestrationContext, input: String| {
            stage.report(format!("{version}:{input}"));
            async move {
                let first = ctx.schedule_wait("a").await;
                Ok(first + &ctx.schedule_wait("b").await)
            }
        }
    };
    let none = || RuntimeOptions { resident_instances: 0, ..Default::default() };
    let old = orchestrations().register_versioned("V", "1.0.2", step("1.0.2"));
    let runtime = world.start_with(activities(), old, none()).await;
    world.client.start_orchestration("i", "V", "in").await.unwrap();
    world.waits_for("i", "a").await;
    runtime.shutdown(None).await;
    let both = orchestrations().register_versioned("V", "1.0.2", step("1.0.2")).register_versioned(
        "V",
        "1.0.3",
        step("1.0.3"),
    );
    let runtime = world.start_with(activities(), both, none()).await;
    world.client.raise_event("i", "a", "1").await.unwrap();
    world.waits_for("i", "b").await;
    world.client.raise_event("i", "b", "2").await.unwrap();
    assert_eq!(world.output("i").await, "12");
    assert_eq!(stage.log(), ["1.0.2:in"; 3]);
    runtime.shutdown(None).await;
}

// semantics: VER-3
#[tokio::test]
async fn work_that_one_of_three_nodes_knows_is_done_there_and_failed_by_nobody() {
    let world = World::new();
    let version = |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("New", ctx.orchestration_version()).await
    };
    let old_code = || orchestrations().register_versioned("V", "1.0.0", version);
    let new_code = || old_code().register_versioned("V", "2.0.0", version);
    let new_activity =
        activities().register("New", |_: ActivityContext, input: String| async move { Ok(input) });
    let a = world.start_with(activities(), old_code(), few_attempts(50)).await;
    let b = world.start_with(activities(), old_code(), few_attempts(50)).await;
    let c = world.start_with(new_activity, new_code(), few_attempts(50)).await;
    for number in 0..6 {
        let instance = format!("i{number}");
        world.client.start_orchestration_versioned(instance, "V", "2.0.0", "").await.unwrap();
    }
    for number in 0..6 {
        let status = world.end_in_time(&format!("i{number}"), Duration::from_millis(100)).await;
        assert_eq!(output(status), "2.0.0");
    }
    for runtime in [a, b, c] {
        runtime.shutdown(None).await;
    }
}

// semantics: OBS-7
#[tokio::test]
async fn a_runtime_says_at_start_what_it_is_and_what_it_can_replay() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let runtime = world.start(activities(), waiting()).await;
    let range = supporting(Version::new(1, 2, 3), Version::new(4, 5, 6));
    let other = world.start_with(activities(), waiting(), range).await;
    let lines = logs.with("Orchestration dispatcher capability filter configured");
    let ranges: Vec<_> = lines.iter().map(|line| line.field("supported_range").to_string()).collect();
    assert_eq!(ranges, [format!(">=0.0.0, <={}", current_build_version()), ">=1.2.3, <=4.5.6".to_string()]);
    for line in &lines {
        assert_eq!((line.level, line.target.as_str()), (tracing::Level::INFO, "duroxide::runtime"));
    }
    let first = logs.of_target("duroxide::runtime").remove(0);
    for part in [current_build_version().to_string().as_str(), world.store.name(), world.store.version()] {
        assert!(first.message.contains(part), "{part}: {}", first.message);
    }
    assert_eq!(first.level, tracing::Level::INFO);
    runtime.shutdown(None).await;
    other.shutdown(None).await;
}

// semantics: OBS-7
#[tokio::test]
async fn an_execution_that_the_store_should_not_have_returned_is_warned_of_by_name() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let mut start = start_of("i", 1, "Waiting", "");
    start.duroxide_version = "9.9.9".into();
    // No pin is stored, so the store cannot tell.
    world.seed("i", 1, vec![start]).await;
    world.client.raise_event("i", "go", "").await.unwrap();
    let runtime = world.start(activities(), waiting()).await;
    while logs.with("incompatible version").is_empty() {
        tokio::task::yield_now().await;
    }
    let line = logs.one("Execution pinned at incompatible version, abandoning (runtime-side check)");
    assert_eq!((line.level, line.target.as_str()), (tracing::Level::WARN, "duroxide::runtime"));
    assert_eq!((line.field("instance"), line.field("pinned_version")), ("i", "9.9.9"));
    assert_eq!(line.field("attempt_count"), "1");
    assert!(line.field("supported_range").starts_with(">=0.0.0"));
    runtime.shutdown(None).await;
    assert_eq!(world.history("i").await.len(), 1);
}

// semantics: VER-6
#[tokio::test]
async fn runtimes_with_disjoint_ranges_take_their_own_and_leave_the_rest_untouched() {
    let world = World::new();
    seed_pinned(&world, "one", "1.0.0").await;
    seed_pinned(&world, "two", "2.0.0").await;
    let low = supporting(Version::new(1, 0, 0), Version::new(1, 9, 9));
    let low = world.start_with(activities(), waiting(), RuntimeOptions { max_attempts: 1, ..low }).await;
    world.client.raise_event("two", "go", "b").await.unwrap();
    world.client.raise_event("one", "go", "a").await.unwrap();
    assert_eq!(world.output("one").await, "a");
    // Whatever time passes, the other is not touched and no attempt is counted.
    for _ in 0..20 {
        world.clock.advance(Duration::from_secs(10));
        tokio::task::yield_now().await;
    }
    let status = world.client.get_orchestration_status("two").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Running { .. }));
    assert_eq!(world.history("two").await.len(), 2);
    let high = supporting(Version::new(2, 0, 0), Version::new(2, 9, 9));
    let high = world.start_with(activities(), waiting(), RuntimeOptions { max_attempts: 1, ..high }).await;
    assert_eq!(world.output("two").await, "b");
    low.shutdown(None).await;
    high.shutdown(None).await;
}

// semantics: VER-6
#[tokio::test]
async fn with_overlapping_ranges_either_runtime_may_take_an_instance() {
    let world = World::new();
    for number in 0..4 {
        seed_pinned(&world, &format!("i{number}"), "1.5.0").await;
    }
    let low = supporting(Version::new(1, 0, 0), Version::new(1, 9, 9));
    let high = supporting(Version::new(1, 5, 0), Version::new(2, 9, 9));
    let low = world.start_with(activities(), waiting(), low).await;
    let high = world.start_with(activities(), waiting(), high).await;
    for number in 0..4 {
        let instance = format!("i{number}");
        world.client.raise_event(&instance, "go", "on").await.unwrap();
        assert_eq!(world.output(&instance).await, "on");
        assert_eq!(world.history(&instance).await[0].duroxide_version, "1.5.0", "the pin is kept");
    }
    low.shutdown(None).await;
    high.shutdown(None).await;
}

// semantics: VER-7
#[tokio::test]
async fn a_child_and_a_successor_get_the_pin_of_the_runtime_that_starts_them() {
    let world = World::new();
    let mut start = start_of("p", 1, "Parent", "");
    start.duroxide_version = "0.1.31".into();
    let wait = EventKind::ExternalSubscribed { name: "begin".into() };
    world.seed("p", 1, vec![start, Event::with_event_id(2, "p", 1, None, wait)]).await;
    let code = waiting().register("Parent", |ctx: OrchestrationContext, input: String| async move {
        if input.is_empty() {
            ctx.schedule_wait("begin").await;
            ctx.schedule_sub_orchestration("Waiting", "").await?;
            return ctx.continue_as_new("second").await;
        }
        Ok(input)
    });
    let runtime = world.start(activities(), code).await;
    world.client.raise_event("p", "begin", "").await.unwrap();
    world.waits_for("p::sub::4", "go").await;
    world.client.raise_event("p::sub::4", "go", "").await.unwrap();
    assert_eq!(world.output("p").await, "second");
    let own = current_build_version().to_string();
    assert_eq!(world.history("p::sub::4").await[0].duroxide_version, own);
    assert_eq!(world.history("p").await[0].duroxide_version, own);
    let first = world.store.read_with_execution("p", 1).await.unwrap();
    assert_eq!(first[0].duroxide_version, "0.1.31");
    runtime.shutdown(None).await;
}

// semantics: FAIL-8
#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn a_runtime_with_a_wide_range_drains_histories_that_nobody_can_decode() {
    use duroxide::providers::memory::MemoryProvider;
    use duroxide::providers::{ManualClock, Provider};
    let clock = std::sync::Arc::new(ManualClock::default());
    let memory = std::sync::Arc::new(MemoryProvider::with_clock(clock.clone()));
    let faulty = runtime_support::faulty::Faulty::new(memory.clone() as std::sync::Arc<dyn Provider>);
    let world = World::on(faulty.clone(), clock);
    seed_pinned(&world, "i", "77.0.0").await;
    memory.corrupt_history("i");
    world.client.raise_event("i", "go", "").await.unwrap();
    let wide = supporting(Version::new(0, 0, 0), Version::new(99, 0, 0));
    let wide = RuntimeOptions { max_attempts: 3, ..wide };
    let runtime = world.start_with(activities(), waiting(), wide).await;
    let status = world.end_in_time("i", Duration::from_millis(250)).await;
    assert!(matches!(&status, OrchestrationStatus::Failed { details, .. }
        if details.display_message().contains("deserialization")));
    assert_eq!(faulty.abandoned_turns(), [(Some(Duration::from_secs(1)), false); 3]);
    let info = world.client.get_instance_info("i").await.unwrap();
    assert_eq!(info.status, "Failed");
    assert!(info.output.unwrap().contains("deserialization"));
    runtime.shutdown(None).await;
}

// semantics: VER-5
#[tokio::test]
async fn code_is_told_which_version_it_is() {
    let world = World::new();
    let code = orchestrations().register_versioned(
        "V",
        "2.1.0",
        |ctx: OrchestrationContext, _: String| async move {
            Ok(format!(
                "{} {} {} {}",
                ctx.orchestration_name(),
                ctx.orchestration_version(),
                ctx.instance_id(),
                ctx.execution_id()
            ))
        },
    );
    let runtime = world.start(activities(), code).await;
    assert_eq!(output(world.run("i", "V", "").await), "V 2.1.0 i 1");
    runtime.shutdown(None).await;
}
