//! Results of activities: the runtime keeps each until it is stored, and none costs a second run.
//!
//! The store fails where it gets a result, a renewal or a failure; the activities count their runs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::model::ObstacleKind;
use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{Clock, ManualClock, Provider, ProviderError, StoreLimits, TagFilter, WorkItem};
use duroxide::{ErrorDetails, OrchestrationContext, RuntimeOptions};
use runtime_support::faulty::{Call, Faulty};
use runtime_support::{
    Stage, World, activities, details, faulty_world, few_attempts, one_activity, orchestrations, output,
};

const STEP: Duration = Duration::from_millis(100);

fn busy() -> ProviderError {
    ProviderError::retryable("ack_work_item", "busy")
}

fn refused() -> ProviderError {
    ProviderError::permanent("ack_work_item", "no")
}

/// An activity that reports each run and returns the number of its attempt.
fn counted(stage: &Stage) -> duroxide::runtime::registry::ActivityRegistryBuilder {
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report("run");
        Ok(format!("attempt {}", ctx.attempt()))
    });
    activities().register("Work", work)
}

/// An activity that reports each run, waits to be let go, and tells whether it was cancelled.
fn waiting(stage: &Stage) -> duroxide::runtime::registry::ActivityRegistryBuilder {
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report("run");
        stage.wait().await;
        Ok(format!("cancelled: {}", ctx.is_cancelled()))
    });
    let other = stage.activity(|stage, _, _| async move {
        stage.report("other");
        Ok(String::new())
    });
    activities().register("Work", work).register("Other", other)
}

/// An activity without an instance, which reports that it ran.
fn other_work() -> WorkItem {
    WorkItem::ActivityExecute {
        instance: "k".into(),
        execution_id: 1,
        id: 2,
        name: "Other".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    }
}

/// A store that takes payloads of up to this many bytes, behind a wrapper that can make it fail.
fn small_world(max_payload_bytes: usize) -> (World, Arc<Faulty>) {
    let clock = Arc::new(ManualClock::default());
    let limits = StoreLimits { max_payload_bytes, ..Default::default() };
    let store: Arc<dyn Provider> = Arc::new(MemoryProvider::with_clock(clock.clone()).with_limits(limits));
    let faulty = Faulty::new(store);
    (World::on(faulty.clone(), clock), faulty)
}

/// Catches the error of the activity.
fn catching() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Catch", |ctx: OrchestrationContext, input: String| async move {
        match ctx.schedule_activity("Work", input).await {
            Ok(result) => Ok(format!("{} bytes", result.len())),
            Err(error) => Ok(format!("caught: {error}")),
        }
    })
}

#[tokio::test]
async fn a_result_that_meets_passing_storage_errors_is_stored_after_one_run() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let runtime = world.start(counted(&stage), one_activity()).await;
    // More than a lease's time of them: the lease is renewed meanwhile.
    faulty.fail(Call::AckWork, vec![busy(); 20]);
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    assert_eq!(output(world.end_in_time("i", STEP).await), "attempt 1");
    assert_eq!((stage.log().len(), faulty.abandoned_work()), (1, vec![]));
    assert!(faulty.count(Call::RenewWork) > 0);
    let metrics = runtime.metrics_snapshot().unwrap();
    assert_eq!((metrics.activity_infra_errors, metrics.activity_success), (0, 1));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_result_that_was_committed_when_its_sync_failed_counts_as_stored() {
    for call in [Call::SyncResult, Call::AckWorkDone] {
        let (world, faulty) = faulty_world();
        let stage = Stage::default();
        let runtime = world.start(counted(&stage), one_activity()).await;
        faulty.fail(call, [busy()]);
        world.client.start_orchestration("i", "One", "Work").await.unwrap();
        assert_eq!(output(world.end_in_time("i", STEP).await), "attempt 1");
        // The second attempt finds the activity gone, and that is all.
        while runtime.metrics_snapshot().unwrap().activity_success == 0 {
            world.clock.advance(STEP);
            tokio::task::yield_now().await;
        }
        assert_eq!(runtime.metrics_snapshot().unwrap().activity_infra_errors, 0);
        assert_eq!((stage.log().len(), faulty.abandoned_work()), (1, vec![]));
        runtime.shutdown(None).await;
    }
}

