//! The client.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::client::ClientError;
use duroxide::providers::ProviderError;
use duroxide::{
    Client, Event, EventKind, InstanceFilter, OrchestrationContext, OrchestrationStatus, PruneOptions,
    RuntimeOptions,
};
use runtime_support::logs::Logs;
use runtime_support::{SOON, Stage, World, activities, details, few_attempts, kinds, orchestrations, output};

fn code() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations()
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Fails", |_: OrchestrationContext, _: String| async move { Err("oops".to_string()) })
        .register("Waiting", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Rounds", |ctx: OrchestrationContext, input: String| async move {
            if ctx.execution_id() < 4 { ctx.continue_as_new(input).await } else { Ok(input) }
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration("Echo", "child").await
        })
}

// semantics: CLIENT-1
#[test]
fn a_client_can_be_cloned_and_shared() {
    fn check<T: Clone + Send + Sync>() {}
    check::<Client>();
}

// semantics: CLIENT-9
#[test]
fn errors_say_what_to_do_and_whether_to_try_again() {
    let instance_id = || "i".to_string();
    let provider = |retryable| {
        let error = ProviderError { operation: "read".into(), message: "down".into(), retryable };
        ClientError::Provider(error)
    };
    for (error, text, retryable) in [
        (provider(true), "read: down", true),
        (provider(false), "read: down", false),
        (
            ClientError::ManagementNotAvailable,
            "Management features not available - provider doesn't implement ProviderAdmin",
            false,
        ),
        (ClientError::InvalidInput { message: "bad".into() }, "Invalid input: bad", false),
        (ClientError::Timeout, "Operation timed out", true),
        (
            ClientError::InstanceStillRunning { instance_id: instance_id() },
            "Instance i is still running. Use force=true or cancel first.",
            false,
        ),
        (
            ClientError::CannotDeleteSubOrchestration { instance_id: instance_id() },
            "Cannot delete sub-orchestration i directly. Delete the root orchestration instead.",
            false,
        ),
        (ClientError::InstanceNotFound { instance_id: instance_id() }, "Instance i not found", false),
    ] {
        assert_eq!((error.to_string().as_str(), error.is_retryable()), (text, retryable));
    }
}

// semantics: CLIENT-1
#[tokio::test]
async fn a_start_is_accepted_for_any_name_and_id_and_a_taken_id_keeps_its_result() {
    let world = World::new();
    let status = |id| world.client.get_orchestration_status(id);
    world.client.start_orchestration("i", "Echo", "first").await.unwrap();
    assert_eq!(status("i").await.unwrap(), OrchestrationStatus::NotFound, "still queued");
    let runtime = world.start(activities(), code()).await;
    let first = world.end("i").await;
    assert_eq!(output(world.run("i", "Fails", "second").await), "first");
    world.drained().await;
    let history = world.history("i").await;
    assert_eq!(kinds(&history), ["OrchestrationStarted", "OrchestrationCompleted"]);
    for _ in 0..3 {
        assert_eq!(status("i").await.unwrap(), first, "reads are stable");
    }
    world.client.delete_instance("i", false).await.unwrap();
    assert_eq!(status("i").await.unwrap(), OrchestrationStatus::NotFound);
    assert_eq!(output(world.run("i", "Echo", "again").await), "again");
    world.client.start_orchestration("j", "No such orchestration", "").await.unwrap();
    runtime.shutdown(None).await;
}

// semantics: CLIENT-7
#[tokio::test]
async fn sending_checks_nothing_and_the_old_name_of_enqueue_still_works() {
    let world = World::new();
    let client = &world.client;
    client.raise_event("nobody", "e", "").await.unwrap();
    client.raise_event_typed("nobody", "e", &1).await.unwrap();
    client.enqueue_event("nobody", "q", "").await.unwrap();
    client.cancel_instance("nobody", "r").await.unwrap();
    let code = orchestrations().register("Reads", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.dequeue_event("q").await)
    });
    let runtime = world.start(activities(), code).await;
    client.start_orchestration("i", "Reads", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::QueueSubscribed { .. })).await;
    #[allow(deprecated, reason = "this is the old name")]
    client.raise_event_persistent("i", "q", "by the old name").await.unwrap();
    assert_eq!(world.output("i").await, "by the old name");
    runtime.shutdown(None).await;
}

