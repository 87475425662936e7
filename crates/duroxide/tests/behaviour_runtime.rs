//! The runtime itself: options, several runtimes, shutdown, stores that block.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::*;
use duroxide::runtime::{Runtime, UnregisteredBackoffConfig};
use duroxide::{
    ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::forwarding::forwarding_provider;
use runtime_support::{Stage, World, activities, echo, faulty_world, kinds, orchestrations, output};

fn one() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("One", |ctx: OrchestrationContext, name: String| async move {
        ctx.schedule_activity(name, "in").await
    })
}

// semantics: RUN-7
#[test]
fn the_defaults_are_the_documented_ones() {
    let options = RuntimeOptions::default();
    let secs = Duration::from_secs;
    assert_eq!(options.dispatcher_min_poll_interval, Duration::from_millis(100));
    assert_eq!(options.dispatcher_long_poll_timeout, secs(30));
    assert_eq!((options.orchestration_concurrency, options.worker_concurrency), (2, 2));
    assert_eq!(
        (options.orchestrator_lock_timeout, options.orchestrator_lock_renewal_buffer),
        (secs(5), secs(2))
    );
    assert_eq!((options.worker_lock_timeout, options.worker_lock_renewal_buffer), (secs(30), secs(5)));
    assert_eq!((options.max_attempts, options.activity_cancellation_grace_period), (10, secs(10)));
    assert!(options.supported_replay_versions.is_none() && options.worker_node_id.is_none());
    assert_eq!((options.session_lock_timeout, options.session_lock_renewal_buffer), (secs(30), secs(5)));
    assert_eq!((options.session_idle_timeout, options.session_cleanup_interval), (secs(300), secs(300)));
    assert_eq!(options.max_sessions_per_runtime, 10);
    assert_eq!(options.worker_tag_filter, TagFilter::DefaultOnly);
    let observability = options.observability;
    assert_eq!((observability.log_level.as_str(), observability.service_name.as_str()), ("info", "duroxide"));
    assert_eq!((observability.service_version, observability.gauge_poll_interval), (None, secs(60)));
}

