//! Attempts at activities: retries that the store keeps, timeouts, heartbeats, keys, and results that come from elsewhere.
//!
//! Each test runs on the store in memory and on a file, and moves the time by hand.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

use crate::runtime_support;
use crate::sqlite_store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::model::{ActivityStage, ActivityWait, WaitFor};
use duroxide::providers::{Provider, ProviderError};
use duroxide::{
    ActivityContext, ActivityOptions, ActivityRegistryBuilder, AttemptError, CompleteError, CompletionToken,
    EventKind, OrchestrationContext, OrchestrationRegistryBuilder, RuntimeOptions, StoredRetry,
};
use runtime_support::faulty::Call;
use runtime_support::{World, activities, faulty_world, orchestrations, plain_world};
use sqlite_store::{StoreFile, soon};
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs a test on the store in memory and on a file.
pub async fn on_both<Fut: Future<Output = ()>>(test: impl Fn(World) -> Fut) {
    test(World::new()).await;
    let file = StoreFile::new();
    let store = file.open().await;
    test(World::on(store, file.clock.clone())).await;
    file.assert_sound();
}

/// An orchestration that runs the activity `Work` with these options.
fn job(options: ActivityOptions) -> OrchestrationRegistryBuilder {
    orchestrations().register("Job", move |ctx: OrchestrationContext, input: String| {
        let options = options.clone();
        async move { ctx.schedule_activity("Work", input).with_options(options).await }
    })
}

fn work<F, Fut>(run: F) -> ActivityRegistryBuilder
where
    F: Fn(ActivityContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    activities().register("Work", move |ctx: ActivityContext, _: String| run(ctx))
}

fn retry(retry: StoredRetry) -> ActivityOptions {
    ActivityOptions::new().retry(retry)
}

