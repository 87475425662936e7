//! Tells whether a pooler between the store and its server gives sessions to others.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::settings::Way;

/// Whether the store has met such a pooler. This changes once at most.
#[derive(Debug, Default)]
pub(crate) struct Pooling(AtomicBool);

impl Pooling {
    /// Returns how new connections reach the server.
    pub(crate) fn way(&self) -> Way {
        if self.0.load(Ordering::SeqCst) { Way::Pooled } else { Way::Direct }
    }

    /// Notes that a pooler shares sessions: from here on the store relies on none.
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