// semantics: CLIENT-4
#[tokio::test]
async fn the_newest_end_in_the_history_decides_the_status() {
    let world = World::new();
    let mut history = vec![runtime_support::start_of("i", 1, "Echo", "")];
    let completed = EventKind::OrchestrationCompleted { output: "done".into() };
    history.push(Event::with_event_id(2, "i", 1, None, completed));
    let row = EventKind::ActivityCancelRequested { reason: "orchestration_terminal_completed".into() };
    history.push(Event::with_event_id(3, "i", 1, Some(2), row));
    world.seed("i", 1, history).await;
    let status = world.client.get_orchestration_status("i").await.unwrap();
    assert_eq!(output(status), "done");
    assert_eq!(world.client.get_orchestration_status("nobody").await.unwrap(), OrchestrationStatus::NotFound);
}

// semantics: CLIENT-6
#[tokio::test]
async fn a_typed_wait_gives_the_value_the_error_text_or_says_that_it_does_not_decode() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    let client = &world.client;
    client.start_orchestration_typed("ok", "Echo", vec![1, 2]).await.unwrap();
    client.start_orchestration("bad", "Fails", "").await.unwrap();
    client.start_orchestration("odd", "Echo", "no number").await.unwrap();
    let ok = client.wait_for_orchestration_typed::<Vec<u32>>("ok", SOON).await.unwrap();
    assert_eq!(ok, Ok(vec![1, 2]));
    let bad = client.wait_for_orchestration_typed::<u32>("bad", SOON).await.unwrap();
    assert_eq!(bad, Err("oops".to_string()));
    let odd = client.wait_for_orchestration_typed::<u32>("odd", SOON).await.unwrap_err();
    assert!(odd.to_string().starts_with("Invalid input: decode failed: "), "{odd}");
    runtime.shutdown(None).await;
}

// semantics: STATUS-2
#[tokio::test]
async fn waiting_for_a_change_of_an_unknown_instance_times_out() {
    let world = World::new();
    let result = world.client.wait_for_status_change("nobody", 0, Duration::ZERO, Duration::ZERO).await;
    assert!(matches!(result, Err(ClientError::Timeout)));
}