#[tokio::test]
async fn a_result_over_the_size_limit_is_a_catchable_error_after_one_run() {
    let (world, faulty) = small_world(10_000);
    let stage = Stage::default();
    let work = stage.activity(|stage, _, _| async move {
        stage.report("run");
        Ok("x".repeat(20_000))
    });
    let runtime = world.start(activities().register("Work", work), catching()).await;
    let caught = output(world.run("i", "Catch", "").await);
    assert!(caught.starts_with("caught: the result of activity 'Work' cannot be stored"), "{caught}");
    assert!(caught.contains("20000 bytes") && caught.contains("at most 10000"), "{caught}");
    assert_eq!((stage.log().len(), faulty.abandoned_work()), (1, vec![]));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_error_text_over_the_size_limit_is_cut_and_tells_how_long_it_was() {
    let (world, faulty) = small_world(10_000);
    let stage = Stage::default();
    let work = stage.activity(|stage, _, _| async move {
        stage.report("run");
        Err("é".repeat(20_000))
    });
    let runtime = world.start(activities().register("Work", work), catching()).await;
    let caught = output(world.run("i", "Catch", "").await);
    assert!(caught.starts_with("caught: éééé"), "{caught}");
    assert!(caught.contains("40000 bytes") && caught.len() < 10_000, "{caught}");
    assert_eq!((stage.log().len(), faulty.abandoned_work()), (1, vec![]));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_store_of_the_published_contract_refuses_an_oversized_result_once_too() {
    let limits = StoreLimits { max_payload_bytes: 10_000, ..Default::default() };
    let store: Arc<dyn Provider> = Arc::new(MemoryProvider::new().with_limits(limits));
    let faulty = Faulty::plain(store);
    let world = World::on(faulty.clone(), Arc::new(ManualClock::default()));
    let stage = Stage::default();
    let work = stage.activity(|stage, _, _| async move {
        stage.report("run");
        Ok("x".repeat(20_000))
    });
    let runtime = world.start(activities().register("Work", work), catching()).await;
    let caught = output(world.run("i", "Catch", "").await);
    assert!(caught.contains("20000 bytes") && caught.contains("at most 10000"), "{caught}");
    assert_eq!((stage.log().len(), faulty.abandoned_work()), (1, vec![]));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_poisoned_activity_with_a_large_input_fails_its_orchestration() {
    let (world, _) = small_world(64 * 1024);
    let options = few_attempts(1);
    let runtime = world.start_with(activities(), catching(), options).await;
    // Each time that it is quoted it takes twice the room.
    world.client.start_orchestration("i", "Catch", "\"".repeat(20_000)).await.unwrap();
    match details(world.end_in_time("i", STEP).await) {
        ErrorDetails::Poison { message, .. } => {
            assert!(message.contains("ActivityExecute") && message.contains("bytes"), "{message}");
        }
        other => panic!("not poisoned: {other:?}"),
    }
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_whose_failure_is_refused_for_good_is_set_aside_and_listed() {
    let world = World::new();
    let faulty = Faulty::inspected(world.store.clone());
    let world = World::on(faulty.clone(), world.clock);
    let stage = Stage::default();
    let runtime = world.start(counted(&stage), one_activity()).await;
    faulty.fail(Call::AckWork, vec![refused(); 1_000]);
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    while faulty.abandoned_work().is_empty() {
        tokio::task::yield_now().await;
    }
    let [(delay, ignore_attempt)] = faulty.abandoned_work()[..] else { panic!("given back more than once") };
    assert!(delay.is_some_and(|delay| delay >= Duration::from_secs(60)) && !ignore_attempt, "{delay:?}");
    assert!(faulty.count(Call::AckWork) < 10);
    // The next heartbeat reports it, before the activity is tried again.
    let aside = loop {
        if let Some(obstacle) = world.client.list_obstacles(10).await.unwrap().pop() {
            break obstacle;
        }
        world.clock.advance(STEP);
        tokio::task::yield_now().await;
    };
    assert_eq!((aside.instance.as_str(), aside.activity_id, aside.name.as_str()), ("i", Some(2), "Work"));
    assert_eq!((aside.kind, aside.attempts), (ObstacleKind::Unstorable, 1));
    assert!(aside.reason.contains("no") && aside.next_try_ms > world.clock.now_ms(), "{aside:?}");
    // Nothing happens until the delay is over.
    for _ in 0..100 {
        world.clock.advance(STEP);
        tokio::task::yield_now().await;
    }
    assert_eq!((stage.log().len(), faulty.abandoned_work().len()), (1, 1));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_renewal_that_is_refused_for_good_does_not_end_an_activity_whose_lease_is_still_held() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let runtime = world.start(waiting(&stage), one_activity()).await;
    faulty.fail(Call::RenewWork, [ProviderError::permanent("renew_work_item_lock", "protocol error")]);
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("run", 1).await;
    while faulty.count(Call::RenewWork) < 3 {
        world.clock.advance(STEP);
        tokio::task::yield_now().await;
    }
    stage.let_go();
    assert_eq!(output(world.end_in_time("i", STEP).await), "cancelled: false");
    assert_eq!(stage.log().len(), 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_lease_that_ran_out_is_taken_up_again_if_nobody_took_it() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    // There is one slot: the runtime asks for no activities while it is busy.
    let options = RuntimeOptions { worker_concurrency: 1, ..Default::default() };
    let runtime = world.start_with(waiting(&stage), one_activity(), options).await;
    let renewals = faulty.hold(Call::RenewWork);
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("run", 1).await;
    // As after a suspension: the renewal reaches the store when the lease is long over.
    world.clock.advance(Duration::from_secs(20));
    while faulty.count(Call::RenewWork) == 0 {
        tokio::task::yield_now().await;
    }
    world.clock.advance(Duration::from_secs(600));
    faulty.release(Call::RenewWork);
    renewals.add_permits(1);
    while faulty.count(Call::RenewWork) < 3 {
        world.clock.advance(STEP);
        tokio::task::yield_now().await;
    }
    stage.let_go();
    assert_eq!(output(world.end_in_time("i", STEP).await), "cancelled: false");
    assert_eq!(stage.log().len(), 1);
    runtime.shutdown(None).await;
}

/// Lets an activity be under way while time passes as given. Its own runtime has free slots and is woken.
async fn activity_during(pass: impl Fn(&World)) {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let both =
        one_activity().register("Other", |_: OrchestrationContext, _: String| async { Ok(String::new()) });
    let runtime = world.start(waiting(&stage), both).await;
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("run", 1).await;
    let fetches = faulty.count(Call::FetchWork);
    pass(&world);
    // Whatever else goes on makes its dispatchers look for work.
    world.run("j", "Other", "").await;
    world.store.enqueue_for_worker(other_work()).await.unwrap();
    stage.seen("other", 1).await;
    assert!(faulty.count(Call::FetchWork) > fetches);
    stage.let_go();
    assert_eq!(output(world.end_in_time("i", STEP).await), "cancelled: false");
    assert_eq!(stage.log().iter().filter(|line| *line == "run").count(), 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_runtime_that_stood_still_takes_no_activity_again_that_it_is_still_at() {
    activity_during(|world| world.clock.advance(Duration::from_secs(600))).await;
}

#[tokio::test]
async fn a_machine_that_was_suspended_takes_no_activity_again_that_it_is_still_at() {
    // Only the wall clock goes on while the machine sleeps.
    activity_during(|world| world.clock.set_wall_ms(world.now_ms() + 600_000)).await;
}

#[tokio::test]
async fn a_result_whose_lease_ran_out_is_stored_if_nobody_took_the_activity() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let runtime = world.start(waiting(&stage), one_activity()).await;
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("run", 1).await;
    let (acks, _renewals) = (faulty.hold(Call::AckWork), faulty.hold(Call::RenewWork));
    // No other worker asks for activities.
    let _fetches = faulty.hold(Call::FetchWork);
    stage.let_go();
    while faulty.count(Call::AckWork) == 0 {
        tokio::task::yield_now().await;
    }
    world.clock.advance(Duration::from_secs(600));
    faulty.release(Call::AckWork);
    acks.add_permits(1);
    assert_eq!(output(world.end_in_time("i", STEP).await), "cancelled: false");
    assert_eq!(stage.log().len(), 1);
    runtime.shutdown(Some(0)).await;
}

#[tokio::test]
async fn an_activity_that_was_taken_over_is_cancelled_and_its_result_dropped() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let work = stage.until_cancelled();
    let options = RuntimeOptions { worker_concurrency: 1, ..Default::default() };
    let runtime = world.start_with(activities().register("Work", work), one_activity(), options).await;
    let renewals = faulty.hold(Call::RenewWork);
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("running", 1).await;
    world.clock.advance(Duration::from_secs(60));
    while faulty.count(Call::RenewWork) == 0 {
        tokio::task::yield_now().await;
    }
    // Another process takes the activity; only then the renewal reaches the store.
    let hour = Duration::from_secs(3_600);
    let taken = world.store.fetch_work_item(hour, Duration::ZERO, None, &TagFilter::DefaultOnly).await;
    let (_, token, attempts) = taken.unwrap().expect("its lease has run out");
    assert_eq!(attempts, 2);
    faulty.release(Call::RenewWork);
    renewals.add_permits(1);
    stage.seen("cancelled", 1).await;
    let completion = WorkItem::ActivityCompleted {
        instance: "i".into(),
        execution_id: 1,
        id: 2,
        result: "the other's".into(),
    };
    world.store.ack_work_item(&token, Some(completion)).await.unwrap();
    assert_eq!(world.output("i").await, "the other's");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn on_a_store_of_the_published_contract_a_refused_renewal_never_removes_the_step() {
    let faulty = Faulty::plain(Arc::new(MemoryProvider::new()));
    let world = World::on(faulty.clone(), Arc::new(ManualClock::default()));
    let stage = Stage::default();
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report(format!("run {}", ctx.attempt()));
        if ctx.attempt() == 1 {
            ctx.cancelled().await;
        }
        Ok(format!("attempt {}", ctx.attempt()))
    });
    // Such a store can say no more about a lease than that it refuses to renew it.
    faulty.fail(Call::RenewWork, [ProviderError::permanent("renew_work_item_lock", "protocol error")]);
    let options = RuntimeOptions { worker_lock_timeout: Duration::from_secs(1), ..Default::default() };
    let runtime = world.start_with(activities().register("Work", work), one_activity(), options).await;
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    assert_eq!(world.output("i").await, "attempt 2");
    assert_eq!(stage.log(), ["run 1", "run 2"]);
    runtime.shutdown(None).await;
}
