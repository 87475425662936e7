//! Logs, metrics and gauges, each fact counted once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::metric_recorder;
use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::ProviderError;
use duroxide::runtime::ObservabilityConfig;
use duroxide::{ActivityContext, OrchestrationContext, RuntimeOptions};
use metric_recorder::MetricRecorder;
use runtime_support::faulty::Call;
use runtime_support::logs::Logs;
use runtime_support::{World, activities, echo, faulty_world, few_attempts, orchestrations};
use tracing::Level;

fn code() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations()
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Fails", |_: OrchestrationContext, _: String| async move { Err("oops".to_string()) })
        .register("Waiting", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        })
        .register("One", |ctx: OrchestrationContext, name: String| async move {
            ctx.schedule_activity(name, "in").await
        })
}

fn failing() -> duroxide::runtime::registry::ActivityRegistryBuilder {
    echo().register("Fail", |_: ActivityContext, _: String| async move { Err("no".to_string()) })
}

// semantics: OBS-4
#[tokio::test]
async fn lines_of_an_orchestration_name_it_and_are_written_once_however_often_it_is_replayed() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let traced = orchestrations().register_versioned(
        "Traced",
        "1.4.0",
        |ctx: OrchestrationContext, _: String| async move {
            ctx.trace_info("begun");
            ctx.schedule_activity("Echo", "").await?;
            ctx.trace_warn("careful");
            ctx.schedule_activity("Echo", "").await?;
            ctx.trace_error("wrong");
            ctx.trace_debug("detail");
            Ok(String::new())
        },
    );
    let options = RuntimeOptions { resident_instances: 0, ..Default::default() };
    let runtime = world.start_with(echo(), traced, options).await;
    world.run("i", "Traced", "").await;
    let lines = logs.of_target("duroxide::orchestration");
    let told: Vec<_> = lines.iter().map(|line| (line.level, line.message.as_str())).collect();
    assert_eq!(
        told,
        [(Level::INFO, "begun"), (Level::WARN, "careful"), (Level::ERROR, "wrong"), (Level::DEBUG, "detail")]
    );
    for line in &lines {
        assert_eq!((line.field("instance_id"), line.field("execution_id")), ("i", "1"));
        assert_eq!(line.field("orchestration_name"), "Traced");
        assert_eq!(line.field("orchestration_version"), "1.4.0");
        assert!(!line.fields.contains_key("activity_name"));
    }
    assert_eq!(world.history("i").await.len(), 6, "nothing is recorded of them");
    runtime.shutdown(None).await;
}

// semantics: OBS-4
#[tokio::test]
async fn lines_of_an_activity_name_it_and_where_it_runs() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let traced = activities().register("Traced", |ctx: ActivityContext, _: String| async move {
        ctx.trace_info("i");
        ctx.trace_warn("w");
        ctx.trace_error("e");
        ctx.trace_debug("d");
        Ok(String::new())
    });
    let options = RuntimeOptions { worker_node_id: Some("node".into()), ..Default::default() };
    let runtime = world.start_with(traced, code(), options).await;
    world.run("i", "One", "Traced").await;
    let lines = logs.of_target("duroxide::activity");
    let told: Vec<_> = lines.iter().map(|line| (line.level, line.message.as_str())).collect();
    assert_eq!(told, [(Level::INFO, "i"), (Level::WARN, "w"), (Level::ERROR, "e"), (Level::DEBUG, "d")]);
    for line in lines {
        for (field, value) in [
            ("instance_id", "i"),
            ("execution_id", "1"),
            ("orchestration_name", "One"),
            ("orchestration_version", "1.0.0"),
            ("activity_name", "Traced"),
            ("activity_id", "2"),
        ] {
            assert_eq!(line.field(field), value, "{field}");
        }
        let worker = line.field("worker_id");
        assert!(worker.starts_with("work-") && worker.ends_with("-node"), "{worker}");
    }
    runtime.shutdown(None).await;
}

