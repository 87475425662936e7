//! The locks, channels and threads of the copies. Every use of one is a place at which the scheduler may go on elsewhere.
//!
//! Mutexes and threads are the scheduler's. Channels are tokio's, with such a place before each call: tokio changes them in
//! one step, as far as anybody can see.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

pub use shuttle::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic};
pub use shuttle::thread;

use shuttle::rand::{Rng, thread_rng};
use std::sync::LockResult;

/// A place at which the scheduler may go on elsewhere.
#[derive(Debug, Default)]
struct Place(atomic::AtomicUsize);

impl Place {
    fn pass(&self) {
        self.0.load(atomic::Ordering::SeqCst);
    }
}

/// Throws dice that the schedule decides.
pub fn below(limit: u64) -> u64 {
    thread_rng().gen_range(0..limit)
}

/// Lets others go on for a moment that the schedule decides.
pub async fn a_while() {
    for _ in 0..below(6) {
        shuttle::future::yield_now().await;
    }
}

/// `std`'s, with time-outs that may come at any moment.
pub struct Condvar(Arc<shuttle::sync::Condvar>);

impl Condvar {
    pub fn new() -> Self {
        Self(Arc::new(shuttle::sync::Condvar::new()))
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait_while(guard, condition)
    }

    /// The second of the answer tells whether the time is over.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let mut guard = guard;
        if !condition(&mut guard) {
            return Ok((guard, false));
        }
        let alarm = Arc::new(Alarm::default());
        let rings = thread::spawn({
            let (alarm, condvar) = (alarm.clone(), self.0.clone());
            move || alarm.ring(&condvar)
        });
        while condition(&mut guard) && !alarm.is_ringing() {
            guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        alarm.stop();
        drop(rings);
        Ok((guard, alarm.is_ringing()))
    }
}

/// The end of somebody's patience.
#[derive(Default)]
struct Alarm {
    rings: atomic::AtomicBool,
    is_heard: atomic::AtomicBool,
}

impl Alarm {
    fn ring(&self, condvar: &shuttle::sync::Condvar) {
        self.rings.store(true, atomic::Ordering::SeqCst);
        // Again and again: whoever looks for it just now may not wait yet.
        while !self.is_heard.load(atomic::Ordering::SeqCst) {
            condvar.notify_all();
            thread::yield_now();
        }
    }

    fn is_ringing(&self) -> bool {
        self.rings.load(atomic::Ordering::SeqCst)
    }

    fn stop(&self) {
        self.is_heard.store(true, atomic::Ordering::SeqCst);
    }
}

/// tokio's.
pub struct Semaphore {
    inner: tokio::sync::Semaphore,
    place: Place,
}

impl Semaphore {
    pub fn new(permits: usize) -> Self {
        Self { inner: tokio::sync::Semaphore::new(permits), place: Place::default() }
    }

    pub async fn acquire(&self) -> Result<tokio::sync::SemaphorePermit<'_>, tokio::sync::AcquireError> {
        self.place.pass();
        self.inner.acquire().await
    }

    pub fn add_permits(&self, count: usize) {
        self.place.pass();
        self.inner.add_permits(count);
    }

    pub fn close(&self) {
        self.place.pass();
        self.inner.close();
    }
}

/// tokio's.
pub struct Notify {
    inner: tokio::sync::Notify,
    place: Place,
}

impl Notify {
    pub fn new() -> Self {
        Self { inner: tokio::sync::Notify::new(), place: Place::default() }
    }

    pub async fn notified(&self) {
        self.place.pass();
        self.inner.notified().await;
    }

    pub fn notify_one(&self) {
        self.place.pass();
        self.inner.notify_one();
    }
}

/// tokio's.
pub mod watch {
    use super::{Arc, Place};
    use tokio::sync::watch::{self, Ref, error::RecvError};

    pub struct Sender<T> {
        inner: watch::Sender<T>,
        place: Arc<Place>,
    }

    pub struct Receiver<T> {
        inner: watch::Receiver<T>,
        place: Arc<Place>,
    }

    impl<T> Sender<T> {
        pub fn new(value: T) -> Self {
            Self { inner: watch::Sender::new(value), place: Arc::default() }
        }

        pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
            self.place.pass();
            self.inner.send_modify(modify);
        }

        pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
            self.place.pass();
            self.inner.send_if_modified(modify)
        }

        pub fn borrow(&self) -> Ref<'_, T> {
            self.place.pass();
            self.inner.borrow()
        }

        pub fn subscribe(&self) -> Receiver<T> {
            self.place.pass();
            Receiver { inner: self.inner.subscribe(), place: self.place.clone() }
        }

        pub fn receiver_count(&self) -> usize {
            self.place.pass();
            self.inner.receiver_count()
        }
    }

    impl<T> Receiver<T> {
        pub fn borrow(&self) -> Ref<'_, T> {
            self.place.pass();
            self.inner.borrow()
        }

        pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
            self.place.pass();
            self.inner.borrow_and_update()
        }

        pub async fn changed(&mut self) -> Result<(), RecvError> {
            self.place.pass();
            self.inner.changed().await
        }
    }
}

/// tokio's.
pub mod oneshot {
    use super::{Arc, Context, Future, Pin, Place, Poll, pin};
    use tokio::sync::oneshot::{self, error::RecvError};

    pub struct Sender<T> {
        inner: oneshot::Sender<T>,
        place: Arc<Place>,
    }

    pub struct Receiver<T> {
        inner: oneshot::Receiver<T>,
        place: Arc<Place>,
    }

    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let place = Arc::<Place>::default();
        (Sender { inner: sender, place: place.clone() }, Receiver { inner: receiver, place })
    }

    impl<T> Sender<T> {
        pub fn send(self, value: T) -> Result<(), T> {
            self.place.pass();
            self.inner.send(value)
        }

        pub fn is_closed(&self) -> bool {
            self.place.pass();
            self.inner.is_closed()
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, RecvError>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            self.place.pass();
            pin!(&mut self.inner).poll(context)
        }
    }
}
