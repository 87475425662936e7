//! The short path: turns that are stored together with their cause. Whatever comes in between, an instance sees the same
//! as on the long path.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;
use crate::sqlite_store;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use duroxide::providers::{Provider, WorkItem};
use duroxide::{ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationStatus};
use runtime_support::faulty::{Call, Faulty};
use runtime_support::{World, activities, orchestrations};
use sqlite_store::{StoreFile, soon};

async fn site() -> (StoreFile, World) {
    let file = StoreFile::new();
    let store = file.open().await;
    let world = World::on(store, file.clock.clone());
    (file, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_there_before_a_result_comes_before_it() {
    let (_file, world) = site().await;
    let store: Arc<dyn Provider> = world.store.clone();
    // Past the client, so that no runtime knows of it but by the store.
    let telling = activities().register("Tell", move |ctx: ActivityContext, _: String| {
        let store = store.clone();
        async move {
            let instance = ctx.instance_id().to_string();
            let told = WorkItem::ExternalRaised { instance, name: "told".into(), data: "1".into() };
            store.enqueue_for_orchestrator(told, None).await.unwrap();
            Ok("2".to_string())
        }
    });
    let both = orchestrations().register("Both", |ctx: OrchestrationContext, _: String| async move {
        let told = ctx.schedule_wait("told");
        let result = ctx.schedule_activity("Tell", "").await?;
        Ok(told.await + &result)
    });
    let runtime = world.start(telling, both).await;
    for n in 0..100 {
        let instance = format!("i{n}");
        world.client.start_orchestration(&instance, "Both", "").await.unwrap();
        assert_eq!(soon(world.output(&instance)).await, "12");
        let history = world.history(&instance).await;
        let place =
            |wanted: fn(&EventKind) -> bool| history.iter().position(|event| wanted(&event.kind)).unwrap();
        let told = place(|kind| matches!(kind, EventKind::ExternalEvent { .. }));
        let done = place(|kind| matches!(kind, EventKind::ActivityCompleted { .. }));
        assert!(told < done, "{history:?}");
    }
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_come_together_are_each_taken_once() {
    let (_file, world) = site().await;
    let step = activities().register("Step", |_: ActivityContext, n: String| async move { Ok(n) });
    let fan = orchestrations().register("Fan", |ctx: OrchestrationContext, width: String| async move {
        let steps =
            (0..width.parse::<usize>().unwrap()).map(|n| ctx.schedule_activity("Step", n.to_string()));
        let results = ctx.join(steps.collect()).await;
        Ok(results.into_iter().map(|result| result.unwrap()).collect::<Vec<_>>().join(" "))
    });
    let runtime = world.start(step, fan).await;
    for n in 0..10 {
        world.client.start_orchestration(format!("i{n}"), "Fan", "100").await.unwrap();
    }
    let expected = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    for n in 0..10 {
        let instance = format!("i{n}");
        assert_eq!(soon(world.output(&instance)).await, expected);
        let history = world.history(&instance).await;
        let is_done = |kind: &EventKind| matches!(kind, EventKind::ActivityCompleted { .. });
        assert_eq!(history.iter().filter(|event| is_done(&event.kind)).count(), 100);
    }
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_start_does_not_wait_for_a_slow_first_turn() {
    let (_file, world) = site().await;
    let (release, released) = mpsc::channel::<()>();
    let (released, runs) = (Arc::new(Mutex::new(Some(released))), Arc::new(AtomicUsize::new(0)));
    let counted = runs.clone();
    let slow = orchestrations()
        .register("Quick", |_: OrchestrationContext, _: String| async { Ok(String::new()) })
        .register("Slow", move |_: OrchestrationContext, _: String| {
            let first = released.lock().unwrap().take();
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                // The first time, this thread is busy until the test lets it go.
                let _ = first.map(|released| released.recv());
                Ok("done".to_string())
            }
        });
    let runtime = world.start(activities(), slow).await;
    // Until it has seen that turns are quick, a runtime takes no starts from clients.
    assert_eq!(soon(world.run("quick", "Quick", "")).await, soon(world.run("again", "Quick", "")).await);
    soon(world.client.start_orchestration("slow", "Slow", "")).await.unwrap();
    drop(release);
    assert_eq!(soon(world.output("slow")).await, "done");
    assert_eq!(world.history("slow").await.len(), 2, "the instance began once");
    runtime.shutdown(None).await;
}

// semantics: CLIENT-12
#[tokio::test]
async fn whoever_waits_in_the_process_that_ends_the_instance_reads_nothing() {
    let (_file, world) = site().await;
    // The client's calls are counted, and those of the runtime are not.
    let counted = Faulty::whole(world.store.clone());
    let client = Client::new(counted.clone());
    let doors = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = doors.clone();
    let step = activities().register("Step", move |_: ActivityContext, input: String| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(input)
        }
    });
    let one = orchestrations().register("One", |ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_activity("Step", input).await
    });
    let runtime = world.start(step, one).await;
    for n in 0..10 {
        let instance = format!("i{n}");
        client.start_orchestration(&instance, "One", &instance).await.unwrap();
        // Nothing about it changes from here until its end.
        soon(world.recorded(&instance, |kind| matches!(kind, EventKind::ActivityScheduled { .. }))).await;
        let before = counted.count(Call::Read);
        let waiter = {
            let (client, instance) = (client.clone(), instance.clone());
            tokio::spawn(async move { client.wait_for_orchestration(&instance, runtime_support::SOON).await })
        };
        // Whoever begins to wait looks once.
        while counted.count(Call::Read) == before {
            tokio::task::yield_now().await;
        }
        let reads = counted.count(Call::Read);
        doors.add_permits(1);
        assert_eq!(runtime_support::output(soon(waiter).await.unwrap().unwrap()), instance);
        assert_eq!(counted.count(Call::Read), reads, "the end is told, not read");
    }
    runtime.shutdown(None).await;
}