// semantics: OBS-5
#[tokio::test]
async fn ends_are_logged_at_the_level_of_what_happened_with_fields_and_without_spans() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let runtime = world.start_with(failing(), code(), few_attempts(1)).await;
    world.run("fine", "Echo", "").await;
    world.run("fails", "Fails", "").await;
    world.run("activity", "One", "Fail").await;
    world.client.start_orchestration("poison", "One", "Nobody").await.unwrap();
    world.end_in_time("poison", Duration::from_millis(100)).await;
    let of = |text: &str, instance: &str| {
        let mut lines = logs.with(text);
        lines.retain(|line| line.field("instance_id") == instance && line.message == text);
        assert_eq!(lines.len(), 1, "{text} of {instance}");
        let line = lines.remove(0);
        assert_eq!(line.target, "duroxide::runtime");
        line
    };
    assert_eq!(of("Orchestration completed", "fine").level, Level::DEBUG);
    let failed = of("Orchestration failed (application error)", "fails");
    assert_eq!((failed.level, failed.field("error")), (Level::WARN, "oops"));
    assert_eq!((failed.field("orchestration_name"), failed.field("execution_id")), ("Fails", "1"));
    assert_eq!(failed.field("orchestration_version"), "1.0.0");
    for text in ["Orchestration started", "Orchestration completed"] {
        let worker = of(text, "fine").field("worker_id").to_string();
        assert!(worker.starts_with("orch-0-") || worker.starts_with("orch-1-"), "{text}: {worker}");
    }
    assert!(failed.field("worker_id").starts_with("orch-"));
    let activity = of("Activity failed (application error)", "activity");
    assert_eq!((activity.level, activity.field("error")), (Level::WARN, "no"));
    assert_eq!((activity.field("activity_name"), activity.field("activity_id")), ("Fail", "2"));
    assert!(activity.field("worker_id").starts_with("work-"));
    assert_eq!(of("Orchestration failed (poison)", "poison").level, Level::ERROR);
    assert_eq!(logs.spans(), [""; 0]);
    runtime.shutdown(None).await;
}

// semantics: FAIL-1, OBS-5
#[tokio::test]
async fn failures_by_storage_and_by_changed_code_are_logged_as_errors() {
    let (world, faulty) = faulty_world();
    let (logs, _guard) = Logs::keep();
    let runtime = world.start(echo(), code()).await;
    faulty.fail(Call::AckTurn, [ProviderError::permanent("ack_orchestration_item", "refused")]);
    world.run("storage", "Echo", "").await;
    world.client.start_orchestration("changed", "Waiting", "").await.unwrap();
    world.waits_for("changed", "go").await;
    runtime.shutdown(None).await;
    let changed = orchestrations().register("Waiting", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.schedule_wait("something else").await)
    });
    let runtime = world.start(echo(), changed).await;
    world.client.raise_event("changed", "go", "").await.unwrap();
    assert!(world.failure("changed").await.starts_with("nondeterministic: "));
    let mut lines = logs.with("Orchestration failed");
    lines.retain(|line| line.message == "Orchestration failed");
    let told: Vec<_> =
        lines.iter().map(|line| (line.level, line.field("instance_id"), line.field("error_type"))).collect();
    assert_eq!(
        told,
        [(Level::ERROR, "storage", "infrastructure_error"), (Level::ERROR, "changed", "config_error")]
    );
    runtime.shutdown(None).await;
}

fn of<'a, T>(series: &'a std::collections::BTreeMap<String, T>, name: &str) -> Vec<(&'a str, &'a T)> {
    let prefix = format!("duroxide_{name}{{");
    let found = series.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
    found.map(|(labels, value)| (labels.trim_end_matches('}'), value)).collect()
}

