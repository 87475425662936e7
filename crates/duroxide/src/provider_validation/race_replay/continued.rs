//! Messages that reach an instance between two executions, and starts that come twice.

use super::lab::*;
use crate::model::{AppErrorKind, ConfigErrorKind, ErrorDetails};
use crate::provider_validation::support::*;
use crate::provider_validation::{EventKind, ProviderFactory};
use crate::providers::{WorkItem, current_build_version};
use crate::runtime::registry::OrchestrationRegistry;
use crate::runtime::{OrchestrationStatus, RuntimeOptions, UnregisteredBackoffConfig};
use crate::{Either2, OrchestrationContext};

/// An orchestration that reads two messages of its queue.
async fn read_two(ctx: OrchestrationContext) -> String {
    let first = ctx.dequeue_event("queue").await;
    let second = ctx.dequeue_event("queue").await;
    format!("{first},{second}")
}

fn reads_two() -> OrchestrationRegistry {
    let read = |ctx: OrchestrationContext, _: String| async move { Ok(read_two(ctx).await) };
    OrchestrationRegistry::builder().register(NAME, read).build()
}

/// A start for an instance that already exists.
fn duplicate_start(instance: &str, orchestration: &str, parent: Option<&str>) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_string(),
        orchestration: orchestration.to_string(),
        input: "duplicate".to_string(),
        version: None,
        parent_instance: parent.map(str::to_string),
        parent_id: parent.map(|_| 2),
        parent_execution_id: parent.map(|_| 1),
        execution_id: 1,
    }
}

/// A second start does not change which handler runs, nor with which input.
pub async fn test_duplicate_start_preserves_pinned_handler<F: ProviderFactory>(factory: &F) {
    for duplicate in [NAME, "Other"] {
        let lab = Lab::new(factory).await;
        let scheduled = EventKind::ActivityScheduled {
            name: "Work".to_string(),
            input: "work".to_string(),
            session_id: None,
            tag: None,
        };
        let stamp = current_build_version().to_string();
        lab.seed(&Recorded::started("pinned", &stamp, "original").then(scheduled)).await;
        let finished = completed("pinned", 2, "done");
        lab.send_all([duplicate_start("pinned", duplicate, None), finished]).await;

        let first = |ctx: OrchestrationContext, input: String| async move {
            let result = ctx.schedule_activity("Work", "work").await?;
            Ok(format!("1.0.0 {input} {result}"))
        };
        let second = |_: OrchestrationContext, input: String| async move { Ok(format!("2.0.0 {input}")) };
        let other = |_: OrchestrationContext, input: String| async move { Ok(format!("other {input}")) };
        let registry = OrchestrationRegistry::builder()
            .register_versioned(NAME, "1.0.0", first)
            .register_versioned(NAME, "2.0.0", second)
            .register("Other", other)
            .build();
        let result = output(lab.run_to_end("pinned", registry).await);
        assert_eq!(result, "1.0.0 original done", "the recorded start should count, not that of {duplicate}");
    }
}

/// Messages sent while the next execution waits for its handler stay for it.
pub async fn test_continue_as_new_unregistered_backoff<F: ProviderFactory>(factory: &F) {
    let lab = Lab::new(factory).await;
    lab.seed(&Recorded::continued("waiting", NEW_POLICY, "next")).await;
    lab.store.send(continue_with("waiting", "next")).await;

    let backoff = UnregisteredBackoffConfig { base_delay: ms(3_000), max_delay: ms(3_000) };
    let without_handler = RuntimeOptions { unregistered_backoff: backoff, ..options() };
    let nothing = OrchestrationRegistry::default();
    let runtime = lab.start(nothing.clone(), without_handler.clone()).await;
    lab.until_nothing_is_visible().await;
    lab.store.send(queue_message("waiting", "queue", "late")).await;
    lab.stop_when_nothing_is_visible(runtime, nothing, without_handler).await;
    lab.store.expect_no_turn("start and message are hidden until the backoff is over").await;
    assert_eq!(lab.store.history_of("waiting", 1).await.len(), 2, "execution 1 has ended");

    lab.store.pass(ms(3_000)).await;
    let result = output(lab.run_to_end("waiting", reads_two()).await);
    assert_eq!(result, "carried,late", "nothing should be lost while there was no handler");
    assert_eq!(lab.store.history_of("waiting", 1).await.len(), 2, "execution 1 has ended");
}

