//! Code that all stores with rows share, also for authors of such stores.
//!
//! Before its transaction begins, a store checks and encodes the caller's values ([`MessageRow`], [`ActivityRow`],
//! [`EventRow`]). After the transaction, it decodes the leased rows ([`decode_messages`], [`decode_activity`]) and sets
//! aside those that do not decode ([`UndecodableRow`]). It names leases by tokens ([`lease_token`]), and gives leases
//! back whose caller went away before it got them ([`UndeliveredLeases`]).

mod decode;
mod encode;
pub mod lease_token;
mod unbegun;
mod undelivered_leases;

pub use decode::{
    DecodedMessages, LARGE_HISTORY_BYTES, LARGE_MESSAGES_BYTES, LeasedInstance, UndecodableRow,
    decode_activity, decode_messages,
};
pub use encode::{ActivityRow, EventRow, MessageRow, PinnedVersion, row_number, row_numbers};
pub use unbegun::QueuedRow;
pub use undelivered_leases::{GiveBack, UndeliveredLeases};

use super::WorkQueue;

/// The name of a queue in metrics and in the states of queues.
pub fn name_of(queue: WorkQueue) -> &'static str {
    match queue {
        WorkQueue::Orchestrator => "orchestrator",
        WorkQueue::Worker => "worker",
    }
}

/// The name of a queue's table, as stores that keep rows call it.
pub fn table_of(queue: WorkQueue) -> &'static str {
    match queue {
        WorkQueue::Orchestrator => "orchestrator_queue",
        WorkQueue::Worker => "worker_queue",
    }
}
