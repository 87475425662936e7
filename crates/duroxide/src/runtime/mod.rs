//! The machinery that runs orchestrations and activities.

pub use observability::{LogFormat, ObservabilityConfig};

/// Metrics and logs.
pub mod observability {
    pub use crate::observability::*;
}

/// The fixed bounds of the system.
pub mod limits {
    pub use crate::model::limits::*;
}