// semantics: FAIL-6
#[test]
fn the_backoff_of_unregistered_handlers_doubles_up_to_its_maximum() {
    let seconds: Vec<u64> =
        (1..=9).map(|attempt| UnregisteredBackoffConfig::default().delay(attempt).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    let quick = UnregisteredBackoffConfig {
        base_delay: Duration::from_millis(100),
        max_delay: Duration::from_millis(500),
    };
    let ms: Vec<u128> = (1..=5).map(|attempt| quick.delay(attempt).as_millis()).collect();
    assert_eq!(ms, [100, 200, 400, 500, 500]);
    assert_eq!(quick.delay(u32::MAX).as_millis(), 500);
}

// semantics: ACT-3
#[tokio::test]
async fn a_worker_without_a_node_id_is_named_for_its_slot_and_its_runtime() {
    let world = World::new();
    let who = activities()
        .register("Who", |ctx: ActivityContext, _: String| async move { Ok(ctx.worker_id().to_string()) });
    let options = RuntimeOptions { worker_concurrency: 1, ..Default::default() };
    let runtime = world.start_with(who, one(), options).await;
    let name = output(world.run("i", "One", "Who").await);
    let id = name.strip_prefix("work-0-").unwrap();
    assert!(id.len() == 4 && id.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
    runtime.shutdown(None).await;
}

// semantics: LEASE-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_are_spread_over_runtimes_on_one_store_and_all_complete() {
    let world = World::new();
    let runtimes = [
        world.start(echo(), one()).await,
        world.start(echo(), one()).await,
        world.start(echo(), one()).await,
    ];
    for number in 0..50 {
        world.client.start_orchestration(format!("i{number}"), "One", "Echo").await.unwrap();
    }
    for number in 0..50 {
        assert_eq!(world.output(&format!("i{number}")).await, "in");
    }
    for number in 0..50 {
        assert_eq!(world.history(&format!("i{number}")).await.len(), 4);
    }
    for runtime in runtimes {
        runtime.shutdown(None).await;
    }
}

// semantics: RUN-1
#[test]
fn the_future_of_a_shutdown_can_be_sent() {
    fn send<T: Send>(_: &T) {}
    let _ = |runtime: Arc<Runtime>| send(&runtime.shutdown(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_activity_that_does_not_yield_delays_the_shutdown_until_it_ends() {
    let world = World::new();
    let stage = Stage::default();
    let released = Arc::new(AtomicBool::new(false));
    let (reporter, free) = (stage.clone(), released.clone());
    let busy = activities().register("Busy", move |_: ActivityContext, _: String| {
        let (stage, free) = (reporter.clone(), free.clone());
        async move {
            stage.report("running");
            while !free.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(String::new())
        }
    });
    let runtime = world.start(busy, one()).await;
    world.client.start_orchestration("i", "One", "Busy").await.unwrap();
    stage.seen("running", 1).await;
    let shutdown = tokio::spawn(runtime.shutdown(Some(0)));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!shutdown.is_finished());
    released.store(true, Ordering::SeqCst);
    shutdown.await.unwrap();
    assert_eq!(Arc::strong_count(&world.store), 2, "the world's own and its client's");
}

// semantics: RUN-4
#[tokio::test]
async fn dropping_the_pointer_does_not_stop_the_runtime() {
    let world = World::new();
    drop(world.start(echo(), one()).await);
    assert_eq!(output(world.run("i", "One", "Echo").await), "in");
}

// semantics: ACT-1, ACT-2, LEASE-3
#[tokio::test]
async fn the_work_of_a_runtime_that_died_is_done_by_another_when_its_leases_end() {
    let world = World::new();
    let stage = Stage::default();
    let hangs = activities().register(
        "Work",
        stage.activity(|stage, _, _| async move {
            stage.report("hangs");
            std::future::pending::<()>().await;
            Ok(String::new())
        }),
    );
    let dies = world.start(hangs, one()).await;
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("hangs", 1).await;
    dies.shutdown(Some(0)).await;
    let works = activities().register("Work", |ctx: ActivityContext, _: String| async move {
        Ok(format!("attempt {}", ctx.attempt()))
    });
    let takes_over = world.start(works, one()).await;
    assert_eq!(world.history("i").await.len(), 2, "the lease of the dead still runs");
    let status = world.end_in_time("i", Duration::from_secs(5)).await;
    assert_eq!(output(status), "attempt 2");
    let completed = world.history("i").await;
    let completed =
        completed.iter().filter(|e| matches!(e.kind, EventKind::ActivityCompleted { .. })).count();
    assert_eq!(completed, 1);
    takes_over.shutdown(None).await;
}

// semantics: CLIENT-4
#[tokio::test]
async fn an_instance_that_waits_is_running() {
    let world = World::new();
    let code = orchestrations().register("Sleeps", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_timer(Duration::from_secs(60)).await;
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Sleeps", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
    let status = world.client.get_orchestration_status("i").await.unwrap();
    assert_eq!(status, OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 });
    runtime.shutdown(None).await;
}

// semantics: TURN-6, TURN-12
#[tokio::test]
async fn odd_names_and_inputs_run_and_their_histories_are_in_order() {
    let world = World::new();
    let mut code = orchestrations();
    let names = ["A", "a9", "Zz00000000000000000", "x::y", "namé", ""];
    for name in names {
        code = code.register(name, |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity("Echo", input).await
        });
    }
    let runtime = world.start(echo(), code).await;
    for (number, name) in names.into_iter().enumerate() {
        for input in ["", "0", "a9z", "\0\u{1F600}"] {
            let instance = format!("{number}-{input}");
            assert_eq!(output(world.run(&instance, name, input).await), input);
            let history = world.history(&instance).await;
            let ids: Vec<u64> = history.iter().map(|event| event.event_id).collect();
            assert_eq!(ids, [1, 2, 3, 4]);
            assert_eq!(history.iter().filter(|event| event.is_terminal()).count(), 1);
            assert!(history[3].is_terminal());
        }
    }
    runtime.shutdown(None).await;
}

// semantics: TURN-1
#[tokio::test]
async fn a_runtime_that_is_aborted_at_any_call_of_its_store_leaves_work_that_completes_once() {
    for call in [
        Call::FetchTurn,
        Call::FetchTurnDone,
        Call::AckTurn,
        Call::AckTurnDone,
        Call::FetchWork,
        Call::FetchWorkDone,
        Call::AckWork,
        Call::AckWorkDone,
    ] {
        let (world, faulty) = faulty_world();
        let _gate = faulty.hold(call);
        let aborted = world.start(echo(), one()).await;
        world.client.start_orchestration("i", "One", "Echo").await.unwrap();
        while faulty.count(call) == 0 {
            tokio::task::yield_now().await;
        }
        aborted.shutdown(Some(0)).await;
        faulty.release(call);
        let runtime = world.start(echo(), one()).await;
        assert_eq!(output(world.end_in_time("i", Duration::from_secs(1)).await), "in", "{call:?}");
        runtime.shutdown(None).await;
        let kinds = kinds(&world.history("i").await);
        let expected =
            ["OrchestrationStarted", "ActivityScheduled", "ActivityCompleted", "OrchestrationCompleted"];
        assert_eq!(kinds, expected, "{call:?}");
    }
}

// semantics: DUR-8
#[tokio::test]
async fn an_error_that_hides_a_success_of_the_store_repeats_nothing_that_was_recorded() {
    for call in [Call::AckTurnDone, Call::AckWorkDone] {
        let (world, faulty) = faulty_world();
        let runtime = world.start(echo(), one()).await;
        faulty.fail(call, [ProviderError::retryable("ack", "the answer was lost")]);
        world.client.start_orchestration("i", "One", "Echo").await.unwrap();
        assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "in", "{call:?}");
        // A call that was tried again in vain ends too.
        let shutdown = tokio::spawn(runtime.shutdown(Some(60_000)));
        while !shutdown.is_finished() {
            world.clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
        assert_eq!(world.history("i").await.len(), 4, "{call:?}");
        assert!(matches!(world.end("i").await, OrchestrationStatus::Completed { .. }), "{call:?}");
    }
}

/// A store that knows only the documented contract, and whose fetches block until there is work or time is up.
struct LongPolling {
    inner: MemoryProvider,
    polls: Mutex<Vec<Duration>>,
}

impl LongPolling {
    /// A signal that fires for whatever comes from now on.
    fn signal(&self, queue: WorkQueue) -> WorkSignal {
        let mut signal = self.inner.as_extended().unwrap().work_signal(queue);
        signal.mark_seen();
        signal
    }

    /// Waits for the signal, as long as the caller allows.
    async fn wait(&self, mut signal: WorkSignal, poll_timeout: Duration) {
        self.polls.lock().unwrap().push(poll_timeout);
        let _ = tokio::time::timeout(poll_timeout, signal.wait()).await;
    }
}

forwarding_provider! {
    LongPolling => inner;
    forwards: [
        ack_orchestration_item, abandon_orchestration_item, renew_orchestration_item_lock, read, read_with_execution, append_with_execution, enqueue_for_worker, ack_work_item, renew_work_item_lock, abandon_work_item, renew_session_lock, cleanup_orphaned_sessions, enqueue_for_orchestrator, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let signal = self.signal(WorkQueue::Orchestrator);
        let found = self.inner.fetch_orchestration_item(lock_timeout, Duration::ZERO, filter).await?;
        if found.is_some() {
            return Ok(found);
        }
        self.wait(signal, poll_timeout).await;
        self.inner.fetch_orchestration_item(lock_timeout, Duration::ZERO, filter).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tags: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let signal = self.signal(WorkQueue::Worker);
        let found = self.inner.fetch_work_item(lock_timeout, Duration::ZERO, session, tags).await?;
        if found.is_some() {
            return Ok(found);
        }
        self.wait(signal, poll_timeout).await;
        self.inner.fetch_work_item(lock_timeout, Duration::ZERO, session, tags).await
    }
}

// semantics: STORE-2
#[tokio::test]
async fn a_store_that_blocks_until_there_is_work_is_given_the_time_of_the_options() {
    let store = Arc::new(LongPolling { inner: MemoryProvider::new(), polls: Mutex::default() });
    let options =
        RuntimeOptions { dispatcher_long_poll_timeout: Duration::from_secs(1), ..Default::default() };
    let runtime = Runtime::start_with_options(store.clone(), echo().build(), one().build(), options).await;
    let client = Client::new(store.clone());
    for number in 0..3 {
        let instance = format!("i{number}");
        client.start_orchestration(&instance, "One", "Echo").await.unwrap();
        let status = client.wait_for_orchestration(&instance, Duration::from_secs(5)).await.unwrap();
        assert_eq!(output(status), "in");
    }
    runtime.shutdown(None).await;
    let polls = store.polls.lock().unwrap().clone();
    assert!(!polls.is_empty() && polls.iter().all(|poll| *poll == Duration::from_secs(1)), "{polls:?}");
}
