//! Values, status, system calls, figures and limits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::{Either2, EventKind, OrchestrationContext, OrchestrationStatus, PruneOptions, RuntimeOptions};
use runtime_support::{World, activities, details, echo, kinds, orchestrations, output};

// semantics: KV-1
#[tokio::test]
async fn values_grow_turn_by_turn_and_readers_see_the_last_committed_one() {
    for resident_instances in [0, 100] {
        let world = World::new();
        let code = orchestrations().register("Sum", |ctx: OrchestrationContext, rounds: String| async move {
            for _ in 0..rounds.parse::<u32>().unwrap() {
                ctx.schedule_wait("next").await;
                let count = ctx.get_kv_value_typed::<u32>("count")?.unwrap_or_default();
                ctx.set_kv_value_typed("count", &(count + 1));
            }
            if ctx.execution_id() == 1 {
                ctx.continue_as_new("3").await
            } else {
                Ok(format!("{:?}", ctx.get_kv_value("count")))
            }
        });
        let options = RuntimeOptions { resident_instances, ..Default::default() };
        let runtime = world.start_with(activities(), code, options).await;
        world.client.start_orchestration("i", "Sum", "5").await.unwrap();
        world.waits_for("i", "next").await;
        for round in 1..=8_u32 {
            world.client.raise_event("i", "next", "").await.unwrap();
            loop {
                let value =
                    world.client.wait_for_kv_value("i", "count", Duration::from_secs(1)).await.unwrap();
                let next_is_awaited = round == 8 || {
                    let history = world.history("i").await;
                    kinds(&history).last() == Some(&"ExternalSubscribed")
                };
                if value == round.to_string() && next_is_awaited {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(world.output("i").await, "Some(\"8\")");
        runtime.shutdown(None).await;
    }
}

// semantics: KV-3
#[tokio::test]
async fn values_outlive_completion_failure_and_pruning_and_go_with_the_instance() {
    let world = World::new();
    let code = orchestrations()
        .register("Loop", |ctx: OrchestrationContext, _: String| async move {
            let n = ctx.execution_id();
            ctx.set_kv_value(format!("of-{n}"), "v");
            if n < 3 { ctx.continue_as_new("").await } else { Ok(String::new()) }
        })
        .register("Fails", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("key", "kept");
            Err("bad".to_string())
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration("Loop", "").await
        });
    let runtime = world.start(activities(), code).await;
    world.run("fails", "Fails", "").await;
    assert_eq!(world.client.get_kv_value("fails", "key").await.unwrap().as_deref(), Some("kept"));
    world.run("p", "Parent", "").await;
    let child = "p::sub::2";
    let options = PruneOptions { keep_last: Some(1), completed_before: None };
    let pruned = world.client.prune_executions(child, options).await.unwrap();
    assert_eq!(pruned.executions_deleted, 2);
    let values = world.client.get_kv_all_values(child).await.unwrap();
    assert_eq!(values.len(), 3, "{values:?}");
    world.client.delete_instance("p", false).await.unwrap();
    assert!(world.client.get_kv_all_values(child).await.unwrap().is_empty());
    assert!(world.client.get_kv_all_values("p").await.unwrap().is_empty());
    runtime.shutdown(None).await;
}

// semantics: KV-4
#[tokio::test]
async fn an_instance_that_reads_itself_by_its_id_sees_what_is_committed() {
    let world = World::new();
    let code = orchestrations().register("Self", |ctx: OrchestrationContext, _: String| async move {
        ctx.set_kv_value("key", "first");
        let first = ctx.get_kv_value_from_instance(ctx.instance_id(), "key").await?;
        ctx.set_kv_value("key", "second");
        let own = ctx.get_kv_value("key");
        let nobody = ctx.get_kv_value_from_instance("nobody", "key").await?;
        let missing = ctx.get_kv_value_from_instance(ctx.instance_id(), "missing").await?;
        ctx.set_kv_value_typed("list", &vec![1, 2, 3]);
        let list = ctx.get_kv_value_from_instance_typed::<Vec<u32>>(ctx.instance_id(), "list").await?;
        let wrong = ctx.get_kv_value_from_instance_typed::<u32>(ctx.instance_id(), "list").await;
        Ok(format!("{first:?} {own:?} {nobody:?} {missing:?} {list:?} {wrong:?}"))
    });
    let runtime = world.start(activities(), code).await;
    let seen = output(world.run("i", "Self", "").await);
    let expected = r#"Some("first") Some("second") None None Some([1, 2, 3]) Err("get_kv_value_from_instance_typed deserialization error: "#;
    assert!(seen.starts_with(expected), "{seen}");
    runtime.shutdown(None).await;
}

// semantics: STATUS-1
#[tokio::test]
async fn the_status_changes_once_a_turn_and_stays_after_the_end() {
    let world = World::new();
    let code = orchestrations()
        .register("Sets", |ctx: OrchestrationContext, how: String| async move {
            ctx.set_custom_status("one");
            ctx.set_custom_status("two");
            ctx.schedule_activity("Echo", "").await?;
            ctx.set_custom_status("three");
            if how == "ok" { Ok(how) } else { Err(how) }
        })
        .register("Resets", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("one");
            ctx.schedule_activity("Echo", "").await?;
            ctx.reset_custom_status();
            Ok(format!("{:?}", ctx.get_custom_status()))
        })
        .register("Never", |ctx: OrchestrationContext, _: String| async move {
            Ok(format!("{:?}", ctx.get_custom_status()))
        });
    let runtime = world.start(echo(), code).await;
    let status_of = |status: &OrchestrationStatus| match status {
        OrchestrationStatus::Completed { custom_status, custom_status_version, .. }
        | OrchestrationStatus::Failed { custom_status, custom_status_version, .. } => {
            (custom_status.clone(), *custom_status_version)
        }
        other => panic!("{other:?}"),
    };
    let three = (Some("three".to_string()), 2);
    assert_eq!(status_of(&world.run("a", "Sets", "ok").await), three);
    assert_eq!(status_of(&world.run("b", "Sets", "bad").await), three);
    assert_eq!(kinds(&world.history("a").await)[1..3], ["CustomStatusUpdated"; 2]);
    let resets = world.run("c", "Resets", "").await;
    assert_eq!(status_of(&resets), (None, 2));
    assert_eq!(output(resets), "None");
    assert_eq!(status_of(&world.run("d", "Never", "").await), (None, 0));
    runtime.shutdown(None).await;
}

// semantics: ACT-15
#[tokio::test]
async fn system_calls_can_be_joined_and_raced_and_differ_from_call_to_call() {
    let world = World::new();
    let code = orchestrations().register("Calls", |ctx: OrchestrationContext, _: String| async move {
        let ids = ctx.join((0..5).map(|_| ctx.new_guid()).collect()).await;
        let ids: std::collections::HashSet<_> = ids.into_iter().map(Result::unwrap).collect();
        let timer = ctx.schedule_timer(Duration::from_secs(5));
        let first = match ctx.select2(ctx.new_guid(), timer).await {
            Either2::First(id) => id?.len(),
            Either2::Second(()) => 0,
        };
        let (before, after) = ctx.join2(ctx.utc_now(), ctx.utc_now()).await;
        Ok(format!("{} {first} {}", ids.len(), before? <= after?))
    });
    let runtime = world.start(activities(), code).await;
    assert_eq!(output(world.run("i", "Calls", "").await), "5 36 true");
    runtime.shutdown(None).await;
}

// semantics: MGMT-8
#[tokio::test]
async fn figures_of_an_instance_are_those_of_its_current_execution() {
    let world = World::new();
    let code = orchestrations()
        .register("Large", |ctx: OrchestrationContext, _: String| async move {
            assert!(ctx.get_system_stats().is_none());
            for _ in 0..4 {
                ctx.schedule_activity("Echo", "x".repeat(64 * 1024)).await?;
            }
            Ok(String::new())
        })
        .register("Values", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("a", "xxx");
            ctx.set_kv_value("b", "xxxxx");
            ctx.set_kv_value("c", "xx");
            Ok(String::new())
        })
        .register("BigValues", |ctx: OrchestrationContext, _: String| async move {
            for key in 0..4 {
                ctx.set_kv_value(key.to_string(), "x".repeat(16 * 1024));
            }
            Ok(String::new())
        })
        .register("Loop", |ctx: OrchestrationContext, input: String| async move {
            if input.is_empty() {
                ctx.set_kv_value("key", "v");
                ctx.schedule_activity("Echo", "").await?;
                ctx.schedule_wait("go").await;
                return ctx.continue_as_new("second").await;
            }
            Ok(ctx.dequeue_event("q").await)
        });
    let runtime = world.start(echo(), code).await;
    let stats = async |instance: &str| {
        world.client.get_orchestration_stats(instance).await.unwrap().expect("a known instance")
    };
    assert!(world.client.get_orchestration_stats("nobody").await.unwrap().is_none());
    world.run("large", "Large", "").await;
    let large = stats("large").await;
    assert_eq!(large.history_event_count, 10);
    assert!((256 * 1024..1024 * 1024).contains(&large.history_size_bytes), "{large:?}");
    world.run("values", "Values", "").await;
    let values = stats("values").await;
    assert_eq!((values.kv_user_key_count, values.kv_total_value_bytes), (3, 10));
    world.run("big", "BigValues", "").await;
    assert_eq!(stats("big").await.kv_total_value_bytes, 65_536);
    world.client.start_orchestration("loop", "Loop", "").await.unwrap();
    world.waits_for("loop", "go").await;
    for data in ["1", "2"] {
        world.client.enqueue_event("loop", "q", data).await.unwrap();
    }
    world.client.raise_event("loop", "go", "").await.unwrap();
    assert_eq!(world.output("loop").await, "1");
    let looped = stats("loop").await;
    assert_eq!(looped.history_event_count as usize, world.history("loop").await.len());
    assert!((2..=5).contains(&looped.history_event_count), "{looped:?}");
    assert_eq!((looped.queue_pending_count, looped.kv_user_key_count), (2, 1), "carried at the start");
    runtime.shutdown(None).await;
}