/// An execution that cannot begin fails as an execution of its own; the one before keeps its end.
pub async fn test_continue_as_new_poisoned_successor_is_own_execution<F: ProviderFactory>(factory: &F) {
    let lab = Lab::new(factory).await;
    let first = Recorded::continued("poisoned", NEW_POLICY, "next");
    lab.seed(&first).await;
    lab.store.send(continue_with("poisoned", "next")).await;

    let one_attempt = RuntimeOptions { max_attempts: 1, ..options() };
    let nothing = OrchestrationRegistry::default();
    let runtime = lab.start(nothing.clone(), one_attempt.clone()).await;
    let status = lab.end_of("poisoned").await;
    let is_poison =
        matches!(&status, OrchestrationStatus::Failed { details: ErrorDetails::Poison { .. }, .. });
    assert!(is_poison, "the next execution should fail as poison, not end as {status:?}");
    lab.store.send(queue_message("poisoned", "queue", "late")).await;
    lab.stop_when_nothing_is_visible(runtime, nothing, one_attempt).await;
    lab.store.expect_no_turn("the late message should be consumed").await;

    assert_eq!(lab.store.history_of("poisoned", 1).await, first.events, "execution 1 should keep its end");
    let second = lab.store.history_of("poisoned", 2).await;
    let is_start_and_failure = matches!(
        second.iter().map(|event| &event.kind).collect::<Vec<_>>().as_slice(),
        [EventKind::OrchestrationStarted { .. }, EventKind::OrchestrationFailed { .. }]
    );
    assert!(is_start_and_failure, "execution 2 should be a start and a failure, not {second:?}");
    assert_eq!(lab.store.history("poisoned").await, second, "execution 2 should be the latest");
}

/// A duplicate start that arrives before the next execution's start does not take its place.
pub async fn test_continue_as_new_duplicate_start<F: ProviderFactory>(factory: &F) {
    for stamp in [OLD_POLICY, NEW_POLICY] {
        for collides in [false, true] {
            duplicate_start_case(factory, stamp, collides).await;
        }
    }
}

async fn duplicate_start_case(factory: &dyn ProviderFactory, stamp: &str, collides: bool) {
    let lab = Lab::new(factory).await;
    let first = Recorded::continued("chain", stamp, "next");
    lab.seed(&first).await;
    if collides {
        seed_parent(&lab).await;
    }
    let duplicate = duplicate_start("chain", NAME, collides.then_some("parent"));
    let late = queue_message("chain", "queue", "late");
    lab.send_all([duplicate, continue_with("chain", "next"), late]).await;

    let read = |ctx: OrchestrationContext, _: String| async move { Ok(read_two(ctx).await) };
    let parent = |ctx: OrchestrationContext, _: String| async move {
        let child = ctx.schedule_sub_orchestration_with_id(NAME, "chain", "duplicate").await;
        Ok(child.map_or_else(|error| error, |result| format!("unexpected result {result}")))
    };
    let registry = OrchestrationRegistry::builder().register(NAME, read).register("Parent", parent).build();
    let runtime = lab.start(registry, options()).await;
    let result = output(lab.end_of("chain").await);
    assert_eq!(result, "carried,late", "the next execution should run, with stamp {stamp}");
    if collides {
        let told = output(lab.end_of("parent").await);
        assert!(told.contains("already exists"), "the parent should hear of the collision: {told}");
        assert!(!told.contains("is terminal"), "the instance had not ended: {told}");
    }
    lab.stop(runtime).await;
    assert_eq!(lab.store.history_of("chain", 1).await, first.events, "execution 1 should not change");
}

/// Creates an instance that waits for the child `chain`, which it did not start.
async fn seed_parent(lab: &Lab<'_>) {
    let mut parent = Recorded::started("parent", &current_build_version().to_string(), "");
    if let EventKind::OrchestrationStarted { name, .. } = &mut parent.events[0].kind {
        *name = "Parent".to_string();
    }
    parent.name = "Parent";
    let scheduled = EventKind::SubOrchestrationScheduled {
        name: NAME.to_string(),
        instance: "chain".to_string(),
        input: "duplicate".to_string(),
    };
    lab.seed(&parent.then(scheduled)).await;
}

/// The messages that may wait while the start of the next execution is not visible yet.
const INPUTS: [&str; 7] =
    ["queue", "race", "mixed-stale", "signal", "cancel", "future-completion", "stale-only"];

/// The messages that wait for this shape of input.
fn inputs_of(shape: &'static str) -> Vec<WorkItem> {
    let late = queue_message(shape, "queue", "late");
    let stale = completed(shape, 9, "stale");
    let of_next_execution = WorkItem::ActivityCompleted {
        instance: shape.to_string(),
        execution_id: 2,
        id: 99,
        result: "unasked".to_string(),
    };
    match shape {
        "mixed-stale" => vec![stale, late],
        "signal" => vec![late, raised(shape, "signal", "answer")],
        "cancel" => vec![cancel(shape)],
        "future-completion" => vec![of_next_execution],
        "stale-only" => vec![stale],
        _ => vec![late],
    }
}

/// Runs the next execution; its input is the shape.
async fn transition(ctx: OrchestrationContext, shape: String) -> Result<String, String> {
    match shape.as_str() {
        "stale-only" => Ok(ctx.dequeue_event("queue").await),
        "race" => {
            let mut read = Vec::new();
            while read.len() < 2 {
                let timer = ctx.schedule_timer(ms(60_000));
                if let Either2::First(message) = ctx.select2(ctx.dequeue_event("queue"), timer).await {
                    read.push(message);
                }
            }
            Ok(read.join(","))
        }
        "signal" => {
            let read = read_two(ctx.clone()).await;
            let signal = ctx.schedule_wait("signal").await;
            Ok(format!("{read}|{signal}"))
        }
        _ => Ok(read_two(ctx).await),
    }
}

