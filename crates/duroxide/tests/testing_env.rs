//! The test environment: time that skips, mocks, scripts, deployments.
#![cfg(feature = "testing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::testing::{Mock, TestEnv};
use duroxide::{ActivityContext, Either2, OrchestrationContext, RetryPolicy};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn remind(ctx: OrchestrationContext, customer: String) -> Result<String, String> {
    for _ in 0..30 {
        ctx.schedule_timer(DAY).await;
        ctx.schedule_activity("Look", customer.clone()).await?;
    }
    ctx.schedule_activity("SendMail", customer).await
}

// semantics: TEST-1
#[tokio::test]
async fn a_workflow_of_30_days_ends_without_waiting() {
    let env = TestEnv::builder()
        .orchestration("Remind", remind)
        .mock("Look", Mock::returns("nothing"))
        .mock("SendMail", Mock::returns("sent"))
        .start()
        .await;
    env.start("r-1", "Remind", "ada").await;
    assert_eq!(env.output("r-1").await, "sent");
    assert_eq!(env.elapsed(), 30 * DAY);
    assert_eq!((env.calls("Look").len(), env.calls("SendMail").len()), (30, 1));
    assert_eq!(env.history("r-1").await.timers(), vec![DAY; 30]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_skips_on_many_threads_too() {
    let env = TestEnv::builder()
        .orchestration("Remind", remind)
        .mock("Look", Mock::returns("nothing"))
        .mock("SendMail", Mock::returns("sent"))
        .start()
        .await;
    for i in 0..20 {
        env.start(&format!("r-{i}"), "Remind", "ada").await;
    }
    for i in 0..20 {
        assert_eq!(env.output(&format!("r-{i}")).await, "sent");
    }
    assert_eq!(env.elapsed(), 30 * DAY);
}

// semantics: TEST-1
#[tokio::test]
async fn no_time_passes_while_an_activity_runs_or_the_test_does_something_else() {
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let released = Arc::new(tokio::sync::Mutex::new(Some(released)));
    let env = TestEnv::builder()
        .orchestration("Race", |ctx: OrchestrationContext, _: String| async move {
            let slow = ctx.schedule_activity("Real", "");
            match ctx.select2(slow, ctx.schedule_timer(DAY)).await {
                Either2::First(result) => result,
                Either2::Second(()) => Ok("too late".to_string()),
            }
        })
        .activity("Real", move |_: ActivityContext, _: String| {
            let released = released.clone();
            async move {
                let released = released.lock().await.take().unwrap();
                released.await.unwrap();
                Ok("in time".to_string())
            }
        })
        .start()
        .await;
    env.start("i", "Race", "").await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(env.elapsed(), Duration::ZERO);
    let wait = env.output("i");
    let release = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
    };
    let (output, ()) = tokio::join!(wait, release);
    assert_eq!((output.as_str(), env.elapsed()), ("in time", Duration::ZERO));
}

#[tokio::test]
async fn a_mock_that_never_answers_meets_the_timeout() {
    let env = TestEnv::builder()
        .orchestration("Charge", |ctx: OrchestrationContext, _: String| async move {
            let policy = RetryPolicy::new(1).with_timeout(Duration::from_secs(120));
            ctx.schedule_activity_with_retry("Card", "", policy).await
        })
        .mock("Card", Mock::never())
        .start()
        .await;
    env.start("c", "Charge", "").await;
    assert_eq!(env.failure("c").await, "timeout: activity timed out");
    assert_eq!(env.elapsed(), Duration::from_secs(120));
}

#[tokio::test]
async fn a_mock_may_take_longer_than_its_lease() {
    let env = TestEnv::builder()
        .orchestration("Long", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Slow", "").await
        })
        .mock("Slow", Mock::returns("done").after(10 * DAY))
        .start()
        .await;
    env.start("l", "Long", "").await;
    assert_eq!(env.output("l").await, "done");
    assert_eq!((env.elapsed(), env.calls("Slow").len()), (10 * DAY, 1));
}

#[tokio::test]
async fn a_sequence_answers_one_after_the_other() {
    let env = TestEnv::builder()
        .orchestration("Retry", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity_with_retry("Flaky", "x", RetryPolicy::new(5)).await
        })
        .mock("Flaky", Mock::sequence([Err("busy"), Err("busy"), Ok("done")]))
        .start()
        .await;
    env.start("r", "Retry", "").await;
    assert_eq!(env.output("r").await, "done");
    let results: Vec<_> = env.calls("Flaky").into_iter().map(|call| call.result.unwrap().is_ok()).collect();
    assert_eq!(results, [false, false, true]);
}

async fn approval(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    match ctx.select2(ctx.schedule_wait("Approved"), ctx.schedule_timer(3 * DAY)).await {
        Either2::First(who) => Ok(who),
        Either2::Second(()) => Err("nobody answered".to_string()),
    }
}

