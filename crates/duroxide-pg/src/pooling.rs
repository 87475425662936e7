//! Whether a pooler stands between a store and its server that gives sessions to others.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::settings::Way;

/// What a store has found out about the way to its server. It changes once at most.
#[derive(Debug, Default)]
pub(crate) struct Pooling(AtomicBool);

impl Pooling {
    /// The way of new connections.
    pub(crate) fn way(&self) -> Way {
        if self.0.load(Ordering::SeqCst) { Way::Pooled } else { Way::Direct }
    }

    /// Takes note that sessions are shared: from here on nothing relies on them.
    pub(crate) fn is_met(&self, how: &'static str) {
        if !self.0.swap(true, Ordering::SeqCst) {
            tracing::info!(
                target: "duroxide::providers::postgres",
                how, "a pooler in front of PostgreSQL shares its sessions, so every transaction brings its settings along and \
                other processes are heard of by polling instead of LISTEN"
            );
        }
    }
}
