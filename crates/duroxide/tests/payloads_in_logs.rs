//! Payloads stay out of the logs. Whatever happens to an instance, no line above the level `trace` shows an input, an
//! output, a message, a status or a value; the lines promised at `trace` do.
//!
//! The whole process logs to one place, because the SQLite store also works on a thread of its own. Each test has a
//! secret of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod runtime_support;

use std::sync::{Arc, OnceLock};

use duroxide::providers::{ManualClock, Provider, ProviderError, WorkItem};
use duroxide::runtime::replay_engine::ReplayEngine;
use duroxide::{ActivityContext, Event, EventKind, OrchestrationContext, RuntimeOptions};
use runtime_support::faulty::Call;
use runtime_support::logs::{Line, Logs};
use runtime_support::*;
use tracing::Level;

fn logs() -> &'static Logs {
    static LOGS: OnceLock<Logs> = OnceLock::new();
    LOGS.get_or_init(|| {
        let logs = Logs::default();
        tracing::subscriber::set_global_default(logs.clone()).unwrap();
        logs
    })
}

fn showing(secret: &str) -> Vec<Line> {
    let mut lines = logs().all();
    lines.retain(|line| format!("{line:?}").contains(secret));
    lines
}

/// No line shows the secret, except at `trace` under the target that is meant for it.
fn assert_kept(secret: &str) {
    for line in showing(secret) {
        assert_eq!((line.level, line.target.as_str()), (Level::TRACE, "duroxide::payload"), "{line:?}");
    }
}

/// A line of the level `trace` with this message shows the secret.
fn assert_shown_at_trace(secret: &str, message: &str) {
    let shown = showing(secret).iter().any(|line| line.message.contains(message));
    assert!(shown, "{message}");
}

/// Stores on which the same happens.
async fn worlds() -> Vec<World> {
    logs();
    let mut worlds = vec![World::new()];
    #[cfg(feature = "sqlite")]
    {
        let clock = Arc::new(ManualClock::default());
        let store = duroxide::providers::sqlite::SqliteProvider::new_in_memory().await.unwrap();
        let store: Arc<dyn Provider> = Arc::new(store);
        worlds.push(World::on(store, clock));
    }
    worlds
}

/// Uses every kind of payload.
async fn everything(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    if let Some(last) = input.strip_prefix("again:") {
        ctx.dequeue_event("inbox").await;
        return Ok(last.to_string());
    }
    ctx.set_custom_status(&input);
    ctx.set_kv_value("key", &input);
    ctx.get_kv_value_typed::<u8>("key").unwrap_err();
    let echoed = ctx.schedule_activity("Echo", &input).await?;
    ctx.schedule_activity("Fails", &echoed).await.unwrap_err();
    ctx.schedule_activity("Typed", &echoed).await.unwrap_err();
    ctx.schedule_activity_typed::<_, u8>("Echo", &echoed).await.unwrap_err();
    let policy = duroxide::RetryPolicy::new(2).with_backoff(duroxide::BackoffStrategy::None);
    ctx.schedule_activity_with_retry("Fails", &echoed, policy).await.unwrap_err();
    let remote = ctx.get_kv_value_from_instance_typed::<u8>(ctx.instance_id(), "key").await;
    assert!(!matches!(remote, Ok(Some(_))));
    ctx.schedule_sub_orchestration("Child", &echoed).await?;
    ctx.schedule_sub_orchestration("FailingChild", &echoed).await.unwrap_err();
    ctx.schedule_orchestration("Child", format!("{}-detached", ctx.instance_id()), &echoed);
    let lost = ctx.schedule_activity("Forever", &echoed);
    ctx.select2(lost, ctx.schedule_wait("approve")).await;
    ctx.try_dequeue_event_typed::<u8>("inbox").await.unwrap_err();
    ctx.continue_as_new(format!("again:{echoed}")).await
}

fn activities_of_everything() -> duroxide::runtime::registry::ActivityRegistryBuilder {
    echo()
        .register("Fails", |_: ActivityContext, _: String| async move { Err("declined".to_string()) })
        .register_typed("Typed", |_: ActivityContext, _: Vec<u8>| async move { Ok(0) })
        .register("Forever", |ctx: ActivityContext, _: String| async move {
            ctx.cancelled().await;
            Ok(String::new())
        })
}

