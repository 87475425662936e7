//! What stores that keep rows have in common, for authors of such stores.
//!
//! A store checks and encodes what callers hand in before its transaction begins ([`MessageRow`], [`ActivityRow`],
//! [`EventRow`]), decodes what it has leased after the transaction ([`decode_messages`], [`decode_activity`]) and moves
//! aside what does not decode ([`UndecodableRow`]). It names leases by tokens ([`lease_token`]), and gives leases back whose
//! caller went away before it heard of them ([`UndeliveredLeases`]).

mod decode;
mod encode;
pub mod lease_token;
mod undelivered_leases;

pub use decode::{DecodedMessages, LeasedInstance, UndecodableRow, decode_activity, decode_messages};
pub use encode::{ActivityRow, EventRow, MessageRow, PinnedVersion, row_number};
pub use undelivered_leases::{GiveBack, UndeliveredLeases};

use super::WorkQueue;

/// The name of a queue's table, as stores that keep rows call it.
pub fn table_of(queue: WorkQueue) -> &'static str {
    match queue {
        WorkQueue::Orchestrator => "orchestrator_queue",
        WorkQueue::Worker => "worker_queue",
    }
}