/// Messages for the next execution reach it, once, when its start becomes visible, and change nothing before.
///
/// `stamp` is the version that recorded the ended execution.
pub async fn test_continue_as_new_transition_delivery<F: ProviderFactory>(factory: &F, stamp: &str) {
    let lab = Lab::new(factory).await;
    for shape in INPUTS {
        lab.seed(&Recorded::continued(shape, stamp, shape)).await;
    }
    let starts_at = lab.store.now_ms() + 2_000;
    for shape in INPUTS {
        lab.store.send_delayed(continue_with(shape, shape), ms(2_000)).await;
        lab.send_all(inputs_of(shape)).await;
    }
    let registry = OrchestrationRegistry::builder().register(NAME, transition).build();
    let runtime = lab.start(registry, options()).await;
    lab.until_nothing_is_visible().await;
    for shape in INPUTS {
        let first = lab.store.history_of(shape, 1).await;
        assert_eq!(first.len(), 2, "execution 1 of {shape} has ended");
        let has_begun = !lab.store.history_of(shape, 2).await.is_empty();
        // On a slow machine the two seconds may be over by now.
        let may_have_begun = lab.store.now_ms() >= starts_at;
        assert!(!has_begun || may_have_begun, "execution 2 of {shape} should not begin before its start");
    }
    lab.store.pass(ms(2_000)).await;
    for shape in INPUTS {
        expect_transition(&lab, shape).await;
    }
    lab.stop(runtime).await;
}

/// Asserts how the next execution of this shape ends and what its history holds.
async fn expect_transition(lab: &Lab<'_>, shape: &'static str) {
    if shape == "signal" {
        send_fresh_signal_if_needed(lab).await;
    }
    let status = lab.end_of(shape).await;
    match shape {
        "cancel" => expect_failure(status, |details| {
            let cancelled = AppErrorKind::Cancelled { reason: "stop".to_string() };
            matches!(details, ErrorDetails::Application { kind, .. } if *kind == cancelled)
        }),
        "future-completion" => expect_failure(status, |details| {
            matches!(details, ErrorDetails::Configuration { kind: ConfigErrorKind::Nondeterminism, .. })
        }),
        "stale-only" => assert_eq!(output(status), "carried", "the stale completion should do nothing"),
        "signal" => {
            let result = output(status);
            let expected = ["carried,late|answer", "carried,late|fresh"];
            assert!(expected.contains(&result.as_str()), "the result of {shape} should not be {result}");
        }
        _ => assert_eq!(output(status), "carried,late", "the result of {shape}"),
    }
    expect_delivered_once(lab, shape).await;
}

fn expect_failure(status: OrchestrationStatus, is_expected: impl Fn(&ErrorDetails) -> bool) {
    match &status {
        OrchestrationStatus::Failed { details, .. } if is_expected(details) => {}
        other => panic!("the instance should have failed for another reason or at all: {other:?}"),
    }
}

/// A signal recorded before the wait opened is gone; then the instance needs another one.
async fn send_fresh_signal_if_needed(lab: &Lab<'_>) {
    let is_waiting_or_done = async || {
        let history = lab.store.history_of("signal", 2).await;
        let has_wait = history.iter().any(|event| matches!(event.kind, EventKind::ExternalSubscribed { .. }));
        let has_signal = history.iter().any(|event| matches!(event.kind, EventKind::ExternalEvent { .. }));
        has_wait && has_signal
    };
    lab.until("the wait for the signal is open and the signal is recorded", is_waiting_or_done).await;
    lab.store.send(raised("signal", "signal", "fresh")).await;
}

/// Asserts that execution 1 is unchanged, and that execution 2 has recorded each input once.
async fn expect_delivered_once(lab: &Lab<'_>, shape: &'static str) {
    assert_eq!(lab.store.history_of(shape, 1).await.len(), 2, "execution 1 of {shape} should not change");
    let second = lab.store.history_of(shape, 2).await;
    let stamp = &second.first().expect("execution 2 should have begun").duroxide_version;
    assert_eq!(
        *stamp,
        current_build_version().to_string(),
        "execution 2 of {shape} is stamped by this build"
    );

    let sent = inputs_of(shape);
    let count = |data: &str| {
        let is_it = |kind: &EventKind| match kind {
            EventKind::QueueEventDelivered { data: text, .. } => text == data,
            EventKind::ExternalEvent { data: text, .. } => text == data,
            _ => false,
        };
        second.iter().filter(|event| is_it(&event.kind)).count()
    };
    assert_eq!(count("carried"), 1, "the carried message of {shape} should be recorded once");
    for data in ["late", "answer"] {
        let was_sent = sent.iter().any(|message| match message {
            WorkItem::QueueMessage { data: text, .. } | WorkItem::ExternalRaised { data: text, .. } => {
                text == data
            }
            _ => false,
        });
        assert_eq!(count(data), usize::from(was_sent), "how often {data} of {shape} should be recorded");
    }
    let has_completion = second.iter().any(|event| matches!(event.kind, EventKind::ActivityCompleted { .. }));
    assert!(!has_completion, "no completion of {shape} belongs to execution 2");
}
