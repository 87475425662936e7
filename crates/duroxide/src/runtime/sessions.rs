//! Sessions: counts those in use here, and keeps those that this runtime owns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::core::Core;
use super::options::renewal_interval;

const TARGET: &str = "duroxide::runtime::worker";

/// The sessions that have an activity in flight in this runtime.
pub(crate) struct Sessions {
    cap: usize,
    state: Mutex<State>,
    freed: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    in_flight: HashMap<String, usize>,
    last_used: Option<Duration>,
}

impl Sessions {
    pub fn new(cap: usize) -> Self {
        Self { cap, state: Mutex::default(), freed: tokio::sync::Notify::new() }
    }

    /// Tells whether the runtime may claim an activity of a further session.
    pub fn has_room(&self) -> bool {
        self.state().in_flight.len() < self.cap
    }

    /// Counts an activity of a session until the guard is dropped; `None` if that would be one session too many.
    pub fn enter(self: &Arc<Self>, session: &str, now: Duration) -> Option<InSession> {
        let mut state = self.state();
        state.last_used = Some(now);
        if !state.in_flight.contains_key(session) && state.in_flight.len() >= self.cap {
            return None;
        }
        *state.in_flight.entry(session.to_string()).or_default() += 1;
        Some(InSession { sessions: self.clone(), session: session.to_string() })
    }

    /// Waits until a session has no more activity in flight.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Tells whether any session was used since `since`: then this runtime may own one.
    fn used_since(&self, since: Duration) -> bool {
        let state = self.state();
        !state.in_flight.is_empty() || state.last_used.is_some_and(|last| last >= since)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.state().in_flight.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An activity of a session that is in flight.
pub(crate) struct InSession {
    sessions: Arc<Sessions>,
    session: String,
}

impl Drop for InSession {
    fn drop(&mut self) {
        let mut state = self.sessions.state();
        if let Some(count) = state.in_flight.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                state.in_flight.remove(&self.session);
                self.sessions.freed.notify_one();
            }
        }
    }
}

/// Renews the sessions of this runtime, and sweeps those without an owner.
pub(crate) async fn keep(core: Arc<Core>, owners: Vec<String>) {
    let options = &core.options;
    let interval = renewal_interval(options.session_lock_timeout, options.session_lock_renewal_buffer);
    let mut next_renewal = core.clock.monotonic().saturating_add(interval);
    let mut next_sweep = core.clock.monotonic().saturating_add(options.session_cleanup_interval);
    loop {
        core.clock.sleep_until(next_renewal.min(next_sweep)).await;
        let now = core.clock.monotonic();
        if now >= next_renewal {
            renew(&core, &owners, now).await;
            next_renewal = now.saturating_add(interval);
        }
        if now >= next_sweep {
            sweep(&core).await;
            // Without a pause between sweeps, this loop would spin.
            next_sweep = now.saturating_add(options.session_cleanup_interval.max(Duration::from_millis(1)));
        }
    }
}

async fn renew(core: &Core, owners: &[String], now: Duration) {
    let options = &core.options;
    // An idle runtime does not call its store: by then its ownership has run out anyway.
    let reach = options.session_idle_timeout.saturating_add(options.session_lock_timeout);
    if !core.sessions.used_since(now.saturating_sub(reach)) {
        return;
    }
    let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
    let renewed = core
        .store
        .renew_session_lock(&owners, options.session_lock_timeout, options.session_idle_timeout)
        .await;
    match renewed {
        Ok(sessions_renewed) => tracing::debug!(target: TARGET, sessions_renewed, "sessions renewed"),
        Err(error) => tracing::warn!(target: TARGET, %error, "sessions not renewed"),
    }
}

async fn sweep(core: &Core) {
    match core.store.cleanup_orphaned_sessions(core.options.session_idle_timeout).await {
        Ok(sessions_removed) => tracing::debug!(target: TARGET, sessions_removed, "sessions swept"),
        Err(error) => tracing::warn!(target: TARGET, %error, "sessions not swept"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_of_one_session_count_once_against_the_cap() {
        let sessions = Arc::new(Sessions::new(1));
        let first = sessions.enter("a", Duration::ZERO);
        let second = sessions.enter("a", Duration::ZERO);
        assert!(first.is_some() && second.is_some() && !sessions.has_room());
        assert!(sessions.enter("b", Duration::ZERO).is_none());
        drop(first);
        assert!(!sessions.has_room());
        drop(second);
        assert!(sessions.enter("b", Duration::ZERO).is_some());
    }
}