#[tokio::test]
async fn scripted_events_come_at_their_time() {
    let env = TestEnv::builder().orchestration("Approve", approval).start().await;
    env.start("a", "Approve", "").await;
    env.start("b", "Approve", "").await;
    env.raise_after(2 * DAY, "a", "Approved", "Ada");
    env.raise_after(4 * DAY, "b", "Approved", "Bob");
    assert_eq!(env.output("a").await, "Ada");
    assert_eq!(env.elapsed(), 2 * DAY);
    assert_eq!(env.failure("b").await, "nobody answered");
    assert_eq!(env.elapsed(), 3 * DAY);
}

#[tokio::test]
async fn sleep_lets_exactly_that_much_time_pass() {
    let env = TestEnv::builder().orchestration("Approve", approval).start().await;
    env.start("a", "Approve", "").await;
    env.sleep(3 * DAY - Duration::from_millis(1)).await;
    assert!(env.history("a").await.iter().all(|event| !event.is_terminal()));
    env.sleep(Duration::from_millis(1)).await;
    env.settle().await;
    assert!(env.history("a").await.last().unwrap().is_terminal());
    assert_eq!(env.elapsed(), 3 * DAY);
}

#[tokio::test]
async fn waits_of_a_client_end_inside_run() {
    let env = TestEnv::builder().orchestration("Approve", approval).start().await;
    env.start("a", "Approve", "").await;
    let client = env.client();
    let early = env.run(client.wait_for_orchestration("a", DAY)).await;
    assert!(matches!(early, Err(duroxide::ClientError::Timeout)), "{early:?}");
    assert_eq!(env.elapsed(), DAY);
    env.run(client.wait_for_orchestration("a", 10 * DAY)).await.unwrap();
    assert_eq!(env.elapsed(), 3 * DAY);
}

#[tokio::test]
async fn an_instance_that_waits_for_nothing_is_told_apart_from_one_that_is_slow() {
    let env = TestEnv::builder()
        .orchestration("Stuck", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("Never").await)
        })
        .start()
        .await;
    env.start("s", "Stuck", "").await;
    let why = env.end("s").await.unwrap_err();
    assert!(why.contains("waits for something that never comes"), "{why}");
}

#[tokio::test]
async fn a_crash_loses_what_is_in_memory_and_nothing_else() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let env = TestEnv::builder()
        .orchestration("Two", move |ctx: OrchestrationContext, _: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                ctx.schedule_activity("A", "").await?;
                ctx.schedule_timer(DAY).await;
                ctx.schedule_activity("B", "").await
            }
        })
        .mock("A", Mock::returns("a"))
        .mock("B", Mock::returns("b"))
        .options(|options| options.turn_check = duroxide::runtime::TurnCheck::Off)
        .start()
        .await;
    env.start("t", "Two", "").await;
    env.settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    env.crash().await;
    assert_eq!(env.output("t").await, "b");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!((env.calls("A").len(), env.calls("B").len()), (1, 1));
}

/// Races an activity that nobody gave with a timer, round after round: there is always something that comes next.
async fn greet_daily(ctx: OrchestrationContext, who: String) -> Result<String, String> {
    loop {
        let mail = ctx.schedule_activity("SendMail", who.clone());
        if let Either2::First(sent) = ctx.select2(mail, ctx.schedule_timer(DAY)).await {
            return sent;
        }
    }
}

// semantics: TEST-5
#[tokio::test]
async fn an_activity_that_was_not_given_is_told_at_once() {
    let forgetful = async || {
        let env = TestEnv::builder()
            .orchestration("Greet", greet_daily)
            .mock("SendMial", Mock::returns("sent"))
            .start()
            .await;
        env.start("g", "Greet", "ada").await;
        env
    };
    let env = forgetful().await;
    let why = env.end("g").await.unwrap_err();
    assert!(
        why.contains("it is blocked: activity 'SendMail' of 'g' is neither registered nor mocked"),
        "{why}"
    );
    assert!(why.contains("registered: SendMial"), "{why}");
    assert_eq!(env.elapsed(), Duration::ZERO);
    assert_eq!(env.blocked("g").await.map(|reason| format!("it is blocked: {reason}")), Some(why));
    // A call of a client would wait for it just as long.
    let env = forgetful().await;
    let test = tokio::spawn(async move {
        let client = env.client();
        let _ = env.run(client.wait_for_orchestration("g", Duration::MAX)).await;
    });
    let panic = test.await.unwrap_err().into_panic();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("activity 'SendMail' of 'g' is neither registered nor mocked"), "{text}");
}

// semantics: TEST-5
#[tokio::test]
async fn a_published_default_may_fail_an_activity_that_was_not_given() {
    let env = TestEnv::builder()
        .orchestration("Greet", |ctx: OrchestrationContext, who: String| async move {
            ctx.schedule_activity("SendMail", who).await
        })
        .options(|options| options.on_unregistered = duroxide::runtime::OnUnregistered::Poison)
        .start()
        .await;
    env.start("g", "Greet", "ada").await;
    assert!(env.failure("g").await.contains("SendMail is not registered"));
}