// semantics: OBS-2
#[tokio::test]
async fn each_start_and_each_end_is_in_one_series_once() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let world = World::new();
    let looped = code().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input.is_empty() {
            ctx.schedule_timer(Duration::from_secs(2)).await;
            return ctx.continue_as_new("again").await;
        }
        ctx.schedule_activity("Echo", "").await
    });
    let runtime = world.start(failing(), looped).await;
    world.run("a", "Fails", "").await;
    world.run("b", "One", "Fail").await;
    world.client.start_orchestration("c", "Loop", "").await.unwrap();
    world.pass("c", Duration::from_secs(2)).await;
    world.output("c").await;
    let counters = recorder.counters();
    assert_eq!(
        of(&counters, "orchestration_starts_total"),
        [
            ("initiated_by=client,orchestration_name=Fails,version=1.0.0", &1),
            ("initiated_by=client,orchestration_name=Loop,version=1.0.0", &1),
            ("initiated_by=client,orchestration_name=One,version=1.0.0", &1),
            ("initiated_by=continueAsNew,orchestration_name=Loop,version=1.0.0", &1),
        ]
    );
    assert_eq!(
        of(&counters, "orchestration_completions_total"),
        [
            ("final_turn_count=1-5,orchestration_name=Fails,status=failed,version=1.0.0", &1),
            ("final_turn_count=1-5,orchestration_name=Loop,status=continuedAsNew,version=1.0.0", &1),
            ("final_turn_count=1-5,orchestration_name=Loop,status=success,version=1.0.0", &1),
            ("final_turn_count=1-5,orchestration_name=One,status=failed,version=1.0.0", &1),
        ]
    );
    let failed = "error_category=application,error_type=app_error,orchestration_name";
    assert_eq!(
        of(&counters, "orchestration_failures_total"),
        [
            (format!("{failed}=Fails,version=1.0.0").as_str(), &1),
            (format!("{failed}=One,version=1.0.0").as_str(), &1)
        ]
    );
    assert_eq!(
        of(&counters, "orchestration_continue_as_new_total"),
        [("execution_id=1,orchestration_name=Loop", &1)]
    );
    assert_eq!(
        of(&counters, "activity_executions_total"),
        [
            ("activity_name=Echo,outcome=success,retry_attempt=0,tag=default", &1),
            ("activity_name=Fail,outcome=app_error,retry_attempt=0,tag=default", &1)
        ]
    );
    let histograms = recorder.histograms();
    let durations = of(&histograms, "orchestration_duration_seconds");
    let continued = "orchestration_name=Loop,status=continuedAsNew,version=1.0.0";
    assert!(durations.contains(&(continued, &vec![2.0])), "the whole execution: {durations:?}");
    assert_eq!(of(&histograms, "orchestration_turns").len(), 3);
    assert!(
        of(&histograms, "orchestration_history_size").contains(&("orchestration_name=Fails", &vec![2.0]))
    );
    assert_eq!(of(&histograms, "activity_duration_seconds").len(), 2);
    runtime.shutdown(None).await;
}

// semantics: OBS-2
#[tokio::test]
async fn an_activity_is_counted_with_its_tag_its_attempt_and_its_outcome() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (world, faulty) = faulty_world();
    let tagged = orchestrations().register("Tagged", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Echo", "").with_tag("gpu").await
    });
    let options = RuntimeOptions {
        worker_tag_filter: duroxide::providers::TagFilter::default_and(["gpu"]),
        ..Default::default()
    };
    let runtime = world.start_with(echo(), tagged, options).await;
    // Neither the result of the first run nor a failure instead of it is taken.
    faulty.fail(Call::AckWork, vec![ProviderError::permanent("ack_work_item", "no"); 4]);
    world.client.start_orchestration("i", "Tagged", "").await.unwrap();
    world.end_in_time("i", Duration::from_millis(500)).await;
    let counters = recorder.counters();
    assert_eq!(
        of(&counters, "activity_executions_total"),
        [
            ("activity_name=Echo,outcome=infra_error,retry_attempt=0,tag=gpu", &1),
            ("activity_name=Echo,outcome=success,retry_attempt=1,tag=gpu", &1)
        ]
    );
    assert_eq!(of(&counters, "activity_infrastructure_errors_total"), [("activity_name=Echo", &1)]);
    let errors = of(&counters, "provider_errors_total");
    assert_eq!(errors, [("error_type=other,operation=ack_work_item", &4)]);
    runtime.shutdown(None).await;
}