// semantics: LIM-1
#[tokio::test]
async fn limits_count_what_is_there_in_the_end() {
    let world = World::new();
    let code = orchestrations()
        .register("Status", |ctx: OrchestrationContext, size: String| async move {
            // Only the last status of a turn is stored, so only it is measured.
            ctx.set_custom_status("x".repeat(300_000));
            ctx.set_custom_status("x".repeat(size.parse().unwrap()));
            Ok("set".to_string())
        })
        .register("Refill", |ctx: OrchestrationContext, _: String| async move {
            for key in 0..150 {
                ctx.set_kv_value(key.to_string(), "v");
            }
            ctx.schedule_activity("Echo", "").await?;
            ctx.clear_all_kv_values();
            for key in 0..150 {
                ctx.set_kv_value(format!("again-{key}"), "v");
            }
            ctx.schedule_activity("Echo", "").await?;
            ctx.clear_kv_value("again-0");
            ctx.set_kv_value("one more", "v");
            Ok(ctx.get_kv_length().to_string())
        });
    let runtime = world.start(echo(), code).await;
    for size in ["262143", "262144"] {
        assert_eq!(output(world.run(size, "Status", size).await), "set");
    }
    let over = details(world.run("over", "Status", "262145").await);
    assert_eq!(over.display_message(), "Custom status size (262145 bytes) exceeds limit (262144 bytes)");
    assert_eq!(output(world.run("refill", "Refill", "").await), "150");
    runtime.shutdown(None).await;
}

