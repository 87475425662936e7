//! Children, dropped futures and detached starts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::{ProviderError, WorkItem};
use duroxide::runtime::VersionPolicy;
use duroxide::{
    ActivityContext, AppErrorKind, Either2, ErrorDetails, EventKind, OrchestrationContext,
    OrchestrationStatus, PoisonMessageType,
};
use runtime_support::faulty::Call;
use runtime_support::{World, activities, details, echo, faulty_world, few_attempts, kinds, orchestrations};
use semver::Version;

fn family() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations()
        .register("Waiting", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
}

fn is_cancelled(status: &OrchestrationStatus, wanted: &str) -> bool {
    matches!(
        status,
        OrchestrationStatus::Failed {
            details: ErrorDetails::Application { kind: AppErrorKind::Cancelled { reason }, .. },
            ..
        } if reason == wanted
    )
}

const DROPPED: &str = "parent dropped sub-orchestration future";

// semantics: CHILD-6
#[tokio::test]
async fn a_child_that_is_dropped_in_the_turn_that_asked_for_it_starts_and_is_cancelled_in_one_batch() {
    let world = World::new();
    let code = family().register("Hasty", |ctx: OrchestrationContext, _: String| async move {
        drop(ctx.schedule_sub_orchestration("Waiting", ""));
        Ok(ctx.schedule_wait("end").await)
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("p", "Hasty", "").await.unwrap();
    assert!(is_cancelled(&world.end("p::sub::2").await, DROPPED));
    let child = world.history("p::sub::2").await;
    assert_eq!(kinds(&child)[..2], ["OrchestrationStarted", "OrchestrationCancelRequested"]);
    let parent = world.history("p").await;
    assert_eq!(
        kinds(&parent)[..4],
        [
            "OrchestrationStarted",
            "SubOrchestrationScheduled",
            "ExternalSubscribed",
            "SubOrchestrationCancelRequested"
        ]
    );
    world.client.raise_event("p", "end", "fine").await.unwrap();
    assert_eq!(world.output("p").await, "fine");
    runtime.shutdown(None).await;
}

// semantics: ACT-6
#[tokio::test]
async fn input_that_does_not_decode_is_an_error_of_the_activity_and_the_orchestration_goes_on() {
    let world = World::new();
    let typed = activities()
        .register_typed("Double", |_: ActivityContext, n: u32| async move { Ok::<_, String>(n * 2) });
    let code = orchestrations()
        .register("Untyped", |ctx: OrchestrationContext, _: String| async move {
            let bad = ctx.schedule_activity("Double", "not-json").await;
            let good = ctx.schedule_activity("Double", "21").await?;
            Ok(format!("{},{good}", bad.is_err()))
        })
        .register_typed("Typed", |_: OrchestrationContext, n: u32| async move { Ok::<_, String>(n) });
    let runtime = world.start(typed, code).await;
    world.client.start_orchestration("a", "Untyped", "").await.unwrap();
    assert_eq!(world.output("a").await, "true,42");
    let failed = details(world.run("b", "Typed", "not-json").await);
    assert!(
        matches!(failed, ErrorDetails::Application { kind: AppErrorKind::OrchestrationFailed, .. }),
        "{failed:?}"
    );
    runtime.shutdown(None).await;
}

// semantics: RACE-7, CHILD-6
#[tokio::test]
async fn the_losing_child_of_a_race_of_blocks_is_cancelled_and_never_completes() {
    let world = World::new();
    let code = family().register("Race", |ctx: OrchestrationContext, _: String| async move {
        let generated = async {
            ctx.schedule_activity("Echo", "a").await?;
            ctx.schedule_sub_orchestration("Waiting", "").await
        };
        let chosen = async {
            ctx.schedule_activity("Echo", "b").await?;
            ctx.schedule_sub_orchestration_with_id("Waiting", "chosen", "").await
        };
        let losers = ctx.join2(generated, chosen);
        let winner = ctx.schedule_wait("decide");
        match ctx.select2(losers, winner).await {
            Either2::First(_) => Err("the losers won".to_string()),
            Either2::Second(text) => Ok(text),
        }
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("p", "Race", "").await.unwrap();
    world.waits_for("chosen", "go").await;
    let scheduled = world
        .recorded(
            "p",
            |kind| matches!(kind, EventKind::SubOrchestrationScheduled { instance, .. } if instance != "chosen"),
        )
        .await;
    let generated = format!("p::sub::{}", scheduled.event_id);
    world.waits_for(&generated, "go").await;
    world.client.raise_event("p", "decide", "decided").await.unwrap();
    assert_eq!(world.output("p").await, "decided");
    for child in [generated.as_str(), "chosen"] {
        assert!(is_cancelled(&world.end(child).await, DROPPED));
    }
    runtime.shutdown(None).await;
}

// semantics: CANCEL-5
#[tokio::test]
async fn a_child_that_is_cancelled_twice_before_its_next_turn_hears_of_both_and_ends_once() {
    let world = World::new();
    let parent = |registry: duroxide::OrchestrationRegistryBuilder| {
        registry.register("Parent", |ctx: OrchestrationContext, _: String| async move {
            let child = ctx.schedule_sub_orchestration_with_id("Waiting", "child", "");
            let stop = ctx.schedule_wait("stop");
            ctx.select2(child, stop).await;
            ctx.schedule_wait("end").await;
            Ok("ended".to_string())
        })
    };
    let runtime = world.start(activities(), parent(family())).await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    world.waits_for("child", "go").await;
    runtime.shutdown(None).await;
    // This runtime does not have the child's code, so messages to the child wait.
    let runtime = world.start(activities(), parent(orchestrations())).await;
    world.client.raise_event("p", "stop", "").await.unwrap();
    world.waits_for("p", "end").await;
    world.client.cancel_instance("child", "user_cancel").await.unwrap();
    runtime.shutdown(None).await;
    let runtime = world.start(activities(), parent(family())).await;
    world.clock.advance(Duration::from_secs(60));
    assert!(is_cancelled(&world.end("child").await, DROPPED));
    let history = world.history("child").await;
    let requests = kinds(&history).iter().filter(|kind| **kind == "OrchestrationCancelRequested").count();
    assert_eq!(requests, 1);
    world.client.raise_event("p", "end", "").await.unwrap();
    assert_eq!(world.output("p").await, "ended");
    runtime.shutdown(None).await;
}

// semantics: CHILD-2
#[tokio::test]
async fn children_nest_and_fan_out_and_their_ids_tell_where_they_belong() {
    let world = World::new();
    let code = family()
        .register("Middle", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_sub_orchestration("Echo", format!("{input}!")).await
        })
        .register("Root", |ctx: OrchestrationContext, _: String| async move {
            let children = (0..3).map(|n| ctx.schedule_sub_orchestration("Middle", n.to_string()));
            let results = ctx.join(children.collect()).await;
            Ok(results.into_iter().map(Result::unwrap).collect::<Vec<_>>().join(","))
        });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("root", "Root", "").await.unwrap();
    assert_eq!(world.output("root").await, "0!,1!,2!");
    let tree = world.client.get_instance_tree("root").await.unwrap();
    assert_eq!((tree.size(), tree.is_root_only()), (7, false));
    for id in ["root::sub::2", "root::sub::4", "root::sub::3::sub::2"] {
        assert!(tree.all_ids.iter().any(|other| other == id), "{id} {tree:?}");
    }
    let child = runtime.get_orchestration_descriptor("root::sub::2").await.unwrap();
    assert_eq!((child.parent_instance.as_deref(), child.parent_id), (Some("root"), Some(2)));
    assert!(!child.version.is_empty());
    runtime.shutdown(None).await;
}

// semantics: CHILD-7
#[tokio::test]
async fn parent_and_child_share_neither_values_nor_status() {
    let world = World::new();
    let code = orchestrations()
        .register("Child", |ctx: OrchestrationContext, _: String| async move {
            let seen = format!("{:?} {:?}", ctx.get_kv_value("key"), ctx.get_custom_status());
            ctx.set_kv_value("key", "of the child");
            ctx.set_custom_status("of the child");
            Ok(seen)
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("key", "of the parent");
            ctx.set_custom_status("of the parent");
            let child = ctx.schedule_sub_orchestration("Child", "").await?;
            Ok(format!("{child} {:?} {:?}", ctx.get_kv_value("key"), ctx.get_custom_status()))
        });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    assert_eq!(world.output("p").await, "None None Some(\"of the parent\") Some(\"of the parent\")");
    assert_eq!(world.client.get_kv_value("p::sub::4", "key").await.unwrap().as_deref(), Some("of the child"));
    runtime.shutdown(None).await;
}

// semantics: CHILD-8
#[tokio::test]
async fn a_child_runs_the_version_that_was_asked_for_or_the_one_of_the_policy() {
    let world = World::new();
    let version = |ctx: OrchestrationContext, _: String| async move { Ok(ctx.orchestration_version()) };
    let registry = orchestrations()
        .register_versioned("Child", "1.0.0", version)
        .register_versioned("Child", "1.1.0", version)
        .register_versioned("Child", "2.0.0", version)
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            let open = ctx.schedule_sub_orchestration("Child", "").await?;
            let exact =
                ctx.schedule_sub_orchestration_versioned("Child", Some("1.0.0".to_string()), "").await?;
            Ok(format!("{open},{exact}"))
        })
        .build();
    let runtime = duroxide::runtime::Runtime::start_with_store(
        world.store.clone(),
        activities().build(),
        registry.clone(),
    )
    .await;
    world.client.start_orchestration("a", "Parent", "").await.unwrap();
    assert_eq!(world.output("a").await, "2.0.0,1.0.0");
    registry.set_version_policy("Child", VersionPolicy::Exact(Version::new(1, 1, 0)));
    world.client.start_orchestration("b", "Parent", "").await.unwrap();
    assert_eq!(world.output("b").await, "1.1.0,1.0.0");
    runtime.shutdown(None).await;
}

// semantics: CANCEL-5
#[tokio::test]
async fn a_child_that_is_cancelled_itself_is_an_error_that_its_parent_can_handle() {
    let world = World::new();
    let code = family().register("Parent", |ctx: OrchestrationContext, _: String| async move {
        match ctx.schedule_sub_orchestration("Waiting", "").await {
            Ok(text) => Ok(text),
            Err(error) => Ok(format!("child_err:{error}")),
        }
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    world.waits_for("p::sub::2", "go").await;
    world.client.cancel_instance("p::sub::2", "by_test_child").await.unwrap();
    assert_eq!(world.output("p").await, "child_err:canceled: by_test_child");
    let row = world.recorded("p", |kind| matches!(kind, EventKind::SubOrchestrationFailed { .. })).await;
    assert_eq!(row.source_event_id, Some(2));
    runtime.shutdown(None).await;
}

// semantics: CHILD-3
#[tokio::test]
async fn a_detached_start_with_the_id_of_a_child_fails_the_orchestration_and_creates_nothing() {
    let world = World::new();
    let code = family().register("Detaches", |ctx: OrchestrationContext, id: String| async move {
        ctx.schedule_orchestration("Echo", id, "in");
        Ok("sent".to_string())
    });
    let runtime = world.start(activities(), code).await;
    for (number, id) in ["sub::1", "a::sub::1"].into_iter().enumerate() {
        let failed = details(world.run(&format!("p{number}"), "Detaches", id).await);
        assert!(matches!(&failed, ErrorDetails::Application { kind: AppErrorKind::Panicked, .. }));
        assert!(failed.display_message().contains("reserved sub-orchestration marker"), "{failed:?}");
        assert_eq!(world.history(id).await, []);
    }
    world.run("q", "Detaches", "tenant-7::order-42").await;
    assert_eq!(world.output("tenant-7::order-42").await, "in");
    runtime.shutdown(None).await;
}

// semantics: CHILD-10
#[tokio::test]
async fn a_detached_start_runs_on_its_own_with_the_version_of_the_policy() {
    let world = World::new();
    let version = |ctx: OrchestrationContext, _: String| async move { Ok(ctx.orchestration_version()) };
    let code = orchestrations()
        .register_versioned("V", "1.0.0", version)
        .register_versioned("V", "3.0.0", version)
        .register("Detaches", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_orchestration("V", "open", "");
            ctx.schedule_orchestration_versioned("V", Some("1.0.0".to_string()), "exact", "");
            ctx.schedule_wait("never").await;
            Ok(String::new())
        });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("p", "Detaches", "").await.unwrap();
    assert_eq!(world.output("open").await, "3.0.0");
    assert_eq!(world.output("exact").await, "1.0.0");
    let descriptor = runtime.get_orchestration_descriptor("open").await.unwrap();
    assert_eq!((descriptor.parent_instance, descriptor.parent_id), (None, None));
    world.client.cancel_instance("p", "enough").await.unwrap();
    world.end("p").await;
    assert_eq!(world.output("open").await, "3.0.0");
    runtime.shutdown(None).await;
}

// semantics: CHILD-4
#[tokio::test]
async fn the_second_parent_of_one_chosen_child_id_fails_fast() {
    let world = World::new();
    let code = family().register("Parent", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_sub_orchestration_with_id("Echo", "shared", "in").await
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("first", "Parent", "").await.unwrap();
    assert_eq!(world.output("first").await, "in");
    world.client.start_orchestration("second", "Parent", "").await.unwrap();
    let error = world.failure("second").await;
    assert!(error.contains("already exists") && error.contains("shared"), "{error}");
    runtime.shutdown(None).await;
}

fn squatter(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Waiting".into(),
        input: "squatter".into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

// semantics: CHILD-4
#[tokio::test]
async fn an_instance_that_sits_on_the_id_of_a_later_child_makes_its_parent_fail_fast() {
    let world = World::new();
    let code = family().register("Parent", |ctx: OrchestrationContext, input: String| async move {
        if input == "again" {
            return ctx.continue_as_new("now").await;
        }
        ctx.schedule_sub_orchestration("Echo", "in").await
    });
    let runtime = world.start(activities(), code).await;
    for (parent, input, child) in [("one", "now", "one::sub::2"), ("two", "again", "two::sub::2_2")] {
        world.store.enqueue_for_orchestrator(squatter(child), None).await.unwrap();
        world.waits_for(child, "go").await;
        world.client.start_orchestration(parent, "Parent", input).await.unwrap();
        let error = world.failure(parent).await;
        assert!(error.contains("already exists") && error.contains(child), "{error}");
        world.client.raise_event(child, "go", "undisturbed").await.unwrap();
        assert_eq!(world.output(child).await, "undisturbed");
    }
    runtime.shutdown(None).await;
}

/// The start of a child as a parent sends it.
fn child_start(child: &str, parent: &str, parent_id: u64, parent_execution_id: Option<u64>) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: child.into(),
        orchestration: "Waiting".into(),
        input: String::new(),
        version: None,
        parent_instance: Some(parent.into()),
        parent_id: Some(parent_id),
        parent_execution_id,
        execution_id: 1,
    }
}

// semantics: CHILD-5
#[tokio::test]
async fn a_start_that_is_delivered_twice_is_no_collision_unless_its_sender_is_not_known_for_sure() {
    let world = World::new();
    let code = family().register("Parent", |ctx: OrchestrationContext, _: String| async move {
        let result = ctx.schedule_sub_orchestration("Waiting", "").await;
        Ok(format!("{result:?}"))
    });
    let runtime = world.start(activities(), code).await;
    for (parent, execution, expected) in [
        ("again", Some(1), "Ok(\"went on\")"),
        ("unsure", None, "Err(\"sub-orchestration instance id 'unsure::sub::2' already exists\")"),
    ] {
        let child = format!("{parent}::sub::2");
        world.client.start_orchestration(parent, "Parent", "").await.unwrap();
        world.waits_for(&child, "go").await;
        let repeated = child_start(&child, parent, 2, execution);
        world.store.enqueue_for_orchestrator(repeated, None).await.unwrap();
        world.drained().await;
        world.client.raise_event(&child, "go", "went on").await.unwrap();
        assert_eq!(world.output(&child).await, "went on");
        assert_eq!(world.output(parent).await, expected);
    }
    runtime.shutdown(None).await;
}

// semantics: CHILD-4
#[tokio::test]
async fn a_collision_is_told_once_also_when_the_turn_that_met_it_cannot_be_stored() {
    let (world, faulty) = faulty_world();
    let with_parent = |registry: duroxide::OrchestrationRegistryBuilder| {
        registry.register("Parent", |ctx: OrchestrationContext, _: String| async move {
            let result = ctx.schedule_sub_orchestration_with_id("Waiting", "taken", "").await;
            Ok(format!("{result:?}"))
        })
    };
    let runtime = world.start(activities(), family()).await;
    world.client.start_orchestration("taken", "Waiting", "").await.unwrap();
    world.waits_for("taken", "go").await;
    runtime.shutdown(None).await;
    // This runtime does not have the code behind the taken id, so the start of the child waits.
    let runtime = world.start(activities(), with_parent(orchestrations())).await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    world.recorded("p", |kind| matches!(kind, EventKind::SubOrchestrationScheduled { .. })).await;
    runtime.shutdown(None).await;
    // It comes in one batch with a signal, and the store refuses that turn.
    world.client.raise_event("taken", "go", "").await.unwrap();
    faulty.fail(Call::AckTurn, [ProviderError::permanent("ack_orchestration_item", "refused")]);
    world.clock.advance(Duration::from_secs(60));
    let runtime = world.start(activities(), with_parent(family())).await;
    assert!(world.output("p").await.contains("already exists"));
    assert_eq!(world.failure("taken").await, "infrastructure:ack_orchestration_item: refused");
    world.drained().await;
    runtime.shutdown(None).await;
    let told = kinds(&world.history("p").await);
    assert_eq!(told.iter().filter(|kind| **kind == "SubOrchestrationFailed").count(), 1);
}

// semantics: SIG-6
#[tokio::test]
async fn a_panic_of_a_typed_wait_can_be_caught_and_the_orchestration_goes_on() {
    let world = World::new();
    let code = orchestrations().register("Typed", |ctx: OrchestrationContext, _: String| async move {
        let mut wait = Box::pin(ctx.schedule_wait_typed::<u32>("number"));
        let caught = std::future::poll_fn(|cx| {
            let poll = std::panic::AssertUnwindSafe(|| wait.as_mut().poll(cx));
            match std::panic::catch_unwind(poll) {
                Ok(poll) => poll.map(Ok),
                Err(_) => std::task::Poll::Ready(Err(())),
            }
        });
        match caught.await {
            Ok(number) => Ok(number.to_string()),
            Err(()) => Ok("decode_err".to_string()),
        }
    });
    let runtime = world.start(activities(), code).await;
    for (data, expected) in [("7", "7"), ("no number", "decode_err")] {
        world.client.start_orchestration(data, "Typed", "").await.unwrap();
        world.waits_for(data, "number").await;
        world.client.raise_event(data, "number", data).await.unwrap();
        assert_eq!(world.output(data).await, expected);
    }
    runtime.shutdown(None).await;
}

// semantics: FAIL-4
#[tokio::test]
async fn a_poisoned_child_fails_its_parent_with_details_that_name_the_child() {
    let world = World::new();
    let code = orchestrations().register("Parent", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_sub_orchestration("Nobody", "").await
    });
    let runtime = world.start_with(activities(), code, few_attempts(10)).await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    let found = details(world.end_in_time("p", Duration::from_millis(500)).await);
    let ErrorDetails::Poison {
        attempt_count: 11,
        max_attempts: 10,
        message_type: PoisonMessageType::Orchestration { instance, .. },
        ..
    } = found
    else {
        panic!("{found:?}")
    };
    assert_eq!(instance, "p::sub::2");
    assert_eq!(world.history("p::sub::2").await.len(), 2);
    runtime.shutdown(None).await;
}