// semantics: OBS-2
#[tokio::test]
async fn poison_and_errors_of_the_machinery_have_their_counters() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), code(), few_attempts(1)).await;
    world.client.start_orchestration("poison", "One", "Nobody").await.unwrap();
    world.end_in_time("poison", Duration::from_millis(100)).await;
    faulty.fail(Call::AckTurn, [ProviderError::permanent("ack_orchestration_item", "refused")]);
    world.run("refused", "Echo", "").await;
    let counters = recorder.counters();
    assert_eq!(of(&counters, "activity_poison_total"), [("", &1)]);
    assert_eq!(of(&counters, "orchestration_poison_total"), [("", &1)]);
    assert_eq!(of(&counters, "orchestration_infrastructure_errors_total").len(), 1);
    let failures = of(&counters, "orchestration_failures_total");
    assert_eq!(
        failures,
        [
            (
                "error_category=infrastructure,error_type=infrastructure_error,orchestration_name=Echo,version=1.0.0",
                &1
            ),
            ("error_category=poison,error_type=unknown,orchestration_name=One,version=1.0.0", &1),
        ]
    );
    let snapshot = runtime.metrics_snapshot().unwrap();
    assert_eq!((snapshot.activity_poison, snapshot.orch_poison), (1, 1));
    assert_eq!(snapshot.orch_infrastructure_errors, 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn postponed_turns_and_blocked_instances_are_counted() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), code(), few_attempts(1)).await;
    faulty.fail(Call::AckTurn, vec![ProviderError::retryable("ack_orchestration_item", "disk full"); 12]);
    world.client.start_orchestration("postponed", "Echo", "").await.unwrap();
    world.end_in_time("postponed", Duration::from_millis(100)).await;
    faulty.fail(Call::AckTurn, vec![ProviderError::permanent("ack_orchestration_item", "refused"); 100]);
    world.client.start_orchestration("blocked", "Echo", "").await.unwrap();
    while world.client.list_blocked_instances(1).await.unwrap().is_empty() {
        world.clock.advance(Duration::from_millis(100));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    let counters = recorder.counters();
    assert_eq!(of(&counters, "orchestration_turns_postponed_total"), [("orchestration_name=Echo", &2)]);
    assert_eq!(of(&counters, "orchestration_instances_blocked_total"), [("orchestration_name=Echo", &1)]);
    runtime.shutdown(None).await;
}

// semantics: OBS-2
#[tokio::test]
async fn children_and_fetches_are_counted_too() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let world = World::new();
    let family = code().register("Parent", |ctx: OrchestrationContext, child: String| async move {
        ctx.schedule_sub_orchestration(child, "").await
    });
    let runtime = world.start(echo(), family).await;
    world.run("a", "Parent", "Echo").await;
    world.run("b", "Parent", "Fails").await;
    world.run("c", "One", "Echo").await;
    let counters = recorder.counters();
    assert_eq!(
        of(&counters, "suborchestration_calls_total"),
        [
            ("child_orchestration=Echo,outcome=success,parent_orchestration=Parent", &1),
            ("child_orchestration=Fails,outcome=failed,parent_orchestration=Parent", &1)
        ]
    );
    assert_eq!(of(&recorder.histograms(), "suborchestration_duration_seconds").len(), 2);
    assert_eq!(of(&counters, "worker_dispatcher_items_fetched"), [("", &1)]);
    let histograms = recorder.histograms();
    let ran = of(&histograms, "worker_dispatcher_execution_duration_ms");
    assert_eq!(ran, [("", &vec![0.0])], "one activity ran, and the clock stood still");
    assert_eq!(of(&counters, "orchestration_dispatcher_items_fetched"), [("", &8)]);
    runtime.shutdown(None).await;
}

