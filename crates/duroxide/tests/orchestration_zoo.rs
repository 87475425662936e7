//! A zoo of orchestrations: the bad ones are each caught with a line of theirs, the good ones raise no alarm.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "orchestration_zoo/changed.rs"]
mod changed;
#[path = "orchestration_zoo/foreign.rs"]
mod foreign;
#[path = "orchestration_zoo/good.rs"]
mod good;
#[cfg(feature = "macros")]
#[path = "orchestration_zoo/typed.rs"]
mod typed;
#[path = "orchestration_zoo/undetermined.rs"]
mod undetermined;

use std::time::Duration;

use duroxide::testing::{Mock, TestEnv, TestEnvBuilder};
use duroxide::{OrchestrationContext, OrchestrationRegistry};

/// An orchestration, and what must be said about it.
struct Case {
    name: &'static str,
    code: OrchestrationRegistry,
    expected: &'static [&'static str],
}

#[track_caller]
fn case<F, Fut>(name: &'static str, expected: &'static [&'static str], f: F) -> Case
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    Case { name, expected, code: OrchestrationRegistry::builder().register("Case", f).build() }
}

fn keeper(code: &OrchestrationRegistry) -> TestEnvBuilder {
    let echo = || Mock::with(Ok);
    TestEnv::builder()
        .orchestrations(code.clone())
        .orchestration("Child", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .orchestration("Other child", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .mock("A", echo())
        .mock("B", echo())
        .mock("C", echo())
        .mock("Never", Mock::never())
        .mock("Fails", Mock::fails("no"))
}

/// Runs each case until it is blocked, and checks what the reason says, and that it names a line of the case.
async fn all_are_caught(cases: Vec<Case>, at_least: usize, file: &str) {
    assert!(cases.len() >= at_least, "{}", cases.len());
    let mut wrong = Vec::new();
    for Case { name, code, expected } in cases {
        let env = keeper(&code).start().await;
        env.start("case", "Case", "input").await;
        // Many of them decide only after something has come.
        env.raise_after(Duration::from_secs(5), "case", "Go", "data");
        match env.end("case").await {
            Ok(status) => wrong.push(format!("'{name}' was not caught: {status:?}")),
            Err(why) => {
                let lacks = expected.iter().chain([&file]).filter(|text| !why.contains(**text));
                wrong.extend(lacks.map(|text| format!("'{name}' lacks {text:?}: {why}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// semantics: CHECK-1
#[tokio::test]
async fn what_is_not_determined_by_the_history_is_caught_when_the_turn_is_taken_twice() {
    all_are_caught(undetermined::cases(), 24, "undetermined.rs:").await;
}

// semantics: BLOCK-2
#[tokio::test]
async fn what_waits_for_something_foreign_is_blocked() {
    all_are_caught(foreign::cases(), 34, "foreign.rs:").await;
}

// semantics: BLOCK-1
#[tokio::test]
async fn what_was_changed_in_place_is_blocked_with_the_step_and_the_line() {
    let cases = changed::cases();
    assert!(cases.len() >= 14, "{}", cases.len());
    for changed::Change { name, before, after, expected } in cases {
        let env = keeper(&before).start().await;
        env.start("case", "Case", "input").await;
        env.settle().await;
        env.deploy(after).await;
        env.raise("case", "Go", "data").await;
        let why = env.end("case").await.expect_err(name);
        for text in expected.iter().chain([&"changed.rs:"]) {
            assert!(why.contains(text), "'{name}' lacks {text:?}: {why}");
        }
        // What was recorded fits the code from before, and goes on with it.
        env.deploy(before).await;
        env.raise("case", "Go", "data").await;
        assert_eq!(env.output("case").await, "done", "{name}");
    }
}

// semantics: CHECK-1
#[tokio::test]
async fn what_is_sound_raises_no_alarm() {
    let cases = good::cases();
    assert!(cases.len() >= 54, "{}", cases.len());
    let mut alarms = Vec::new();
    for Case { name, code, expected } in cases {
        let env = keeper(&code).start().await;
        env.start("case", "Case", "input").await;
        env.raise_after(Duration::from_secs(5), "case", "Go", "data");
        env.after(Duration::from_secs(6), |client| async move {
            client.enqueue_event("case", "queue", "first").await.unwrap();
            client.enqueue_event("case", "queue", "second").await.unwrap();
        });
        match env.end("case").await {
            Ok(duroxide::OrchestrationStatus::Completed { output, .. }) => {
                assert_eq!(Some(&output.as_str()), expected.first(), "{name}");
            }
            other => alarms.push(format!("'{name}' raised an alarm: {other:?}")),
        }
    }
    assert!(alarms.is_empty(), "{alarms:#?}");
}

// semantics: CHECK-1
#[cfg(feature = "macros")]
#[tokio::test]
async fn what_is_sound_in_the_typed_interface_raises_no_alarm() {
    for (name, expected) in typed::SOUND {
        let env = TestEnv::of(typed::functions(duroxide::Duroxide::open("memory:"))).start().await;
        env.start("case", name, "null").await;
        env.raise_after(Duration::from_millis(4_500), "case", "Go", "now");
        assert_eq!(env.output("case").await, expected, "{name}");
    }
}

// semantics: CHECK-1
#[cfg(feature = "macros")]
#[tokio::test]
async fn what_is_unsound_in_the_typed_interface_is_caught_with_the_line() {
    for (name, kind) in typed::UNSOUND {
        let env = TestEnv::of(typed::functions(duroxide::Duroxide::open("memory:"))).start().await;
        env.start("case", name, "null").await;
        let why = env.end("case").await.expect_err(name);
        assert!(why.contains(kind) && why.contains("typed.rs:"), "{name}: {why}");
    }
}