#[tokio::test]
async fn nothing_that_happens_to_an_instance_shows_its_payloads() {
    const SECRET: &str = "secret-of-everything";
    for world in worlds().await {
        let code = orchestrations()
            .register("Everything", everything)
            .register("Child", |_: OrchestrationContext, input: String| async move { Ok(input) })
            .register_typed("FailingChild", |_: OrchestrationContext, input: u8| async move { Ok(input) });
        let options = RuntimeOptions { check_residents: true, ..Default::default() };
        let runtime = world.start_with(activities_of_everything(), code, options).await;
        world.client.start_orchestration("i", "Everything", SECRET).await.unwrap();
        world.client.start_orchestration("i", "Everything", SECRET).await.ok();
        let waits = |event: &Event| matches!(event.kind, EventKind::ExternalSubscribed { .. });
        while !world.history("i").await.iter().any(waits) {
            tokio::task::yield_now().await;
        }
        world.client.raise_event("i", "approve", SECRET).await.unwrap();
        world.client.raise_event("i", "nobody waits", SECRET).await.unwrap();
        for _ in 0..105 {
            world.client.enqueue_event("i", "inbox", SECRET).await.unwrap();
        }
        world.client.enqueue_event("never started", "inbox", SECRET).await.unwrap();
        assert_eq!(world.output("i").await, SECRET);
        world.client.delete_instance("i", true).await.unwrap();
        runtime.shutdown(None).await;
        assert_kept(SECRET);
    }
    assert_shown_at_trace(SECRET, "a payload does not decode");
}

#[tokio::test]
async fn messages_that_are_not_carried_over_are_told_by_length_and_hash() {
    const SECRET: &str = "secret-left-behind";
    logs();
    let world = World::new();
    world.client.start_orchestration("i", "Loop", "").await.unwrap();
    for _ in 0..101 {
        world.client.enqueue_event("i", "inbox", SECRET).await.unwrap();
    }
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input.is_empty() { ctx.continue_as_new("again").await } else { Ok(input) }
    });
    let runtime = world.start(activities(), code).await;
    assert_eq!(world.output("i").await, "again");
    runtime.shutdown(None).await;
    assert_kept(SECRET);
    assert_shown_at_trace(SECRET, "a message is not carried over");
    let told = logs().with("Dropping carry-forward event beyond limit");
    assert!(told.iter().any(|line| line.field("data").starts_with("18 bytes, hash ")), "{told:?}");
}

#[tokio::test]
async fn code_that_was_changed_under_an_instance_does_not_show_its_payloads() {
    const SECRET: &str = "secret-under-changed-code";
    for stamp in [None, Some("0.1.30")] {
        for world in worlds().await {
            let mut events = vec![
                start_of("i", 1, "Changed", SECRET),
                Event::with_event_id(
                    2,
                    "i",
                    1,
                    None,
                    EventKind::ActivityScheduled {
                        name: "Echo".into(),
                        input: SECRET.into(),
                        session_id: None,
                        tag: None,
                    },
                ),
            ];
            for event in &mut events {
                event.duroxide_version = stamp.map_or(event.duroxide_version.clone(), str::to_string);
            }
            world.seed("i", 1, events).await;
            let code =
                orchestrations().register("Changed", |ctx: OrchestrationContext, input: String| async move {
                    ctx.schedule_activity("Echo", format!("{input}!")).await
                });
            let runtime = world.start(echo(), code).await;
            world.client.raise_event("i", "wake", SECRET).await.unwrap();
            let text = world.failure("i").await;
            assert_eq!(text.contains(SECRET), stamp.is_some(), "{text}");
            runtime.shutdown(None).await;
            assert_kept(SECRET);
        }
    }
    assert_shown_at_trace(SECRET, "the code does not ask for what was recorded");
}

#[tokio::test]
async fn a_resident_that_disagrees_with_its_history_does_not_show_payloads() {
    const SECRET: &str = "secret-of-a-resident";
    logs();
    let world = World::new();
    let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let code = orchestrations().register("Odd", move |ctx: OrchestrationContext, input: String| {
        let calls = calls.clone();
        async move {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            ctx.schedule_activity("Echo", "").await?;
            ctx.schedule_activity("Echo", format!("{input}{call}")).await
        }
    });
    let options = RuntimeOptions { check_residents: true, ..Default::default() };
    let runtime = world.start_with(echo(), code, options).await;
    world.run("i", "Odd", SECRET).await;
    runtime.shutdown(None).await;
    assert_kept(SECRET);
    assert_shown_at_trace(SECRET, "a turn was taken twice and does not decide alike");
}

