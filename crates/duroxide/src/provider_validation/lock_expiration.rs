//! Leases end: by time, by abandon, by ack; and can be extended before.
