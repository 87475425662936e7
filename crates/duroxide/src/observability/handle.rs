//! What a runtime holds of its metrics.

use std::sync::Arc;

use super::{MetricsProvider, MetricsSnapshot, ObservabilityConfig};

/// The metrics of one runtime.
pub struct ObservabilityHandle {
    metrics: Arc<MetricsProvider>,
}

impl ObservabilityHandle {
    /// Sets up the metrics of a runtime.
    ///
    /// Logging is left alone: an application that wants this crate to set it up calls
    /// [`init_logging`](super::init_logging).
    ///
    /// # Errors
    /// None at present.
    pub fn init(config: &ObservabilityConfig) -> Result<Self, String> {
        Ok(Self { metrics: Arc::new(MetricsProvider::new(config)?) })
    }

    /// Returns the recorder of this runtime's metrics.
    pub fn metrics_provider(&self) -> &Arc<MetricsProvider> {
        &self.metrics
    }

    /// Lets go of the metrics. What was recorded is already with the exporter, so there is nothing to flush.
    ///
    /// # Errors
    /// None at present.
    pub async fn shutdown(self) -> Result<(), String> {
        Ok(())
    }

    /// Returns what was counted since the runtime started.
    pub fn metrics_snapshot(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }
}
