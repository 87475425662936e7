//! The dispatcher between a look at the slots and a question to the store, while other activities take slots.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::dispatcher::Dispatcher;
use crate::activity::ActivityContext;
use crate::model::{ManualClock, WorkItem};
use crate::providers::memory::MemoryProvider;
use crate::providers::{ExtendedProvider, Provider, WorkQueue, WorkSignal};
use crate::registry::{ActivityRegistry, OrchestrationRegistry};
use crate::runtime::core::Core;
use crate::runtime::{RuntimeOptions, start};

/// A dispatcher on a store whose time stands still, so that only a signal or a slot can end a wait.
struct DispatcherTest {
    core: Arc<Core>,
    store: Arc<MemoryProvider>,
    dispatcher: Dispatcher,
    signal: WorkSignal,
    ran: Arc<Mutex<BTreeSet<String>>>,
}

impl DispatcherTest {
    async fn new(slots: usize) -> Self {
        let store = Arc::new(MemoryProvider::with_clock(Arc::new(ManualClock::default())));
        let ran = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = ran.clone();
        let activities = ActivityRegistry::builder()
            .register("Note", move |_: ActivityContext, name: String| {
                noted.lock().unwrap().insert(name);
                async { Ok(String::new()) }
            })
            .build();
        let options = RuntimeOptions { worker_concurrency: slots, ..Default::default() };
        let orchestrations = OrchestrationRegistry::builder().build();
        let core = Arc::new(start::core(store.clone(), activities, orchestrations, options));
        core.slot_queue.open();
        let signal = store.work_signal(WorkQueue::Worker);
        Self { dispatcher: Dispatcher::new(core.clone(), 0..slots), core, store, signal, ran }
    }

    async fn enqueue(&self, id: u64, session_id: Option<&str>) {
        let item = WorkItem::ActivityExecute {
            instance: "i".into(),
            execution_id: 1,
            id,
            name: "Note".into(),
            input: id.to_string(),
            session_id: session_id.map(str::to_string),
            tag: None,
        };
        self.store.enqueue_for_worker(item).await.unwrap();
    }

    /// Lets the dispatcher go on until this many activities have run.
    async fn until_run(&mut self, count: usize) {
        let ran = self.ran.clone();
        let rounds = async { while self.dispatcher.round(&mut self.signal).await {} };
        let all_ran = async {
            while ran.lock().unwrap().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = rounds => {}
            () = all_ran => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("only {:?} ran", ran.lock().unwrap()),
        }
    }
}

/// Waits for something that does not depend on any clock.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn work_that_was_announced_is_claimed_although_the_free_slot_was_taken_before_the_store_was_asked() {
    let mut test = DispatcherTest::new(1).await;
    test.enqueue(1, None).await;
    // The dispatcher has heard of the activity and sees a free slot. Before it takes the slot, an activity handed over
    // with a turn takes it.
    test.signal.mark_seen();
    let free = test.core.slot_queue.free(&(0..1));
    let handed_over = test.core.slot_queue.take(0).unwrap();
    assert!(
        soon(test.dispatcher.claim_or_wait(&mut test.signal, &free)).await,
        "nobody will announce it again"
    );
    drop(handed_over);
    test.until_run(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_taken_meanwhile_does_not_end_the_question_for_the_others() {
    let mut test = DispatcherTest::new(2).await;
    // WorkerSlot 0 owns a session from now on.
    test.enqueue(1, Some("s")).await;
    test.until_run(1).await;
    test.core.work.ended().await;
    test.enqueue(2, Some("s")).await;
    test.signal.mark_seen();
    let free = test.core.slot_queue.free(&(0..2));
    let handed_over = test.core.slot_queue.take(0).unwrap();
    // The store has nothing for slot 1, and the dispatcher did not ask for slot 0.
    assert!(soon(test.dispatcher.claim_or_wait(&mut test.signal, &free)).await);
    drop(handed_over);
    test.until_run(2).await;
}
