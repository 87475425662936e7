//! Pages of instances.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Counted, State};

/// An instance in a list.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct InstanceRow {
    pub(crate) id: String,
    /// The orchestration.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) state: State,
    pub(crate) execution: u64,
    pub(crate) parent: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) custom_status: Option<String>,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
    /// Which creation of an id it is; 0 before the first turn. Among rows of the same time it is the order of a list, which has those
    /// before their first turn last.
    pub(crate) incarnation: u64,
    /// The error of a failed instance, or what an instance of this view waits for.
    pub(crate) reason: Option<String>,
}

impl From<duroxide::providers::InstanceRow> for InstanceRow {
    fn from(row: duroxide::providers::InstanceRow) -> Self {
        let state = State::from(row.state);
        let is_error = matches!(state, State::Failed | State::Cancelled);
        Self {
            id: row.instance,
            name: row.name,
            version: row.version,
            state,
            execution: row.execution_id,
            parent: row.parent,
            root: row.root,
            custom_status: row.custom_status,
            created_at_ms: row.created_at_ms,
            updated_at_ms: row.completed_at_ms.unwrap_or(row.updated_at_ms),
            incarnation: row.incarnation,
            reason: row.output.filter(|_| is_error),
        }
    }
}

/// A page of instances.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstancePage {
    pub(crate) instances: Vec<InstanceRow>,
    /// Where the next page begins. A page may be short, even empty, and still have one.
    pub(crate) next: Option<String>,
    /// How many instances pass the filter, if asked for.
    pub(crate) count: Option<Counted>,
}

/// A list of instances that needs no pages.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstanceList {
    pub(crate) instances: Vec<InstanceRow>,
}
