//! Errors cross the boundary as they are: from an activity to its orchestration, from a child to its parent, from an
//! orchestration to the client. People see their words; retries follow what the error says of itself.

#![cfg(feature = "macros")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::typed_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use duroxide::prelude::*;
use duroxide::{AnyError, EventKind, FailureKind, OrchestrationStatus, Retryable, RunError};
use serde::{Deserialize, Serialize};
use typed_support::on_every_store;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum ChargeError {
    #[error("the card was declined with code {code}")]
    Declined { code: u32 },
    #[error("the bank is down")]
    BankIsDown,
    #[error(transparent)]
    Failed(#[from] Failure),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum FulfilError {
    #[error("no money: {0}")]
    Charge(#[from] ChargeError),
    #[error(transparent)]
    Failed(#[from] Failure),
}

#[activity]
async fn charge(how: String) -> Result<u32, ChargeError> {
    match how.as_str() {
        "decline" => Err(ChargeError::Declined { code: 51 }),
        "panic" => panic!("the machine is on fire"),
        "down" => Err(ChargeError::BankIsDown),
        _ => Ok(1),
    }
}

#[orchestration]
async fn pay(ctx: OrchestrationContext, how: String) -> Result<u32, ChargeError> {
    charge(&ctx, how).await
}

#[orchestration]
async fn fulfil(ctx: OrchestrationContext, how: String) -> Result<u32, FulfilError> {
    Ok(pay(&ctx, how).await?)
}

#[tokio::test]
async fn an_error_crosses_two_boundaries_to_the_client_as_it_was() {
    on_every_store(|app| async move {
        let app = app.activity(charge).orchestration(pay).orchestration(fulfil).start().await.unwrap();
        let result = app.start(fulfil, "declined", "decline".to_string()).await.unwrap().result().await;
        let declined = ChargeError::Declined { code: 51 };
        assert_eq!(result, Err(RunError::Failed(FulfilError::Charge(declined))));
        let down = app.start(fulfil, "down", "down".to_string()).await.unwrap().result().await;
        assert_eq!(down, Err(RunError::Failed(FulfilError::Charge(ChargeError::BankIsDown))));
        assert_eq!(down.unwrap_err().to_string(), "no money: the bank is down");
        app.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn people_see_the_words_and_untyped_parents_too() {
    on_every_store(|app| async move {
        let untyped = OrchestrationRegistry::builder()
            .register("Parent", |ctx: OrchestrationContext, how: String| async move {
                ctx.schedule_sub_orchestration("pay", how).await
            })
            .build();
        let app = app.activity(charge).orchestration(pay).orchestrations(untyped).start().await.unwrap();
        app.start_orchestration("parent", "Parent", "decline").await.unwrap();
        let status = app.wait_for_orchestration("parent", secs(30)).await.unwrap();
        let OrchestrationStatus::Failed { details, .. } = status else { panic!("{status:?}") };
        assert_eq!(details.display_message(), "the card was declined with code 51");
        let info = app.get_instance_info("parent").await.unwrap();
        assert_eq!(info.output.as_deref(), Some("the card was declined with code 51"));
        // The recorded form, which only grows: words, separator, value.
        let child = app.get_instance_tree("parent").await.unwrap().all_ids;
        let child = child.iter().find(|id| *id != "parent").unwrap();
        let history = app.read_execution_history(child, 1).await.unwrap();
        let recorded = history.iter().find_map(|event| match &event.kind {
            EventKind::ActivityFailed { details } => Some(serde_json::to_string(details).unwrap()),
            _ => None,
        });
        let text = r#"the card was declined with code 51\u001e{\"error\":{\"Declined\":{\"code\":51}}}"#;
        assert!(recorded.as_ref().unwrap().contains(text), "{recorded:?}");
        app.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_no_error_of_the_application_arrives_as_a_failure() {
    on_every_store(|app| async move {
        let app = app.activity(charge).orchestration(pay).orchestration(fulfil).start().await.unwrap();
        let result = app.start(pay, "panic", "panic".to_string()).await.unwrap().result().await;
        let Err(RunError::Failed(ChargeError::Failed(failure))) = result else { panic!("{result:?}") };
        assert_eq!(failure.kind(), FailureKind::Panicked);
        assert!(failure.message().contains("the machine is on fire"), "{failure}");
        app.shutdown().await;
    })
    .await;
}

#[orchestration]
async fn asleep(ctx: OrchestrationContext) -> Result<u32, FulfilError> {
    ctx.event::<u32>("wake up").await.map_err(Into::into)
}

#[orchestration]
async fn panics(ctx: OrchestrationContext, text: String) -> Result<u32, FulfilError> {
    panic!("{text} in {}", ctx.instance_id())
}

#[tokio::test]
async fn cancellations_panics_and_wrong_payloads_have_kinds() {
    on_every_store(|app| async move {
        let app = app.orchestration(asleep).orchestration(panics).start().await.unwrap();
        let kind = |result: Result<u32, RunError<FulfilError>>| match result {
            Err(RunError::Failed(FulfilError::Failed(failure))) => failure.kind(),
            other => panic!("{other:?}"),
        };
        let cancelled = app.start(asleep, "cancelled", ()).await.unwrap();
        cancelled.cancel("enough").await.unwrap();
        assert_eq!(kind(cancelled.result().await), FailureKind::Cancelled);
        let panicked = app.start(panics, "panicked", "ouch".to_string()).await.unwrap();
        assert_eq!(kind(panicked.result().await), FailureKind::Panicked);
        let woken = app.start(asleep, "woken", ()).await.unwrap();
        while app.get_orchestration_status("woken").await.unwrap() == OrchestrationStatus::NotFound {
            tokio::task::yield_now().await;
        }
        woken.raise("wake up", &"not a number").await.unwrap();
        assert_eq!(kind(woken.result().await), FailureKind::Undecodable);
        app.shutdown().await;
    })
    .await;
}

// A worker of another time: its input, its result and its error have other types.

#[activity(name = "Changed")]
async fn changed_now(_n: u32) -> Result<Vec<u32>, ChargeError> {
    Ok(vec![1])
}

#[activity(name = "Changed")]
async fn changed_then(how: String) -> Result<u32, ChargeError> {
    if how == "fail" { Err(ChargeError::BankIsDown) } else { Ok(1) }
}

#[orchestration]
async fn calls_then(ctx: OrchestrationContext, how: String) -> Result<u32, ChargeError> {
    changed_then(&ctx, how).retry(RetryPolicy::fixed(1_000, secs(1_000))).await
}

#[orchestration]
async fn calls_now(ctx: OrchestrationContext) -> Result<Vec<u32>, ChargeError> {
    changed_now(&ctx, 1).retry(RetryPolicy::fixed(1_000, secs(1_000))).await
}

#[tokio::test]
async fn payloads_of_other_types_are_failures_that_no_retry_repeats() {
    on_every_store(|app| async move {
        let app = app.activity(changed_now).orchestration(calls_then).start().await.unwrap();
        let input = app.start(calls_then, "input", "text".to_string()).await.unwrap().result().await;
        let Err(RunError::Failed(ChargeError::Failed(failure))) = input else { panic!("{input:?}") };
        assert_eq!(failure.kind(), FailureKind::Undecodable);
        assert!(
            failure.message().starts_with("input of activity 'Changed' (step 2 of 'input')"),
            "{failure}"
        );
        app.shutdown().await;
    })
    .await;
    on_every_store(|app| async move {
        let app = app.activity(changed_then).orchestration(calls_now).start().await.unwrap();
        let result = app.start(calls_now, "result", ()).await.unwrap().result().await;
        let Err(RunError::Failed(ChargeError::Failed(failure))) = result else { panic!("{result:?}") };
        assert_eq!(failure.kind(), FailureKind::Undecodable);
        assert!(failure.message().starts_with("result of activity 'Changed'"), "{failure}");
        app.shutdown().await;
    })
    .await;
}

// Errors that are final.

#[derive(Default)]
struct Runs(AtomicU32);

#[activity(non_retryable = ChargeError::Declined { code: 50..=59 } | ChargeError::Failed(_))]
async fn by_pattern(State(runs): State<Runs>, code: u32) -> Result<u32, ChargeError> {
    runs.0.fetch_add(1, Ordering::SeqCst);
    Err(ChargeError::Declined { code })
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
struct OwnError {
    text: String,
    passes: bool,
}

impl From<Failure> for OwnError {
    fn from(failure: Failure) -> Self {
        Self { text: failure.to_string(), passes: true }
    }
}

impl Retryable for OwnError {
    fn is_retryable(&self) -> bool {
        self.passes
    }
}

#[activity]
async fn by_trait(State(runs): State<Runs>, passes: bool) -> Result<u32, OwnError> {
    runs.0.fetch_add(1, Ordering::SeqCst);
    Err(OwnError { text: "no".to_string(), passes })
}

#[activity]
async fn by_any_error(State(runs): State<Runs>, passes: bool) -> Result<u32, AnyError> {
    runs.0.fetch_add(1, Ordering::SeqCst);
    let error = AnyError::new("no");
    Err(if passes { error } else { error.final_error() })
}

#[orchestration]
async fn tries(ctx: OrchestrationContext, which: String, passes: bool) -> Result<String, Failure> {
    let policy = RetryPolicy::fixed(3, millis(1));
    Ok(match which.as_str() {
        "pattern" => format!("{:?}", by_pattern(&ctx, if passes { 60 } else { 51 }).retry(policy).await),
        "trait" => format!("{:?}", by_trait(&ctx, passes).retry(policy).await),
        _ => format!("{:?}", by_any_error(&ctx, passes).retry(policy).await),
    })
}

#[tokio::test]
async fn an_error_says_whether_another_attempt_can_help() {
    on_every_store(|app| async move {
        let runs = Arc::new(Runs::default());
        let app = app.activity(by_pattern).activity(by_trait).activity(by_any_error).orchestration(tries);
        let app = app.shared_state(runs.clone()).start().await.unwrap();
        for which in ["pattern", "trait", "any"] {
            for (passes, expected) in [(true, 3), (false, 1)] {
                runs.0.store(0, Ordering::SeqCst);
                let id = format!("{which}-{passes}");
                let told =
                    app.start(tries, id, (which.to_string(), passes)).await.unwrap().result().await.unwrap();
                assert_eq!(runs.0.load(Ordering::SeqCst), expected, "{which} {passes} {told}");
                assert!(told.starts_with("Err"), "{told}");
            }
        }
        app.shutdown().await;
    })
    .await;
}

// Aliases, and errors that are texts.

type Answer = Result<u32, String>;
type AnswerResult = std::result::Result<u32, ChargeError>;

mod alias {
    pub type Result<T> = std::result::Result<T, super::ChargeError>;
}

#[activity]
async fn aliased(how: String) -> alias::Result<u32> {
    if how == "fail" { Err(ChargeError::BankIsDown) } else { Ok(how.len() as u32) }
}

#[activity]
async fn named_alias(how: String) -> AnswerResult {
    if how == "fail" { Err(ChargeError::BankIsDown) } else { Ok(how.len() as u32) }
}

#[orchestration]
async fn asks(ctx: OrchestrationContext, how: String) -> AnswerResult {
    Ok(aliased(&ctx, how.clone()).await? + named_alias(&ctx, how).await?)
}

#[tokio::test]
async fn an_alias_of_result_is_a_result() {
    on_every_store(|app| async move {
        let app = app.activity(aliased).activity(named_alias).orchestration(asks).start().await.unwrap();
        assert_eq!(app.start(asks, "ok", "four".to_string()).await.unwrap().result().await, Ok(8));
        let down = app.start(asks, "fail", "fail".to_string()).await.unwrap().result().await;
        assert_eq!(down, Err(RunError::Failed(ChargeError::BankIsDown)));
        let _: Answer = Ok(1);
        app.shutdown().await;
    })
    .await;
}

// A map whose keys are no strings cannot be JSON.

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
struct Key(Vec<u8>);

#[activity]
async fn takes_a_map(map: std::collections::BTreeMap<Key, u8>) -> Result<usize, Failure> {
    Ok(map.len())
}

#[orchestration]
async fn passes_a_map(ctx: OrchestrationContext) -> Result<usize, Failure> {
    takes_a_map(&ctx, [(Key(vec![1]), 1)].into()).retry(RetryPolicy::fixed(5, secs(100))).await
}

#[tokio::test]
async fn an_argument_that_cannot_be_written_is_a_failure_without_a_step() {
    on_every_store(|app| async move {
        let app = app.activity(takes_a_map).orchestration(passes_a_map).start().await.unwrap();
        let result = app.start(passes_a_map, "map", ()).await.unwrap().result().await;
        let Err(RunError::Failed(failure)) = result else { panic!("{result:?}") };
        assert_eq!(failure.kind(), FailureKind::Unencodable);
        assert_eq!(app.read_execution_history("map", 1).await.unwrap().len(), 2);
        app.shutdown().await;
    })
    .await;
}