// semantics: CLIENT-8
#[tokio::test]
async fn typed_values_that_do_not_decode_are_refused_and_unknown_ones_are_none() {
    let world = World::new();
    let code = orchestrations().register("Values", |ctx: OrchestrationContext, _: String| async move {
        ctx.set_kv_value("text", "no json");
        ctx.set_kv_value_typed("number", &7);
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    world.run("i", "Values", "").await;
    let client = &world.client;
    assert_eq!(client.get_kv_value_typed::<u32>("i", "number").await.unwrap(), Some(7));
    assert_eq!(client.wait_for_kv_value_typed::<u32>("i", "number", SOON).await.unwrap(), 7);
    let error = client.get_kv_value_typed::<u32>("i", "text").await.unwrap_err();
    assert!(error.to_string().starts_with("Invalid input: KV deserialization error: "), "{error}");
    assert_eq!(client.get_kv_value("i", "missing").await.unwrap(), None);
    assert_eq!(client.get_kv_value("nobody", "text").await.unwrap(), None);
    assert!(client.get_kv_all_values("nobody").await.unwrap().is_empty());
    let waited = client.wait_for_kv_value("i", "missing", Duration::ZERO).await;
    assert!(matches!(waited, Err(ClientError::Timeout)));
    runtime.shutdown(None).await;
}

// semantics: MGMT-1
#[tokio::test]
async fn management_tells_what_is_there() {
    let world = World::new();
    let before = world.now_ms();
    let options = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let runtime = world
        .start_with(
            activities(),
            code().register("Work", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_activity("Nobody", "").await
            }),
            options,
        )
        .await;
    world.run("done", "Rounds", "in").await;
    world.run("failed", "Fails", "").await;
    world.run("p", "Parent", "").await;
    world.client.start_orchestration("running", "Waiting", "").await.unwrap();
    world.waits_for("running", "go").await;
    world.client.start_orchestration("works", "Work", "").await.unwrap();
    world.recorded("works", |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await;
    let client = &world.client;
    for (status, count) in [("Completed", 3), ("Failed", 1), ("Running", 2), ("Odd", 0)] {
        assert_eq!(client.list_instances_by_status(status).await.unwrap().len(), count, "{status}");
    }
    let info = client.get_instance_info("p::sub::2").await.unwrap();
    assert_eq!(info.parent_instance_id.as_deref(), Some("p"));
    assert_eq!((info.orchestration_name.as_str(), info.orchestration_version.as_str()), ("Echo", "1.0.0"));
    assert_eq!((info.status.as_str(), info.output.as_deref()), ("Completed", Some("child")));
    assert!(info.created_at >= before && info.updated_at >= info.created_at);
    let execution = client.get_execution_info("running", 1).await.unwrap();
    assert_eq!((execution.status.as_str(), execution.output), ("Running", None));
    assert_eq!((execution.completed_at, execution.event_count), (None, 2));
    for error in [
        client.get_instance_info("nobody").await.map(|_| ()).unwrap_err(),
        client.get_execution_info("done", 99).await.map(|_| ()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("not found"), "{error}");
    }
    assert!(client.list_executions("nobody").await.unwrap().is_empty());
    assert!(client.read_execution_history("nobody", 1).await.unwrap().is_empty());
    let metrics = client.get_system_metrics().await.unwrap();
    assert_eq!((metrics.total_instances, metrics.running_instances, metrics.completed_instances), (6, 2, 3));
    assert_eq!((metrics.failed_instances, metrics.total_executions), (1, 9));
    assert!(metrics.total_events >= 15);
    let depths = client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue, depths.timer_queue), (0, 1, 0));
    assert!(client.get_instance_tree("done").await.unwrap().is_root_only());
    runtime.shutdown(None).await;
}

// semantics: MGMT-6
#[tokio::test]
async fn of_two_deletions_at_once_one_succeeds_and_the_other_finds_nothing() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.run("i", "Echo", "").await;
    let (first, second) =
        tokio::join!(world.client.delete_instance("i", false), world.client.delete_instance("i", false));
    let deleted = [&first, &second].into_iter().filter(|result| result.is_ok()).count();
    assert_eq!(deleted, 1);
    for error in [first, second].into_iter().filter_map(Result::err) {
        assert!(matches!(error, ClientError::InstanceNotFound { instance_id } if instance_id == "i"));
    }
    runtime.shutdown(None).await;
}

// semantics: MGMT-4
#[tokio::test]
async fn bulk_deletion_takes_finished_roots_that_meet_every_condition() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.run("old", "Echo", "").await;
    world.run("old parent", "Parent", "").await;
    world.clock.advance(Duration::from_secs(60));
    let limit = world.now_ms();
    world.clock.advance(Duration::from_secs(60));
    world.run("new", "Echo", "").await;
    world.client.start_orchestration("running", "Waiting", "").await.unwrap();
    world.waits_for("running", "go").await;
    let ids = |ids: &[&str]| Some(ids.iter().map(ToString::to_string).collect());
    let delete = |filter: InstanceFilter| world.client.delete_instance_bulk(filter);
    let both = InstanceFilter {
        instance_ids: ids(&["old", "new", "running", "nobody"]),
        completed_before: Some(limit),
        limit: None,
    };
    assert_eq!(delete(both).await.unwrap().instances_deleted, 1);
    let before = InstanceFilter { completed_before: Some(limit), ..Default::default() };
    assert_eq!(delete(before).await.unwrap().instances_deleted, 2, "the parent and its child");
    let all = delete(InstanceFilter::default()).await.unwrap();
    assert_eq!(all.instances_deleted, 1);
    assert_eq!(world.client.list_all_instances().await.unwrap(), ["running"]);
    runtime.shutdown(None).await;
}

