//! The owner of every task that a runtime spawns.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

use crate::model::{Clock, SystemClock};

const RESTART_PAUSE: Duration = Duration::from_millis(100);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A group of tasks that the runtime can await and abort together.
///
/// A task counts until its future and everything in it is dropped; so when a group is empty, nothing of it is left.
#[derive(Clone)]
pub(crate) struct Tasks {
    shared: Arc<Shared>,
    handle: Handle,
}

struct Shared {
    alive: watch::Sender<usize>,
    aborts: Mutex<Aborts>,
}

#[derive(Default)]
struct Aborts {
    // In order, so that a simulation aborts them in the same order each time.
    by_id: BTreeMap<u64, Option<AbortHandle>>,
    next_id: u64,
    // Set by `abort_all`: a task spawned afterwards is aborted at once, so that none slips through.
    closed: bool,
}

impl Tasks {
    /// Makes an empty group whose tasks run where the caller runs.
    pub fn new(handle: Handle) -> Self {
        let shared = Shared { alive: watch::Sender::new(0), aborts: Mutex::default() };
        Self { shared: Arc::new(shared), handle }
    }

    /// Spawns a task of this group.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let member = Member::join(&self.shared);
        let id = member.id;
        // The lock is not held here: an executor that is shutting down drops the future at once.
        let task = self.handle.spawn(Owned { future: Box::pin(future), _member: member });
        let mut aborts = self.shared.aborts();
        if aborts.closed {
            task.abort();
        }
        // The entry is gone if the task has ended already.
        if let Some(entry) = aborts.by_id.get_mut(&id) {
            *entry = Some(task.abort_handle());
        }
        drop(aborts);
        task
    }

    /// Spawns a loop and starts it again if it panics, so that a bug costs one round and not a dispatcher.
    pub fn spawn_supervised<F>(&self, name: &'static str, start: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = self.clone();
        self.spawn(async move {
            while let Err(error) = tasks.spawn(start()).await {
                if error.is_cancelled() {
                    return;
                }
                tracing::error!(target: "duroxide::runtime", task = name, %error, "task panicked, starting it again");
                // A loop that panics each time must not keep a core busy.
                SystemClock.sleep(RESTART_PAUSE).await;
            }
        });
    }

    /// Waits until no task is left.
    pub async fn ended(&self) {
        let mut alive = self.shared.alive.subscribe();
        // The sender lives as long as `self`, so the wait ends with the last task only.
        let _ = alive.wait_for(|alive| *alive == 0).await;
    }

    /// Tells how many tasks are left.
    pub fn count(&self) -> usize {
        *self.shared.alive.borrow()
    }

    /// Aborts all tasks, and every task spawned from now on.
    pub fn abort_all(&self) {
        let handles: Vec<AbortHandle> = {
            let mut aborts = self.shared.aborts();
            aborts.closed = true;
            aborts.by_id.values().flatten().cloned().collect()
        };
        handles.iter().for_each(AbortHandle::abort);
    }
}

impl Shared {
    fn aborts(&self) -> MutexGuard<'_, Aborts> {
        self.aborts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A future that is dropped before its membership: Rust drops fields in the order of their declaration.
struct Owned<T> {
    future: BoxFuture<T>,
    _member: Member,
}

impl<T> Future for Owned<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.future.as_mut().poll(cx)
    }
}

struct Member {
    shared: Arc<Shared>,
    id: u64,
}

impl Member {
    fn join(shared: &Arc<Shared>) -> Self {
        shared.alive.send_modify(|alive| *alive += 1);
        let mut aborts = shared.aborts();
        let id = aborts.next_id;
        aborts.next_id += 1;
        aborts.by_id.insert(id, None);
        Self { shared: shared.clone(), id }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.aborts().by_id.remove(&self.id);
        self.shared.alive.send_modify(|alive| *alive -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_group_ends_when_the_last_task_has_dropped_what_it_held() {
        let tasks = Tasks::new(Handle::current());
        let held = Arc::new(());
        let copy = held.clone();
        tasks.spawn(async move {
            std::future::pending::<()>().await;
            drop(copy);
        });
        tasks.spawn(async {});
        tasks.abort_all();
        tasks.ended().await;
        assert_eq!((Arc::strong_count(&held), tasks.count()), (1, 0));
    }

    #[tokio::test]
    async fn what_is_spawned_after_the_abort_is_aborted_too() {
        let tasks = Tasks::new(Handle::current());
        tasks.abort_all();
        assert!(tasks.spawn(std::future::pending::<()>()).await.is_err_and(|error| error.is_cancelled()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_starts_again() {
        let tasks = Tasks::new(Handle::current());
        let runs = Arc::new(Mutex::new(0));
        let counter = runs.clone();
        tasks.spawn_supervised("test", move || {
            let counter = counter.clone();
            async move {
                let run = {
                    let mut runs = counter.lock().unwrap();
                    *runs += 1;
                    *runs
                };
                assert!(run >= 3, "a bug in rounds one and two");
            }
        });
        tasks.ended().await;
        assert_eq!(*runs.lock().unwrap(), 3);
    }
}
