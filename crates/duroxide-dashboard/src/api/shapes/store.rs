//! What the store holds besides instances: messages without an instance, rows set aside.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Payload, Queue};

/// The queues, and the messages that found no instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Queue>,
    pub(crate) parked: Vec<Parked>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) dropped_total: u64,
}

/// A message that waits for an instance to be started.
#[derive(Serialize, ToSchema)]
pub(crate) struct Parked {
    pub(crate) instance: String,
    pub(crate) text: String,
    pub(crate) expires_at_ms: u64,
}

/// A message that was dropped because its instance did not exist.
#[derive(Serialize, ToSchema)]
pub(crate) struct Dropped {
    pub(crate) instance: String,
    pub(crate) text: String,
    pub(crate) dropped_at_ms: u64,
}

/// A row that was set aside because it does not decode.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuarantineRow {
    pub(crate) id: u64,
    /// `orchestrator` or `worker`.
    pub(crate) queue: String,
    pub(crate) instance: Option<String>,
    pub(crate) reason: String,
    pub(crate) text: Payload,
    pub(crate) quarantined_at_ms: u64,
}

/// Rows in quarantine, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuarantinePage {
    pub(crate) rows: Vec<QuarantineRow>,
    pub(crate) more: bool,
}