/// Waits until the activity of an instance is in this stage.
async fn stage(world: &World, instance: &str, stage: ActivityStage) -> ActivityWait {
    soon(async {
        loop {
            let description = world.client.describe(instance, 1000).await;
            let waits = description.map(|description| description.waits).unwrap_or_default();
            if let Some(WaitFor::Activity(wait)) = waits.into_iter().next().map(|wait| wait.what)
                && wait.stage == stage
            {
                return wait;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

// semantics: ACT-20, RETRY-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_attempts_leave_one_schedule_and_one_outcome() {
    on_both(|world| async move {
        let (sender, mut keys) = mpsc::unbounded_channel();
        let flaky = work(move |ctx| {
            sender.send((ctx.attempt(), ctx.idempotency_key())).unwrap();
            async move {
                match ctx.attempt() {
                    1000 => Ok("at last".to_string()),
                    attempt => Err(format!("not yet: {attempt}")),
                }
            }
        });
        let options = retry(StoredRetry::attempts(1000).first_pause(Duration::ZERO));
        let runtime = world.start(flaky, job(options)).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        assert_eq!(soon(world.output("i")).await, "at last");
        let kinds: Vec<EventKind> = world.history("i").await.into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds.len(), 4, "{kinds:?}");
        let (first, key) = keys.recv().await.unwrap();
        assert_eq!(first, 1);
        for attempt in 2..=1000 {
            assert_eq!(keys.recv().await.unwrap(), (attempt, key.clone()));
        }
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: RETRY-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pause_occupies_no_slot_is_shown_and_survives_a_restart() {
    on_both(|world| async move {
        let flaky = || {
            work(|ctx| async move {
                match ctx.attempt() {
                    1 => Err("bank is down".to_string()),
                    attempt => Ok(format!("attempt {attempt}")),
                }
            })
            .register("Other", |_: ActivityContext, _: String| async { Ok("other".to_string()) })
        };
        let both = || {
            let options = retry(StoredRetry::attempts(5).first_pause(HOUR).longest_pause(HOUR));
            job(options).register("Other", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_activity("Other", "").await
            })
        };
        let one_slot = || RuntimeOptions { worker_concurrency: 1, ..Default::default() };
        let runtime = world.start_with(flaky(), both(), one_slot()).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let wait = stage(&world, "i", ActivityStage::Delayed).await;
        assert_eq!(wait.last_error.as_deref(), Some("bank is down"));
        assert_eq!(wait.attempt, 1);
        assert_eq!(wait.delayed_until_ms, Some(world.now_ms() + 3_600_000));
        world.client.start_orchestration("other", "Other", "").await.unwrap();
        assert_eq!(soon(world.output("other")).await, "other");
        runtime.shutdown(None).await;

        let runtime = world.start_with(flaky(), both(), one_slot()).await;
        world.clock.advance(HOUR);
        assert_eq!(soon(world.output("i")).await, "attempt 2");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: RETRY-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_end_with_the_attempts_the_time_or_a_final_error() {
    on_both(|world| async move {
        let attempts = Arc::new(AtomicU32::new(0));
        let counted = attempts.clone();
        let failing = activities().register("Work", move |ctx: ActivityContext, input: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Err::<String, _>(format!("{input} {}", ctx.attempt())) }
        });
        let policies =
            orchestrations().register("Job", |ctx: OrchestrationContext, input: String| async move {
                let policy = match input.as_str() {
                    "attempts" => StoredRetry::attempts(3).first_pause(Duration::ZERO),
                    "time" => {
                        StoredRetry::forever().first_pause(HOUR).longest_pause(HOUR).max_elapsed(HOUR / 2)
                    }
                    _ => StoredRetry::forever().first_pause(Duration::ZERO).give_up_on("final"),
                };
                ctx.schedule_activity("Work", input).with_options(retry(policy)).await
            });
        let runtime = world.start(failing, policies).await;
        for (input, error, times) in
            [("attempts", "attempts 3", 3), ("time", "time 1", 1), ("final", "final 1", 1)]
        {
            attempts.store(0, Ordering::SeqCst);
            world.client.start_orchestration(input, "Job", input).await.unwrap();
            assert_eq!(soon(world.failure(input)).await, error);
            assert_eq!(attempts.load(Ordering::SeqCst), times, "{input}");
        }
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: RETRY-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_an_attempt_that_failed() {
    on_both(|world| async move {
        let shaky = work(|ctx| async move {
            assert!(ctx.attempt() > 2, "too early");
            Ok(ctx.attempt().to_string())
        });
        let runtime =
            world.start(shaky, job(retry(StoredRetry::attempts(3).first_pause(Duration::ZERO)))).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        assert_eq!(soon(world.output("i")).await, "3");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_takes_too_long_is_stopped_and_tried_again() {
    on_both(|world| async move {
        let (sender, mut begun) = mpsc::unbounded_channel();
        let slow = work(move |ctx| {
            sender.send(ctx.attempt()).unwrap();
            async move {
                match ctx.attempt() {
                    1 => {
                        // Its result comes too late, although the code returns when it is told to stop.
                        ctx.cancelled().await;
                        Ok("late".to_string())
                    }
                    attempt => Ok(format!("attempt {attempt}")),
                }
            }
        });
        let options = retry(StoredRetry::attempts(2).first_pause(Duration::ZERO)).start_to_close(SECOND * 20);
        let runtime = world.start(slow, job(options)).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let began_ms = world.now_ms();
        assert_eq!(begun.recv().await, Some(1));
        let end = soon(world.end_in_time("i", SECOND)).await;
        assert_eq!(runtime_support::output(end), "attempt 2");
        assert!(world.now_ms() >= began_ms + 20_000);

        // Without a retry, the activity fails.
        let options = ActivityOptions::new().start_to_close(SECOND);
        runtime.shutdown(None).await;
        let hanging = work(|_| std::future::pending());
        let runtime = world.start(hanging, job(options)).await;
        world.client.start_orchestration("j", "Job", "").await.unwrap();
        let end = soon(world.end_in_time("j", SECOND)).await;
        let text = runtime_support::details(end).display_message();
        assert_eq!(text, "activity timed out: 'Work' took longer than 1s (start to close)");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-21, ACT-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_attempt_fails_and_the_next_one_reads_its_heartbeat() {
    on_both(|world| async move {
        let import = work(|ctx| async move {
            let row: Option<u32> = ctx.last_heartbeat().unwrap();
            match row {
                None => {
                    ctx.heartbeat(&41).unwrap();
                    ctx.heartbeat(&42).unwrap();
                    std::future::pending().await
                }
                Some(row) => Ok(format!("from row {row} in attempt {}", ctx.attempt())),
            }
        });
        let options = retry(StoredRetry::attempts(5).first_pause(Duration::ZERO)).heartbeat(SECOND * 10);
        let runtime = world.start(import, job(options)).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let end = soon(world.end_in_time("i", SECOND)).await;
        assert_eq!(runtime_support::output(end), "from row 42 in attempt 2");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_keep_an_attempt_alive() {
    on_both(|world| async move {
        let (sender, mut beats) = mpsc::unbounded_channel::<u32>();
        let (go_on, signal) = mpsc::unbounded_channel::<()>();
        let signal = Arc::new(tokio::sync::Mutex::new(signal));
        let steady = work(move |ctx| {
            let (sender, signal) = (sender.clone(), signal.clone());
            async move {
                for n in 0..10 {
                    ctx.heartbeat(&n).unwrap();
                    sender.send(n).unwrap();
                    signal.lock().await.recv().await.unwrap();
                }
                Ok(format!("attempt {}", ctx.attempt()))
            }
        });
        // The lease lasts as long as the test: its renewals follow the clock, and could not keep up with the jumps.
        let long_leases = RuntimeOptions { worker_lock_timeout: SECOND * 120, ..Default::default() };
        let options = ActivityOptions::new().heartbeat(SECOND * 10);
        let runtime = world.start_with(steady, job(options), long_leases).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        for n in 0..10 {
            assert_eq!(soon(beats.recv()).await, Some(n));
            world.clock.advance(SECOND * 4);
            go_on.send(()).unwrap();
        }
        assert_eq!(soon(world.output("i")).await, "attempt 1");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_begins_too_late_does_not_run() {
    on_both(|world| async move {
        let (sender, mut begun) = mpsc::unbounded_channel();
        let noted = || {
            let sender = sender.clone();
            work(move |_| {
                sender.send(()).unwrap();
                async { Ok("ran".to_string()) }
            })
        };
        let options = || ActivityOptions::new().schedule_to_start(SECOND * 30);
        let no_worker = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
        let runtime = world.start_with(noted(), job(options()), no_worker).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        stage(&world, "i", ActivityStage::Queued).await;
        runtime.shutdown(None).await;
        world.clock.advance(SECOND * 31);
        let runtime = world.start(noted(), job(options())).await;
        let text = soon(world.failure("i")).await;
        assert_eq!(text, "activity timed out: no worker began 'Work' in time (schedule to start)");
        assert!(begun.try_recv().is_err(), "it must not run");
        world.client.start_orchestration("j", "Job", "").await.unwrap();
        assert_eq!(soon(world.output("j")).await, "ran");
        runtime.shutdown(None).await;
    })
    .await;
}

/// An activity that hands out its token, and waits for somebody to use it.
fn asking(sender: mpsc::UnboundedSender<(u32, CompletionToken)>) -> ActivityRegistryBuilder {
    work(move |ctx| {
        sender.send((ctx.attempt(), ctx.completion_token().unwrap())).unwrap();
        async move { ctx.pending().await }
    })
}

fn is_ended(outcome: Result<(), CompleteError>) -> bool {
    matches!(outcome, Err(CompleteError::Ended { .. }))
}

// semantics: ACT-23, ACT-24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_comes_from_elsewhere_once() {
    on_both(|world| async move {
        let (sender, mut tokens) = mpsc::unbounded_channel();
        let one_slot = RuntimeOptions { worker_concurrency: 1, ..Default::default() };
        let runtime = world.start_with(asking(sender), job(ActivityOptions::new()), one_slot).await;
        world.client.start_orchestration("yes", "Job", "").await.unwrap();
        let (_, yes) = soon(tokens.recv()).await.unwrap();
        let wait = stage(&world, "yes", ActivityStage::Awaited).await;
        assert_eq!(wait.leased_until_ms, None);
        // The only slot is free for the next one.
        world.client.start_orchestration("no", "Job", "").await.unwrap();
        let (_, no) = soon(tokens.recv()).await.unwrap();

        world.client.complete_activity(&yes, Ok("approved".to_string())).await.unwrap();
        assert_eq!(soon(world.output("yes")).await, "approved");
        assert!(is_ended(world.client.complete_activity(&yes, Ok("again".to_string())).await));
        let no: CompletionToken = no.to_string().parse().unwrap();
        world.client.complete_activity(&no, Err("refused".to_string())).await.unwrap();
        assert_eq!(soon(world.failure("no")).await, "refused");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-23
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_outlives_the_runtime() {
    on_both(|world| async move {
        let (sender, mut tokens) = mpsc::unbounded_channel();
        let runtime = world.start(asking(sender.clone()), job(ActivityOptions::new())).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let (_, token) = soon(tokens.recv()).await.unwrap();
        stage(&world, "i", ActivityStage::Awaited).await;
        runtime.shutdown(None).await;
        world.clock.advance(HOUR * 24 * 365);
        let runtime = world.start(asking(sender.clone()), job(ActivityOptions::new())).await;
        stage(&world, "i", ActivityStage::Awaited).await;
        runtime.shutdown(None).await;
        // No runtime is needed to complete it.
        world.client.complete_activity(&token, Ok("done".to_string())).await.unwrap();
        let runtime = world.start(asking(sender), job(ActivityOptions::new())).await;
        assert_eq!(soon(world.output("i")).await, "done");
        assert!(tokens.try_recv().is_err(), "it must not have run again");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_is_completed_while_its_attempt_runs() {
    on_both(|world| async move {
        let (sender, mut tokens) = mpsc::unbounded_channel();
        let (ended, mut ends) = mpsc::unbounded_channel();
        let both = work(move |ctx| {
            sender.send(ctx.completion_token().unwrap()).unwrap();
            let ended = ended.clone();
            async move {
                ctx.cancelled().await;
                ended.send(()).unwrap();
                Ok("its own".to_string())
            }
        });
        let runtime = world.start(both, job(retry(StoredRetry::forever()))).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let token = soon(tokens.recv()).await.unwrap();
        world.client.complete_activity(&token, Ok("from elsewhere".to_string())).await.unwrap();
        assert_eq!(soon(world.output("i")).await, "from elsewhere");
        soon(ends.recv()).await.expect("the attempt hears of it");
        runtime.shutdown(None).await;
        assert!(tokens.try_recv().is_err(), "there must be no other attempt");
    })
    .await;
}

// semantics: ACT-23
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_nobody_completes_times_out_and_runs_again() {
    on_both(|world| async move {
        let (sender, mut tokens) = mpsc::unbounded_channel();
        let options = retry(StoredRetry::attempts(2).first_pause(Duration::ZERO)).start_to_close(HOUR);
        let runtime = world.start(asking(sender), job(options)).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let (first, token) = soon(tokens.recv()).await.unwrap();
        stage(&world, "i", ActivityStage::Awaited).await;
        world.clock.advance(HOUR);
        let (second, same) = soon(tokens.recv()).await.unwrap();
        assert_eq!((first, second), (1, 2));
        assert_eq!(same, token);
        stage(&world, "i", ActivityStage::Awaited).await;
        world.clock.advance(HOUR);
        let text = soon(world.failure("i")).await;
        assert_eq!(text, "activity timed out: nobody completed 'Work' in time (start to close)");
        assert!(is_ended(world.client.complete_activity(&token, Ok(String::new())).await));
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: RETRY-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_ends_an_activity_that_waits_for_its_next_attempt() {
    on_both(|world| async move {
        let attempts = Arc::new(AtomicU32::new(0));
        let counted = attempts.clone();
        let failing = work(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Err("x".to_string()) }
        });
        let options = retry(StoredRetry::forever().first_pause(HOUR).longest_pause(HOUR));
        let runtime = world.start(failing, job(options)).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        stage(&world, "i", ActivityStage::Delayed).await;
        world.client.cancel_instance("i", "enough").await.unwrap();
        assert!(soon(world.failure("i")).await.contains("enough"));
        let depths = world.client.get_queue_depths().await.unwrap();
        assert_eq!(depths.worker_queue, 0);
        world.clock.advance(HOUR * 2);
        runtime.shutdown(None).await;
        assert_eq!(attempts.load(Ordering::SeqCst), 1);
    })
    .await;
}

// semantics: ACT-24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_what_is_over_or_gone_is_told_so() {
    on_both(|world| async move {
        let (sender, mut tokens) = mpsc::unbounded_channel();
        let runtime = world.start(asking(sender), job(ActivityOptions::new())).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let (_, token) = soon(tokens.recv()).await.unwrap();
        stage(&world, "i", ActivityStage::Awaited).await;
        world.client.cancel_instance("i", "enough").await.unwrap();
        soon(world.failure("i")).await;
        assert!(is_ended(world.client.complete_activity(&token, Ok(String::new())).await));
        world.client.delete_instance("i", false).await.unwrap();
        let gone = world.client.complete_activity(&token, Ok(String::new())).await;
        assert!(matches!(gone, Err(CompleteError::InstanceGone { .. })), "{gone:?}");
        // A later instance of the same id is another one.
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let (_, other) = soon(tokens.recv()).await.unwrap();
        assert_ne!(other, token);
        assert!(is_ended(world.client.complete_activity(&token, Ok(String::new())).await));
        world.client.complete_activity(&other, Ok("done".to_string())).await.unwrap();
        assert_eq!(soon(world.output("i")).await, "done");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_name_steps() {
    on_both(|world| async move {
        let key = work(|ctx| async move { Ok(ctx.idempotency_key()) });
        let keys = orchestrations().register("Job", |ctx: OrchestrationContext, rounds: String| async move {
            let mut rounds: Vec<String> = rounds.split_whitespace().map(str::to_string).collect();
            for _ in 0..2 {
                rounds.push(ctx.schedule_activity("Work", "").await?);
            }
            match rounds.len() {
                2 => ctx.continue_as_new(rounds.join(" ")).await,
                _ => Ok(rounds.join(" ")),
            }
        });
        let runtime = world.start(key, keys).await;
        let mut all = Vec::new();
        for _ in 0..2 {
            for instance in ["a", "a much longer name of an instance ".repeat(20).as_str()] {
                world.client.start_orchestration(instance, "Job", "").await.unwrap();
                all.extend(soon(world.output(instance)).await.split(' ').map(str::to_string));
                world.client.delete_instance(instance, false).await.unwrap();
            }
        }
        assert_eq!(all.len(), 16);
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), 16, "{all:?}");
        assert!(all.iter().all(|key| key.len() <= 64 && key.is_ascii()), "{all:?}");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-20, ACT-22, RETRY-10
/// An attempt that dies with its process keeps its heartbeat, its key and its place in the count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_process_goes_on_from_the_last_heartbeat() {
    let file = StoreFile::new();
    let world = World::on(file.open().await, file.clock.clone());
    let (sender, mut keys) = mpsc::unbounded_channel();
    let import = || {
        let sender = sender.clone();
        work(move |ctx| {
            sender.send(ctx.idempotency_key()).unwrap();
            async move {
                match ctx.last_heartbeat::<u32>().unwrap() {
                    None => {
                        ctx.heartbeat(&7).unwrap();
                        std::future::pending().await
                    }
                    Some(row) => Ok(format!("row {row}, attempt {}", ctx.attempt())),
                }
            }
        })
    };
    let first = world.start(import(), job(retry(StoredRetry::attempts(3)))).await;
    world.client.start_orchestration("i", "Job", "").await.unwrap();
    let key = soon(keys.recv()).await.unwrap();
    soon(async {
        while !file.text("SELECT work_item FROM worker_queue").contains("\"heartbeat\":\"7\"") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The lease runs out while its holder is stopped, as that of a process that is gone.
    first.shutdown(Some(0)).await;
    world.clock.advance(HOUR);
    let second = world.start(import(), job(retry(StoredRetry::attempts(3)))).await;
    assert_eq!(soon(world.output("i")).await, "row 7, attempt 2");
    assert_eq!(soon(keys.recv()).await.unwrap(), key);
    second.shutdown(None).await;
}

// semantics: ACT-25
#[tokio::test]
async fn a_store_that_cannot_keep_options_says_so() {
    let (world, _) = plain_world();
    let quick =
        RuntimeOptions { dispatcher_min_poll_interval: Duration::from_millis(1), ..Default::default() };
    let asking = work(|ctx| async move {
        let refused = ctx.completion_token().unwrap_err();
        assert!(matches!(refused, AttemptError::NotSupported(_)));
        assert_eq!(ctx.last_heartbeat::<u32>().unwrap(), None);
        Ok(refused.to_string())
    });
    let options = retry(StoredRetry::forever()).heartbeat(SECOND);
    let both = job(options).register("Plain", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Work", "").await
    });
    let runtime = world.start_with(asking, both, quick).await;
    world.client.start_orchestration("i", "Job", "").await.unwrap();
    let text = soon(world.failure("i")).await;
    let expected = "this store cannot keep the options of an activity: retry in the store, heartbeat timeout";
    assert_eq!(text, expected);
    world.client.start_orchestration("j", "Plain", "").await.unwrap();
    assert!(soon(world.output("j")).await.contains("completion of activities from elsewhere"));
    let token = CompletionToken::new("j", 1, 2, 3);
    let refused = world.client.complete_activity(&token, Ok(String::new())).await;
    assert!(matches!(refused, Err(CompleteError::NotSupported)), "{refused:?}");
    runtime.shutdown(None).await;
}

// semantics: RETRY-11
/// The options are not part of the history: code that asks for others, or for none, replays it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_options_replay_the_same_history() {
    let world = World::new();
    let flaky = || {
        work(|ctx| async move {
            match ctx.attempt() {
                1 | 2 => Err("x".to_string()),
                attempt => Ok(attempt.to_string()),
            }
        })
    };
    let pause = |time| retry(StoredRetry::attempts(3).first_pause(time).longest_pause(time));
    let runtime = world.start(flaky(), job(pause(HOUR))).await;
    world.client.start_orchestration("i", "Job", "").await.unwrap();
    stage(&world, "i", ActivityStage::Delayed).await;
    runtime.shutdown(None).await;
    let plain = orchestrations().register("Job", |ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_activity("Work", input).await
    });
    let runtime = world.start(flaky(), plain).await;
    world.clock.advance(HOUR);
    let wait = soon(async {
        loop {
            let wait = stage(&world, "i", ActivityStage::Delayed).await;
            if wait.attempt == 2 {
                return wait;
            }
        }
    });
    assert_eq!(wait.await.last_error.as_deref(), Some("x"), "the options are those of the schedule");
    world.clock.advance(HOUR);
    assert_eq!(soon(world.output("i")).await, "3");
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stored_text_can_be_read_by_people_and_by_older_builds() {
    let file = StoreFile::new();
    let world = World::on(file.open().await, file.clock.clone());
    let options = retry(StoredRetry::attempts(3).first_pause(HOUR).longest_pause(HOUR));
    let runtime = world.start(work(|_| async { Err("x".to_string()) }), job(options)).await;
    world.client.start_orchestration("i", "Job", "").await.unwrap();
    stage(&world, "i", ActivityStage::Delayed).await;
    runtime.shutdown(None).await;
    let text = file.text("SELECT work_item FROM worker_queue");
    assert_eq!(
        text,
        r#"{"ActivityExecute":{"instance":"i","execution_id":1,"id":2,"name":"Work","input":"","options":{"retry":{"max_attempts":3,"first_pause_ms":3600000,"multiplier":2.0,"longest_pause_ms":3600000},"scheduled_at_ms":1757400000000},"progress":{"failed_attempts":1,"last_error":"x","last_failed_at_ms":1757400000000}}}"#
    );
    let store: Arc<dyn Provider> = file.open().await;
    world.clock.advance(HOUR);
    let fetched =
        store.fetch_work_item(SECOND, Duration::ZERO, None, &duroxide::TagFilter::DefaultOnly).await;
    let (item, _, attempts) = fetched.unwrap().unwrap();
    assert_eq!((item, attempts), (serde_json::from_str(&text).unwrap(), 1));
}

/// A report is offered until the store has it; one that was committed although its caller heard of an error counts once.
// semantics: RETRY-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_meets_passing_errors_is_stored_once() {
    for call in [Call::Progress, Call::ProgressDone] {
        let (world, faulty) = faulty_world();
        let busy = || ProviderError::retryable("store_progress", "busy");
        faulty.fail(call, [busy(), busy(), busy()]);
        let (sender, mut begun) = mpsc::unbounded_channel();
        let flaky = work(move |ctx| {
            sender.send(ctx.attempt()).unwrap();
            async move {
                match ctx.attempt() {
                    4 => Ok("done".to_string()),
                    attempt => Err(attempt.to_string()),
                }
            }
        });
        let options = retry(StoredRetry::attempts(4).first_pause(Duration::ZERO));
        let runtime = world.start(flaky, job(options)).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let end = soon(world.end_in_time("i", Duration::from_millis(100))).await;
        assert_eq!(runtime_support::output(end), "done");
        // A worker that heard of an error pauses by the same clock before it learns that the report was stored.
        let mut shutdown = std::pin::pin!(runtime.shutdown(None));
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = tokio::task::yield_now() => world.clock.advance(SECOND),
            }
        }
        let mut attempts = Vec::new();
        while let Ok(attempt) = begun.try_recv() {
            attempts.push(attempt);
        }
        assert_eq!(attempts, [1, 2, 3, 4], "{call:?}");
    }
}

/// A crash after any commit, the report of an attempt among them, changes nothing for the orchestration.
// semantics: RETRY-9
#[cfg(feature = "testing")]
#[tokio::test]
async fn retries_in_the_store_survive_a_crash_everywhere() {
    use duroxide::testing::{TestEnv, crash_everywhere};

    let shop = || {
        TestEnv::builder()
            .activity("Work", |ctx: ActivityContext, _: String| async move {
                match ctx.last_heartbeat::<u32>().unwrap() {
                    Some(2) => Ok("done".to_string()),
                    row => {
                        ctx.heartbeat(&(row.unwrap_or(0) + 1)).unwrap();
                        Err("not yet".to_string())
                    }
                }
            })
            .orchestration("Job", |ctx: OrchestrationContext, _: String| async move {
                let options = retry(StoredRetry::attempts(10).first_pause(HOUR).longest_pause(HOUR));
                ctx.schedule_activity("Work", "").with_options(options).await
            })
    };
    let report = crash_everywhere(shop, async |env: &TestEnv| {
        env.start("i", "Job", "").await;
        env.output("i").await
    });
    let report = report.await.unwrap();
    // The start, two attempts that failed, and the result.
    assert_eq!((report.commits, report.repeated_activities), (4, 1));
}
