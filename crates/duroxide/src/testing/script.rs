//! What a test does later, by its own clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::client::Client;

type Act = Box<dyn FnOnce(Client) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The acts that are still to come, each with its time.
#[derive(Clone, Default)]
pub(super) struct Script {
    acts: Arc<Mutex<Vec<(Duration, Act)>>>,
}

impl Script {
    pub fn add<Fut>(&self, at: Duration, act: impl FnOnce(Client) -> Fut + Send + 'static)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let act: Act = Box::new(move |client| Box::pin(act(client)));
        self.lock().push((at, act));
    }

    /// The time of the next act.
    pub fn next(&self) -> Option<Duration> {
        self.lock().iter().map(|(at, _)| *at).min()
    }

    /// Takes the acts whose time has come, in the order of their times.
    pub fn take_due(&self, now: Duration) -> Vec<Act> {
        let mut acts = self.lock();
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *acts).into_iter().partition(|(at, _)| *at <= now);
        *acts = later;
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().map(|(_, act)| act).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Duration, Act)>> {
        self.acts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
