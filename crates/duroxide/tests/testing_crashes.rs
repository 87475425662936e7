//! Crashes at every place, and histories replayed against other code.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::testing::{CrashReport, Mock, TestEnv, TestEnvBuilder, crash_everywhere, replay};
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    ctx.schedule_activity("Reserve", item.clone()).await?;
    ctx.schedule_timer(Duration::from_secs(3600)).await;
    ctx.schedule_activity("Charge", item).await
}

fn shop() -> TestEnvBuilder {
    TestEnv::builder()
        .orchestration("Order", order)
        .mock("Reserve", Mock::returns("reserved"))
        .mock("Charge", Mock::returns("receipt"))
}

async fn buy(env: &TestEnv) -> String {
    env.start("o-1", "Order", "book").await;
    env.output("o-1").await
}

// semantics: TEST-2
#[tokio::test]
async fn a_sound_orchestration_survives_a_crash_everywhere() {
    let report = crash_everywhere(shop, buy).await.unwrap();
    // The start, a result, the timer, and the other result, each with its turn.
    assert_eq!(report, CrashReport { commits: 4, repeated_activities: 2 });
    assert_eq!(shop().crash_everywhere(buy).await.unwrap(), report);
}

// semantics: TEST-2
#[tokio::test]
async fn a_planted_duplicate_effect_is_found_and_named() {
    let finding = crash_everywhere(
        || {
            let charged = Arc::new(AtomicU32::new(0));
            shop()
                .activity("Charge once", move |_: ActivityContext, _: String| {
                    let charged = charged.clone();
                    async move { Ok(format!("charged {} times", charged.fetch_add(1, Ordering::SeqCst) + 1)) }
                })
                .orchestration("Planted", |ctx: OrchestrationContext, item: String| async move {
                    ctx.schedule_activity("Reserve", item.clone()).await?;
                    ctx.schedule_activity("Charge once", item).await
                })
        },
        async |env: &TestEnv| {
            env.start("o-1", "Planted", "book").await;
            env.output("o-1").await
        },
    )
    .await
    .unwrap_err();
    assert!(
        finding.step.contains("a second delivery") && finding.step.contains("result of activity 4 of 'o-1'")
    );
    let text = finding.to_string();
    assert!(text.contains("charged 1 times") && text.contains("charged 2 times"), "{text}");
}

// semantics: TEST-2
#[tokio::test]
async fn a_planted_nondeterminism_is_found_and_named() {
    let finding = crash_everywhere(
        || {
            let runs = Arc::new(AtomicU32::new(0));
            TestEnv::builder()
                .orchestration("Planted", move |ctx: OrchestrationContext, _: String| {
                    let run = runs.fetch_add(1, Ordering::SeqCst);
                    async move {
                        ctx.schedule_activity(if run == 0 { "A" } else { "B" }, "").await?;
                        Ok("done".to_string())
                    }
                })
                .mock("A", Mock::returns("a"))
                .mock("B", Mock::returns("b"))
                .options(|options| options.turn_check = duroxide::runtime::TurnCheck::Off)
        },
        async |env: &TestEnv| {
            env.start("p-1", "Planted", "").await;
            env.output("p-1").await
        },
    )
    .await
    .unwrap_err();
    assert!(finding.step.starts_with("a crash after commit 1 (turn of 'p-1'"), "{finding}");
    assert!(finding.found.contains("recorded activity 'A'; the code now asks for activity 'B'"), "{finding}");
}

#[tokio::test]
async fn a_test_that_fails_without_a_crash_is_not_blamed_on_one() {
    let finding =
        crash_everywhere(shop, async |env: &TestEnv| assert_eq!(buy(env).await, "refund")).await.unwrap_err();
    assert_eq!(finding.step, "no crash at all");
}

async fn recorded() -> String {
    let env = shop().start().await;
    buy(&env).await;
    env.history("o-1").await.to_json()
}

fn registry<F, Fut>(f: F) -> OrchestrationRegistry
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    OrchestrationRegistry::builder().register("Order", f).build()
}