// semantics: CLIENT-12
#[tokio::test]
async fn whoever_waits_hears_of_the_custom_status_with_the_end() {
    let (_file, world) = site().await;
    let counted = Faulty::whole(world.store.clone());
    let client = Client::new(counted.clone());
    let doors = Arc::new(tokio::sync::Semaphore::new(0));
    let (runs, mut running) = tokio::sync::mpsc::unbounded_channel();
    let gate = doors.clone();
    let step = activities().register("Step", move |_: ActivityContext, input: String| {
        let (gate, runs) = (gate.clone(), runs.clone());
        async move {
            if input == "held" {
                runs.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
            }
            Ok(input)
        }
    });
    // Two executions, each with a turn that changes the status. Whichever way their turns go, this process knows it.
    let told = orchestrations().register("Told", |ctx: OrchestrationContext, input: String| async move {
        ctx.set_custom_status(format!("{input} begun"));
        if input == "first" {
            ctx.schedule_activity("Step", "1").await?;
            return ctx.continue_as_new("second").await;
        }
        let result = ctx.schedule_activity("Step", "held").await?;
        ctx.set_custom_status("done");
        Ok(result)
    });
    let runtime = world.start(step, told).await;
    for n in 0..5 {
        let instance = format!("i{n}");
        client.start_orchestration(&instance, "Told", "first").await.unwrap();
        // Nothing about it changes from here until its end.
        soon(running.recv()).await.unwrap();
        let before = counted.count(Call::Read);
        let waiter = {
            let (client, instance) = (client.clone(), instance.clone());
            tokio::spawn(async move { client.wait_for_orchestration(&instance, runtime_support::SOON).await })
        };
        // Whoever begins to wait looks once.
        while counted.count(Call::Read) == before {
            tokio::task::yield_now().await;
        }
        let reads = counted.count(Call::Read);
        doors.add_permits(1);
        let heard = soon(waiter).await.unwrap().unwrap();
        assert_eq!(counted.count(Call::Read), reads, "the end is told, not read");
        assert_eq!(heard, world.client.get_orchestration_status(&instance).await.unwrap());
        let OrchestrationStatus::Completed { custom_status, custom_status_version, .. } = &heard else {
            panic!("{heard:?}");
        };
        assert_eq!((custom_status.as_deref(), *custom_status_version), (Some("done"), 3));
    }
    runtime.shutdown(None).await;
}
