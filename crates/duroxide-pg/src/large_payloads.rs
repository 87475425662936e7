//! Payloads that may be more than a process can decode.
//!
//! A crash while the store decodes such a payload counts as an attempt of its lease. So the store makes sure that the lease
//! counts as begun before it decodes. It does not do so for leases with small payloads: it may decode many of them at the
//! moment when the user's code of another lease ends the process, and none of them has a part in that.

use duroxide::providers::rows::{LARGE_HISTORY_BYTES, LARGE_MESSAGES_BYTES};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::dead_holders::note_running;
use crate::encode::leased_by;
use crate::fetch::{StoredClaim, StoredWork};
use crate::text::original;

/// A large payload that is being decoded. The lease counts as begun until the caller ends this.
pub(crate) struct Decoding<'a> {
    store: &'a PostgresProvider,
    token: String,
    begun: Begun,
}

/// Why a crash counts.
enum Begun {
    /// The server has a note that the lease runs.
    Noted,
    /// The process has taken the lease for the first time, and does not list it as held while it decodes.
    Unlisted,
    /// Nobody has held the lease yet, or its code runs.
    AsItIs,
}

impl<'a> Decoding<'a> {
    /// Sees to it that a crash counts, and says in the log what is decoded: it may be the last line of this process.
    async fn begin(store: &'a PostgresProvider, token: &str, was_tried: bool, what: &'static str) -> Self {
        let held = &store.shared.holder.held;
        let begun = if was_tried {
            // Boxed, so that the usual futures stay small.
            Box::pin(note_running(&store.renewing, token, true)).await;
            Begun::Noted
        } else if held.includes(token) {
            if let Some(unlisted) = held.begin(token) {
                // Work begins in any case, if the server takes too long.
                let _ = unlisted.await;
            }
            Begun::Unlisted
        } else {
            Begun::AsItIs
        };
        let leased = leased_by(token).map(|leased| original(leased.to_string()));
        tracing::debug!(target: "duroxide::providers::postgres", what, leased, "decoding begins");
        Self { store, token: token.to_string(), begun }
    }

    /// Notes that everything is decoded: until its code begins, the lease is only held again.
    pub(crate) async fn end(self) {
        match self.begun {
            Begun::Noted => Box::pin(note_running(&self.store.renewing, &self.token, false)).await,
            Begun::Unlisted => self.store.shared.holder.held.hold(&self.token),
            Begun::AsItIs => {}
        }
    }
}

impl PostgresProvider {
    /// Begins to decode the messages of an instance, if they are large.
    pub(crate) async fn decoding_messages(&self, claim: &StoredClaim) -> Option<Decoding<'_>> {
        if claim.texts.iter().map(String::len).sum::<usize>() < LARGE_MESSAGES_BYTES {
            return None;
        }
        let was_tried = claim.attempts.iter().any(|attempts| *attempts > 0);
        Some(Decoding::begin(self, &claim.token, was_tried, "messages").await)
    }

    /// Begins to decode an activity, if it is large.
    pub(crate) async fn decoding_activity(&self, work: &StoredWork) -> Option<Decoding<'_>> {
        if work.text.len() < LARGE_MESSAGES_BYTES {
            return None;
        }
        Some(Decoding::begin(self, &work.token, work.attempts > 1, "activity").await)
    }
}

/// The history of a leased instance that is being read.
pub(crate) struct HistoryRead<'a> {
    store: &'a PostgresProvider,
    token: &'a str,
    bytes: usize,
    decoding: Option<Decoding<'a>>,
}

impl<'a> HistoryRead<'a> {
    pub(crate) fn new(store: &'a PostgresProvider, token: &'a str) -> Self {
        Self { store, token, bytes: 0, decoding: None }
    }

    /// Takes note of a part. Begins to decode once all parts are large together: reading the others may be what ends the
    /// process.
    pub(crate) async fn note(&mut self, part: &[Row]) {
        self.bytes += part.iter().map(Row::raw_size_bytes).sum::<usize>();
        if self.bytes >= LARGE_HISTORY_BYTES && self.decoding.is_none() {
            let was_tried = self.store.shared.holder.is_tried(self.token);
            self.decoding = Some(Decoding::begin(self.store, self.token, was_tried, "history").await);
        }
    }

    /// Notes that the history is decoded.
    pub(crate) async fn end(self) {
        if let Some(decoding) = self.decoding {
            decoding.end().await;
        }
    }
}
