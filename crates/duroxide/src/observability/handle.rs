//! A runtime's handle on its metrics.

use std::sync::Arc;

use super::{MetricsProvider, MetricsSnapshot, ObservabilityConfig};

/// The metrics of one runtime.
///
/// ```
/// use duroxide::runtime::ObservabilityConfig;
/// use duroxide::runtime::observability::ObservabilityHandle;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), String> {
/// // A runtime makes its own: `Runtime::observability_handle`. This one is for code that records by itself.
/// let handle = ObservabilityHandle::init(&ObservabilityConfig::default())?;
/// handle.metrics_provider().record_orchestration_start("order", "1.0.0", "client");
/// assert_eq!(handle.metrics_snapshot().orch_starts, 1);
/// handle.shutdown().await
/// # }
/// ```
pub struct ObservabilityHandle {
    metrics: Arc<MetricsProvider>,
}

impl ObservabilityHandle {
    /// Sets up the metrics of a runtime.
    ///
    /// Does not touch logging: an application that wants this crate to set logging up calls
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

    /// Drops the metrics. The exporter already has everything that was recorded, so there is nothing to flush.
    ///
    /// # Errors
    /// None at present.
    pub async fn shutdown(self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the counts since the runtime started.
    pub fn metrics_snapshot(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }
}
