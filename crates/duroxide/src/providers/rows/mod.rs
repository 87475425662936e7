//! What stores that keep rows have in common, for authors of such stores.
//!
//! A store checks and encodes what callers hand in before its transaction begins ([`MessageRow`], [`ActivityRow`],
//! [`EventRow`]), decodes what it has leased after the transaction ([`decode_messages`], [`decode_activity`]) and moves
//! aside what does not decode ([`UndecodableRow`]). It names leases by tokens ([`lease_token`]), and gives leases back whose
//! caller went away before it heard of them ([`UntakenLeases`]).

mod decode;
mod encode;
pub mod lease_token;
mod untaken_leases;

pub use decode::{DecodedMessages, LeasedInstance, UndecodableRow, decode_activity, decode_messages};
pub use encode::{ActivityRow, EventRow, MessageRow, PinnedVersion, row_number};
pub use untaken_leases::{GiveBack, UntakenLeases};
