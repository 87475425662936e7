//! The server that the connections lead to.
//!
//! After a failover an address leads to another server, and after a crash to one that has started again. The new one
//! may lack commits that were not synced, or even synced ones, if it is a standby that the primary did not wait for;
//! and the old one may live on and answer on earlier connections. So as soon as one connection has reached another
//! server, the store makes all others anew before it uses them, and reads instances that are in memory again.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts the servers that a store has met, one after the other.
#[derive(Default)]
pub(crate) struct ServerIdentity(Mutex<Current>);

#[derive(Default)]
struct Current {
    /// When the server started, as it says itself: no two servers at one address started at the same time.
    started: Option<String>,
    number: u64,
}

impl ServerIdentity {
    /// Notes that a new connection leads to the server that started at `started`; returns its number.
    pub(crate) fn reach(&self, started: &str) -> u64 {
        let mut current = self.current();
        let is_other = current.started.as_deref().is_some_and(|known| known != started);
        if is_other {
            current.number += 1;
            tracing::warn!(
                target: "duroxide::providers::postgres",
                "another PostgreSQL server answers, or it has started again; all connections are made anew"
            );
        }
        if is_other || current.started.is_none() {
            current.started = Some(started.to_string());
        }
        current.number
    }

    /// Returns the number of the server that the store reached last.
    pub(crate) fn number(&self) -> u64 {
        self.current().number
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stored incarnation has no more bits.
const BITS_OF_STORED: u32 = 40;

/// Returns which creation of its id an instance is, as a number that differs from server to server. The next server
/// may give out the same stored numbers for another history, which must not pass for the instance in memory. 0 stays 0:
/// there is no such instance.
pub(crate) fn incarnation(server: u64, stored: u64) -> u64 {
    if stored == 0 { 0 } else { stored.wrapping_add(server << BITS_OF_STORED) }
}

/// Returns the stored number of an incarnation; `None` if it is of another server.
pub(crate) fn stored_incarnation(server: u64, incarnation: u64) -> Option<i64> {
    let stored = incarnation & ((1 << BITS_OF_STORED) - 1);
    let is_same = self::incarnation(server, stored) == incarnation;
    i64::try_from(stored).ok().filter(|_| is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_when_it_started() {
        let identity = ServerIdentity::default();
        assert_eq!((identity.reach("a"), identity.reach("a"), identity.number()), (0, 0, 0));
        assert_eq!((identity.reach("b"), identity.reach("b"), identity.number()), (1, 1, 1));
        assert_eq!((identity.reach("a"), identity.number()), (2, 2));
    }

    #[test]
    fn instances_of_two_servers_are_not_the_same() {
        assert_eq!((incarnation(0, 7), incarnation(3, 0)), (7, 0));
        assert_ne!(incarnation(0, 7), incarnation(1, 7));
        assert_ne!(incarnation(1, 8), incarnation(2, 7));
        assert_eq!(stored_incarnation(1, incarnation(1, 8)), Some(8));
        assert_eq!((stored_incarnation(2, incarnation(1, 8)), stored_incarnation(2, 0)), (None, Some(0)));
    }
}
