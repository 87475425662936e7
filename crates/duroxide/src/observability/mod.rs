//! Metrics and logs.
//!
//! Metrics go through the `metrics` facade, so that the application picks the exporter; without one they go nowhere.
//! Each fact is counted once: in one series of one counter, and in the [`MetricsSnapshot`] of its runtime. Logs are
//! `tracing` events. The metrics of stores are in the table at [`StoreMetrics`]. Nothing global is set up unless the application asks for it with [`init_logging`].

mod config;
mod counters;
mod handle;
#[cfg(feature = "logging")]
mod logging;
mod metric_names;
mod metrics_provider;
mod outcomes;
mod snapshot;
mod store_metrics;

pub use config::{LogFormat, ObservabilityConfig};
pub use handle::ObservabilityHandle;
#[cfg(feature = "logging")]
pub use logging::init_logging;
pub use metrics_provider::MetricsProvider;
pub(crate) use outcomes::{ActivityOutcome, ExecutionOutcome};
pub use snapshot::MetricsSnapshot;
pub use store_metrics::StoreMetrics;