// semantics: MGMT-5
#[tokio::test]
async fn pruning_never_takes_the_current_execution_and_includes_running_instances() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            code().register("Goes on", |ctx: OrchestrationContext, input: String| async move {
                if ctx.execution_id() < 4 {
                    return ctx.continue_as_new(input).await;
                }
                Ok(ctx.schedule_wait("go").await)
            }),
        )
        .await;
    world.run("done", "Rounds", "").await;
    world.client.start_orchestration("running", "Goes on", "").await.unwrap();
    world.waits_for("running", "go").await;
    let keep = |keep_last| PruneOptions { keep_last: Some(keep_last), completed_before: None };
    let pruned = world.client.prune_executions("running", keep(2)).await.unwrap();
    assert_eq!((pruned.instances_processed, pruned.executions_deleted), (1, 2));
    assert_eq!(world.client.list_executions("running").await.unwrap(), [3, 4]);
    let all = world.client.prune_executions_bulk(InstanceFilter::default(), keep(0)).await.unwrap();
    assert_eq!((all.instances_processed, all.executions_deleted), (2, 4));
    for instance in ["done", "running"] {
        assert_eq!(world.client.list_executions(instance).await.unwrap(), [4]);
    }
    world.client.raise_event("running", "go", "on").await.unwrap();
    assert_eq!(world.output("running").await, "on");
    runtime.shutdown(None).await;
}

// semantics: MGMT-9
#[tokio::test]
async fn removals_are_logged_with_their_counts() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let runtime = world.start(activities(), code()).await;
    world.run("r", "Rounds", "").await;
    world
        .client
        .prune_executions("r", PruneOptions { keep_last: Some(1), ..Default::default() })
        .await
        .unwrap();
    world.client.delete_instance("r", false).await.unwrap();
    let pruned = logs.one("pruned executions");
    assert_eq!((pruned.field("executions_deleted"), pruned.field("events_deleted")), ("3", "6"));
    let deleted = logs.one("deleted instance");
    assert_eq!((deleted.field("instance_id"), deleted.field("instances_deleted")), ("r", "1"));
    assert!([pruned, deleted].iter().all(|line| line.level == tracing::Level::INFO));
    runtime.shutdown(None).await;
}

// semantics: MGMT-3
#[tokio::test]
async fn after_forced_deletions_each_activity_of_new_instances_runs_once() {
    let world = World::new();
    let stage = Stage::default();
    let work = activities().register("Work", stage.naming_instances());
    let runtime = world
        .start(
            work,
            code().register("Work", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_activity("Work", "").await
            }),
        )
        .await;
    for number in 0..5 {
        let instance = format!("old{number}");
        world.client.start_orchestration(&instance, "Waiting", "").await.unwrap();
        world.waits_for(&instance, "go").await;
        world.client.delete_instance(&instance, true).await.unwrap();
    }
    for number in 0..5 {
        world.run(&format!("new{number}"), "Work", "").await;
    }
    runtime.shutdown(None).await;
    assert_eq!(stage.log(), ["new0", "new1", "new2", "new3", "new4"]);
}

// semantics: MGMT-7
#[tokio::test]
async fn a_poisoned_instance_can_be_deleted_like_any_failed_one() {
    let world = World::new();
    let runtime = world.start_with(activities(), code(), few_attempts(1)).await;
    world.client.start_orchestration("i", "Nobody", "").await.unwrap();
    let status = world.end_in_time("i", Duration::from_millis(100)).await;
    let EventKind::OrchestrationFailed { details: recorded } = world.history("i").await.pop().unwrap().kind
    else {
        panic!("the last event is the failure")
    };
    assert_eq!(details(status), recorded, "the status tells what the history tells");
    world.client.delete_instance("i", false).await.unwrap();
    let status = world.client.get_orchestration_status("i").await.unwrap();
    assert_eq!(status, OrchestrationStatus::NotFound);
    runtime.shutdown(None).await;
}
