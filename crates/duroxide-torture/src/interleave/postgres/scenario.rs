//! Commits that lease for a dispatcher which waits, while it may give up waiting.

use duroxide::providers::ManualClock;

use super::fetch::{Fetched, InstanceOrder, Ready};
use super::waiting_dispatchers::WaitingDispatchers;
use crate::interleave::providers::WorkSignalSource;
use crate::interleave::sync::{Arc, a_while, below};

const MESSAGES: u64 = 4;

/// Every message reaches the dispatcher, and once: leased by its commit, or announced.
pub fn commits_that_lease_for_a_dispatcher() {
    let ready = Arc::new(Ready::new(WorkSignalSource::new(Arc::new(ManualClock::default()))));
    let waiting = Arc::new(WaitingDispatchers::default());
    let mut signal = ready.signal.subscribe();
    for committer in 0..2 {
        let (ready, waiting) = (ready.clone(), waiting.clone());
        shuttle::future::spawn(async move {
            for message in (0..MESSAGES).filter(|message| message % 2 == committer) {
                a_while().await;
                commit(&ready, &waiting, message).await;
            }
        });
    }
    shuttle::future::block_on(async {
        let mut received = Vec::new();
        while received.len() < MESSAGES as usize {
            signal.mark_seen();
            let claimed = ready.take();
            if !claimed.is_empty() {
                received.extend(claimed);
                continue;
            }
            let mut wait = waiting.wait_for(InstanceOrder);
            let filled = tokio::select! {
                biased;
                filled = wait.filled() => filled,
                () = signal.wait() => wait.end().await,
            };
            received.extend(filled.and_then(Fetched::take));
        }
        received.sort_unstable();
        assert_eq!(received, (0..MESSAGES).collect::<Vec<_>>(), "each arrived once");
    });
    assert!(waiting.take().is_none(), "nobody waits any more");
}

async fn commit(ready: &Arc<Ready>, waiting: &WaitingDispatchers, message: u64) {
    let Some(dispatcher) = waiting.take() else { return ready.add(message) };
    a_while().await;
    if below(4) == 0 {
        // The commit failed: the dispatcher hears of it, and the message is enqueued by another one.
        drop(dispatcher);
        return ready.add(message);
    }
    // A dispatcher that went away does not get it; then it goes back.
    let _ = dispatcher.filled.send(Fetched::new(message, ready.clone()));
}
