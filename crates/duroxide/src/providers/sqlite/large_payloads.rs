//! Payloads that may be more than a process can decode.
//!
//! A crash while the store decodes such a payload counts as an attempt of its lease. So the store marks the lease as running
//! meanwhile. It does not mark leases with small payloads: it may decode thousands of them at the moment when the user's
//! code of another lease ends the process, and none of them has a part in that.

use super::SqliteProvider;
use super::shared::Shared;
use crate::providers::RunningMark;
use crate::providers::rows::{LARGE_HISTORY_BYTES, LARGE_MESSAGES_BYTES};

impl Shared {
    /// Notes that the user's code of a lease is about to run, or that the store is about to decode its large payloads.
    pub(super) fn mark_running(&self, token: &str) -> RunningMark {
        let marked = self.owners.as_ref().and_then(|owners| Some((owners.mark(token)?, owners)));
        let Some((slot, owners)) = marked else { return RunningMark::none() };
        let owners = owners.clone();
        RunningMark::new(move || owners.erase(slot))
    }

    /// Marks a lease, and says in the log what is decoded: it may be the last line of this process.
    fn mark_decoding(&self, token: &str, what: &'static str, instance: Option<&str>) -> RunningMark {
        let mark = self.mark_running(token);
        tracing::debug!(target: "duroxide::providers::sqlite", what, instance, "decoding begins");
        mark
    }
}

impl SqliteProvider {
    /// Marks the lease of an instance while its messages are decoded, if these are large.
    pub(super) fn mark_messages(&self, token: &str, instance: &str, bytes: usize) -> Option<RunningMark> {
        (bytes >= LARGE_MESSAGES_BYTES).then(|| self.shared.mark_decoding(token, "messages", Some(instance)))
    }

    /// Marks the lease of an activity while it is decoded, if it is large.
    pub(super) fn mark_activity(&self, token: &str, bytes: usize) -> Option<RunningMark> {
        (bytes >= LARGE_MESSAGES_BYTES).then(|| self.shared.mark_decoding(token, "activity", None))
    }
}

/// A history that is being read.
pub(super) struct HistoryRead<'a> {
    shared: &'a Shared,
    token: &'a str,
    instance: &'a str,
    bytes: usize,
    mark: Option<RunningMark>,
}

impl<'a> HistoryRead<'a> {
    pub(super) fn new(shared: &'a Shared, token: &'a str, instance: &'a str) -> Self {
        Self { shared, token, instance, bytes: 0, mark: None }
    }

    /// Takes note of the size of an event. Marks the lease once all events are large together: reading the others may be what
    /// ends the process.
    pub(super) fn note(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= LARGE_HISTORY_BYTES && self.mark.is_none() {
            self.mark = Some(self.shared.mark_decoding(self.token, "history", Some(self.instance)));
        }
    }

    /// The mark, to be kept until the history is decoded.
    pub(super) fn into_mark(self) -> Option<RunningMark> {
        self.mark
    }
}