#[tokio::test]
async fn work_that_is_failed_as_poison_does_not_show_its_payloads() {
    const SECRET: &str = "secret-of-poison";
    for world in worlds().await {
        let code =
            orchestrations().register("Calls", |ctx: OrchestrationContext, input: String| async move {
                ctx.schedule_activity("Nobody registered this", input).await
            });
        let options = RuntimeOptions {
            unregistered_backoff: duroxide::runtime::UnregisteredBackoffConfig {
                base_delay: std::time::Duration::ZERO,
                max_delay: std::time::Duration::ZERO,
            },
            ..few_attempts(2)
        };
        let runtime = world.start_with(echo(), code, options).await;
        world.client.start_orchestration("i", "Calls", SECRET).await.unwrap();
        world.client.start_orchestration("j", "Nobody registered this either", SECRET).await.unwrap();
        world.failure("i").await;
        world.failure("j").await;
        runtime.shutdown(None).await;
        assert_kept(SECRET);
    }
}

#[tokio::test]
async fn a_store_that_fails_does_not_make_the_runtime_show_payloads() {
    const SECRET: &str = "secret-of-a-failing-store";
    logs();
    let (world, store) = faulty_world();
    store.fail(
        Call::AckTurn,
        [ProviderError::retryable("ack", "busy"), ProviderError::permanent("ack", "no")],
    );
    store.fail(Call::AckWork, [ProviderError::retryable("ack", "busy")]);
    let code = orchestrations().register("Calls", |ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_activity("Echo", input).await
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("i", "Calls", SECRET).await.unwrap();
    world.end_in_time("i", std::time::Duration::from_secs(1)).await;
    runtime.shutdown(None).await;
    assert_kept(SECRET);
}

#[cfg(all(feature = "sqlite", feature = "test-hooks"))]
#[tokio::test]
async fn stored_rows_that_do_not_decode_are_told_without_their_values() {
    const SECRET: &str = "secret-in-a-damaged-row";
    logs();
    let store = Arc::new(duroxide::providers::sqlite::SqliteProvider::new_in_memory().await.unwrap());
    let world = World::on(store.clone(), Arc::new(ManualClock::default()));
    let start = |instance: &str| WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Echo".into(),
        input: SECRET.into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    for instance in ["i", "j"] {
        store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    }
    let damage = format!(
        "UPDATE orchestrator_queue SET work_item = replace(work_item, '\"execution_id\":1', '\"execution_id\":\"{SECRET}\"') \
         WHERE instance_id = 'i'"
    );
    store.execute_sql(&damage).await.unwrap();
    world.seed("k", 1, vec![start_of("k", 1, "Echo", SECRET)]).await;
    let damage = format!(
        "UPDATE history SET event_data = replace(event_data, '\"event_id\":1', '\"event_id\":\"{SECRET}\"') \
         WHERE instance_id = 'k'"
    );
    store.execute_sql(&damage).await.unwrap();
    let code =
        orchestrations().register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) });
    let runtime = world.start_with(activities(), code, few_attempts(1)).await;
    world.client.raise_event("k", "wake", SECRET).await.unwrap();
    assert_eq!(world.output("j").await, SECRET);
    let error = store.read("k").await.unwrap_err().to_string();
    assert!(error.contains("invalid type: string, expected u64") && !error.contains(SECRET), "{error}");
    while store.as_extended().unwrap().list_quarantined(10).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    runtime.shutdown(None).await;
    assert!(!logs().with("does not decode and was set aside").is_empty());
    assert_kept(SECRET);
}

/// Turns that are taken by hand log by the same rule.
#[test]
fn a_turn_taken_by_hand_does_not_show_payloads() {
    const SECRET: &str = "secret-of-a-turn-by-hand";
    logs();
    let history = vec![start_of("i", 1, "Any", SECRET)];
    let mut engine = ReplayEngine::new("i".to_string(), 1, history);
    engine.prep_completions(vec![WorkItem::ExternalRaised {
        instance: "i".into(),
        name: "early".into(),
        data: SECRET.into(),
    }]);
    let code = duroxide::runtime::FnOrchestration(|ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_activity("Echo", input).await
    });
    engine.execute_orchestration(Arc::new(code), SECRET.into(), "Any".into(), "1.0.0".into(), "");
    assert!(engine.made_progress());
    assert_kept(SECRET);
}
