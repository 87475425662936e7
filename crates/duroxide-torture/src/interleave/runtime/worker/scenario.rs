//! The dispatcher of activities, its slots, and everybody who meets it there.

use std::time::Duration;

use duroxide::providers::{ManualClock, WorkItem};

use super::claim::ClaimedActivity;
use super::{activity, dispatcher};
use crate::interleave::runtime::core::Core;
use crate::interleave::sync::{Arc, a_while, below};

/// Clients enqueue activities while turns hand over theirs and take slots. Every activity runs, and once.
pub fn activities_of_clients_and_turns() {
    let slots = 1 + below(2) as usize;
    run(slots, [None, None], [None, None]);
}

/// The same with activities of a session, which only the slot that owns it may take.
pub fn activities_of_sessions() {
    run(2, [Some("s"), Some("s")], [None, Some("s")]);
}

fn run(slots: usize, of_clients: [Option<&'static str>; 2], of_turns: [Option<&'static str>; 2]) {
    let clock = Arc::new(ManualClock::default());
    let core = Core::new(slots, clock.clone());
    core.slot_queue.open();
    let dispatching = shuttle::future::spawn(dispatcher::run(core.clone(), 0..slots));
    let count = of_clients.len() + of_turns.len();
    shuttle::future::spawn(client(core.clone(), of_clients));
    shuttle::future::spawn(turns(core.clone(), of_turns));
    shuttle::future::spawn(time(clock));
    shuttle::future::block_on(async {
        let mut ran = core.ran.subscribe();
        loop {
            let so_far = ran.borrow_and_update().len();
            if so_far >= count {
                break;
            }
            ran.changed().await.unwrap();
        }
        core.stop.cancel();
        dispatching.await.unwrap();
    });
    let mut ran = core.ran.borrow().clone();
    ran.sort_unstable();
    assert_eq!(ran, (0..count as u64).collect::<Vec<_>>(), "each ran once");
    assert_eq!(core.slot_queue.used(), 0, "all slots are free again");
}

async fn client(core: Arc<Core>, activities: [Option<&'static str>; 2]) {
    for (number, session) in activities.into_iter().enumerate() {
        a_while().await;
        core.store.enqueue(item(number, session));
    }
}

/// A turn reserves room, and claims its activities with its commit; what has no room goes to the queue.
async fn turns(core: Arc<Core>, activities: [Option<&'static str>; 2]) {
    for (number, session) in activities.into_iter().enumerate() {
        let item = item(2 + number, session);
        let reserved = session.is_none().then(|| core.slot_queue.reserve(1)).flatten();
        a_while().await;
        match reserved {
            Some(reserved) => {
                activity::put(&core, ClaimedActivity::of(item).unwrap(), None).await;
                drop(reserved);
            }
            None => core.store.enqueue(item),
        }
    }
}

/// Lets activities wait for too long; never as long as a dispatcher waits in silence.
async fn time(clock: Arc<ManualClock>) {
    for _ in 0..8 {
        a_while().await;
        clock.advance(Duration::from_millis(250 * below(8)));
    }
}

fn item(number: usize, session: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: "i".into(),
        execution_id: 1,
        id: number as u64,
        name: "A".into(),
        input: String::new(),
        session_id: session.map(str::to_string),
        tag: None,
    }
}