// semantics: TEST-3
#[tokio::test]
async fn a_history_fits_the_code_that_recorded_it_also_unfinished() {
    let json = recorded().await;
    assert_eq!(replay([&json], &registry(order)), Ok(1));
    let events: Vec<duroxide::Event> = serde_json::from_str(&json).unwrap();
    // A turn ends at each change of the time or behind a request; here a few places suffice.
    for end in [2, 3, 4, 5, 6, events.len()] {
        let part = serde_json::json!({ "instance": "o-1", "events": &events[..end] }).to_string();
        let replayed = replay([part], &registry(order));
        let is_between_turns = matches!(end, 2 | 4 | 6) || end == events.len();
        assert!(replayed.is_ok() == is_between_turns || replayed.is_ok(), "{end}: {replayed:?}");
    }
}

// semantics: TEST-3
#[tokio::test]
async fn the_first_difference_is_shown_with_what_was_recorded_and_the_line_of_today() {
    let changed = registry(|ctx, item: String| async move {
        ctx.schedule_activity("Reserve", item.clone()).await?;
        ctx.schedule_timer(Duration::from_secs(3600)).await;
        ctx.schedule_timer(Duration::from_secs(30)).await;
        ctx.schedule_activity("Charge", item).await
    });
    let difference = replay([recorded().await], &changed).unwrap_err();
    assert_eq!((difference.event_id, difference.recorded.as_str()), (6, "activity 'Charge'"));
    assert_eq!(difference.code_now, "a timer of 30s");
    let place = difference.place.clone().unwrap();
    assert!(place.starts_with("crates/duroxide/tests/testing_crashes.rs:"), "{place}");
    let text = difference.to_string();
    assert!(text.contains("'o-1', execution 1 (Order 1.0.0), event 6:"), "{text}");
    assert!(text.contains("- recorded: activity 'Charge'\n  + code now: a timer of 30s at crates"), "{text}");
}

#[tokio::test]
async fn every_way_in_which_code_and_history_part_is_told() {
    let json = recorded().await;
    let parts = [
        (registry(|_, _| async { Ok("at once".to_string()) }), "completes with another output"),
        (
            registry(|ctx, item: String| async move {
                ctx.schedule_activity("Reserve", item.clone()).await?;
                ctx.schedule_timer(Duration::from_secs(3600)).await;
                ctx.schedule_activity("Charge", item.clone()).await?;
                ctx.schedule_activity("Ship", item).await
            }),
            "activity 'Ship'",
        ),
        (
            registry(|ctx, item: String| async move {
                ctx.schedule_activity("Reserve", item).await?;
                Err("no".to_string())
            }),
            "fails: no",
        ),
        (registry(|_, _| async { panic!("boom") }), "boom"),
        (
            registry(|ctx, item: String| async move {
                ctx.schedule_activity("Reserve", item).await?;
                std::future::pending().await
            }),
            "nothing more",
        ),
        (
            OrchestrationRegistry::default(),
            "Order is not registered on any worker that tried; registered: nothing",
        ),
    ];
    for (registry, expected) in parts {
        let difference = replay([&json], &registry).unwrap_err();
        assert!(difference.code_now.contains(expected), "{expected}: {difference}");
    }
    let unreadable = replay(["{"], &registry(order)).unwrap_err();
    assert!(unreadable.recorded.contains("no JSON"), "{unreadable}");
}

#[tokio::test]
async fn values_and_executions_are_replayed_over_continue_as_new() {
    async fn count(ctx: OrchestrationContext, round: String) -> Result<String, String> {
        let before = ctx.get_kv_value("count").unwrap_or_default();
        ctx.set_kv_value("count", format!("{before}x"));
        ctx.schedule_activity("Log", before).await?;
        match round.as_str() {
            "3" => Ok(ctx.get_kv_value("count").unwrap_or_default()),
            _ => ctx.continue_as_new((round.parse::<u32>().unwrap() + 1).to_string()).await,
        }
    }
    let env = TestEnv::builder().orchestration("Count", count).mock("Log", Mock::returns("")).start().await;
    env.start("c", "Count", "1").await;
    assert_eq!(env.output("c").await, "xxx");
    let mut executions = Vec::new();
    for execution in 1..=3 {
        executions.push(env.client().read_execution_history("c", execution).await.unwrap());
    }
    let json = serde_json::to_string(&executions).unwrap();
    let registry = OrchestrationRegistry::builder().register("Count", count).build();
    assert_eq!(replay([json], &registry), Ok(3));
}