// semantics: LIM-2
#[tokio::test]
async fn a_turn_above_a_limit_sends_nothing_out_and_ends_the_instance_once() {
    let world = World::new();
    let code = orchestrations().register("Over", |ctx: OrchestrationContext, _: String| async move {
        ctx.set_kv_value("key", "x".repeat(65_537));
        ctx.schedule_orchestration("Over", "another", "");
        let _work = ctx.schedule_activity("Echo", "");
        Ok("done".to_string())
    });
    let runtime = world.start(echo(), code).await;
    let found = details(world.run("i", "Over", "").await);
    assert_eq!(found.display_message(), "KV value for key 'key' (65537 bytes) exceeds limit (65536 bytes)");
    world.drained().await;
    assert_eq!(kinds(&world.history("i").await), ["OrchestrationStarted", "OrchestrationFailed"]);
    assert_eq!(world.history("another").await, []);
    assert_eq!(world.client.get_kv_value("i", "key").await.unwrap(), None);
    let metrics = runtime.metrics_snapshot().unwrap();
    assert_eq!((metrics.orch_failures, metrics.orch_application_errors), (1, 1));
    runtime.shutdown(None).await;
}

// semantics: KV-5
#[tokio::test]
async fn writes_between_all_kinds_of_steps_are_stored_in_their_order() {
    let world = World::new();
    let code = orchestrations().register("Mixed", |ctx: OrchestrationContext, _: String| async move {
        ctx.set_kv_value("key", "begun");
        let echo = ctx.schedule_activity("Echo", "");
        let timer = ctx.schedule_timer(Duration::from_secs(60));
        if let Either2::First(_) = ctx.select2(echo, timer).await {
            ctx.set_kv_value("key", "raced");
        }
        for step in 0..3 {
            ctx.schedule_activity("Echo", "").await?;
            ctx.set_kv_value("key", format!("step {step}"));
        }
        ctx.schedule_timer(Duration::from_secs(1)).await;
        ctx.set_kv_value("key", "timed");
        Ok(String::new())
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("i", "Mixed", "").await.unwrap();
    let second_timer =
        |event: &duroxide::Event| matches!(event.kind, EventKind::TimerCreated { .. }) && event.event_id > 5;
    while !world.history("i").await.iter().any(second_timer) {
        tokio::task::yield_now().await;
    }
    world.clock.advance(Duration::from_secs(1));
    world.output("i").await;
    let history = world.history("i").await;
    let written: Vec<_> = history
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::KeyValueSet { value, .. } => Some(value.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(written, ["begun", "raced", "step 0", "step 1", "step 2", "timed"]);
    runtime.shutdown(None).await;
}

// semantics: KV-4
#[tokio::test]
async fn ten_writers_and_ten_readers_of_one_of_them_all_complete() {
    let world = World::new();
    let code = orchestrations()
        .register("Writes", |ctx: OrchestrationContext, input: String| async move {
            for step in 0..5 {
                ctx.set_kv_value("step", step.to_string());
                ctx.schedule_activity("Echo", "").await?;
            }
            ctx.set_kv_value("mine", &input);
            Ok(input)
        })
        .register("Reads", |ctx: OrchestrationContext, from: String| async move {
            let value = ctx.get_kv_value_from_instance(from, "mine").await?;
            Ok(value.unwrap_or_default())
        });
    let runtime = world.start(echo(), code).await;
    for number in 0..10 {
        let instance = format!("w{number}");
        world.client.start_orchestration(&instance, "Writes", number.to_string()).await.unwrap();
    }
    for number in 0..10 {
        assert_eq!(world.output(&format!("w{number}")).await, number.to_string());
    }
    for number in 0..10 {
        world.client.start_orchestration(format!("r{number}"), "Reads", "w3").await.unwrap();
    }
    for number in 0..10 {
        assert_eq!(world.output(&format!("r{number}")).await, "3");
    }
    runtime.shutdown(None).await;
}

// semantics: LIM-1
#[tokio::test]
async fn of_several_limits_the_status_is_told_first_then_tags_then_values_then_keys() {
    let world = World::new();
    let code = orchestrations().register("Over", |ctx: OrchestrationContext, over: String| async move {
        for key in 0..151 {
            ctx.set_kv_value(key.to_string(), "v");
        }
        if over.contains("value") {
            ctx.set_kv_value("key", "x".repeat(65_537));
        }
        if over.contains("tag") {
            std::mem::forget(ctx.schedule_activity("Echo", "").with_tag("t".repeat(257)));
        }
        if over.contains("status") {
            ctx.set_custom_status("x".repeat(262_145));
        }
        Ok(String::new())
    });
    let runtime = world.start(echo(), code).await;
    for (over, text) in [
        ("status, tag, value", "Custom status size"),
        ("tag, value", "Activity 'Echo' tag size"),
        ("value", "KV value for key 'key'"),
        ("keys", "KV key count (151)"),
    ] {
        world.client.start_orchestration(over, "Over", over).await.unwrap();
        let failure = world.failure(over).await;
        assert!(failure.starts_with(text), "{over}: {failure}");
    }
    runtime.shutdown(None).await;
}

/// Schedules an activity for each value, in the order in which the map gives them, and is replayed before it goes on.
async fn steps_by_values(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    for number in 0..40 {
        ctx.set_kv_value(format!("key-{}", (number * 17) % 40), number.to_string());
    }
    let mut seen = Vec::new();
    for (key, _) in ctx.get_kv_all_values_sorted() {
        seen.push(ctx.schedule_activity("Echo", key).await?);
    }
    Ok(seen.join(" "))
}

#[tokio::test]
async fn steps_taken_in_the_order_of_the_values_are_the_same_in_every_replay() {
    let world = World::new();
    let code = orchestrations().register("Steps", steps_by_values);
    // Without residents every turn replays the history.
    let options = RuntimeOptions { resident_instances: 0, ..Default::default() };
    let runtime = world.start_with(echo(), code, options).await;
    let mut keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    keys.sort();
    assert_eq!(output(world.run("i", "Steps", "").await), keys.join(" "));
    let read: Vec<String> = world.client.get_kv_all_values_sorted("i").await.unwrap().into_keys().collect();
    assert_eq!(read, keys);
    runtime.shutdown(None).await;
}
