//! Failures that are hard to store: the runtime makes them small, and blocks an instance that cannot even fail.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{ManualClock, ProviderError, StoreLimits};
use duroxide::{ErrorDetails, EventKind, OrchestrationStatus};

use crate::runtime_support::faulty::{Call, Faulty};
use crate::runtime_support::logs::Logs;
use crate::runtime_support::{
    World, activities, details, echo, family, faulty_world, few_attempts, kinds, orchestrations, output,
    plain_world,
};

const STEP: Duration = Duration::from_millis(100);

fn refusal() -> ProviderError {
    ProviderError::permanent("ack_orchestration_item", "refused")
}

/// A world whose store takes payloads up to 64 KiB.
fn small_world() -> (World, Arc<Faulty>) {
    let clock = Arc::new(ManualClock::default());
    let limits = StoreLimits { max_payload_bytes: 64 * 1024, ..Default::default() };
    let store = Arc::new(MemoryProvider::with_clock(clock.clone()).with_limits(limits));
    let faulty = Faulty::new(store);
    (World::on(faulty.clone(), clock), faulty)
}

/// Lets time pass in small steps until an instance is blocked; returns the reason.
async fn blocked(world: &World, instance: &str) -> String {
    loop {
        let blocked = world.client.list_blocked_instances(10).await.unwrap();
        if let Some(blocked) = blocked.into_iter().find(|blocked| blocked.instance == instance) {
            assert!(blocked.blocked_at <= world.now_ms());
            return blocked.reason;
        }
        world.clock.advance(STEP);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

// semantics: DUR-10
#[tokio::test]
async fn a_poison_failure_that_quotes_large_messages_is_cut_to_a_size_that_can_be_stored() {
    let (world, _) = small_world();
    let runtime = world.start_with(activities(), orchestrations(), few_attempts(2)).await;
    // Every other character is a quotation mark, which is escaped again with each level of quoting.
    let input = "\"x".repeat(15 * 1024);
    world.client.start_orchestration("i", "Nobody", &input).await.unwrap();
    let details = details(world.end_in_time("i", STEP).await);
    let ErrorDetails::Poison { attempt_count: 3, message, .. } = details else { panic!("{details:?}") };
    assert!(message.len() < 5_000 && message.contains("bytes in all"), "{}: {message}", message.len());
    let EventKind::OrchestrationStarted { input: recorded, .. } = &world.history("i").await[0].kind else {
        panic!("no start")
    };
    assert_eq!(*recorded, input, "what can be stored is stored as it is");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_start_that_cannot_be_recorded_as_it_is_fails_its_instance_with_the_limit() {
    let (world, faulty) = small_world();
    let runtime = world.start(echo(), family()).await;
    // The largest start that the queue takes; the event is larger than the message.
    let mut size = 64 * 1024;
    while world.client.start_orchestration("i", "Echo", "x".repeat(size)).await.is_err() {
        size -= 1;
    }
    let text = details(world.end_in_time("i", STEP).await).display_message();
    assert!(text.contains("payload") && text.contains("takes at most 65536"), "{text}");
    let history = world.history("i").await;
    assert_eq!(kinds(&history), ["OrchestrationStarted", "OrchestrationFailed"]);
    let EventKind::OrchestrationStarted { input, .. } = &history[0].kind else { panic!("no start") };
    assert!(input.len() < 5_000 && input.ends_with(&format!("({size} bytes in all)")), "{}", input.len());
    assert!(faulty.abandoned_turns().is_empty(), "nothing was tried in vain");
    runtime.shutdown(None).await;
}

#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn a_child_whose_parent_cannot_be_decoded_either_fails_and_the_parent_fails_for_itself() {
    let clock = Arc::new(ManualClock::default());
    let memory = Arc::new(MemoryProvider::with_clock(clock.clone()));
    let world = World::on(memory.clone(), clock);
    let runtime = world.start_with(activities(), family(), few_attempts(2)).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    world.client.start_orchestration("q", "Named", "named").await.unwrap();
    let children = ["p::sub::2", "named"];
    for child in children {
        world.waits_for(child, "go").await;
    }
    runtime.shutdown(None).await;
    for damaged in ["p", "q", "p::sub::2", "named"] {
        memory.corrupt_history(damaged);
    }
    for child in children {
        world.client.raise_event(child, "go", "on").await.unwrap();
    }
    let runtime = world.start_with(activities(), family(), few_attempts(2)).await;
    for instance in ["p::sub::2", "named", "p", "q"] {
        let details = details(world.end_in_time(instance, STEP).await);
        assert!(details.display_message().contains("deserialization"), "{instance}: {details:?}");
    }
    runtime.shutdown(None).await;
}

#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn a_failure_behind_a_damaged_history_is_stored_whatever_ids_are_taken() {
    for is_plain in [false, true] {
        let memory = Arc::new(MemoryProvider::new());
        let faulty = if is_plain { Faulty::plain(memory.clone()) } else { Faulty::new(memory.clone()) };
        let world = World::on(faulty.clone(), Arc::new(ManualClock::default()));
        let start = crate::runtime_support::start_of("i", 1, "Waiting", "");
        let last = duroxide::Event { event_id: 99_999, ..start.clone() };
        world.seed("i", 1, vec![start, last]).await;
        memory.corrupt_history("i");
        world.client.raise_event("i", "go", "on").await.unwrap();
        let runtime = world.start_with(activities(), family(), few_attempts(0)).await;
        let store: Arc<dyn duroxide::providers::Provider> = memory.clone();
        let recent = loop {
            let recent = store.as_extended().unwrap().read_recent("i", 1).await;
            match recent {
                Ok(mut recent) if matches!(recent[0].kind, EventKind::OrchestrationFailed { .. }) => {
                    break recent.remove(0);
                }
                _ => tokio::task::yield_now().await,
            }
        };
        assert_eq!(recent.event_id, if is_plain { 999_999_999 } else { 100_000 });
        runtime.shutdown(None).await;
    }
}

// semantics: DUR-10
#[tokio::test]
async fn an_instance_whose_failure_is_refused_for_good_is_blocked_and_goes_on_when_it_is_unblocked() {
    let (logs, _guard) = Logs::keep();
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), family(), few_attempts(2)).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.waits_for("i", "go").await;
    let tries = faulty.count(Call::AckTurn);
    faulty.fail(Call::AckTurn, vec![refusal(); 1000]);
    world.client.raise_event("i", "go", "on").await.unwrap();
    let reason = blocked(&world, "i").await;
    assert!(reason.contains("ack_orchestration_item: refused"), "{reason}");
    // Twice the turn and its failure, then the poison failure: and that was all.
    assert_eq!(faulty.count(Call::AckTurn) - tries, 5);
    let line = logs.one("the instance is blocked");
    assert_eq!((line.level, line.field("instance")), (tracing::Level::ERROR, "i"));
    // The instance counts as running, and messages to it wait.
    let status = world.client.get_orchestration_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Running { .. }), "{status:?}");
    world.client.raise_event("i", "go", "again").await.unwrap();
    for _ in 0..100 {
        world.clock.advance(Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    assert_eq!(faulty.count(Call::AckTurn) - tries, 5);
    // The reason is gone: it goes on where it was.
    faulty.forgive(Call::AckTurn);
    assert!(world.client.unblock_instance("i").await.unwrap());
    assert_eq!(output(world.end_in_time("i", STEP).await), "on");
    assert!(!world.client.unblock_instance("i").await.unwrap());
    assert!(world.client.list_blocked_instances(10).await.unwrap().is_empty());
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_instance_whose_history_can_never_be_loaded_is_blocked() {
    let (world, faulty) = faulty_world();
    let mut options = few_attempts(2);
    options.resident_instances = 0;
    let runtime = world.start_with(echo(), family(), options).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.waits_for("i", "go").await;
    faulty.fail(Call::Load, vec![ProviderError::permanent("load_history", "Database is damaged"); 1000]);
    world.client.raise_event("i", "go", "on").await.unwrap();
    assert!(blocked(&world, "i").await.contains("Database is damaged"));
    assert_eq!(faulty.count(Call::Load), 3);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_ended_instance_whose_late_messages_are_refused_for_good_is_blocked_and_tells_the_sender_later() {
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), family(), few_attempts(2)).await;
    assert!(matches!(world.run("taken", "Echo", "").await, OrchestrationStatus::Completed { .. }));
    let gate = faulty.hold(Call::AckTurn);
    world.client.start_orchestration("p", "Named", "taken").await.unwrap();
    // The parent's own turn is stored; the one that meets the taken id is not.
    gate.add_permits(1);
    world.recorded("p", |kind| matches!(kind, EventKind::SubOrchestrationScheduled { .. })).await;
    faulty.fail(Call::AckTurn, vec![refusal(); 1000]);
    faulty.release(Call::AckTurn);
    gate.add_permits(1000);
    assert!(blocked(&world, "taken").await.contains("refused"));
    faulty.forgive(Call::AckTurn);
    assert!(world.client.unblock_instance("taken").await.unwrap());
    let told = output(world.end_in_time("p", STEP).await);
    assert!(told.contains("already exists and is terminal"), "{told}");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_store_that_cannot_block_instances_is_asked_less_and_less_often() {
    let (world, faulty) = plain_world();
    faulty.fail(Call::AckTurn, vec![refusal(); 1000]);
    faulty.report_attempts(3);
    let runtime = world.start_with(echo(), family(), few_attempts(2)).await;
    world.client.start_orchestration("i", "Nobody", "").await.unwrap();
    while faulty.abandoned_turns().is_empty() {
        tokio::task::yield_now().await;
    }
    let (wait, ignore_attempt) = faulty.abandoned_turns()[0];
    assert!(ignore_attempt && wait.is_some_and(|wait| wait >= Duration::from_millis(500)), "{wait:?}");
    assert_eq!(faulty.count(Call::AckTurn), 1);
    runtime.shutdown(None).await;
}