// semantics: OBS-3
#[tokio::test]
async fn gauges_follow_the_store() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    let gauge = |name: &str| recorder.gauges().get(&format!("duroxide_{name}{{}}")).copied();
    assert_eq!(gauge("orchestrator_queue_depth"), Some(0.0));
    assert_eq!(gauge("worker_queue_depth"), Some(0.0));
    for instance in ["a", "b", "c"] {
        world.client.start_orchestration(instance, "Waiting", "").await.unwrap();
        world.waits_for(instance, "go").await;
    }
    runtime.shutdown(None).await;
    // Another runtime learns of them at its start, and of changes by others with time.
    let observability =
        ObservabilityConfig { gauge_poll_interval: Duration::from_millis(100), ..Default::default() };
    let options = RuntimeOptions {
        observability,
        orchestration_concurrency: 0,
        worker_concurrency: 0,
        ..Default::default()
    };
    let watcher = world.start_with(activities(), orchestrations(), options).await;
    let metrics = watcher.observability_handle().unwrap().metrics_provider().clone();
    assert_eq!(metrics.get_active_orchestrations(), 3);
    let runtime = world.start(activities(), code()).await;
    for instance in ["a", "b", "c"] {
        world.client.raise_event(instance, "go", "").await.unwrap();
        world.end(instance).await;
    }
    world.clock.advance(Duration::from_millis(100));
    while metrics.get_active_orchestrations() != 0 {
        tokio::task::yield_now().await;
    }
    let own = runtime.observability_handle().unwrap().metrics_provider();
    assert_eq!(own.get_active_orchestrations(), 0, "its own ends are known at once");
    assert_eq!(gauge("active_orchestrations"), Some(0.0));
    runtime.shutdown(None).await;
    watcher.shutdown(None).await;
}

// semantics: OBS-1
#[tokio::test]
async fn starting_a_runtime_installs_no_subscriber() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.run("i", "Echo", "").await;
    let nobody =
        tracing::dispatcher::get_default(|current| current.is::<tracing::subscriber::NoSubscriber>());
    assert!(nobody);
    runtime.shutdown(None).await;
}

// semantics: OBS-6
#[tokio::test]
async fn a_runtime_measures_what_it_asks_of_its_store() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let world = World::new();
    let runtime = world.start(echo(), code()).await;
    world.run("i", "One", "Echo").await;
    runtime.shutdown(None).await;
    let histograms = recorder.histograms();
    let measured = of(&histograms, "provider_operation_duration_seconds");
    // The result is stored together with the second turn.
    let labels = "operation=ack_orchestration_item,status=success";
    let times = measured.iter().find(|(found, _)| *found == labels).map(|(_, times)| times.len());
    assert_eq!(times, Some(2));
}

// semantics: OBS-3
#[tokio::test]
async fn a_store_in_which_nothing_happens_is_not_asked_for_its_gauges() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.waits_for("i", "go").await;
    let minutes = async |minutes: usize| {
        for _ in 0..minutes {
            world.clock.advance(Duration::from_secs(60));
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        logs.with("gauges set").len()
    };
    let settled = minutes(5).await;
    assert_eq!(minutes(60).await, settled, "an hour without a change");
    world.client.raise_event("i", "go", "").await.unwrap();
    world.output("i").await;
    assert!(minutes(5).await > settled);
    let metrics = runtime.observability_handle().unwrap().metrics_provider();
    assert_eq!(metrics.get_active_orchestrations(), 0);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn the_count_of_dropped_messages_is_a_metric() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let world = World::new();
    let interval = Duration::from_millis(100);
    let observability = ObservabilityConfig { gauge_poll_interval: interval, ..Default::default() };
    let options = RuntimeOptions { observability, ..Default::default() };
    let runtime = world.start_with(activities(), orchestrations(), options).await;
    world.client.enqueue_event("i", "inbox", "1").await.unwrap();
    world.client.enqueue_event("i", "inbox", "2").await.unwrap();
    world.drained().await;
    while recorder.counters().get("duroxide_messages_dropped_total{}") != Some(&2) {
        world.clock.advance(interval);
        tokio::task::yield_now().await;
    }
    runtime.shutdown(None).await;
}
